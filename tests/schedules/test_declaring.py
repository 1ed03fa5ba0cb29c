"""S1, M21 (b): code declares, people change, and neither undoes the other."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from holdfast import App, Cron, Every
from holdfast._db.driver.connection import connect_sync
from holdfast.errors import ScheduleError
from worker.support import until

from .conftest import NOON, Planner


def app_with(planner: Planner, when: Any = None, **options: Any) -> App:
    """Another version of the same app, on the same database."""
    app = App(planner.url)

    @app.task
    async def report(day: int) -> int:
        return day

    app.schedule("nightly", when or Cron("0 3 * * *"), report.bind(1), **options)
    return app


async def test_S1_declared_again_nothing_changes(planner: Planner) -> None:
    await planner.scheduler(app_with(planner))
    before = planner.row()
    planner.clock.advance("1h")
    await planner.scheduler(app_with(planner))
    after = planner.row()
    assert {**after, "planned_at": None} == {**before, "planned_at": None}


async def test_S1_a_new_declaration_begins_now(planner: Planner) -> None:
    await planner.scheduler(app_with(planner))
    planner.clock.advance("2d")
    await planner.scheduler(app_with(planner, Cron("0 4 * * *")))
    row = planner.row()
    assert row["definition"]["timing"]["cron"] == "0 4 * * *" and row["version"] == 2
    assert planner.times() == [], "what the old timing left is not caught up"


async def test_S1_what_a_person_changed_stays(planner: Planner) -> None:
    await planner.scheduler(app_with(planner))
    planner.sql("""SELECT holdfast.set_schedule('nightly', '{"timing": {"cron": "0 5 * * *"}, "jitter": 60}')""")
    await planner.app.schedules.pause("nightly")
    await planner.scheduler(app_with(planner, overlap="skip"))
    row = planner.row()
    assert row["definition"]["timing"]["cron"] == "0 5 * * *" and row["definition"]["jitter"] == 60
    assert row["definition"]["overlap"] == "skip", "what only the code changed follows the code"
    assert row["paused_at"] is not None, "a paused schedule stays paused"
    assert (await planner.app.schedules.get("nightly")).changed_by_hand


async def test_M21_in_a_rolling_deploy_the_highest_version_wins(planner: Planner) -> None:
    await planner.scheduler(app_with(planner, Cron("0 4 * * *"), version=2))
    await planner.scheduler(app_with(planner, Cron("0 3 * * *"), version=1))
    assert planner.row()["definition"]["timing"]["cron"] == "0 4 * * *"
    await planner.scheduler(app_with(planner, Cron("0 6 * * *"), version=3))
    assert planner.row()["definition"]["timing"]["cron"] == "0 6 * * *"


async def test_S1_what_the_code_no_longer_declares_is_shown_and_rests(planner: Planner) -> None:
    await planner.scheduler(app_with(planner, Every("1h")))
    other = App(planner.url)
    scheduler = await planner.scheduler(other)
    planner.clock.advance("1h")
    await scheduler.round()
    assert planner.times() == [], "only those who declare it plan it"
    planner.sql(
        "INSERT INTO holdfast.worker (id, name, host, pid, version, queues, steps, slots)"
        " VALUES (gen_random_uuid(), 'w', 'h', 1, '1', '{default}', '{}', 1)"
    )
    assert (await planner.app.schedules.get("nightly")).condition == "orphaned"
    await planner.app.schedules.delete("nightly", by="ann")
    assert await planner.app.schedules.all() == []


async def test_S1_one_that_live_code_declares_is_not_deleted(planner: Planner) -> None:
    await planner.scheduler(app_with(planner))
    planner.sql(
        "INSERT INTO holdfast.worker (id, name, host, pid, version, queues, steps, slots, schedules)"
        " VALUES (gen_random_uuid(), 'w', 'h', 1, '1', '{default}', '{}', 1, '{nightly}')"
    )
    with pytest.raises(ScheduleError, match=r"(?s)would come back.*pause it"):
        await planner.app.schedules.delete("nightly")


async def test_S1_made_changed_and_deleted_at_run_time(planner: Planner) -> None:
    app = app_with(planner)
    report: Any = app._kinds["report"]
    schedules = app.schedules
    assert await schedules.set("customer-7", Every("15m"), report.bind(7), queue="slow", by="ann") == "created"
    assert await schedules.set("customer-7", Every("15m"), report.bind(7), queue="slow") == "unchanged"
    scheduler = await planner.scheduler(App(planner.url))
    planner.clock.advance("15m")
    await scheduler.round()
    assert planner.times("customer-7") == ["20 12:15"], "anybody may plan what no code declares"
    info = await schedules.get("customer-7")
    assert (info.words, info.condition, info.in_code) == ("every 15 minutes", "active", False)
    assert info.next_at == NOON + timedelta(minutes=30) == info.next(1)[0]
    assert await schedules.delete("customer-7") is True
    assert await schedules.delete("customer-7") is False, "twice is no error"
    with pytest.raises(ScheduleError, match="no schedule 'customer-7'"):
        await schedules.get("customer-7")
    with pytest.raises(ScheduleError, match="no schedule 'customer-7'"):
        await schedules.pause("customer-7")
    assert len(planner.plans("customer-7")) == 1, "its occurrences stay"
    changes = planner.sql("SELECT action, by FROM holdfast.change ORDER BY id")
    assert [action for action, _ in changes] == ["schedule", "delete"] and changes[0][1] == "ann"


async def test_S1_functions_for_scopes_belong_into_the_code(planner: Planner) -> None:
    report: Any = app_with(planner)._kinds["report"]
    with pytest.raises(ScheduleError, match="declare it in the code"):
        await planner.app.schedules.set("nightly", Every("1h"), report.bind(1), scopes=lambda: ["a"])


@pytest.mark.parametrize(
    ("name", "definition", "message"),
    [
        ("Bad Name", {"timing": {"every": 60}, "step": "report"}, "not the name of a schedule"),
        ("odd", {"step": "report"}, "needs a timing"),
        ("odd", {"timing": {"weekly": 1}, "step": "report"}, "needs a timing"),
        ("odd", {"timing": {"every": 60}}, "name of a step"),
        ("odd", {"timing": {"every": 60}, "step": "Bad Step"}, "name of a step"),
        ("odd", {"timing": {"every": 60}, "step": "report", "args": [1]}, "must be a JSON object"),
        ("odd", {"timing": {"every": 60}, "step": "report", "scopes": {"query": "select 1"}}, "array of strings"),
        ("odd", {"timing": {"every": 60}, "step": "report", "catch_up": "some"}, "catch_up is skip, latest or all"),
        ("odd", {"timing": {"every": 60}, "step": "report", "colour": "red"}, "unknown option: colour"),
    ],
)
async def test_S1_bad_input_from_sql_is_refused(planner: Planner, name: str, definition: Any, message: str) -> None:
    with pytest.raises(Exception, match=message):
        planner.sql("SELECT holdfast.set_schedule($1, $2)", name, json.dumps(definition))
    assert planner.sql("SELECT * FROM holdfast.schedule") == []


async def test_firing_by_hand(planner: Planner) -> None:
    app = app_with(planner)
    await planner.scheduler(app)
    [id] = await app.schedules.fire("nightly", by="ann", why="the report was wrong")
    [(task, plan)] = planner.sql("SELECT task_id, plan_time FROM holdfast.occurrences")
    assert (task, plan) == (id, NOON)
    given = NOON - timedelta(days=3)
    first = await app.schedules.fire("nightly", plan_time=given)
    assert await app.schedules.fire("nightly", plan_time=given) == first, "the same plan time never fires twice"
    assert planner.tasks() == 2
    assert planner.sql("SELECT action, by, why FROM holdfast.change ORDER BY id LIMIT 1") == [
        ("fire", "ann", "the report was wrong")
    ]


async def test_firing_by_hand_for_scopes(planner: Planner) -> None:
    app = app_with(planner, scopes=["a", "b"])
    await planner.scheduler(app)
    assert len(await app.schedules.fire("nightly")) == 2
    planner.clock.advance("1s")
    assert len(await app.schedules.fire("nightly", scope="b")) == 1
    assert sorted(planner.plans(column="scope")) == ["a", "b", "b"]


async def test_S10_backfill(planner: Planner) -> None:
    app = app_with(planner)
    await planner.scheduler(app)
    since, until = NOON - timedelta(days=3), NOON
    preview = await app.schedules.backfill("nightly", since, until, dry_run=True)
    assert [f"{plan:%d %H}" for _, plan in preview.missing] == ["18 03", "19 03", "20 03"] and preview.enqueued == 0
    assert planner.tasks() == 0
    await app.schedules.fire("nightly", plan_time=preview.missing[0][1])
    made = await app.schedules.backfill("nightly", since, until)
    assert (made.enqueued, made.existing) == (2, 1)
    again = await app.schedules.backfill("nightly", since, until)
    assert (again.enqueued, again.existing) == (0, 3)
    assert planner.times() == ["18 03:00", "19 03:00", "20 03:00"] and planner.tasks() == 3
    assert planner.sql("SELECT count(*) FROM holdfast.task WHERE run_at > holdfast.now()") == [(0,)]


async def test_S10_a_backfill_enqueues_what_was_skipped(planner: Planner) -> None:
    app = app_with(planner, Every("1h"), overlap="skip")
    scheduler = await planner.scheduler(app)
    for _ in range(2):
        planner.clock.advance("1h")
        await scheduler.round()
    assert planner.times() == ["20 13:00"]
    made = await app.schedules.backfill("nightly", NOON, NOON + timedelta(hours=2))
    assert (made.enqueued, made.existing) == (2, 1), "noon, and the one that was skipped"
    assert planner.times() == ["20 12:00", "20 13:00", "20 14:00"]


async def test_S11_what_somebody_is_changing_stands_in_nobodys_way(planner: Planner) -> None:
    app = app_with(planner, Every("1h"))
    report: Any = app._kinds["report"]
    await app.schedules.set("other", Every("1h"), report.bind(1))
    scheduler = await planner.scheduler(app)
    planner.clock.advance("1h")
    with connect_sync(planner.url) as editing:
        editing.execute(b"BEGIN")
        editing.execute(b"UPDATE holdfast.schedule SET paused_by = 'x' WHERE name = 'nightly'")
        await scheduler.round()
        assert planner.times("other") == ["20 13:00"] and planner.times() == []
        assert await scheduler.round() >= 0.5, "it does not spin meanwhile"
        editing.execute(b"COMMIT")
    await scheduler.round()
    assert planner.times() == ["20 13:00"]


async def test_S10_a_backfill_that_is_too_large_is_refused(planner: Planner) -> None:
    app = app_with(planner, Every("1s"))
    await planner.scheduler(app)
    with pytest.raises(ScheduleError, match="10,000"):
        await app.schedules.backfill("nightly", NOON - timedelta(days=3), NOON)


async def test_the_audit(planner: Planner) -> None:
    app = app_with(planner, Every("1h"))
    scheduler = await planner.scheduler(app)
    planner.clock.advance("1h")
    await scheduler.round()
    planner.clock.advance("2s")
    worker = app.make_worker(schedules=False)
    await worker.run(until_idle=True)
    [seen] = await app.schedules.occurrences("nightly")
    assert (seen.state, seen.attempts, seen.result, seen.scope) == ("done", 1, 1, "")
    assert seen.plan_time == NOON + timedelta(hours=1)
    assert seen.lateness == timedelta(seconds=2)
    assert seen.duration is not None and seen.finished_at is not None
    await app.close()


@pytest.mark.direct("a pooler's sessions keep the settings they began with")
async def test_F26_W5_a_schedule_that_is_locked_when_a_worker_starts_does_not_end_it(
    planner: Planner, caplog: pytest.LogCaptureFixture
) -> None:
    [(database,)] = planner.sql("SELECT current_database()")
    planner.sql(f"ALTER DATABASE {database} SET lock_timeout = '50ms'")
    app = app_with(planner)
    with connect_sync(planner.url) as other, other.transaction():
        other.execute(b"LOCK TABLE holdfast.schedule IN EXCLUSIVE MODE")
        worker = app.make_worker()
        task = asyncio.create_task(worker.run())
        await until(lambda: task.done() or "waiting for the database" in caplog.text, "for the worker to meet the lock")
        assert not task.done()
    await until(lambda: task.done() or worker.started.is_set(), "for the worker to start")
    assert planner.row()["version"] == 1
    worker.stop()
    await task
    await app.close()
