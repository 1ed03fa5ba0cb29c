"""What the pages about schedules and the database tell and do."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.schedules import ScheduleInfo
from holdfast.web.view.plan_times import next_change, next_plans

from .conftest import HERE, Browser, plant_worker, rows
from .test_operate import changes

STEP: dict[str, Any] = {"step": "greeter.ReadName", "args": {"filename": "name.txt", "password": "sesame-open"}}
NIGHTLY: dict[str, Any] = {"timing": {"cron": "30 2 * * *", "tz": "Europe/Berlin"}, **STEP}
HOURLY: dict[str, Any] = {"timing": {"every": "1h"}, **STEP}


def plant_schedule(url: str, name: str = "nightly", definition: dict[str, Any] = NIGHTLY) -> None:
    rows(url, "select holdfast.set_schedule($1, $2::jsonb)", name, json.dumps(definition))


def info(definition: dict[str, Any], now: datetime) -> ScheduleInfo:
    return ScheduleInfo(
        "x", definition, "active", None, None, None, None, None, 0, False, False, 0, 1, now, now, now
    )  # fmt: skip


async def test_S10_schedules_are_told_in_plain_words(browser: Browser, holdfast_url: str) -> None:
    plant_schedule(holdfast_url)
    plant_schedule(holdfast_url, "wrong", NIGHTLY | {"timing": {"cron": "nonsense"}})
    rows(holdfast_url, "select holdfast.fire_schedule('nightly', '{\"plan_time\": \"2026-01-01T00:00Z\"}')")
    rows(
        holdfast_url,
        """insert into holdfast.occurrence (schedule, scope, plan_time, due_at, skipped, open)
           values ('nightly', '', '2026-01-02T00:00Z', '2026-01-02T00:00Z', 'the one before was unfinished', false)""",
    )
    nightly, wrong = (await browser.json("/api/schedules"))["schedules"]
    assert "02:30" in nightly["words"] and "Europe/Berlin" in nightly["words"]
    assert [each["state"] for each in nightly["recent"]] == ["ready", "skipped"]
    assert wrong["words"].startswith("not understood") and wrong["next"] is None
    page = await browser.page("/schedules")
    assert "02:30" in page and 'class="tick due"' in page and "/schedules/nightly" in page
    found = await browser.json("/api/schedules/nightly?number=3")
    assert len(found["upcoming"]) == 3 and found["zone"] == "Europe/Berlin"
    assert [each["state"] for each in found["occurrences"]] == ["skipped", "ready"]
    page = await browser.page("/schedules/nightly")
    assert "the one before was unfinished" in page and "When the clocks are set" in page
    assert "sesame-open" not in page and "[hidden]" in page and "name.txt" in page
    assert "There are no more." in await browser.page("/schedules/wrong")
    assert "There is no schedule nothing" in await browser.page("/schedules/nothing", status=404)
    await browser.page("/schedules/nightly?after=nonsense", status=400)
    await browser.page("/schedules/nightly?number=100000", status=400)


async def test_S10_the_next_times_are_told_across_a_change_of_the_clocks(browser: Browser, holdfast_url: str) -> None:
    plant_schedule(holdfast_url)
    found = await browser.json("/api/schedules/nightly?number=3&after=2030-03-29T12:00")
    assert [(each["local"][4:], each["clocks_set"]) for each in found["upcoming"]] == [
        ("2030-03-30 02:30:00 +0100", False),
        ("2030-03-31 03:00:00 +0200", True),
        ("2030-04-01 02:30:00 +0200", False),
    ]
    assert "the clocks are set" in await browser.page("/schedules/nightly?number=3&after=2030-03-29T12:00")


@pytest.mark.parametrize(
    ("timing", "expected"),
    [
        (
            {"cron": "30 2 * * *", "tz": "Europe/Berlin"},
            ["03-26 02:30 +0100", "03-27 02:30 +0100", "03-28 02:30 +0100"]
            + ["03-29 03:00 +0200", "03-30 02:30 +0200", "03-31 02:30 +0200"],
        ),
        (
            {"cron": "*/30 * * * *", "tz": "Europe/Berlin"},
            ["03-29 00:30 +0100", "03-29 01:00 +0100", "03-29 01:30 +0100"]
            + ["03-29 03:00 +0200", "03-29 03:30 +0200", "03-29 04:00 +0200"],
        ),
        ({"cron": "30 2 * * *", "tz": "UTC"}, None),
        ({"every": "1h"}, None),
        ({"cron": "nonsense"}, None),
    ],
)
def test_S10_the_next_change_of_the_clocks_is_found(timing: dict[str, str], expected: list[str] | None) -> None:
    change = next_change(info({**STEP, "timing": timing}, datetime(2026, 3, 1, tzinfo=UTC)))
    if expected is None:
        assert change is None
        return
    assert change is not None and change.at == datetime(2026, 3, 29, 1, tzinfo=UTC)
    assert [f"{each.local[9:20]} {each.local[-5:]}" for each in change.times] == expected
    assert [each.clocks_set for each in change.times] == [False, False, False, True, False, False]


def test_S10_a_schedule_of_every_second_is_told_at_once() -> None:
    each = info({**STEP, "timing": {"cron": "* * * * * *", "tz": "Europe/Berlin"}}, datetime(2026, 3, 1, tzinfo=UTC))
    change = next_change(each)
    assert change is not None and len(change.times) == 6
    assert change.times[3].at - change.times[2].at == timedelta(seconds=1)
    assert len(next_plans(each, 200)) == 200


async def test_S9_a_schedule_is_fired_paused_and_resumed_in_somebodys_name(browser: Browser, holdfast_url: str) -> None:
    plant_schedule(holdfast_url)
    before = len(changes(holdfast_url))
    for verb, asked in (("fire", "Fire nightly now?"), ("pause", "Pause nightly?"), ("resume", "Resume nightly?")):
        question = await browser.page(f"/schedules/nightly/{verb}")
        assert asked in question and f'action="/schedules/nightly/{verb}"' in question
        answer = await browser.post(f"/schedules/nightly/{verb}", {"why": f"to {verb}"})
        assert answer.headers["location"] == "/schedules/nightly"
        if verb == "pause":
            assert "to pause" in await browser.page("/schedules/nightly")
    acted = changes(holdfast_url)[before:]
    assert [(each[0], each[2], each[3]["schedule"]) for each in acted] == [
        ("fire", "to fire", "nightly"),
        ("pause", "to pause", "nightly"),
        ("resume", "to resume", "nightly"),
    ]
    assert len({each[1] for each in acted}) == 1 and acted[0][1]
    assert rows(holdfast_url, "select kind, step from holdfast.task") == [("greeter", "ReadName")]
    await browser.post("/schedules/nothing/fire", status=400)


async def test_S9_a_schedule_is_deleted_unless_code_declares_it(browser: Browser, holdfast_url: str) -> None:
    plant_schedule(holdfast_url)
    before = len(changes(holdfast_url))
    question = await browser.page("/schedules/nightly/delete")
    assert "Delete nightly?" in question and "would come back" not in question
    rows(holdfast_url, "update holdfast.schedule set declared = definition")
    worker = plant_worker(holdfast_url)
    rows(holdfast_url, "update holdfast.worker set schedules = array['nightly'] where id = $1::uuid", worker)
    assert "would come back" in await browser.page("/schedules/nightly/delete")
    answer = await browser.client.post("/schedules/nightly/delete", headers=HERE)
    assert answer.status_code in (400, 409) and "is declared in the code of a live worker" in answer.text
    assert len(changes(holdfast_url)) == before
    rows(holdfast_url, "update holdfast.worker set schedules = '{}'")
    deleted = await browser.post("/schedules/nightly/delete", {"why": "nobody reads it"})
    assert deleted.headers["location"] == "/schedules"
    [(action, by, why, new)] = changes(holdfast_url)[before:]
    assert (action, why, new) == ("delete", "nobody reads it", {"schedule": "nightly"}) and by
    assert rows(holdfast_url, "select 1 from holdfast.schedule") == []
    await browser.page("/schedules/nightly/delete", status=404)


async def test_S10_a_backfill_is_shown_first_and_then_made_once(browser: Browser, holdfast_url: str) -> None:
    plant_schedule(holdfast_url, "hourly", HOURLY)
    before = len(changes(holdfast_url))
    path, asked = "/schedules/hourly/backfill", {"since": "2026-01-01T00:00", "until": "2026-01-01T02:30"}
    assert "Show what it would do" in await browser.page(path)
    page = await browser.page(path, params=asked)
    assert "3 would be enqueued, 0 are there already" in page and "Enqueue 3" in page
    assert "2026-01-01 02:00:00 +0000" in page
    assert rows(holdfast_url, "select 1 from holdfast.task") == [] and len(changes(holdfast_url)) == before
    await browser.post(path, asked | {"why": "the server was down"})
    await browser.post(path, asked)
    assert rows(holdfast_url, "select count(*) from holdfast.task") == [(3,)]
    [(action, by, why, new)] = changes(holdfast_url)[before:]
    assert (action, why) == ("backfill", "the server was down") and by
    assert new == {
        "schedule": "hourly",
        "since": "2026-01-01T00:00:00+00:00",
        "until": "2026-01-01T02:30:00+00:00",
        "enqueued": 3,
    }
    assert "0 would be enqueued, 3 are there already" in await browser.page(path, params=asked)
    assert "ends before it begins" in await browser.page(path, params={"since": "2026-01-02", "until": "2026-01-01"})
    await browser.page(path, params={"since": "2026-01-01", "until": "2100-01-01"}, status=400)
    await browser.page(path, params={"since": "1970-01-01", "until": "2026-01-01"}, status=400)
    await browser.post(path, {"since": "nonsense", "until": "2026-01-01"}, status=400)


async def test_the_database_is_told(browser: Browser) -> None:
    found = await browser.json("/api/database")
    assert {"task", "archive", "attempt", "change"} <= {each["name"] for each in found["tables"]}
    assert found["total"] == sum(each["table_bytes"] + each["index_bytes"] for each in found["tables"]) > 0
    assert {each["parent"] for each in found["history"]} == {"archive", "attempt"}
    assert 0 <= found["server"]["notifications"] <= 1
    page = await browser.page("/database")
    assert "Notification queue" in page and 'id="table-task"' in page and 'id="index-archive_id"' in page
