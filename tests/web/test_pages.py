"""What the pages tell and do: tasks, one task, what is parked, actions on many."""

import asyncio
import json
import re
from typing import Any

import pytest

from holdfast import App
from holdfast._db.driver.connection import connect_sync
from holdfast.web import bulk_runs, dashboard

from .conftest import HERE, Browser, client, plant_task, plant_worker, rows

BIG = 2**53 + 1


def plant_many(url: str, number: int) -> None:
    rows(
        url,
        """
        insert into holdfast.task (id, queue, kind, step, args, state, errors, error, run_at, created_at)
        select holdfast.new_id(), 'default', 'greeter', 'ReadName', jsonb_build_object('n', n), 'parked', 1,
               '{"type": "OSError", "message": "disk"}', holdfast.now(), holdfast.now()
        from generate_series(1, $1::int) as n
        """,
        number,
    )


def plant_kind(url: str) -> None:
    graph = {"ReadName": ["SayHello"], "SayHello": ["end"]}
    rows(
        url,
        "insert into holdfast.kind (name, queue, priority, graph) values ('greeter', 'default', 0, $1::jsonb)",
        json.dumps(graph),
    )


# --- tasks


async def test_tasks_are_listed_page_by_page(browser: Browser, holdfast_url: str) -> None:
    plant_many(holdfast_url, 5)
    first = await browser.json("/api/tasks?limit=2")
    second = await browser.json(f"/api/tasks?limit=2&below={first['next']}")
    third = await browser.json(f"/api/tasks?limit=2&below={second['next']}")
    seen = [each["id"] for found in (first, second, third) for each in found["tasks"]]
    assert len(seen) == 5 and seen == sorted(seen, reverse=True) and third["next"] is None
    assert first["count"] == 5 and first["count_is_exact"]
    page = await browser.page("/tasks?limit=2")
    assert f"below={first['next']}" in page and "limit=2" in page


async def test_the_filter_is_the_one_of_the_command_line(browser: Browser, holdfast_url: str) -> None:
    plant_many(holdfast_url, 3)
    id = plant_task(holdfast_url, state="ready", kind="other", args={"order_id": BIG}, attempt=0, errors=0)
    found = await browser.json(f"/api/tasks?q=kind:other args.order_id:{BIG}")
    assert [each["id"] for each in found["tasks"]] == [id]
    page = await browser.page("/tasks", params={"q": "kind:other state:parked"})
    assert "No task matches this filter" in page and 'value="kind:other state:parked"' in page
    assert "q=kind%3Aother%20state%3Adue" in page  # a tab keeps the rest of the filter
    trouble = await browser.page("/tasks", params={"q": "nonsense"}, status=400)
    assert "is not understood" in trouble and 'value="nonsense"' in trouble
    assert "is not understood" in (await browser.json("/api/tasks?q=nonsense", status=400))["message"]


# --- one task


async def test_a_task_is_told_in_full(browser: Browser, holdfast_url: str) -> None:
    plant_kind(holdfast_url)
    worker = plant_worker(holdfast_url, "the-worker")
    id = plant_task(holdfast_url, kind="greeter", step="SayHello", moves=1, attempt=2, args={"name": "Ada", "n": BIG})
    with connect_sync(holdfast_url) as connection:
        for attempt, step, outcome in ((1, "ReadName", "advanced"), (2, "SayHello", "failed")):
            connection.execute(
                b"""insert into holdfast.attempt (task_id, queue, kind, step, moves, attempt, worker_id, claimed_at,
                       finished_at, outcome, args, error)
                    values ($1::uuid, 'default', 'greeter', $2, $3, $4, $5::uuid, holdfast.now() - interval '2s',
                            holdfast.now(), $6, '{}', $7::jsonb)""",
                (id, step, attempt - 1, attempt, worker, outcome, None if attempt == 1 else '{"type": "OSError"}'),
            )
    found = await browser.json(f"/api/tasks/{id}")
    assert found["way"] == ["ReadName", "SayHello"] and found["task"]["args"]["n"] == BIG
    assert [each["outcome"] for each in found["attempts"]] == ["advanced", "failed"]
    assert found["explain"].startswith("It is parked")
    page = await browser.page(f"/tasks/{id}")
    assert str(BIG) in page and "the-worker" in page and "no such file" in page
    assert 'class="step visited"' in page and 'class="step current"' in page and 'class="link taken"' in page


