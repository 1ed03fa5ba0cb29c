"""What is refused at decoration: a wrong declaration fails at import, and the message holds the cure."""

import inspect
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, get_args, get_type_hints

import msgspec

from holdfast._model.declare import annotations
from holdfast._model.declare.options import Settings
from holdfast._model.declare.step import OWNER
from holdfast._model.json.problems import field_names, is_pydantic, unknown_class
from holdfast._model.run.context import Context
from holdfast.errors import DeclarationError

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def check_step_class(cls: object, what: str) -> None:
    """Refuse what cannot be a step class: no fields, no `run`, fields that cannot be stored."""
    if not isinstance(cls, type):
        cure = ": a function is a task of its own, @app.task" if inspect.isroutine(cls) else ""
        raise DeclarationError(f"{what}: a step is a class with fields and a run method, not {cls!r}{cure}")
    owner = vars(cls).get(OWNER)
    if owner is not None:
        raise DeclarationError(
            f"{what}: {cls.__qualname__} is already the step {owner.kind}.{owner.name}, and a class belongs "
            "to one kind only: make a subclass or another class"
        )
    if _own_field_names(cls) is None:
        raise DeclarationError(
            f"{what}: {cls.__qualname__} must be a dataclass, a msgspec Struct, an attrs class or a pydantic "
            "model. If it is one by a decorator, put the decorators in this order:\n"
            f"    @kind.step\n    @dataclass\n    class {cls.__name__}: ..."
        )
    _check_stored_by_name(cls, what)
    for name, hint in _field_hints(cls).items():
        check_storable(hint, f"{what}: the field {name} of {cls.__qualname__}")
    _check_decoder(cls, what)


def check_run(cls: type, what: str) -> tuple[bool, bool]:
    """Whether `run` is async, and whether it takes the context; anything else than these two is refused."""
    run = inspect.getattr_static(cls, "run", None)
    cure = "write def run(self) or async def run(self, ctx: Context)"
    if run is None:
        raise DeclarationError(f"{what}: {cls.__qualname__} has no run method: {cure}")
    if not inspect.isroutine(run) or isinstance(run, (staticmethod, classmethod)):
        raise DeclarationError(f"{what}: run of {cls.__qualname__} is no method: {cure}")
    check_not_generator(run, f"{what}: run of {cls.__qualname__}")
    parameters = list(annotations.signature(run).parameters.values())[1:]
    if len(parameters) > 1 or any(each.kind not in _POSITIONAL for each in parameters):
        raise DeclarationError(f"{what}: run of {cls.__qualname__} has the wrong parameters: {cure}")
    if parameters and not _takes_context(parameters[0], annotations.namespace(run)):
        raise DeclarationError(
            f"{what}: run of {cls.__qualname__} is given the context alone, not {parameters[0]}: {cure}. "
            f"What a step works on is a field of its class"
        )
    return inspect.iscoroutinefunction(run), bool(parameters)


def _takes_context(parameter: inspect.Parameter, names: dict[str, Any]) -> bool:
    """Whether this parameter can be meant for the context: by its type, or by its name if the type is not known."""
    by_name = parameter.name in ("ctx", "context") or parameter.name.startswith("_")
    if parameter.annotation is annotations.EMPTY:
        return by_name
    try:
        hint = annotations.resolve(parameter.annotation, names)
    except Exception:  # a name that is imported for type checkers only
        return by_name or annotations.names_context(parameter.annotation, names, Context)
    return hint in (Any, object) or Context in (hint, *get_args(hint)) or getattr(hint, "_is_protocol", False)


def check_function(function: object, what: str) -> tuple[bool, bool]:
    """Whether a function is async and takes the context; refused if its args cannot be stored by name."""
    if not inspect.isroutine(function) or not hasattr(function, "__qualname__"):
        raise DeclarationError(f"{what}: only functions can be tasks, not {function!r}; for steps use app.kind(...)")
    check_not_generator(function, what)
    parameters = list(annotations.signature(function).parameters.values())
    names = annotations.namespace(function)
    takes_ctx = bool(parameters) and annotations.names_context(parameters[0].annotation, names, Context)
    _check_first(parameters, what)
    for each in parameters[takes_ctx:]:
        if each.kind is each.POSITIONAL_ONLY:
            raise DeclarationError(
                f"{what}: args are stored by name, so {each.name} cannot be positional-only: remove /"
            )
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            raise DeclarationError(f"{what}: args are stored by name, so write a list or dict instead of {each}")
        if annotations.names_context(each.annotation, names, Context):
            raise DeclarationError(f"{what}: the Context must be the first parameter, not {each.name}")
        hint = _resolved_or_any(each.annotation, names)
        check_storable(hint, f"{what}: the parameter {each.name}")
    if takes_ctx and parameters[0].kind not in _POSITIONAL:
        raise DeclarationError(f"{what}: the Context is given by position: {parameters[0].name} cannot be keyword-only")
    return inspect.iscoroutinefunction(function), takes_ctx


