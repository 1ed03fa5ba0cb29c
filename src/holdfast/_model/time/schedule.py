"""A schedule: what recurs when, for which scopes, and what is made up for after a downtime. Pure: it asks no clock."""

import inspect
import zlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Any, Literal, NamedTuple, TypeAlias, TypedDict

import msgspec

from holdfast._model.declare.names import check_queue
from holdfast._model.declare.options import EnqueueOptions
from holdfast._model.enqueue.call import call_of, named
from holdfast._model.enqueue.overrides import to_headers
from holdfast._model.enqueue.request import Request, args_of, request_of
from holdfast._model.json.codec import encode
from holdfast._model.run.context import PLAN_TIME, SCHEDULE, SCOPE
from holdfast._model.time.duration import Duration, seconds
from holdfast._model.time.plan_times import LOOK_BACK, Plans, Question, newest_since
from holdfast._model.time.recurrence import Cron, Every, Times, Timing, aware, timing
from holdfast.errors import ConfigError, EncodeError, EnqueueRefused, HoldfastError, ScheduleError

CatchUp: TypeAlias = Literal["skip", "latest", "all"]
Overlap: TypeAlias = Literal["allow", "skip", "queue"]
When: TypeAlias = Cron | Every | Plans | Sequence[datetime]
Scopes: TypeAlias = Iterable[str] | Callable[[], Iterable[str] | Awaitable[Iterable[str]]] | None

PUNCTUAL = timedelta(minutes=1)
"""How late a plan may be noticed and still count as not missed."""
LONGEST_SCOPE = 200
MOST_SCOPES = 10_000
_NOT_HERE = ("delay", "at", "on_conflict", "durable")


class ScheduleOptions(TypedDict, total=False):
    """What can be said about a schedule besides its timing and its task."""

    scopes: Scopes
    catch_up: CatchUp
    catch_up_window: Duration
    catch_up_limit: int
    overlap: Overlap
    start_delay: Duration
    jitter: Duration
    start: datetime | None
    end: datetime | None


class Due(NamedTuple):
    """What of a schedule is due for one scope: the plans to enqueue, and up to where everything is dealt with then."""

    plans: list[datetime]
    watermark: datetime
    more: bool


@dataclass(frozen=True)
class Definition:
    """What holds for a schedule. `to_json` is how it is kept, `from_json` checks whatever was written there."""

    timing: Timing
    step: str
    args: Mapping[str, Any]
    options: Mapping[str, Any]
    scopes: tuple[str, ...] | Mapping[str, str] | None = None
    catch_up: CatchUp = "latest"
    catch_up_window: timedelta = timedelta(days=1)
    catch_up_limit: int = 100
    overlap: Overlap = "allow"
    start_delay: timedelta = timedelta()
    jitter: timedelta = timedelta()
    start: datetime | None = None
    end: datetime | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "timing": self.timing.definition(),
            "step": self.step,
            "args": dict(self.args),
            "options": dict(self.options),
            "scopes": list(self.scopes) if isinstance(self.scopes, tuple) else self.scopes,
            "catch_up": self.catch_up,
            "catch_up_window": _number(self.catch_up_window),
            "catch_up_limit": self.catch_up_limit,
            "overlap": self.overlap,
            "start_delay": _number(self.start_delay),
            "jitter": _number(self.jitter),
            "start": None if self.start is None else self.start.isoformat(),
            "end": None if self.end is None else self.end.isoformat(),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Definition":
        """What was stored, by whomever; ScheduleError if it is none."""
        try:
            scopes, options = stored.get("scopes"), stored.get("options") or {}
            if not isinstance(options, dict) or not isinstance(options.get("headers") or {}, dict):
                raise ScheduleError("the definition cannot be read: options and their headers are objects")
            return cls(
                _stored_timing(stored["timing"]),
                step=stored["step"],
                args=stored.get("args") or {},
                options=options,
                scopes=check_scopes(scopes) if isinstance(scopes, list) else scopes,
                **_policies({name: stored[name] for name in _POLICIES if stored.get(name) is not None}),
                start=_moment(stored.get("start"), "start"),
                end=_moment(stored.get("end"), "end"),
            )
        except HoldfastError:
            raise
        except Exception as error:  # anybody may have written anything
            raise ScheduleError(f"the definition cannot be read: {error!r:.500}") from None

    # --- planning

    def next_after(self, moment: datetime) -> datetime | None:
        """The first plan time later than `moment`."""
        following = next(self.timing.after(self._begin(moment)), None)
        return None if following is None or (self.end is not None and following > self.end) else following

    def due(self, watermark: datetime, now: datetime, *, is_new: bool = False) -> Due:
        """The plans after `watermark` that are to be enqueued now. A new scope begins with the newest."""
        begin = self._begin(watermark)
        until = now if self.end is None else min(now, self.end)
        if self.catch_up == "all" and not is_new:
            begin = max(begin, now - self.catch_up_window)
            found = takewhile(lambda plan: plan <= until, self.timing.after(begin))
            plans = list(islice(found, self.catch_up_limit + 1))
            if len(plans) > self.catch_up_limit:
                return Due(plans[:-1], plans[-2], True)
            return Due(plans, max(watermark, until), False)
        newest = self._newest(begin, until)
        if newest is not None and self.catch_up == "skip" and now - newest > PUNCTUAL:
            newest = None
        return Due([] if newest is None else [newest], max(watermark, until), False)

    def _begin(self, moment: datetime) -> datetime:
        """Plans lie after this: the start itself may be one."""
        return moment if self.start is None or self.start <= moment else self.start - timedelta(microseconds=1)

    def _newest(self, begin: datetime, until: datetime) -> datetime | None:
        """The last plan of a time, looking back farther and farther: there may be a million of them."""
        for length in LOOK_BACK:
            near = max(begin, until - length)
            newest = None
            for plan in takewhile(lambda plan: plan <= until, self.timing.after(near)):
                newest = plan
            if newest is not None or near == begin:
                return newest
        plans = list(takewhile(lambda plan: plan <= until, self.timing.after(begin)))
        return plans[-1] if plans else None

    def question(self, scope: str, watermark: datetime, now: datetime, *, is_new: bool, ahead: timedelta) -> Question:
        """What to ask a function of plan times, so that its answer tells what is `due`, and what comes next."""
        begin = self._begin(watermark)
        until = now + ahead if self.end is None else min(now + ahead, self.end)
        if self.catch_up == "all" and not is_new:
            return Question(scope, [max(begin, now - self.catch_up_window)], now, until)
        return Question(scope, newest_since(begin, now), now, until)

    def due_at(self, name: str, scope: str, plan: datetime) -> datetime:
        """When the task of a plan is due. Jitter comes from the names: all workers agree on it."""
        share = zlib.crc32(f"{name}/{scope}/{plan.timestamp()}".encode()) / 2**32
        return plan + self.start_delay + self.jitter * share

    def request(self, name: str, scope: str, plan: datetime) -> Request:
        """The task of one occurrence."""
        headers = {**(self.options.get("headers") or {}), SCHEDULE: name, PLAN_TIME: plan.isoformat()}
        if scope:
            headers[SCOPE] = scope
        options: Any = {**self.options, "headers": headers, "at": self.due_at(name, scope, plan)}
        return request_of(named(self.step, self.args), options)