async def test_an_error_is_told_with_its_place_its_causes_and_their_tracebacks(
    browser: Browser, holdfast_url: str
) -> None:
    head, mine = "Traceback (most recent call last):\n", '  File "/srv/shop.py", line 3, in send\n    x()\n'
    library = '  File "/venv/lib/python3.12/site-packages/lib.py", line 4, in x\n    y()\n'
    cause = {"type": "TimeoutError", "message": "so slow", "traceback": head + mine + "TimeoutError: so slow"}
    error = {"type": "OSError", "message": "no", "place": "shop.send:3", "causes": [cause, "odd"]}
    id = plant_task(holdfast_url, error={**error, "traceback": head + mine + library + "OSError: no"})
    page = await browser.page(f"/tasks/{id}")
    assert "shop.send:3" in page and "1 frame of libraries" in page and "site-packages/lib.py" in page
    titles = ["Traceback, your code", "Traceback, all of it", "Traceback of its cause, TimeoutError: so slow"]
    assert re.findall(r'<details class="traceback"(?: open)?><summary>(.*?)</summary>', page) == titles


async def test_where_tasks_begin_is_told_by_the_first_step(browser: Browser, holdfast_url: str) -> None:
    graph = {"Ask": ["Tell"], "Tell": ["Ask", "end"]}
    rows(
        holdfast_url,
        "insert into holdfast.kind (name, queue, priority, first, graph) values ('k', 'q', 0, 'Tell', $1::jsonb)",
        json.dumps(graph),
    )
    id = plant_task(holdfast_url, kind="k", step="Ask")
    assert (await browser.json(f"/api/tasks/{id}"))["first"] == "Tell"
    for path in (f"/tasks/{id}", "/kinds/k"):
        page = await browser.page(path)
        assert page.count('class="start"') == 2 and page.index('data-step="Tell"') < page.index('data-step="Ask"')


async def test_an_unknown_task_is_told(browser: Browser) -> None:
    page = await browser.page("/tasks/01890a5d-ac96-774b-bcce-b302099a8057", status=404)
    assert "there is no task" in page
    assert (await browser.client.get("/tasks/nonsense")).status_code == 400


async def test_what_is_large_is_cut(browser: Browser, holdfast_url: str) -> None:
    id = plant_task(holdfast_url, args={"text": "x" * 200_000})
    page = await browser.page(f"/tasks/{id}")
    assert "more characters" in page
    assert len((await browser.json(f"/api/tasks/{id}"))["task"]["args"]["text"]) == 200_000


async def test_T12_a_task_is_retried_with_other_args_and_a_reason(browser: Browser, holdfast_url: str) -> None:
    plant_kind(holdfast_url)
    id = plant_task(holdfast_url, args={"filename": "a.txt", "password": "sesame", "n": BIG})
    args = json.dumps({"filename": "b.txt", "password": "[hidden]", "n": BIG})
    form = {"args": args, "why": "wrong file", "expected_attempt": 1, "step": "ReadName"}
    answer = await browser.post(f"/tasks/{id}/retry", form)
    assert answer.headers["location"] == f"/tasks/{id}"
    [(state, stored)] = rows(holdfast_url, "select state, args from holdfast.task where id = $1::uuid", id)
    assert state == "ready" and json.loads(stored) == {"filename": "b.txt", "password": "sesame", "n": BIG}
    page = await browser.page(f"/tasks/{id}")
    assert "wrong file" in page and "a.txt" in page and "sesame" not in page


async def test_T12_two_people_do_not_retry_the_same_attempt(browser: Browser, holdfast_url: str) -> None:
    id = plant_task(holdfast_url, attempt=3)
    answer = await browser.post(f"/tasks/{id}/retry", {"expected_attempt": 2}, status=409)
    assert "attempt" in answer.text
    assert (await browser.json(f"/api/tasks/{id}"))["task"]["state"] == "parked"


async def test_T12_wrong_args_and_steps_are_refused(browser: Browser, holdfast_url: str) -> None:
    id = plant_task(holdfast_url)
    for form, said in (
        ({"args": "{"}, "args"),
        ({"args": "[1]"}, "args"),
        ({"args": '{"x": "[hidden]"}'}, "write what is meant"),
        ({"step": "Nowhere"}, "Nowhere"),
        ({"step": "No where"}, "step"),
    ):
        answer = await browser.client.post(f"/tasks/{id}/retry", data=form, headers=HERE)
        assert answer.status_code in (400, 409) and said in answer.text, (form, answer.text)
    assert (await browser.json(f"/api/tasks/{id}"))["task"]["state"] == "parked"


async def test_a_task_that_has_ended_cannot_be_cancelled(browser: Browser, holdfast_url: str) -> None:
    id = plant_task(holdfast_url)
    await browser.post(f"/tasks/{id}/discard", {"why": "obsolete"})
    assert (await browser.post(f"/tasks/{id}/cancel", status=409)).status_code == 409


