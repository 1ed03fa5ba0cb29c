"""S1 to S8, M21: which plan times become occurrences, once each."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast import App, Cron, Every
from holdfast._sql import schedules
from holdfast.errors import ScheduleError

from .conftest import NOON, Planner


def declare(app: App, when: Any = None, name: str = "nightly", **options: Any) -> Any:
    """An app with a schedule, at every full hour unless told otherwise."""
    if "report" not in app._kinds:

        @app.task(name="report")
        async def make_report(day: int = 0) -> int:
            return day

    report: Any = app._kinds["report"]
    app.schedule(name, when or Cron("0 * * * *"), report.bind(day=1), **options)
    return report


async def test_S2_each_plan_time_is_enqueued_once(planner: Planner) -> None:
    declare(planner.app)
    scheduler, other = await planner.scheduler(), await planner.scheduler()
    assert planner.times() == [], "noon itself lies behind"
    planner.clock.advance("1h")
    await scheduler.round()
    await other.round()
    await scheduler.round()
    assert planner.times() == ["20 13:00"]
    assert planner.tasks() == 1
    [(kind, args, headers)] = planner.sql("SELECT kind, args::text, headers::text FROM holdfast.task")
    assert (kind, json.loads(args)) == ("report", {"day": 1})
    assert json.loads(headers) == {"holdfast-schedule": "nightly", "holdfast-plan-time": "2031-05-20T13:00:00+00:00"}


async def test_S2_the_occurrence_and_its_task_are_one(planner: Planner) -> None:
    """Written in one transaction: without the task there is no occurrence."""
    declare(planner.app)
    scheduler = await planner.scheduler()
    planner.clock.advance("1h")
    planner.sql("ALTER TABLE holdfast.task ADD CONSTRAINT nothing CHECK (false) NOT VALID")
    await scheduler.round()
    assert planner.times() == []
    assert "nothing" in planner.row()["error"], "and it is told why"
    planner.sql("ALTER TABLE holdfast.task DROP CONSTRAINT nothing")
    planner.clock.advance("10m")
    await scheduler.round()
    assert planner.times() == ["20 13:00"] and planner.tasks() == 1
    assert planner.row()["error"] is None


async def test_S3_the_database_says_what_time_it_is(planner: Planner) -> None:
    declare(planner.app, Every("1s"))
    scheduler = await planner.scheduler()
    assert await scheduler.round() > 0
    assert planner.times() == [], "whatever the clock of this machine says"


@pytest.mark.parametrize(
    ("catch_up", "made"),
    [
        ({"catch_up": "skip"}, []),
        ({"catch_up": "latest"}, ["20 15:00"]),
        ({"catch_up": "all"}, ["20 13:00", "20 14:00", "20 15:00"]),
        ({"catch_up": "all", "catch_up_window": "100m"}, ["20 14:00", "20 15:00"]),
    ],
)
async def test_S4_catching_up(planner: Planner, catch_up: dict[str, Any], made: list[str]) -> None:
    declare(planner.app, **catch_up)
    scheduler = await planner.scheduler()
    planner.clock.advance("3h30m")
    await scheduler.round()
    assert planner.times() == made
    planner.clock.advance("30m")
    await scheduler.round()
    assert planner.times() == [*made, "20 16:00"], "and then as ever"


async def test_S4_skip_takes_what_is_punctual(planner: Planner) -> None:
    declare(planner.app, catch_up="skip")
    scheduler = await planner.scheduler()
    planner.clock.advance("60m30s")
    await scheduler.round()
    assert planner.times() == ["20 13:00"]


async def test_S4_all_at_most_some_at_once_the_oldest_first(planner: Planner) -> None:
    declare(planner.app, catch_up="all", catch_up_limit=2)
    scheduler = await planner.scheduler()
    planner.clock.advance("5h")
    await scheduler.round()
    assert planner.times() == ["20 13:00", "20 14:00"]
    assert await scheduler.round() < 1, "it goes on at once"
    await scheduler.round()
    assert planner.times() == [f"20 {hour}:00" for hour in range(13, 18)]


async def test_S4_a_long_downtime_costs_little(planner: Planner) -> None:
    """Millions of plan times are not walked through one by one."""
    declare(planner.app, Every("1s"), catch_up="latest")
    declare(planner.app, Cron("* * * * * *"), name="other", catch_up="latest")
    scheduler = await planner.scheduler()
    planner.clock.advance("400d")
    await scheduler.round()
    assert len(planner.plans()) == len(planner.plans("other")) == 1


async def test_M21_pruned_occurrences_never_fire_again(planner: Planner) -> None:
    declare(planner.app, catch_up="all")
    scheduler = await planner.scheduler()
    planner.clock.advance("2h")
    await scheduler.round()
    planner.sql("DELETE FROM holdfast.occurrence")
    planner.sql("UPDATE holdfast.schedule SET next_at = holdfast.now()")
    await scheduler.round()
    assert planner.times() == []


async def test_M21_an_edit_and_a_resume_begin_now(planner: Planner) -> None:
    report = declare(planner.app, catch_up="all")
    scheduler = await planner.scheduler()
    planner.clock.advance("90m")
    assert await planner.app.schedules.set("nightly", Cron("*/10 * * * *"), report.bind(2), catch_up="all") == "changed"
    await scheduler.round()
    assert planner.times() == []
    planner.clock.advance("10m")
    await scheduler.round()
    assert planner.times() == ["20 13:40"]
    await planner.app.schedules.pause("nightly", by="ann", why="the disk is full")
    planner.clock.advance("1h")
    await scheduler.round()
    assert planner.times() == ["20 13:40"]
    assert await planner.app.schedules.resume("nightly") == "resumed"
    assert await planner.app.schedules.resume("nightly") == "not paused"
    await scheduler.round()
    assert planner.times() == ["20 13:40"]
    planner.clock.advance("10m")
    await scheduler.round()
    assert planner.times() == ["20 13:40", "20 14:50"]


async def test_M21_an_edit_in_the_middle_of_a_tick(planner: Planner) -> None:
    """What was read before the edit is not written after it."""
    report = declare(planner.app)
    scheduler = await planner.scheduler()
    planner.clock.advance("1h")
    found = await scheduler._link.run(_due(planner, scheduler))
    await planner.app.schedules.set("nightly", Cron("30 * * * *"), report.bind(2))
    await scheduler._plan(found)
    assert planner.times() == []
    await scheduler.round()
    planner.clock.advance("30m")
    await scheduler.round()
    assert planner.times() == ["20 13:30"]


def _due(planner: Planner, scheduler: Any) -> Any:
    from holdfast._sql import schedules

    return schedules.due(planner.app._queries, list(scheduler._declared), 100)


async def test_S5_scopes_multiply(planner: Planner) -> None:
    declare(planner.app, scopes=["berlin", "paris"])
    scheduler = await planner.scheduler()
    planner.clock.advance("1h")
    await scheduler.round()
    assert planner.plans(column="scope") == ["berlin", "paris"]
    headers = [row[0] for row in planner.sql("SELECT headers ->> 'holdfast-scope' FROM holdfast.task ORDER BY 1")]
    assert headers == ["berlin", "paris"]


async def test_S5_a_function_is_asked_each_time(planner: Planner) -> None:
    tenants = ["a"]
    declare(planner.app, scopes=lambda: list(tenants), catch_up="all")
    scheduler = await planner.scheduler()
    tenants.append("b")
    planner.clock.advance("1h")
    await scheduler.round()
    assert planner.plans(column="scope") == ["a", "b"], "a new one begins with the newest plan"
    tenants.remove("a")
    planner.clock.advance("3h")
    await scheduler.round()
    assert [f"{s} {p:%H}" for s, p in zip(planner.plans(column="scope"), planner.plans(), strict=True)] == [
        "a 13", "b 13", "b 14", "b 15", "b 16",
    ]  # fmt: skip
    tenants.append("a")
    planner.clock.advance("1h")
    await scheduler.round()
    assert planner.plans(column="scope").count("a") == 2, "one that comes back catches nothing up"


async def test_S5_an_async_function_and_a_query(planner: Planner) -> None:
    planner.sql("CREATE TABLE tenant (name text)")
    planner.sql("INSERT INTO tenant VALUES ('x'), ('y')")

    async def find() -> list[str]:
        return ["p", "q"]

    declare(planner.app, scopes=find)
    declare(planner.app, name="by-query", scopes="SELECT name FROM tenant")
    scheduler = await planner.scheduler()
    planner.clock.advance("1h")
    await scheduler.round()
    assert planner.plans(column="scope") == ["p", "q"]
    assert planner.plans("by-query", "scope") == ["x", "y"]


async def test_S5_a_query_changes_nothing(planner: Planner) -> None:
    planner.sql("CREATE TABLE tenant (name text)")
    declare(planner.app, scopes="WITH made AS (INSERT INTO tenant VALUES ('x') RETURNING name) SELECT name FROM made")
    scheduler = await planner.scheduler()
    assert "read-only" in planner.row()["error"]
    assert planner.sql("SELECT * FROM tenant") == []
    assert await scheduler.round() > 0


async def test_S11_a_failing_schedule_disturbs_nobody(planner: Planner) -> None:
    def broken() -> list[str]:
        raise OSError("the directory is away")

    declare(planner.app, scopes=broken)
    declare(planner.app, name="other")
    scheduler = await planner.scheduler()
    planner.clock.advance("1h")
    await scheduler.round()
    assert planner.times("other") == ["20 13:00"]
    row = planner.row()
    assert row["error"] == "OSError: the directory is away" and row["failures"] == 2
    assert datetime.fromisoformat(row["next_at"]) > NOON + timedelta(hours=1), "it backs off"


async def test_S11_what_was_written_by_hand_and_cannot_be_read(planner: Planner) -> None:
    declare(planner.app, name="other")
    planner.sql("""SELECT holdfast.set_schedule('odd', '{"timing": {"cron": "61 * * * *"}, "step": "report"}')""")
    scheduler = await planner.scheduler()
    assert "cannot read the field minute" in planner.row("odd")["error"]
    planner.clock.advance("1h")
    await scheduler.round()
    assert planner.times("other") == ["20 13:00"]
    planner.sql("""SELECT holdfast.set_schedule('odd', '{"timing": {"cron": "30 * * * *"}}')""")
    await scheduler.round()
    assert planner.row("odd")["error"] is None
    planner.clock.advance("30m")
    await scheduler.round()
    assert planner.times("odd") == ["20 13:30"]


async def test_S6_start_delay_and_jitter(planner: Planner) -> None:
    declare(planner.app, start_delay="5m")
    declare(planner.app, name="spread", jitter="10m", scopes=[f"s{n}" for n in range(50)])
    scheduler = await planner.scheduler()
    planner.clock.advance("1h")
    await scheduler.round()
    plan = NOON + timedelta(hours=1)
    assert planner.plans(column="due_at") == [plan + timedelta(minutes=5)]
    assert planner.sql("SELECT run_at FROM holdfast.task WHERE headers ->> 'holdfast-schedule' = 'nightly'") == [
        (plan + timedelta(minutes=5),)
    ]
    late = [due - plan for due in planner.plans("spread", "due_at")]
    assert len(set(late)) == 50 and min(late) >= timedelta() and max(late) < timedelta(minutes=10)
    definition = planner.app._schedules["spread"].definition
    assert late[0] == definition.due_at("spread", "s0", plan) - plan, "all workers agree on it"


async def test_S8_overlap(planner: Planner) -> None:
    for rule in ("allow", "skip", "queue"):
        declare(planner.app, name=rule, overlap=rule)
    scheduler = await planner.scheduler()
    for _ in range(2):
        planner.clock.advance("1h")
        await scheduler.round()
    assert planner.times("allow") == ["20 13:00", "20 14:00"]
    assert planner.times("skip") == planner.times("queue") == ["20 13:00"]
    skipped = planner.sql("SELECT schedule, plan_time, skipped FROM holdfast.occurrence WHERE skipped IS NOT NULL")
    assert skipped == [("skip", NOON + timedelta(hours=2), "the one before was unfinished")]
    _finish_all(planner)
    planner.clock.advance("5m")
    await scheduler.round()
    assert planner.times("skip") == ["20 13:00"], "what was skipped stays so"
    assert planner.times("queue") == ["20 13:00", "20 14:00"], "what waited comes now"
    planner.clock.advance("55m")
    await scheduler.round()
    assert planner.times("skip") == ["20 13:00", "20 15:00"]


async def test_S8_a_parked_one_holds_nothing_up(planner: Planner) -> None:
    declare(planner.app, overlap="skip")
    scheduler = await planner.scheduler()
    planner.clock.advance("1h")
    await scheduler.round()
    planner.sql("UPDATE holdfast.task SET state = 'parked', error = '{}'")
    planner.clock.advance("1h")
    await scheduler.round()
    assert planner.times() == ["20 13:00", "20 14:00"]


async def test_S8_scopes_do_not_wait_for_each_other(planner: Planner) -> None:
    declare(planner.app, overlap="skip", scopes=["a", "b"])
    scheduler = await planner.scheduler()
    planner.clock.advance("1h")
    await scheduler.round()
    planner.sql("DELETE FROM holdfast.task WHERE headers ->> 'holdfast-scope' = 'a'")
    planner.clock.advance("1h")
    await scheduler.round()
    assert planner.plans(column="scope") == ["a", "b", "a"]


async def test_S8_catching_all_up_one_after_the_other(planner: Planner) -> None:
    declare(planner.app, overlap="queue", catch_up="all")
    scheduler = await planner.scheduler()
    planner.clock.advance("3h")
    for hour in (13, 14, 15):
        planner.clock.advance("1m")
        await scheduler.round()
        await scheduler.round()
        assert planner.times()[-1] == f"20 {hour}:00"
        _finish_all(planner)
    assert len(planner.times()) == 3


def _finish_all(planner: Planner) -> None:
    planner.sql("DELETE FROM holdfast.task")


async def test_S1_start_and_end(planner: Planner) -> None:
    declare(planner.app, start=NOON + timedelta(hours=2), end=NOON + timedelta(hours=3), catch_up="all")
    scheduler = await planner.scheduler()
    for _ in range(5):
        planner.clock.advance("1h")
        await scheduler.round()
    assert planner.times() == ["20 14:00", "20 15:00"]
    assert planner.row()["next_at"] is None
    assert (await planner.app.schedules.get("nightly")).condition == "ended"


async def test_S1_a_list_of_times_ends(planner: Planner) -> None:
    declare(planner.app, [NOON + timedelta(minutes=7), NOON - timedelta(minutes=7)])
    scheduler = await planner.scheduler()
    planner.clock.advance("1h")
    await scheduler.round()
    assert planner.times() == ["20 12:07"]
    assert planner.row()["next_at"] is None


async def test_S7_key_and_options_of_the_enqueue(planner: Planner) -> None:
    declare(planner.app, key="only-one", queue="slow", priority=7, headers={"team": "data"})
    scheduler = await planner.scheduler()
    for _ in range(2):
        planner.clock.advance("1h")
        await scheduler.round()
    [(queue, priority, team, id)] = planner.sql("SELECT queue, priority, headers ->> 'team', id FROM holdfast.task")
    assert (queue, priority, team) == ("slow", 7, "data")
    assert planner.plans(column="task_id") == [id, id], "the second is the one that holds the key"


def test_bad_schedules_are_refused_at_once() -> None:
    app = App()
    report = declare(app)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"catch_up": "some"}, "catch_up="),
        ({"overlap": "no"}, "overlap="),
        ({"overlap": "queue", "catch_up": "skip"}, "choose another catch_up"),
        ({"catch_up_limit": 0}, "catch_up_limit"),
        ({"start_delay": "soon"}, "start_delay"),
        ({"delay": "5m"}, "delay= has no place here"),
        ({"at": NOON}, "at= has no place here"),
        ({"scopes": "berlin"}, "give a list"),
        ({"scopes": [""]}, "a scope is a text"),
        ({"scopes": [1]}, "a scope is a text"),
        ({"scopes": lambda tenant: []}, "takes no arguments"),
        ({"scopes": 7}, "give a list"),
        ({"start": datetime(2031, 1, 1)}, "no time zone"),
        ({"start": NOON, "end": NOON}, "end= is not after start="),
        ({"queue": "No Queue"}, "queue"),
        ({"version": -1}, "version="),
        ({"colour": "red"}, "no option 'colour'"),
        ({"deadline": NOON}, "length of time"),
    ]
    for options, message in refused:
        with pytest.raises(ScheduleError, match=message):
            app.schedule("odd", Cron("0 * * * *"), report.bind(1), **options)
    with pytest.raises(ScheduleError, match="name of a schedule"):
        app.schedule("Nightly Report", Cron("0 * * * *"), report.bind(1))
    with pytest.raises(ScheduleError, match=r"write Cron\('0 \* \* \* \*'\)"):
        app.schedule("odd", "0 * * * *", report.bind(1))  # type: ignore[arg-type]
    with pytest.raises(ScheduleError, match="bind"):
        app.schedule("odd", Cron("0 * * * *"), report)
    assert list(app._schedules) == ["nightly"]


def test_two_schedules_of_one_name_are_refused() -> None:
    from holdfast import DeclarationError, Tasks

    tasks = Tasks()
    declare(tasks)  # type: ignore[arg-type]
    app = App(include=[tasks])
    assert "nightly" in app._schedules, "included as everything else"
    with pytest.raises(DeclarationError, match="two schedules"):
        app.schedule("nightly", Every("1h"), app._kinds["report"].bind())  # type: ignore[union-attr]


async def test_S7_deadline_and_unique_for(planner: Planner) -> None:
    declare(planner.app, deadline="5m", unique=True, unique_for="90m")
    scheduler = await planner.scheduler()
    for _ in range(3):
        planner.clock.advance("1h")
        await scheduler.round()
    first, second, third = planner.plans(column="task_id")
    assert first == second, "after an hour the first still holds the key"
    assert third != first, "after two it has expired, and holds it no longer"
    assert planner.sql("SELECT deadline - created_at FROM holdfast.task WHERE id = $1", third) == [
        (timedelta(minutes=5),)
    ]
    assert await planner.app.schedules.fire("nightly", scope="other") == [third], "firing by hand heeds the key too"


async def test_S1_ten_thousand_schedules_are_not_walked_over(planner: Planner) -> None:
    planner.sql(
        "INSERT INTO holdfast.schedule (name, definition, next_at)"
        " SELECT 's' || n, '{}', holdfast.now() + interval '1 h' FROM generate_series(1, 10000) AS n"
    )
    planner.sql("ANALYZE holdfast.schedule")
    queries = planner.app._queries
    for query in (schedules.due(queries, ["nightly"], 100), schedules.next_in(queries, ["nightly"])):
        plan = "\n".join(row[0] for row in planner.sql(f"EXPLAIN {query.statement.text}", *query.parameters))
        assert "schedule_next" in plan and "Seq Scan" not in plan, plan
