"""S1, S2, S4, S11: plan times that a function of the user gives."""

import asyncio
import threading
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from holdfast import App, Cron, Every, Plans, ScheduleError
from holdfast._engine.maintain import scheduler as engine
from holdfast._model.time.recurrence import Timing
from holdfast.testing import Harness
from worker.support import running, until

from .conftest import NOON, Planner

MINUTE = timedelta(minutes=1)
Asked = list[tuple[str, datetime, datetime]]


def times_of(*minutes: float) -> list[datetime]:
    return [NOON + minute * MINUTE for minute in minutes]


def declare(app: App, function: Any, *, every: str = "1m", name: str = "nightly", **options: Any) -> Any:
    @app.task(name=f"report-{name}")
    async def report() -> None: ...

    app.schedule(name, Plans(function, every=every), report.bind(), **options)
    return report


async def forward(planner: Planner, scheduler: Any, minutes: int) -> None:
    for _ in range(minutes):
        planner.clock.advance("1m")
        await scheduler.round()


@pytest.mark.parametrize("is_async", [True, False])
async def test_S1_S2_each_time_that_a_function_gives_comes_once(planner: Planner, is_async: bool) -> None:
    asked: Asked = []

    def given(scope: str, after: datetime, until: datetime) -> Iterable[datetime]:
        asked.append((scope, after, until))
        return reversed([*times_of(-5, 2, 2, 3, 5, 90), NOON + 3 * MINUTE])

    async def given_later(scope: str, after: datetime, until: datetime) -> Iterable[datetime]:
        await asyncio.sleep(0)
        return given(scope, after, until)

    declare(planner.app, given_later if is_async else given)
    first, second = await planner.scheduler(), await planner.scheduler()
    for _ in range(6):
        planner.clock.advance("1m")
        await asyncio.gather(first.round(), second.round())
    assert planner.times() == ["20 12:02", "20 12:03", "20 12:05"]
    assert planner.tasks() == 3
    assert all(scope == "" and after < until for scope, after, until in asked)
    assert (await planner.app.schedules.get("nightly")).condition == "active"


async def test_S1_it_is_asked_ahead_so_that_a_time_between_two_questions_comes_in_time(planner: Planner) -> None:
    declare(planner.app, lambda scope, after, until: times_of(7.5), every="10m")
    scheduler = await planner.scheduler()
    assert datetime.fromisoformat(planner.row()["next_at"]) == NOON + 7.5 * MINUTE
    planner.clock.advance("450s")
    await scheduler.round()
    assert planner.plans() == times_of(7.5)
    assert datetime.fromisoformat(planner.row()["next_at"]) == NOON + 17.5 * MINUTE


async def test_S5_each_scope_has_times_of_its_own(planner: Planner) -> None:
    times = {"berlin": times_of(1, 3), "paris": times_of(2), "rome": []}
    declare(planner.app, lambda scope, after, until: times[scope], scopes=lambda: sorted(times))
    scheduler = await planner.scheduler()
    await forward(planner, scheduler, 4)
    assert planner.plans(column="scope || ' ' || to_char(plan_time, 'MI')") == ["berlin 01", "paris 02", "berlin 03"]


@pytest.mark.parametrize(
    ("catch_up", "came"),
    [("latest", ["20 15:30"]), ("skip", []), ("all", ["20 14:30", "20 15:00", "20 15:30"])],
)
async def test_S4_after_a_downtime(planner: Planner, catch_up: str, came: list[str]) -> None:
    asked: Asked = []

    def given(scope: str, after: datetime, until: datetime) -> Iterator[datetime]:
        asked.append((scope, after, until))
        return (NOON + number * 30 * MINUTE for number in range(1, 1000))

    declare(planner.app, given, catch_up=catch_up, catch_up_window="100m")
    scheduler = await planner.scheduler()
    planner.clock.advance("230m")
    await scheduler.round()
    assert planner.times() == came
    oldest = min(after for _, after, _ in asked[1:])
    assert oldest >= (NOON + 130 * MINUTE if catch_up == "all" else NOON)


async def test_S4_all_of_many_come_a_limited_number_at_once(planner: Planner) -> None:
    declare(planner.app, lambda scope, after, until: times_of(*range(1, 8)), catch_up="all", catch_up_limit=3)
    scheduler = await planner.scheduler()
    planner.clock.advance("20m")
    await scheduler.round()
    assert planner.tasks() == 3
    await scheduler.catch_up()
    assert planner.plans() == times_of(*range(1, 8))


