"""A step as the engine sees it: its settings, its args in and out, and how to call it."""

import copy
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, NotRequired, Required, TypedDict, get_origin

import msgspec

from holdfast._model.declare import annotations as hints
from holdfast._model.declare.options import Settings, Upgrade
from holdfast._model.json.codec import decoder_for, encode
from holdfast._model.json.problems import is_pydantic, stored_names, unknown_class
from holdfast._model.run.context import Context
from holdfast._model.run.outcome import Done
from holdfast.errors import DecodeError, EncodeError

MAIN = "main"
"""The only step of a function."""

OWNER = "__holdfast_step__"
"""The attribute by which a step class or a Function knows its Step; never inherited by other classes."""


class Step:
    """One runnable step of a kind. `target` is the step class, or the function."""

    def __init__(
        self,
        kind: str,
        name: str,
        settings: Settings,
        target: Any,
        *,
        is_async: bool,
        takes_ctx: bool,
        result_type: Callable[[], Any],
    ) -> None:
        self.kind = kind
        self.name = name
        self.queue = settings.queue
        self.priority = settings.priority
        self.retry = settings.retry
        self.timeout = settings.timeout
        self.executor = settings.executor
        self.transactional = settings.transactional
        self.on_lost = settings.on_lost
        self.max_crashes = settings.max_crashes
        self.max_moves = settings.max_moves
        self.target = target
        self.module: str = target.__module__
        self.qualname: str = target.__qualname__
        self.is_async = is_async
        self.takes_ctx = takes_ctx
        self._result_type = result_type
        self._upgrades: tuple[Upgrade, ...] = ()

    @property
    def about(self) -> dict[str, Any]:
        """For those who have only the database: its fields, and with how many errors a task is parked here."""
        told: dict[str, Any] = {}
        if (fields := self._fields) is not None:
            told["fields"] = list(fields)
        if len(self.retry) == 1 and self.retry[0].on == (Exception,):
            told["errors"] = self.retry[0].limit + 1
        return told

    @property
    def _fields(self) -> Sequence[str] | None:
        """The names under which its args are stored; None if there may be others."""
        raise NotImplementedError

    @cached_property
    def decode(self) -> Callable[[bytes], Any]:
        """Makes of args the value to call this step with, or raises a DecodeError."""
        decoder = self._decoder
        return (lambda args: decoder(self.current_args(args))) if self._upgrades else decoder

    def current_args(self, args: bytes) -> bytes:
        """The args of a row under an old name, as today's step has them."""
        for upgrade in self._upgrades:
            args = _upgraded(args, upgrade, f"{self.kind}.{self.name}")
        return args

    def encode(self, value: Any) -> bytes:
        """The args to store for a value; an EncodeError if they cannot be stored, or could not be read again."""
        data = encode(value)
        if self._check is not None:
            try:
                self._check(data)
            except DecodeError as error:
                raise EncodeError(str(error)) from None
        return data

    def check_result(self, result: bytes) -> None:
        """Raises a DecodeError if a result is not what was declared."""

    def decode_result(self, result: bytes) -> Any:
        """The result of a task of this kind, as the type it was declared with."""
        return self._result_decoder(result)

    def call(self, value: Any, ctx: Context) -> Any:
        """Run the step's code; for `is_async` the answer is a coroutine."""
        raise NotImplementedError

    def upgraded(self, *upgrades: Upgrade | None) -> "Step":
        """This step for rows under an old name: `upgrades` are applied to their args, in this order."""
        wanted = tuple(each for each in upgrades if each is not None)
        if not wanted:
            return self
        older = copy.copy(self)
        older._upgrades = wanted
        vars(older).pop("decode", None)  # that of today's rows
        return older

    @cached_property
    def _decoder(self) -> Callable[[bytes], Any]:
        # made at first use: the types it names may be defined after the step
        raise NotImplementedError

    @cached_property
    def _check(self) -> Callable[[bytes], Any] | None:
        """What refuses args of a wrong type where they are written: reading them takes well under a microsecond."""
        try:
            return None if is_pydantic(self.target) else self._decoder  # pydantic checks by itself, and takes longer
        except DecodeError:
            return None  # a type that is not known here: whoever executes the step says so

    @cached_property
    def _result_decoder(self) -> Callable[[bytes], Any]:
        return result_decoder(self._result_type())

    def __repr__(self) -> str:
        return f"<Step {self.kind}.{self.name}>"