@dataclass(frozen=True)
class Schedule:
    """A schedule as the code declares it. Scopes of a function or a query are asked for here, not in the database."""

    name: str
    definition: Definition
    version: int = 0
    find_scopes: Callable[[], Any] | None = None
    scopes_query: str | None = None


def declare(name: str, when: When, what: Any, given: Mapping[str, Any]) -> Schedule:
    """A schedule of what people wrote, or a ScheduleError that says what is wrong."""
    try:
        check_queue(name)
    except ConfigError:
        raise ScheduleError(
            f"{name!r} is not the name of a schedule: lower-case letters, digits, _ . and -, at most 63"
        ) from None
    try:
        return _declare(name, when, what, given)
    except EncodeError as error:
        raise EncodeError(f"schedule {name!r}: {error}") from None
    except (ConfigError, EnqueueRefused) as error:
        raise ScheduleError(f"schedule {name!r}: {error}") from None


def _declare(name: str, when: When, what: Any, given: Mapping[str, Any]) -> Schedule:
    options = {key: value for key, value in given.items() if key in EnqueueOptions.__annotations__}
    known = {*EnqueueOptions.__annotations__, *ScheduleOptions.__annotations__, "version"}
    if unknown := sorted(given.keys() - known):
        raise ScheduleError(f"there is no option {unknown[0]!r}; there are {', '.join(sorted(known - {*_NOT_HERE}))}")
    for key in _NOT_HERE:
        if key in options:
            raise ScheduleError(f"{key}= has no place here; see start_delay=, jitter= and overlap=")
    call = call_of(what)
    request_of(what, options)  # type: ignore[arg-type]  # refuses what no enqueue would take
    find_scopes, query, scopes = _scopes_of(given.get("scopes"))
    start, end = _moment(given.get("start"), "start"), _moment(given.get("end"), "end")
    if start is not None and end is not None and end <= start:
        raise ScheduleError("end= is not after start=")
    definition = Definition(
        _timing_of(when),
        f"{call.kind}.{call.step}",
        msgspec.json.decode(args_of(call, unique=bool(options.get("unique")))),
        msgspec.json.decode(encode(_storable(options, call))),
        scopes,
        **_policies({key: given[key] for key in _POLICIES if key in given}),
        start=start,
        end=end,
    )
    if definition.overlap == "queue" and definition.catch_up == "skip":
        raise ScheduleError(
            "overlap='queue' lets a plan wait, catch_up='skip' drops what is late: choose another catch_up="
        )
    version = given.get("version", 0)
    if isinstance(version, bool) or not isinstance(version, int) or not 0 <= version < 2**31:
        raise ScheduleError(f"version={version!r}: give a whole number, and a higher one with each change")
    return Schedule(name, definition, version, find_scopes, query)


