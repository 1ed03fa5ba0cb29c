"""Every text that others can write, in every page: nothing of it becomes HTML."""

import json
from html.parser import HTMLParser
from typing import Any

from holdfast._db.driver.connection import connect_sync

from .conftest import Browser, plant_task, rows
from .test_schedules import HOURLY

EVIL = [
    "<img src=x onerror=alert(1)>",
    "</title></pre></textarea><script>alert(1)</script>",
    '" onmouseover="alert(1)" x=\'',
    "' autofocus onfocus='alert(1)",
    "javascript:alert(1)",
    "{{ 7*7 }}${7*7}<%= 7*7 %>",
    "\u202e]]><svg/onload=alert(1)>\u2028\r\nevent: x\r\n\r\n",
]
ALL = " ".join(EVIL)
ALLOWED = """
    a b body button circle code dd del details div dl dt figure form g h1 h2 head header html img input ins label li
    link main meta nav ol option p path pre progress rect script section select small span summary svg table tbody td
    text textarea th thead time title tr ul figcaption polyline
"""


class Page(HTMLParser):
    """Collects what a browser would execute, load or follow."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.wrong: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ALLOWED.split():
            self.wrong.append(tag)
        for name, value in attrs:
            if name.startswith("on") or name in ("style", "srcdoc"):
                self.wrong.append(f"{tag} {name}")
            if name in ("src", "href", "action", "formaction") and not (value or "").startswith(("/", "#")):
                self.wrong.append(f"{tag} {name}={value}")
        if tag == "script" and not dict(attrs).get("src", "").startswith("/static/"):  # type: ignore[union-attr]
            self.wrong.append("script")
        if tag == "img" and not dict(attrs).get("src", "").startswith("/static/"):  # type: ignore[union-attr]
            self.wrong.append("img")


def plant(url: str) -> list[str]:
    """Evil text in every column that takes any text."""
    error = {
        "type": ALL,
        "message": ALL,
        "place": ALL,
        "traceback": f'{ALL}\n  File "/x/site-packages/a.py", line 1, in f\n  File "/{ALL}", line 2\n    {ALL}\n{ALL}',
        "causes": [{"type": ALL, "message": ALL, "traceback": ALL}, ALL, 7],
        ALL: ALL,
    }
    common: dict[str, Any] = {"args": {ALL: [ALL]}, "headers": {ALL: ALL}, "error": error, "key": EVIL[0]}
    ids = [plant_task(url, **common), plant_task(url, **common | {"key": None, "error": ALL})]
    with connect_sync(url) as connection:
        connection.execute(
            b"""insert into holdfast.change (task_id, action, by, why, old, new)
                values ($1::uuid, $2, $2, $2, $3::jsonb, $3::jsonb)""",
            (ids[0], ALL, json.dumps({"args": {ALL: ALL}, ALL: ALL})),
        )
        [worker] = connection.execute(
            b"""insert into holdfast.worker (id, name, host, pid, version, queues, steps, slots, stuck, late)
                values (holdfast.new_id(), $1, $1, 1, $1, array['default'], array[$1], 1, 3, array[$1]) returning id""",
            (ALL,),
        ).fetchone() or [None]
        lease = {"worker_id": str(worker), "lease_expires_at": "2100-01-01", "claimed_at": "2026-01-01"}
        running = plant_task(url, state="running", **lease)
        connection.execute(
            b"""insert into holdfast.progress (task_id, queue, attempt, fraction, note)
                values ($1::uuid, 'default', 1, 0.5, $2)""",
            (running, ALL),
        )
        connection.execute(
            b"""insert into holdfast.attempt (task_id, queue, kind, step, moves, attempt, worker_id, claimed_at,
                   finished_at, outcome, args, error, report)
                values ($1::uuid, 'default', 'greeter', 'ReadName', 0, 1, $2, holdfast.now(), holdfast.now(), 'failed',
                        $3::jsonb, $4::jsonb, $3::jsonb)""",
            (ids[0], worker, json.dumps({ALL: ALL}), json.dumps(error)),
        )
        connection.execute(
            b"insert into holdfast.kind (name, queue, priority, graph) values ('greeter', 'default', 0, $1::jsonb)",
            (json.dumps({ALL: [ALL, "end"], "ReadName": [ALL, 7], "x": ALL}),),
        )
        connection.execute(
            b"update holdfast.kind set paused_at = holdfast.now(), paused_by = $1, about = $2::jsonb",
            (ALL, json.dumps({"ReadName": {"fields": [ALL], "errors": 3}, ALL: ALL})),
        )
        for fingerprint in EVIL[:2]:
            connection.execute(
                b"""insert into holdfast.worker (id, name, host, pid, version, queues, steps, slots, limits, kinds,
                                                 only_steps)
                    values (holdfast.new_id(), $1, $1, 1, $1, array[$1], array[$1], 1, $2::jsonb, $3::jsonb,
                            array[$1])""",
                (ALL, json.dumps({ALL: 1}), json.dumps({"greeter": fingerprint})),
            )
        connection.execute(
            b"insert into holdfast.queue (name, paused_at, paused_by) values ('default', holdfast.now(), $1)", (ALL,)
        )
        connection.execute(
            b"""insert into holdfast.schedule (name, definition, paused_at, paused_by, error, failures)
                values ('evil', $1::jsonb, holdfast.now(), $2, $2, 3), ('other', $3::jsonb, null, null, $2, 1)""",
            (
                json.dumps({"timing": {"cron": ALL, "tz": ALL}, "step": ALL, "args": {ALL: ALL}, "overlap": ALL}),
                ALL,
                json.dumps({"timing": {"every": "1h"}, "step": "greeter.ReadName", "scopes": [ALL[:200]]}),
            ),
        )
        connection.execute(
            b"insert into holdfast.schedule_scope (schedule, scope, watermark) values ('other', $1, holdfast.now())",
            (ALL[:200],),
        )
        for name in ("evil", "other"):
            connection.execute(
                b"""insert into holdfast.occurrence (schedule, scope, plan_time, due_at, task_id, queue, skipped, open)
                    values ($1, $2, holdfast.now(), holdfast.now(), $3::uuid, 'default', null, false),
                           ($1, $2, '2026-01-01T00:00Z', holdfast.now(), null, null, $2, false)""",
                (name, ALL, ids[0]),
            )
    return [*ids, running]


async def test_X5_no_text_becomes_html(browser: Browser, holdfast_url: str) -> None:
    first, second, third = plant(holdfast_url)
    [(worker,)] = rows(holdfast_url, "select id::text from holdfast.worker limit 1")
    pages = ["/", "/tasks", f"/tasks/{first}", f"/tasks/{second}", f"/tasks/{third}", "/parked"]
    pages += ["/bulk/new?verb=retry&q=state:parked"]
    pages += ["/queues", "/queues/default/resume", "/kinds/greeter", "/kinds/greeter/resume"]
    pages += ["/workers", f"/workers/{worker}/stop"]
    pages += ["/schedules", "/schedules/evil", "/schedules/evil/resume", "/schedules/evil/fire", "/schedules/other"]
    pages += ["/schedules/other/backfill?since=2026-01-02&until=2026-01-03"]
    for path in pages:
        text = await browser.page(path)
        assert Page(text).wrong == [], path
        assert "alert(1)" in text, path
    others = ["/kinds", "/workers/stop", "/schedules/evil/delete", "/schedules/evil/backfill", "/database"]
    for path in (*others, "/queues/default/pause", "/kinds/greeter/pause"):
        assert Page(await browser.page(path)).wrong == [], path


async def test_X5_no_address_becomes_html(browser: Browser, holdfast_url: str) -> None:
    rows(holdfast_url, "insert into holdfast.schedule (name, definition) values ('s', $1::jsonb)", json.dumps(HOURLY))
    for evil in EVIL:
        await try_addresses(browser, evil)


ASKED = "span q verb below limit id all above after before number since until other"


async def try_addresses(browser: Browser, evil: str) -> None:
    schedules = ("/schedules", "/schedules/s", "/schedules/s/backfill")
    for path in ("/", "/tasks", "/parked", "/bulk/new", "/workers", *schedules):
        for name in ASKED.split():
            answer = await browser.client.get(path, params={name: evil})
            assert Page(answer.text).wrong == [], (path, name)
    for path in (
        *(f"/{evil}", f"/tasks/{evil}", f"/bulk/{evil}", f"/kinds/{evil}"),
        *(f"/queues/{evil}/pause", f"/kinds/{evil}/resume", f"/workers/{evil}/stop", f"/schedules/{evil}"),
    ):
        answer = await browser.client.get(path.replace("\r", "").replace("\n", ""))
        assert Page(answer.text).wrong == [], path


async def test_X5_a_reason_is_only_text(browser: Browser, holdfast_url: str) -> None:
    id = plant_task(holdfast_url)
    answer = await browser.post("/bulk", {"verb": "retry", "q": f"id:{id}", "why": ALL})
    for path in (answer.headers["location"], "/bulk", f"/tasks/{id}"):
        assert Page(await browser.page(path)).wrong == []
    assert rows(holdfast_url, "select count(*) from holdfast.change") in ([(0,)], [(1,)])