class ClassStep(Step):
    """A step whose args are the fields of a class with a `run` method."""

    def call(self, value: Any, ctx: Context) -> Any:
        return value.run(ctx) if self.takes_ctx else value.run()

    def check_result(self, result: bytes) -> None:
        """What a kind declares with `result=` is a promise; a function's annotation is not."""
        if self._result_type() is not Any:
            self.decode_result(result)

    @property
    def _fields(self) -> Sequence[str] | None:
        return stored_names(self.target)

    @cached_property
    def _decoder(self) -> Callable[[bytes], Any]:
        return _decoder_of(lambda: self.target, self.target.__name__)


class FunctionStep(Step):
    """The only step of a function; its args are the function's arguments by name, as they were given."""

    def encode(self, value: Any) -> bytes:
        try:
            return super().encode(value)
        except EncodeError as error:
            where = str(error)
            for name in ("value", "dict", self.target.__name__):
                where = where.removeprefix(name)
            raise EncodeError(f"{self.kind}: args{where}") from error

    def call(self, value: Any, ctx: Context) -> Any:
        return self.target(ctx, **value) if self.takes_ctx else self.target(**value)

    def with_defaults(self, args: bytes) -> bytes:
        """The args with the defaults of what was left out: the same call, however it was written."""
        given = msgspec.json.decode(args, type=dict[str, msgspec.Raw])
        left_out = {name: value for name, value in self._defaults.items() if name not in given}
        return encode({**given, **left_out}) if left_out else args

    @cached_property
    def _defaults(self) -> dict[str, msgspec.Raw]:
        """Those that can be stored."""
        found: dict[str, msgspec.Raw] = {}
        for name, each in hints.signature(self.target).parameters.items():
            if each.default is not each.empty:
                with suppress(EncodeError):
                    found[name] = msgspec.Raw(encode(each.default))
        return found

    @property
    def _fields(self) -> Sequence[str] | None:
        return list(hints.signature(self.target).parameters)[self.takes_ctx :]

    @cached_property
    def _decoder(self) -> Callable[[bytes], Any]:
        return _decoder_of(lambda: _arguments(self.target, skip_first=self.takes_ctx), self.target.__name__)


def result_decoder(result_type: Any) -> Callable[[bytes], Any]:
    """How to read a result; as plain JSON if its type cannot be read back."""
    try:
        return decoder_for(result_type if unknown_class(result_type) is None else Any)
    except Exception:
        return decoder_for(Any)


def result_type_of(function: Callable[..., Any]) -> Any:
    """What a function's return annotation says its result is; Any if it says nothing that can be read."""
    try:
        result = hints.resolve(hints.signature(function).return_annotation, hints.namespace(function))
    except Exception:
        return Any
    if get_origin(result) is Done:
        result = result.__args__[0]
    return Any if result is Done else result


def _arguments(function: Callable[..., Any], *, skip_first: bool) -> Any:
    """A TypedDict of the function's parameters, those with a default not required."""
    names = hints.namespace(function)
    parameters = list(hints.signature(function).parameters.values())[skip_first:]
    fields: dict[str, Any] = {}
    for each in parameters:
        hint = hints.resolve(each.annotation, names)
        fields[each.name] = Required[hint] if each.default is each.empty else NotRequired[hint]
    return TypedDict(function.__name__, fields)  # type: ignore[operator]


def _decoder_of(find_type: Callable[[], Any], name: str) -> Callable[[bytes], Any]:
    try:
        return decoder_for(find_type())
    except Exception as error:
        raise DecodeError(f"{name} cannot be read from JSON: its annotations do not resolve: {error}") from error


def _upgraded(args: bytes, upgrade: Upgrade, what: str) -> bytes:
    try:
        old = msgspec.json.decode(args)
        new = upgrade(old)
    except Exception as error:
        raise DecodeError(f"{what}: the upgrade of its old args raised {type(error).__name__}: {error}") from error
    if not isinstance(new, dict):
        raise DecodeError(f"{what}: the upgrade of its old args must return a dict, not {type(new).__name__}")
    return encode(new)
