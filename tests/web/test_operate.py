"""What the pages about queues, kinds and workers tell and do."""

import json
from typing import Any

import pytest

from holdfast import App
from holdfast._model.read.infos import COUNTED

from .conftest import Browser, plant_task, plant_worker, rows
from .test_pages import plant_kind


def changes(url: str) -> list[tuple[Any, ...]]:
    found = rows(url, "select action, by, why, new::text from holdfast.change order by id")
    return [(action, by, why, json.loads(new)) for action, by, why, new in found]


# --- queues


async def test_queues_tell_what_is_due_and_who_takes_it(browser: Browser, holdfast_url: str) -> None:
    plant_task(holdfast_url, state="ready", queue="mail", attempt=0, errors=0)
    plant_task(holdfast_url, queue="mail")
    plant_worker(holdfast_url, "one", queues=["mail", "other"])
    limited = plant_worker(holdfast_url, "two", queues=["mail"])
    rows(holdfast_url, """update holdfast.worker set limits = '{"mail": 3}' where id = $1::uuid""", limited)
    plant_worker(holdfast_url, "long gone", queues=["mail"], silent="1h")
    found = await browser.json("/api/queues")
    mail, other = found["queues"]
    assert (mail["info"]["due"], mail["info"]["parked"], mail["info"]["workers"]) == (1, 1, 2)
    assert (mail["limit"], other["limit"]) == (13, 10)
    page = await browser.page("/queues")
    assert "queue%3Amail%20state%3Aready" in page and "/queues/mail/pause" in page


async def test_Q5_a_queue_is_paused_and_resumed_by_name(browser: Browser, holdfast_url: str) -> None:
    plant_task(holdfast_url, state="ready", queue="mail", attempt=0, errors=0)
    question = await browser.page("/queues/mail/pause")
    assert "Pause the queue mail?" in question and 'action="/queues/mail/pause"' in question
    assert rows(holdfast_url, "select 1 from holdfast.change") == []
    answer = await browser.post("/queues/mail/pause", {"why": "the mail server is down"})
    assert answer.headers["location"] == "/queues"
    page = await browser.page("/queues")
    assert "the mail server is down" in page and "/queues/mail/resume" in page
    assert "the mail server is down" in await browser.page("/queues/mail/resume")
    await browser.post("/queues/mail/resume")
    by = changes(holdfast_url)[0][1]
    assert changes(holdfast_url) == [
        ("pause", by, "the mail server is down", {"queue": "mail"}),
        ("resume", by, None, {"queue": "mail"}),
    ]
    assert rows(holdfast_url, "select paused_at from holdfast.queue") == [(None,)]


async def test_a_queue_that_is_not_there_is_told(browser: Browser) -> None:
    assert "There is no queue nowhere" in await browser.page("/queues/nowhere/pause", status=404)
    await browser.post("/queues/No Name/pause", status=400)


# --- kinds


async def test_a_kind_is_drawn_with_where_its_tasks_stand(browser: Browser, holdfast_url: str) -> None:
    plant_kind(holdfast_url)
    plant_task(holdfast_url)
    plant_task(holdfast_url, step="SayHello", state="ready", attempt=0, errors=0)
    plant_task(holdfast_url, step="SayHello", state="ready", attempt=0, errors=0, priority=7)
    plant_task(holdfast_url, step="Forgotten")
    plant_task(holdfast_url, kind="stranger")
    found = await browser.json("/api/kinds/greeter")
    assert {each["name"]: each["tasks"] for each in found["steps"]} == {
        "ReadName": {"parked": 1},
        "SayHello": {"ready": 2},
        "Forgotten": {"parked": 1},
    }
    assert [each["is_declared"] for each in found["steps"]] == [True, True, False]
    assert found["tasks"] == {"parked": 2, "ready": 2} and found["count_is_exact"]
    assert sorted((each["parked"]["step"], each["parked"]["count"]) for each in found["parked"]) == [
        ("Forgotten", 1),
        ("ReadName", 1),
    ]
    page = await browser.page("/kinds/greeter")
    assert 'data-step="SayHello"><a href="/tasks?q=kind%3Agreeter%20step%3ASayHello"' in page
    assert 'class="step stranger"' in page and "not declared" in page
    listed = {each["name"]: each for each in (await browser.json("/api/kinds"))["kinds"]}
    assert listed["greeter"]["tasks"] == {"parked": 2, "ready": 2} and listed["greeter"]["steps"] == 2
    assert listed["stranger"]["declared"] is None
    assert "no worker has declared it" in await browser.page("/kinds")
    assert "There is no kind nothing" in await browser.page("/kinds/nothing", status=404)