def _check_first(parameters: list[inspect.Parameter], what: str) -> None:
    """A first parameter without annotation whose name says that it is not meant as an argument."""
    if not parameters or parameters[0].annotation is not inspect.Parameter.empty:
        return
    match parameters[0].name:
        case "ctx":
            raise DeclarationError(f"{what}: to be given the context, annotate it: ctx: Context")
        case "self" | "cls":
            raise DeclarationError(f"{what}: a method cannot be a task: write a function outside of the class")


def check_not_generator(function: Callable[..., Any], what: str) -> None:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise DeclarationError(f"{what}: it yields, but a step returns: return a list, or go on with another step")


def check_executor(settings: Settings, target: Any, what: str, *, is_async: bool) -> None:
    """Refuse executors that cannot run this code."""
    if settings.executor == "auto":
        return
    if is_async:
        raise DeclarationError(f"{what}: async code runs on the event loop: leave executor= out, or write def")
    if settings.executor == "thread":
        return
    if settings.transactional:
        raise DeclarationError(f"{what}: a transaction cannot be handed to another process: leave transactional out")
    if "<" in target.__qualname__:
        raise DeclarationError(f"{what}: another process must be able to import it: define it at the top of a module")


def check_storable(hint: Any, what: str) -> None:
    """Refuse a type hint that JSON cannot hold. What cannot be resolved yet is checked at first use."""
    try:
        unknown = unknown_class(hint)
    except NameError:
        return
    except Exception as error:
        raise DeclarationError(f"{what} has a type that cannot be stored as JSON: {error}") from None
    if unknown is not None:
        path = "Use str for a path. Else use" if issubclass(unknown, PurePath) else "Use"
        raise DeclarationError(
            f"{what} has a type that cannot be stored as JSON: {unknown.__qualname__}. {path} builtins, "
            "datetime, UUID, Decimal, enums, dataclasses, msgspec Structs, attrs classes or pydantic models."
        )


def _own_field_names(cls: type) -> tuple[str, ...] | None:
    """The fields of `cls`, if the class itself and not only its base was made a dataclass or attrs class."""
    made = ("__dataclass_fields__", "__attrs_attrs__")
    if issubclass(cls, msgspec.Struct) or is_pydantic(cls) or any(name in vars(cls) for name in made):
        return field_names(cls)
    adds_fields = bool(vars(cls).get("__annotations__"))
    return None if adds_fields else field_names(cls)


def _check_stored_by_name(cls: type, what: str) -> None:
    config = getattr(cls, "__struct_config__", None)
    if config is not None and config.array_like:
        raise DeclarationError(f"{what}: args are stored by name, so {cls.__qualname__} cannot be array_like")
    if is_pydantic(cls):
        _check_written_as_read(cls, what)
    if getattr(cls, "__pydantic_root_model__", False):
        raise DeclarationError(f"{what}: args are stored by name, so {cls.__qualname__} cannot be a RootModel")
    if not is_pydantic(cls) and hasattr(cls, "__attrs_attrs__"):
        private = [name for name in field_names(cls) or () if name.startswith("_")]
        if private:
            raise DeclarationError(f"{what}: the private attrs field {private[0]} would not be stored: rename it")


def _check_written_as_read(cls: Any, what: str) -> None:
    """Refuse pydantic fields that would not come back as they were stored: secrets, two different aliases."""
    config = getattr(cls, "model_config", {})
    by_name = config.get("populate_by_name") or config.get("validate_by_name")
    for name, field in getattr(cls, "model_fields", {}).items():
        place = f"{what}: the field {name} of {cls.__qualname__}"
        if any(hasattr(each, "get_secret_value") for each in (field.annotation, *get_args(field.annotation))):
            raise DeclarationError(f"{place} is a secret, which is not stored: pass a reference to it")
        written = field.serialization_alias or name
        readable = field.validation_alias or name
        choices = getattr(readable, "choices", [readable])
        if written not in choices and not (by_name and written == name):
            raise DeclarationError(f"{place} is stored as {written!r} but read as {readable!r}: use alias= for both")


def _field_hints(cls: type) -> dict[str, Any]:
    if is_pydantic(cls):  # pydantic has checked its own fields
        return {}
    try:
        return get_type_hints(cls, include_extras=True)
    except Exception:  # names that are not there yet
        return {}


def _check_decoder(cls: type, what: str) -> None:
    if is_pydantic(cls):
        return
    try:
        msgspec.json.Decoder(cls)
    except NameError:
        return
    except Exception as error:
        raise DeclarationError(f"{what}: {cls.__qualname__} cannot be read from JSON: {error}") from None


def _resolved_or_any(annotation: Any, names: dict[str, Any]) -> Any:
    try:
        return annotations.resolve(annotation, names)
    except Exception:
        return Any