async def test_a_task_that_was_given_up_is_enqueued_again_by_a_button(browser: Browser, holdfast_url: str) -> None:
    id = plant_task(holdfast_url)
    await browser.post(f"/tasks/{id}/discard")
    place = f"/tasks/{id}/again"
    assert place in await browser.page(f"/tasks/{id}")
    answer = await browser.post(place)
    new = (await browser.json(f"/api{answer.headers['location']}"))["task"]
    assert (new["state"], new["headers"]) == ("ready", {"holdfast-again": id})
    assert f"/tasks/{new['id']}/again" not in await browser.page(f"/tasks/{new['id']}")


# --- parked


async def test_one_fact_is_one_number_everywhere(browser: Browser, holdfast_url: str) -> None:
    """They were 5,059 by SQL, and 2,523, 5,023, 1,000, 500 and 333+ on five pages."""

    def park(step: str, number: int) -> None:
        rows(
            holdfast_url,
            """
            insert into holdfast.task (id, kind, step, args, state, attempt, errors, claimed_at, error)
            select holdfast.new_id(), 'order', $1, '{}', 'parked', 1, 1, holdfast.now(),
                   jsonb_build_object('type', 'E' || n % 2) from generate_series(1, $2::int) as n
            """,
            step,
            number,
        )

    pages = ["/", "/queues", "/kinds", "/kinds/order", "/parked", "/parked?q=kind:order", "/tasks?q=state:parked"]

    async def numbers(path: str) -> list[str]:
        return re.findall(r"(?<![\w.:-])\d[\d,]{3,}\+?", re.sub(r"<(?!/)[^>]*>", " ", await browser.page(path)))

    park("Pay", 2523)
    park("Ship", 2536)
    for path in pages:
        assert "5,059" in await numbers(path), path
    assert {"2,523", "2,536", "5,059"} <= {*await numbers("/kinds/order")}
    for path in ("/", "/parked", "/kinds/order"):
        assert {"500+", "1,000+"} & {*re.findall(r"[\d,]+\+", await browser.page(path))}, "groups are of the newest"
    assert (await browser.json("/api/parked"))["count"] == 5059
    found = await browser.json("/api/kinds/order")
    assert found["tasks"] == {"parked": 5059} and found["count_is_exact"]
    park("Ship", 9000)
    for path in pages:
        assert "10,000+" in await numbers(path), path


async def test_parked_tasks_are_grouped(browser: Browser, holdfast_url: str) -> None:
    plant_many(holdfast_url, 4)
    plant_task(holdfast_url)
    found = await browser.json("/api/parked")
    assert [(each["parked"]["error_type"], each["parked"]["count"]) for each in found["groups"]] == [
        ("OSError", 4),
        ("FileNotFoundError", 1),
    ]
    listed = await browser.json("/api/tasks", params={"q": found["groups"][0]["filter"]})
    assert listed["count"] == 4
    page = await browser.page("/parked")
    assert "verb=retry" in page and "disk" in page


async def test_T12_a_group_at_one_place_is_retried_and_no_other(browser: Browser, holdfast_url: str) -> None:
    error = {"type": "OSError", "message": "disk", "place": "shop.mail.send:42"}
    here = [plant_task(holdfast_url, error=error) for _ in range(2)]
    there = plant_task(holdfast_url, error={**error, "place": "shop.mail.send:7"})
    found = await browser.json("/api/parked")
    assert [(each["parked"]["place"], each["parked"]["count"]) for each in found["groups"]] == [
        ("shop.mail.send:42", 2),
        ("shop.mail.send:7", 1),
    ]
    page = await browser.page("/parked")
    assert "shop.mail.send:42" in page and "place%3Ashop.mail.send%3A42" in page
    answer = await browser.post("/bulk", {"verb": "retry", "q": found["groups"][0]["filter"]})
    assert (await ended(browser, answer.headers["location"].removeprefix("/bulk/")))["done"] == {"ready": 2}
    assert rows(holdfast_url, "select id::text from holdfast.task where state = 'parked'") == [(there,)]
    assert there not in here


# --- many


async def ended(browser: Browser, id: str) -> Any:
    while True:
        found = await browser.json(f"/api/bulk/{id}")
        if found["ended"] is not None:
            return found
        await asyncio.sleep(0.02)