async def test_steps_are_told_in_the_order_of_the_way(browser: Browser, holdfast_url: str) -> None:
    graph = {"Ask": ["Read", "Quit"], "Quit": ["end"], "Read": ["Tell", "Ask"], "Tell": ["end", 7], "Alone": "?"}
    rows(
        holdfast_url,
        "insert into holdfast.kind (name, queue, priority, first, graph) values ('k', 'q', 0, 'Read', $1::jsonb)",
        json.dumps(graph),
    )
    found = await browser.json("/api/kinds/k")
    assert [each["name"] for each in found["steps"]] == ["Read", "Tell", "Ask", "Quit", "Alone"]
    assert (await browser.page("/kinds/k")).count('class="start"') == 2  # for a desk and for a phone


async def test_a_kind_is_counted_no_further_than_it_must(browser: Browser, holdfast_url: str) -> None:
    rows(
        holdfast_url,
        """
        insert into holdfast.task (id, queue, kind, step, args, state, run_at, created_at)
        select holdfast.new_id(), 'default', 'greeter', 'ReadName', '{}', 'ready', holdfast.now(), holdfast.now()
        from generate_series(1, $1::int)
        """,
        COUNTED + 5,
    )
    plant_task(holdfast_url, kind="other", state="running", worker_id="01890a5d-ac96-774b-bcce-b302099a8057",
               lease_expires_at="2100-01-01", claimed_at="2026-01-01")  # fmt: skip
    found = await browser.json("/api/kinds/greeter")
    assert 1000 < found["tasks"]["ready"] <= COUNTED and not found["count_is_exact"]
    other = await browser.json("/api/kinds/other")
    assert other["tasks"] == {"running": 1} and not other["count_is_exact"]
    assert "too many tasks to count them all" in await browser.page("/kinds")


async def test_Q5_a_kind_is_paused_and_resumed(browser: Browser, holdfast_url: str) -> None:
    plant_kind(holdfast_url)
    assert "Pause the kind greeter?" in await browser.page("/kinds/greeter/pause")
    answer = await browser.post("/kinds/greeter/pause", {"why": "wrong greeting"})
    assert answer.headers["location"] == "/kinds/greeter"
    assert "wrong greeting" in await browser.page("/kinds/greeter")
    await browser.post("/kinds/greeter/resume")
    assert [each[3] for each in changes(holdfast_url)] == [{"kind": "greeter"}, {"kind": "greeter"}]
    assert rows(holdfast_url, "select paused_at from holdfast.kind") == [(None,)]


# --- workers


async def test_workers_tell_what_they_have_in_hand(browser: Browser, holdfast_url: str) -> None:
    worker = plant_worker(holdfast_url, "busy")
    stopped = plant_worker(holdfast_url, "stopped-one")
    rows(
        holdfast_url,
        "update holdfast.worker set stopping_at = holdfast.now(), stopped_at = holdfast.now() where id = $1::uuid",
        stopped,
    )
    plant_worker(holdfast_url, "lost-one", silent="2m")
    lease = {"worker_id": worker, "lease_expires_at": "2100-01-01", "claimed_at": "2026-01-01"}
    ids = [plant_task(holdfast_url, state="running", **lease) for _ in range(7)]
    found = await browser.json("/api/workers")
    assert {each["info"]["name"]: each["info"]["condition"] for each in found["workers"]} == {
        "lost-one": "lost",
        "busy": "running",
    }
    [busy] = [each for each in found["workers"] if each["info"]["name"] == "busy"]
    assert [each["id"] for each in busy["current"]] == sorted(ids)[:5]
    assert (found["running"], found["slots"]) == (7, 10)
    page = await browser.page("/workers")
    assert f"/tasks/{ids[0]}" in page and "all 7" in page and "stopped-one" not in page
    assert "stopped-one" in await browser.page("/workers?all=true")


