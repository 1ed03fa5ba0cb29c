"""Plan times that a function of the user gives: asked for each scope, a stretch of time at a time, and bounded.

A definition that comes from the database has the function's name alone: only a worker whose code declares the
schedule can ask it.
"""

import inspect
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from holdfast._model.time.duration import Duration, seconds
from holdfast._model.time.recurrence import MOST_TIMES, Timing, aware, span
from holdfast.errors import ScheduleError

PlanFunction: TypeAlias = Callable[[str, datetime, datetime], Iterable[datetime] | Awaitable[Iterable[datetime]]]

LOOK_BACK = [timedelta(minutes=1), timedelta(hours=1), timedelta(days=1), timedelta(days=32), timedelta(days=366)]
"""How far back the newest plan time is looked for, farther and farther: there may be a million of them."""
LONGEST_EVERY = 86_400.0


class Plans(Timing):
    """Times that a function gives: `Plans(times_of)`, called as `times_of(scope, after, until)`.

    It returns the plan times of a scope that are later than `after` and not later than `until`, in any order; what
    lies outside is passed over. It may be `async`. The scope is empty for a schedule without scopes. Workers ask it
    `every` so often, that far ahead, so a time must be known that long before it comes.
    """

    def __init__(self, function: PlanFunction, *, every: Duration = "1m") -> None:
        if not callable(function) or isinstance(function, type):
            raise ScheduleError(f"Plans({function!r:.100}): give a function of (scope, after, until)")
        try:
            inspect.signature(function).bind("", None, None)
        except (TypeError, ValueError):
            raise ScheduleError(
                f"Plans({_name_of(function)}): it is called with three arguments, (scope, after, until)"
            ) from None
        self._set(_name_of(function), every)
        self.function: PlanFunction | None = function

    @classmethod
    def named(cls, name: str, every: Duration) -> "Plans":
        """The same as far as the database knows it: without the function."""
        made = cls.__new__(cls)
        made._set(name, every)
        made.function = None
        return made

    def _set(self, name: str, every: Duration) -> None:
        self.name = name
        length = seconds(every, "every")
        if not 1 <= length <= LONGEST_EVERY:
            raise ScheduleError(f"Plans(every={every!r}): it is asked every second to every day")
        self.every = timedelta(seconds=length)

    def after(self, moment: datetime) -> Iterator[datetime]:
        raise ScheduleError(
            f"its plan times come from the function {self.name}: only a program that has it can tell them, "
            "by await app.schedules.next(…) or await app.schedules.backfill(…)"
        )

    def words(self) -> str:
        return f"at the times that {self.name} gives, asked every {span(self.every)}"

    def definition(self) -> dict[str, Any]:
        return {"function": self.name, "ask_every": self.every.total_seconds()}


class Answer(Timing):
    """The times that a function gave, in order, each once."""

    def __init__(self, times: Sequence[datetime]) -> None:
        self.times = times

    def after(self, moment: datetime) -> Iterator[datetime]:
        return iter(self.times[bisect_right(self.times, moment) :])

    def words(self) -> str:
        return f"at {len(self.times)} times"

    def definition(self) -> dict[str, Any]:
        return {"times": [time.isoformat() for time in self.times]}


class Question(NamedTuple):
    """For which times of a scope a function is asked. `afters` are tried in turn, until there is a time up to `now`."""

    scope: str
    afters: Sequence[datetime]
    now: datetime
    until: datetime


class Answers(NamedTuple):
    """What a function gave for each scope, and up to where it was asked."""

    times: Mapping[str, Answer]
    until: datetime


def newest_since(begin: datetime, now: datetime) -> list[datetime]:
    """Where to begin to look for the newest time: each farther back, the last one at `begin`."""
    steps = [now - length for length in LOOK_BACK if now - length > begin]
    return [*steps, begin]


def asking(plans: Plans, questions: Sequence[Question]) -> Generator[tuple[str, datetime, datetime], Any, Answers]:
    """Yields what to call the function with, and is sent what it returned."""
    found: dict[str, Answer] = {}
    for scope, afters, now, until in questions:
        times: list[datetime] = []
        for after in afters:
            if after >= until:
                continue
            times = _checked(plans, scope, after, until, (yield scope, after, until))
            if times and times[0] <= now:
                break
        found[scope] = Answer(times)
    return Answers(found, min(question.until for question in questions))


def ask(plans: Plans, questions: Sequence[Question]) -> Answers:
    """Asks a plain function: it may take its time, so call this in a thread."""
    talk = asking(plans, questions)
    said: Any = None
    while True:
        try:
            question = talk.send(said)
        except StopIteration as end:
            answers: Answers = end.value
            return answers
        said = plans.function(*question) if plans.function is not None else ()


async def ask_async(plans: Plans, questions: Sequence[Question]) -> Answers:
    """Asks an async function."""
    talk = asking(plans, questions)
    said: Any = None
    while True:
        try:
            question = talk.send(said)
        except StopIteration as end:
            answers: Answers = end.value
            return answers
        said = plans.function(*question) if plans.function is not None else ()
        said = await said if inspect.isawaitable(said) else said


def is_async(plans: Plans) -> bool:
    """Whether its function is to be awaited."""
    function: Any = plans.function
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _checked(plans: Plans, scope: str, after: datetime, until: datetime, given: Any) -> list[datetime]:
    whose = f"{plans.name}({scope!r:.100}, …)"
    if inspect.isawaitable(given):
        if inspect.iscoroutine(given):
            given.close()  # or Python warns that it was never awaited
        raise ScheduleError(f"{whose} returned something to be awaited: declare it with async def")
    if not isinstance(given, Iterable) or isinstance(given, (str, bytes, Mapping)):
        raise ScheduleError(f"{whose} returned {given!r:.100}: return a list of datetimes, [] if there are none")
    times: list[Any] = list(islice(given, MOST_TIMES + 1))
    if len(times) > MOST_TIMES:
        raise ScheduleError(
            f"{whose} gave more than {MOST_TIMES:,} times between {after:%Y-%m-%d %H:%M:%S} and "
            f"{until:%Y-%m-%d %H:%M:%S} UTC: return only those later than `after` and up to `until`, or give a shorter "
            "catch_up_window="
        )
    return sorted({moment for time in times if after < (moment := aware(time, f"{whose} gave")) <= until})


def _name_of(function: Any) -> str:
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{getattr(function, '__module__', None) or type(function).__module__}.{name}"
