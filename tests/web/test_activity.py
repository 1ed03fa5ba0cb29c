"""What happened lately: charts, the same as numbers, and banners about it."""

import json
import re
from datetime import UTC, datetime
from html import unescape
from typing import Any

import pytest

from holdfast.insights import Figure
from holdfast.web.view.activity import _pace
from holdfast.web.view.charts import Line, _drawn

from .conftest import Browser, plant_task, plant_worker, rows
from .test_pages import plant_kind

NOON = datetime(2031, 5, 20, 12, tzinfo=UTC)


def plant_figure(url: str, ago: str, *, kind: str = "greeter", done: int = 0, failed: int = 0) -> None:
    """What was counted of a minute: all waited between 1 and 2 s, and took between 10 and 20 ms."""
    count = done + failed
    wait = [0] * 10 + [count] + [0] * 15
    run = [0] * 4 + [count] + [0] * 21
    rows(
        url,
        """
        insert into holdfast.figure (minute, queue, kind, step, done, failed, wait, run, wait_seconds, run_seconds)
        values (date_trunc('minute', holdfast.now()) - $1::text::interval, 'default', $2, 'ReadName', $3::int, $4::int,
                $5::int[], $6::int[], $7::int, $7::int)
        """,
        *(ago, kind, done, failed, wait, run, count),
    )
    rows(url, "update holdfast.figure_place set until = holdfast.now(), settled = holdfast.now() - interval '8 days'")


def charts_of(page: str) -> list[Any]:
    return [json.loads(unescape(each)) for each in re.findall(r'data-chart="([^"]*)"', page)]


async def test_the_overview_tells_what_happened_lately(browser: Browser, holdfast_url: str) -> None:
    plant_figure(holdfast_url, "10 minutes", done=90, failed=30)
    plant_figure(holdfast_url, "5 hours", done=1000)
    found = (await browser.json("/api"))["activity"]
    total = found["total"]
    assert (found["span"], total["attempts"], total["done"], total["errors"], total["parked"]) == (
        "1h",
        120,
        90,
        30,
        30,
    )
    assert total["error_rate"] == 0.25 and 1.9 < total["per_minute"] <= 2
    assert 1 <= total["wait"]["p50"] <= total["wait"]["p99"] <= 2 and 0.01 <= total["run"]["p95"] <= 0.02
    [busy] = [each for each in found["points"] if each["attempts"]]
    assert busy["per_minute"] == 120 and busy["done_per_minute"] == 90 and len(found["points"]) == 61
    day = (await browser.json("/api?span=24h"))["activity"]
    assert day["total"]["attempts"] == 1120 and day["step"] == 3600
    assert (await browser.client.get("/?span=2h")).status_code == 400


async def test_charts_are_data_for_the_script_and_a_picture_without_it(browser: Browser, holdfast_url: str) -> None:
    plant_figure(holdfast_url, "10 minutes", done=90, failed=30)
    page = await browser.page("/")
    rate, errors, wait, run = charts_of(page)
    assert [each["label"] for each in rate["series"]] == ["Attempts", "Tasks done"]
    assert 120 in rate["data"][1] and 90 in rate["data"][2] and 25 in errors["data"][1]
    assert {each["measure"] for each in (wait, run)} == {"seconds"}
    assert all(len(each["data"]) == len(each["series"]) + 1 for each in (rate, errors, wait, run))
    assert all(len(values) == 61 for each in (rate, errors, wait, run) for values in each["data"])
    assert page.count('<svg class="spark"') == 4 and '<polyline class="bad"' in page
    assert "120</td>" in page and "(25.0 %)" in page and "25.0 % of attempts" in page
    assert 'href="/?span=7d"' in page and 'data-live="/live/?span=24h"' in await browser.page("/?span=24h")


async def test_a_kind_tells_only_of_itself(browser: Browser, holdfast_url: str) -> None:
    plant_kind(holdfast_url)
    plant_figure(holdfast_url, "10 minutes", done=7)
    plant_figure(holdfast_url, "9 minutes", kind="other", done=5)
    assert (await browser.json("/api/kinds/greeter"))["activity"]["total"]["done"] == 7
    assert len(charts_of(await browser.page("/kinds/greeter?span=24h"))) == 4


