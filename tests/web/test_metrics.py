"""`/metrics` and `/readyz` of a dashboard: what is known of the whole database, for monitors."""

import re

from holdfast import App
from holdfast.web import Token, dashboard

from .conftest import Browser, client, plant_task, plant_worker, rows


def values(text: str, name: str) -> dict[str, float]:
    """The values of a metric by their labels."""
    found = re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", text, re.MULTILINE)
    return {labels: float(value) for labels, value in found}


async def test_metrics_of_queues_workers_and_the_database(browser: Browser, holdfast_url: str) -> None:
    plant_task(holdfast_url, queue="mail")
    plant_task(holdfast_url, queue="mail", state="ready", attempt=0, errors=0)
    rows(holdfast_url, "UPDATE holdfast.task SET run_at = holdfast.now() - interval '2 minutes' WHERE state = 'ready'")
    plant_worker(holdfast_url, queues=["mail"])
    rows(holdfast_url, "UPDATE holdfast.worker SET late = '{claim}'")
    rows(holdfast_url, "SELECT holdfast.pause('mail', '{\"what\": \"queue\"}')")
    text = await browser.page("/metrics")
    tasks = values(text, "holdfast_tasks")
    assert tasks['queue="mail",state="parked"'] == tasks['queue="mail",state="due"'] == 1
    assert tasks['queue="mail",state="running"'] == 0
    assert 120 <= values(text, "holdfast_oldest_ready_seconds")['queue="mail"'] < 240
    assert values(text, "holdfast_queue_paused")['queue="mail"'] == 1
    workers = values(text, "holdfast_workers")
    assert (workers['state="running"'], workers['state="late"'], workers['state="lost"']) == (1, 1, 0)
    assert values(text, "holdfast_worker_slots")[""] == 10
    assert values(text, "holdfast_partitions_ahead_seconds")[""] > 13 * 86_400
    for name in ("schedule_lag_seconds", "notification_queue_usage", "figures_behind_seconds"):
        assert values(text, f"holdfast_{name}")[""] >= 0


async def test_a_schedule_that_nobody_plans_is_behind(browser: Browser, holdfast_url: str) -> None:
    definition = '{"timing": {"cron": "0 3 * * *"}, "step": "greeter.ReadName"}'
    made = f"SELECT holdfast.set_schedule('nightly', '{definition}')"
    rows(holdfast_url, made)
    rows(holdfast_url, "UPDATE holdfast.schedule SET next_at = holdfast.now() - interval '10 minutes'")
    lag = values(await browser.page("/metrics"), "holdfast_schedule_lag_seconds")[""]
    assert 600 <= lag < 900
    rows(holdfast_url, "SELECT holdfast.pause_schedule('nightly')")
    assert values(await browser.page("/metrics"), "holdfast_schedule_lag_seconds")[""] == 0


async def test_metrics_are_for_those_who_may_look_and_readiness_for_all(app: App) -> None:
    async with client(dashboard(app, auth=[Token("prometheus", "viewer", "s" * 32)])) as asking:
        assert (await asking.get("/metrics")).status_code == 401
        answer = await asking.get("/metrics", headers={"authorization": f"Bearer {'s' * 32}"})
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert (await asking.get("/readyz")).json() == {"ready": True, "reasons": []}


async def test_a_dashboard_without_its_database_is_not_ready() -> None:
    async with (
        App("postgresql://ada:sesame-sesame@127.0.0.1:1/nowhere") as app,
        client(dashboard(app, auth="trusted")) as asking,
    ):
        answer = await asking.get("/readyz")
        assert answer.status_code == 503 and "sesame" not in answer.text
        assert answer.json() == {"ready": False, "reasons": ["the database does not answer"]}