async def test_S6_S8_start_delay_overlap_start_and_end(planner: Planner) -> None:
    options: Any = {"start_delay": "5m", "overlap": "skip", "start": NOON + 2 * MINUTE, "end": NOON + 4 * MINUTE}
    declare(planner.app, lambda scope, after, until: times_of(*range(1, 20)), **options)
    scheduler = await planner.scheduler()
    await forward(planner, scheduler, 10)
    assert planner.plans() == times_of(2), "the start itself counts"
    assert planner.plans(column="due_at") == times_of(7)
    skipped = planner.sql("SELECT plan_time FROM holdfast.occurrence WHERE skipped IS NOT NULL ORDER BY 1")
    assert [plan for (plan,) in skipped] == times_of(3, 4)
    assert (await planner.app.schedules.get("nightly")).condition == "ended"


WRONG: list[tuple[Any, str]] = [
    ([datetime(2031, 5, 20, 12, 1)], "has no time zone"),
    (["2031-05-20"], "is no datetime"),
    (None, r"returned None: return a list of datetimes, \[\] if there are none"),
    ("2031-05-20", "returned '2031-05-20'"),
    (times_of(1) * 10_001, "more than 10,000 times"),
]


@pytest.mark.parametrize(("given", "said"), WRONG)
async def test_S11_a_wrong_answer_is_told_and_holds_up_nobody_else(planner: Planner, given: Any, said: str) -> None:
    declare(planner.app, lambda scope, after, until: given, name="odd")
    declare(planner.app, lambda scope, after, until: times_of(1))
    scheduler = await planner.scheduler()
    await forward(planner, scheduler, 2)
    assert planner.times() == ["20 12:01"]
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(planner.row("odd")["error"])


async def test_S11_one_that_raises_goes_on_by_itself_once_it_is_mended(planner: Planner) -> None:
    broken = True

    def given(scope: str, after: datetime, until: datetime) -> list[datetime]:
        if broken:
            raise LookupError("the calendar is gone")
        return times_of(1, 2)

    declare(planner.app, given, catch_up="all")
    scheduler = await planner.scheduler()
    await forward(planner, scheduler, 3)
    info = await planner.app.schedules.get("nightly")
    assert (info.condition, info.error) == ("failing", "LookupError: the calendar is gone")
    broken = False
    await forward(planner, scheduler, 5)
    assert planner.times() == ["20 12:01", "20 12:02"], "nothing is lost"
    assert (await planner.app.schedules.get("nightly")).error is None


async def test_S11_a_slow_one_holds_up_nobody_else(planner: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "PATIENCE", 0.01)
    free, calls = threading.Event(), [0]

    def slow(scope: str, after: datetime, until: datetime) -> list[datetime]:
        calls[0] += 1
        free.wait(60)
        return times_of(1)

    declare(planner.app, slow, name="slow")
    declare(planner.app, lambda scope, after, until: times_of(1, 2))
    scheduler = await planner.scheduler()
    await forward(planner, scheduler, 3)
    assert planner.times() == ["20 12:01", "20 12:02"] and calls == [1], "nor is it called beside itself"
    free.set()

    async def planned() -> bool:
        await scheduler.round()
        return planner.times("slow") == ["20 12:01"]

    while not await planned():
        planner.clock.advance("1m")
        await asyncio.sleep(0.01)


async def test_S11_one_that_never_answers_is_told(planner: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "SCOPES_WITHIN", 0.01)

    async def never(scope: str, after: datetime, until: datetime) -> list[datetime]:
        await asyncio.Event().wait()
        return []

    declare(planner.app, never)
    await planner.scheduler()
    assert "never did not give its plan times within" in planner.row()["error"]


async def test_S10_what_comes_next_and_backfills(planner: Planner) -> None:
    def given(scope: str, after: datetime, until: datetime) -> Iterator[datetime]:
        offset = 10 if scope == "b" else 0
        return (NOON + (number * 60 + offset) * MINUTE for number in range(-5, 100))

    declare(planner.app, given, scopes=["a", "b"])
    await planner.scheduler()
    schedules = planner.app.schedules
    assert await schedules.next("nightly", 3, scope="a") == times_of(60, 120, 180)
    assert await schedules.next("nightly", 1, scope="b", after=NOON + 200 * MINUTE) == times_of(250)
    made = await schedules.backfill("nightly", NOON - 120 * MINUTE, NOON, dry_run=True)
    assert made.missing == [
        (scope, NOON + minute * MINUTE)
        for minute, scope in ((-120, "a"), (-110, "b"), (-60, "a"), (-50, "b"), (0, "a"))
    ]
    assert (await schedules.backfill("nightly", NOON - 120 * MINUTE, NOON)).enqueued == 5
    assert (await schedules.backfill("nightly", NOON - 120 * MINUTE, NOON)).enqueued == 0
    elsewhere = App(planner.url).schedules
    info = await elsewhere.get("nightly")
    assert "given gives, asked every minute" in info.words
    with pytest.raises(ScheduleError, match="only a program that has it"):
        await elsewhere.next("nightly")
    with pytest.raises(ScheduleError, match="only a program that has it"):
        await elsewhere.backfill("nightly", NOON - 120 * MINUTE, NOON)