async def test_queues_and_kinds_tell_how_fast_they_are(browser: Browser, holdfast_url: str) -> None:
    plant_kind(holdfast_url)
    plant_figure(holdfast_url, "10 minutes", done=90, failed=30)
    plant_figure(holdfast_url, "3 hours", done=1000)
    [queue] = (await browser.json("/api/queues"))["queues"]
    [kind] = (await browser.json("/api/kinds"))["kinds"]
    for pace in (queue["pace"], kind["pace"]):
        assert (pace["attempts"], pace["error_rate"]) == (120, 0.25) and 1.8 < pace["per_minute"] <= 2
    for path in ("/queues", "/kinds"):
        assert "25.0 %" in await browser.page(path)


async def test_nothing_happened(browser: Browser) -> None:
    found = (await browser.json("/api"))["activity"]
    assert found["total"]["error_rate"] is None and found["total"]["wait"]["p99"] is None
    assert {each["error_rate"] for each in found["points"]} == {None}
    assert len(charts_of(await browser.page("/"))) == 4


async def test_what_nobody_has_counted_is_told(browser: Browser, holdfast_url: str) -> None:
    rows(holdfast_url, "update holdfast.figure_place set until = holdfast.now() - interval '5 hours'")
    assert "Nothing has been counted since" in await browser.page("/?span=24h")


@pytest.mark.parametrize(("seconds", "rate"), [(60, 30), (30, 60), (13, 30 * 60 / 13), (12, None), (0, None)])
def test_what_has_hardly_begun_has_no_rate_yet(seconds: float, rate: float | None) -> None:
    assert _pace(NOON, Figure({"done": 30}), seconds, 12).per_minute == pytest.approx(rate)


@pytest.mark.parametrize(("values", "pieces"), [([1, 2, None, 3, 4], 2), ([None, 1, None], 1), ([None], 0), ([0], 1)])
def test_a_line_has_gaps_where_there_is_nothing(values: list[float | None], pieces: int) -> None:
    drawn = [str(each) for each in _drawn(Line("x", "good", values), 4.0)]
    assert len(drawn) == pieces and all(each.count(",") > 1 for each in drawn)


# --- banners


def plant_parking(url: str, number: int, ago: str) -> None:
    rows(
        url,
        """
        insert into holdfast.attempt (task_id, queue, kind, step, moves, attempt, claimed_at, finished_at, outcome,
                                      parked, args)
        select holdfast.new_id(), 'default', 'greeter', 'ReadName', 0, 1, t.at, t.at, 'failed', true, '{}'
        from generate_series(1, $1::int), (select holdfast.now() - $2::text::interval) as t(at)
        """,
        number,
        ago,
    )


async def test_many_tasks_that_are_parked_are_told(browser: Browser, holdfast_url: str) -> None:
    plant_parking(holdfast_url, 9, "5 minutes")
    plant_parking(holdfast_url, 50, "61 minutes")
    assert "were parked in the last hour" not in await browser.page("/")
    plant_parking(holdfast_url, 1, "1 minute")
    [banner] = (await browser.json("/api"))["banners"]
    assert (banner["tone"], banner["text"]) == ("warning", "10 tasks were parked in the last hour.")
    plant_parking(holdfast_url, 95, "1 minute")
    [banner] = (await browser.json("/api"))["banners"]
    assert (banner["tone"], banner["text"]) == ("bad", "More than 100 tasks were parked in the last hour.")


async def test_paused_kinds_and_late_loops_are_told_after_what_is_worse(browser: Browser, holdfast_url: str) -> None:
    plant_kind(holdfast_url)
    rows(holdfast_url, "update holdfast.kind set paused_at = holdfast.now(), paused_by = 'ada'")
    worker = plant_worker(holdfast_url, "slow")
    rows(holdfast_url, "update holdfast.worker set late = array['reap'] where id = $1::uuid", worker)
    plant_task(holdfast_url, state="ready", queue="mail", attempt=0, errors=0)
    texts = [each["text"] for each in (await browser.json("/api"))["banners"]]
    assert texts == [
        "Queue mail: 1 task is due, and no live worker serves it.",
        "Worker slow is late: reap has not succeeded for too long.",
        "Kind greeter is paused by ada.",
    ]
    plant_parking(holdfast_url, 101, "1 minute")
    tones = [each["tone"] for each in (await browser.json("/api"))["banners"]]
    assert tones == ["bad", "bad", "bad", "warning"]
