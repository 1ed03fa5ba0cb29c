"""The options of kinds, functions, steps and enqueues, and what they come to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias, TypedDict

from holdfast._model.declare.names import check_priority, check_queue
from holdfast._model.run.retry import Retry, policies
from holdfast._model.time.duration import Duration, seconds
from holdfast.errors import ConfigError, DeclarationError

Upgrade: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
Executor: TypeAlias = Literal["auto", "thread", "process"]
OnLost: TypeAlias = Literal["retry", "fail"]


class StepOptions(TypedDict, total=False):
    """Options of one step."""

    name: str
    was: Sequence[str] | Mapping[str, Upgrade]
    retry: Retry | Sequence[Retry]
    timeout: Duration
    executor: Executor
    transactional: bool
    on_lost: OnLost
    max_crashes: int


class KindOptions(StepOptions, total=False):
    """Options of a kind or function. Those of a step, except name and was, are defaults for its steps."""

    queue: str
    priority: int
    max_moves: int


class EnqueueOptions(TypedDict, total=False):
    """Options of one enqueue."""

    queue: str
    priority: int
    delay: Duration
    at: datetime
    deadline: Duration | datetime
    key: str
    unique: bool
    unique_for: Duration
    on_conflict: Literal["skip", "raise", "replace"]
    headers: Mapping[str, str]
    retry: Retry
    timeout: Duration
    durable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the options of a step and its kind come to: the step's own, else the kind's, else the default."""

    queue: str = "default"
    priority: int = 0
    retry: tuple[Retry, ...] = ()
    timeout: float | None = None
    executor: Executor = "auto"
    transactional: bool = False
    on_lost: OnLost = "retry"
    max_crashes: int = 3
    max_moves: int = 10_000


def settings(what: str, kind: Mapping[str, Any], step: Mapping[str, Any]) -> Settings:
    """The settings of the step called `what` in messages. The nearest option wins."""
    given = {name: value for name, value in {**kind, **step}.items() if name not in ("name", "was")}
    try:
        checked = {name: _CHECKS[name](value) for name, value in given.items()}
    except ConfigError as error:
        raise DeclarationError(f"{what}: {error}") from None
    if checked.get("on_lost") == "fail":
        checked["max_crashes"] = 0
    return Settings(**checked)


def check_known(what: str, options: Mapping[str, Any], known: type) -> None:
    """Refuse options that are not keys of the TypedDict `known`."""
    allowed: Mapping[str, Any] = known.__annotations__
    for base in getattr(known, "__orig_bases__", ()):
        allowed = {**getattr(base, "__annotations__", {}), **allowed}
    unknown = sorted(options.keys() - allowed.keys())
    if unknown:
        raise DeclarationError(f"{what}: there is no option {unknown[0]!r}; there are {', '.join(sorted(allowed))}")


def old_names(what: str, was: object, check: Callable[[object], str]) -> dict[str, Upgrade | None]:
    """What `was=` was given: each old name with its upgrade, if it has one."""
    match was:
        case None:
            return {}
        case Mapping():
            names: dict[Any, Any] = dict(was)
        case Sequence() if not isinstance(was, str):
            names = dict.fromkeys(was)
        case _:
            raise DeclarationError(f"{what}: was={was!r}; write was=['OldName'] or was={{'OldName': upgrade}}")
    try:
        checked = {check(name): upgrade for name, upgrade in names.items()}
    except ConfigError as error:
        raise DeclarationError(f"{what}: was=: {error}") from None
    for name, upgrade in checked.items():
        if upgrade is not None and not callable(upgrade):
            raise DeclarationError(
                f"{what}: was={{{name!r}: ...}} needs a function that takes and returns args, a dict"
            )
    return checked


def _timeout(value: Any) -> float | None:
    if value is None:  # a step without a timeout in a kind with one
        return None
    length = seconds(value, "timeout")
    if length == 0:
        raise ConfigError('timeout: 0 would stop every attempt at once; write for example "30s", or leave it out')
    return length


def _one_of(name: str, *allowed: str) -> Callable[[object], str]:
    def check(value: object) -> str:
        if value not in allowed:
            raise ConfigError(f"{name}={value!r}: it must be {' or '.join(map(repr, allowed))}")
        return str(value)

    return check


def _flag(name: str) -> Callable[[object], bool]:
    def check(value: object) -> bool:
        if not isinstance(value, bool):
            raise ConfigError(f"{name}={value!r}: it must be True or False")
        return value

    return check


def _at_least(name: str, least: int, most: int = 2**31 - 1) -> Callable[[object], int]:
    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ConfigError(f"{name}={value!r}: it must be an int from {least} to {most}")
        return value

    return check


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "queue": check_queue,
    "priority": check_priority,
    "retry": policies,
    "timeout": _timeout,
    "executor": _one_of("executor", "auto", "thread", "process"),
    "transactional": _flag("transactional"),
    "on_lost": _one_of("on_lost", "retry", "fail"),
    "max_crashes": _at_least("max_crashes", 0, 30_000),
    "max_moves": _at_least("max_moves", 1),
}