@pytest.mark.parametrize("is_async", [True, False])
async def test_S10_blocking_code_asks_the_function_too(planner: Planner, is_async: bool) -> None:
    def given(scope: str, after: datetime, until: datetime) -> Iterator[datetime]:
        return (NOON + number * 60 * MINUTE for number in range(-5, 100))

    async def given_later(scope: str, after: datetime, until: datetime) -> Iterator[datetime]:
        await asyncio.sleep(0)
        return given(scope, after, until)

    declare(planner.app, given_later if is_async else given)
    await planner.scheduler()
    schedules = planner.app.sync.schedules
    assert await asyncio.to_thread(schedules.next, "nightly", 2) == times_of(60, 120)
    backfilled = await asyncio.to_thread(schedules.backfill, "nightly", NOON - 120 * MINUTE, NOON)
    assert backfilled.enqueued == 3


async def test_S1_other_fields_can_be_changed_at_run_time_and_functions_belong_into_the_code(planner: Planner) -> None:
    report = declare(planner.app, lambda scope, after, until: times_of(1))
    await planner.scheduler()
    planner.sql("""SELECT holdfast.set_schedule('nightly', '{"jitter": 60}')""")
    assert planner.row()["definition"]["timing"]["ask_every"] == 60
    for name in ("nightly", "other"):
        with pytest.raises(Exception, match="needs a timing"):
            planner.sql(
                "SELECT holdfast.set_schedule($1, $2)",
                name,
                '{"timing": {"function": "os.remove", "ask_every": 60}, "step": "report"}',
            )
    with pytest.raises(ScheduleError, match="declared in the code"):
        await planner.app.schedules.set("other", Plans(lambda scope, after, until: []), report.bind())
    planner.sql("""SELECT holdfast.set_schedule('nightly', '{"timing": {"every": "1h"}}')""")
    scheduler = await planner.scheduler()
    await forward(planner, scheduler, 60)
    assert planner.times() == ["20 13:00"], "what a person says holds"


class Odd(Timing):
    def after(self, moment: datetime) -> Iterator[datetime]:
        yield moment

    def words(self) -> str:
        return "odd"

    def definition(self) -> dict[str, Any]:
        return {"every": 60}


class Fortnightly(Cron):
    pass


def endless() -> Iterator[datetime]:
    while True:
        yield datetime.now(UTC)


def two(scope: str, after: datetime) -> list[datetime]:
    return []


@pytest.mark.parametrize(
    ("when", "said"),
    [
        (Odd(), "for a rule of your own give Plans"),
        (Fortnightly("0 3 * * *"), "for a rule of your own give Plans"),
        (object(), "for a rule of your own give Plans"),
        (timedelta(hours=1), "for a rule of your own give Plans"),
        ({"cron": "0 3 * * *"}, "for a rule of your own give Plans"),
        (endless(), "too many times: at most 10,000"),
        (two, r"write Plans\(two\)"),
    ],
)
def test_S1_a_foreign_timing_is_refused_at_once(when: Any, said: str) -> None:
    app = App("postgresql://nowhere")

    @app.task
    async def report() -> None: ...

    with pytest.raises(ScheduleError, match=said):
        app.schedule("nightly", when, report.bind())


@pytest.mark.parametrize(("function", "every"), [(two, "1m"), (7, "1m"), (int, "1m"), (Every, "1m"), (print, "10ms")])
def test_S1_what_is_no_function_of_plan_times_is_refused_at_once(function: Any, every: str) -> None:
    with pytest.raises(ScheduleError, match="Plans"):
        Plans(function, every=every)


async def test_S1_a_whole_worker_follows_a_function(planner: Planner, holdfast: Harness) -> None:
    planner.clock.resume()
    soon: list[datetime] = []

    async def given(scope: str, after: datetime, until: datetime) -> list[datetime]:
        if not soon:
            soon.append((after + timedelta(milliseconds=1)).astimezone(timezone(timedelta(hours=9))))
        return soon

    declare(planner.app, given, every="1s")
    async with running(holdfast.worker()):
        await until(lambda: planner.sql("SELECT state FROM holdfast.occurrences") == [("done",)], "for it to come")