async def test_each_worker_tells_its_own_tasks_however_many_others_have(browser: Browser, holdfast_url: str) -> None:
    old = plant_worker(holdfast_url, "old", queues=["mail"])
    busy = plant_worker(holdfast_url, "busy", queues=["default", "mail"])
    lease = {"worker_id": old, "lease_expires_at": "2100-01-01", "claimed_at": "2026-01-02"}
    late = plant_task(holdfast_url, state="running", queue="mail", **lease)
    early = plant_task(holdfast_url, state="running", queue="mail", **lease | {"claimed_at": "2026-01-01"})
    rows(
        holdfast_url,
        """
        insert into holdfast.task (id, kind, step, state, worker_id, lease_expires_at, claimed_at)
        select holdfast.new_id(), 'greeter', 'ReadName', 'running', $1::uuid, '2100-01-01', '2026-01-03'
        from generate_series(1, 600)
        """,
        busy,
    )
    rows(
        holdfast_url,
        """insert into holdfast.progress (task_id, queue, attempt, fraction, note, updated_at)
           values ($1::uuid, 'mail', 1, 0.25, 'page 3', holdfast.now())""",
        early,
    )
    found = {each["info"]["name"]: each for each in (await browser.json("/api/workers"))["workers"]}
    assert [each["id"] for each in found["old"]["current"]] == [early, late]
    assert (found["busy"]["info"]["running"], len(found["busy"]["current"])) == (600, 5)
    assert "25 % page 3" in await browser.page("/workers")


async def test_a_late_loop_is_told_with_its_worker(browser: Browser, holdfast_url: str) -> None:
    plant_worker(holdfast_url, "slow")
    assert "no success for too long" not in await browser.page("/workers")
    rows(holdfast_url, "update holdfast.worker set late = array['reap', 'schedules']")
    assert "reap, schedules: no success for too long" in await browser.page("/workers")


async def test_W4_all_workers_are_asked_to_stop_in_somebodys_name(browser: Browser, holdfast_url: str) -> None:
    assert "/workers/stop" not in await browser.page("/workers")
    for name in ("one", "two"):
        plant_worker(holdfast_url, name)
    assert 'href="/workers/stop"' in await browser.page("/workers")
    question = await browser.page("/workers/stop")
    assert "Stop all workers?" in question and "2 of them are live" in question
    assert rows(holdfast_url, "select 1 from holdfast.worker where stop_requested_at is not null") == []
    answer = await browser.post("/workers/stop", {"why": "moving house"})
    assert answer.headers["location"] == "/workers"
    assert rows(holdfast_url, "select 1 from holdfast.worker where stop_requested_at is null") == []
    [(action, by, why, new)] = changes(holdfast_url)
    assert (action, why, new) == ("stop", "moving house", {"worker": "all"}) and by


async def test_W4_a_worker_is_asked_to_stop_in_somebodys_name(browser: Browser, holdfast_url: str) -> None:
    worker, other = plant_worker(holdfast_url, "one"), plant_worker(holdfast_url, "two")
    assert "Stop the worker one?" in await browser.page(f"/workers/{worker}/stop")
    answer = await browser.post(f"/workers/{worker}/stop", {"why": "too old"})
    assert answer.headers["location"] == "/workers"
    asked = "select id::text from holdfast.worker where stop_requested_at is not null"
    assert rows(holdfast_url, asked) == [(worker,)]
    [(action, by, why, new)] = changes(holdfast_url)
    assert (action, why, new) == ("stop", "too old", {"worker": worker}) and by
    page = await browser.page("/workers")
    assert f"/workers/{worker}/stop" not in page and f"/workers/{other}/stop" in page and "asked to stop" in page
    nobody = "01890a5d-ac96-774b-bcce-b302099a8057"
    await browser.page(f"/workers/{nobody}/stop", status=404)
    await browser.post(f"/workers/{nobody}/stop", status=404)


@pytest.mark.parametrize("name", ["by", "why"])
async def test_W4_who_asked_a_worker_to_stop_is_kept(app: App, holdfast_url: str, name: str) -> None:
    await app.stop_workers(**{name: "because"})
    assert rows(holdfast_url, f"select {name} from holdfast.change") == [("because",)]