def check_scopes(scopes: Iterable[Any]) -> tuple[str, ...]:
    """Scopes as given, each once, in order."""
    found = dict.fromkeys(scopes)
    for scope in found:
        if not isinstance(scope, str) or not scope or len(scope) > LONGEST_SCOPE or "\0" in scope:
            raise ScheduleError(f"a scope is a text of 1 to {LONGEST_SCOPE} characters, not {scope!r:.100}")
    if len(found) > MOST_SCOPES:
        raise ScheduleError(f"{len(found)} scopes are too many: at most {MOST_SCOPES}")
    return tuple(found)


def _timing_of(when: object) -> Timing:
    # Exactly these: of a class made of one of them, the database would keep no more than what it is made of.
    if isinstance(when, Timing) and type(when) in (Cron, Every, Times, Plans):
        return when
    if isinstance(when, str):
        raise ScheduleError(f"write Cron({when!r}) or Every({when!r})")
    if inspect.isroutine(when):
        raise ScheduleError(f"write Plans({when.__name__}) for plan times that a function gives")
    if isinstance(when, Iterable) and not isinstance(when, (Timing, bytes, Mapping)):
        return Times(when)
    raise ScheduleError(
        f"{when!r:.100} is no timing: give Cron(…), Every(…) or a list of datetimes; for a rule of your own give "
        "Plans(function), a function of (scope, after, until) that returns plan times"
    )


def _stored_timing(stored: Any) -> Timing:
    match stored:
        case {"function": str(name), "ask_every": int() | float() as every, **rest} if not rest:
            return Plans.named(name, every)
    return timing(stored)


def _scopes_of(
    scopes: Any,
) -> tuple[Callable[[], Any] | None, str | None, tuple[str, ...] | Mapping[str, str] | None]:
    if scopes is None:
        return None, None, None
    if isinstance(scopes, str):
        if scopes.lstrip()[:6].lower() not in ("select", "with (") and not scopes.lstrip().lower().startswith("with "):
            raise ScheduleError(f"scopes={scopes!r:.100}: give a list, [{scopes!r:.100}], or a query, 'SELECT …'")
        return None, scopes, {"query": scopes}
    if callable(scopes):
        if inspect.signature(scopes).parameters:
            raise ScheduleError("scopes=: the function takes no arguments")
        return scopes, None, {"function": f"{scopes.__module__}.{scopes.__qualname__}"}
    if isinstance(scopes, Iterable):
        return None, None, check_scopes(scopes)
    raise ScheduleError(f"scopes={scopes!r:.100}: give a list of texts, a function or a query")


def _storable(options: Mapping[str, Any], call: Any) -> dict[str, Any]:
    """Options of the enqueue as JSON; what the code says about the kind is kept with them."""
    kept = {key: value for key, value in options.items() if value is not None}
    for key in ("deadline", "unique_for"):
        if key in kept:
            if isinstance(kept[key], datetime):
                raise ScheduleError(f"{key}= must be a length of time here: it counts anew for each occurrence")
            kept[key] = seconds(kept[key], key)
    for key in ("queue", "priority"):
        if key not in kept and getattr(call, key) is not None:
            kept[key] = getattr(call, key)
    headers = to_headers(kept)
    kept = {key: value for key, value in kept.items() if key not in ("headers", "retry", "timeout")}
    return {**kept, "headers": headers} if headers else kept


def _moment(value: object, what: str) -> datetime | None:
    if value is None:
        return None
    return aware(datetime.fromisoformat(value) if isinstance(value, str) else value, f"{what}=")


def _number(length: timedelta) -> float:
    return length.total_seconds()


def _one_of(name: str, *allowed: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if value not in allowed:
            raise ScheduleError(f"{name}={value!r}: it is {', '.join(allowed[:-1])} or {allowed[-1]}")
        return str(value)

    return check


def _length(name: str) -> Callable[[Any], timedelta]:
    return lambda value: timedelta(seconds=seconds(value, name))


def _limit(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10_000:
        raise ScheduleError(f"catch_up_limit={value!r}: it is a number from 1 to 10000")
    return value


_POLICIES: dict[str, Callable[[Any], Any]] = {
    "catch_up": _one_of("catch_up", "skip", "latest", "all"),
    "catch_up_window": _length("catch_up_window"),
    "catch_up_limit": _limit,
    "overlap": _one_of("overlap", "allow", "skip", "queue"),
    "start_delay": _length("start_delay"),
    "jitter": _length("jitter"),
}


def _policies(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _POLICIES[name](value) for name, value in given.items()}