async def test_T12_everything_that_matches_is_retried_with_progress(browser: Browser, holdfast_url: str) -> None:
    plant_many(holdfast_url, 250)
    plant_task(holdfast_url, kind="other")
    preview = await browser.page("/bulk/new?verb=retry&q=kind:greeter")
    assert "Retry 250 tasks?" in preview and "OSError" in preview
    answer = await browser.post("/bulk", {"verb": "retry", "q": "kind:greeter", "why": "the disk is back"})
    path = answer.headers["location"]
    found = await ended(browser, path.removeprefix("/bulk/"))
    assert found["done"] == {"ready": 250} and found["trouble"] is None and found["expected"] == 250
    assert "Retry: done" in await browser.page(path)
    counted = "select count(*), min(why), min(by) from holdfast.change where action = 'retry'"
    assert rows(holdfast_url, counted)[0][:2] == (250, "the disk is back")
    assert rows(holdfast_url, "select count(*) from holdfast.task where state = 'parked'") == [(1,)]


async def test_T12_some_are_selected(browser: Browser, holdfast_url: str) -> None:
    ids = [plant_task(holdfast_url) for _ in range(3)]
    preview = await browser.page("/bulk/new", params={"verb": "discard", "id": ids[:2]})
    assert "Discard 2 tasks?" in preview and f"id:{ids[0]},{ids[1]}" in preview
    answer = await browser.post("/bulk", {"verb": "discard", "q": f"id:{ids[0]},{ids[1]}"})
    found = await ended(browser, answer.headers["location"].removeprefix("/bulk/"))
    assert found["done"] == {"discarded": 2}
    assert rows(holdfast_url, "select id::text from holdfast.task") == [(ids[2],)]


async def test_T12_an_action_on_everything_must_be_meant(browser: Browser) -> None:
    assert "an empty filter means every task" in await browser.page("/bulk/new?verb=cancel", status=400)
    assert (await browser.client.post("/bulk", data={"verb": "cancel"}, headers=HERE)).status_code == 400
    assert (await browser.client.post("/bulk", data={"verb": "delete", "q": "kind:x"}, headers=HERE)).status_code == 400


async def test_T12_an_action_is_bounded_and_can_be_stopped(
    app: App, holdfast_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_runs, "MOST", 120)
    plant_many(holdfast_url, 300)
    async with client(dashboard(app, auth="trusted"), headers=HERE) as asking:
        browser = Browser(app, asking)
        first = (await asking.post("/api/bulk", json={"verb": "discard", "q": "kind:greeter"})).json()
        assert (await ended(browser, first["id"]))["done"] == {"discarded": 120}
        with connect_sync(holdfast_url) as connection, connection.transaction():
            # Holds the next run up in its first batch.
            connection.execute("lock table holdfast.change in exclusive mode")
            second = (await asking.post("/api/bulk", json={"verb": "discard", "q": "kind:greeter"})).json()
            stopped = (await asking.post(f"/api/bulk/{second['id']}/stop", json={})).json()
            assert stopped["stopping"] and stopped["ended"] is None
        found = await ended(browser, second["id"])
        assert found["trouble"] == "It was stopped." and found["done"] == {"discarded": 100}
        assert (await asking.get("/api/bulk/unknown")).status_code == 404


async def test_T12_not_too_many_at_once(app: App, holdfast_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_runs, "AT_ONCE", 0)
    async with client(dashboard(app, auth="trusted"), headers=HERE) as asking:
        assert (await asking.post("/api/bulk", json={"verb": "retry", "q": "kind:x"})).status_code == 429


async def test_M19_a_worker_that_is_late_is_shown_in_red(browser: Browser, holdfast_url: str) -> None:
    plant_worker(holdfast_url)
    rows(holdfast_url, "update holdfast.worker set late = '{loop}'")
    assert '<span class="badge bad">late: loop</span>' in await browser.page("/")
    assert '<span class="badge bad">late</span>' in await browser.page("/workers")
    [banner] = [each for each in (await browser.json("/api"))["banners"] if "late" in each["text"]]
    assert banner["tone"] == "bad" and "loop" in banner["text"]


async def test_L4_a_worker_lives_as_long_as_its_lease(browser: Browser, holdfast_url: str) -> None:
    """Killed with a lease of 6 s, it was told to be running for a minute."""
    for lease, silent, condition in (("6s", "7s", "lost"), ("6s", "1s", "running"), ("1h", "10m", "running")):
        id = plant_worker(holdfast_url, silent=silent)
        rows(holdfast_url, "update holdfast.worker set lease = $2::text::interval where id = $1::uuid", id, lease)
        found = next(each for each in (await browser.json("/api/workers"))["workers"] if each["info"]["id"] == id)
        assert found["info"]["condition"] == condition, (lease, silent)
