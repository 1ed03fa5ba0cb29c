"""A4: `holdfast set` and `maintain`, and what other commands tell about history."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.testing import Harness

from .conftest import Cli
from .planted import rows

OLD = datetime.now(UTC) - timedelta(days=20)


def plant_day(cli: Cli) -> str:
    """A day that is old enough to be dropped."""
    day = f"{OLD:%Y%m%d}"
    rows(cli, f"select holdfast.ensure_partition('{day}')")
    return day


def test_A4_set_changes_the_retention_of_all_or_of_a_queue(cli: Cli) -> None:
    assert cli("set", "--retention", "14d").stdout == "history is kept for 14 d.\n"
    assert (
        cli("set", "mail", "--retention", "36h", "--why", "many").stdout
        == "history of queue mail is kept for 1 d 12 h.\n"
    )
    assert "kept 1 d 12 h" in cli("queues").stdout
    assert cli.json("queues")[0]["retention"] == "P1DT43200S"
    assert cli.json("set", "mail", "--retention", "default") == {"queue": "mail", "retention": 14 * 86400.0}
    told = rows(cli, "select action, by, why, new ->> 'queue' from holdfast.change order by id")
    assert told == [("set", "tester", None, None), ("set", "tester", "many", "mail"), ("set", "tester", None, "mail")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("set",), "say what to set"),
        (("set", "--retention", "1h"), "a day at least"),
        (("set", "--figures", "1h"), "figures (1h) must be a day at least"),
        (("set", "mail", "--figures", "90d"), "figures are kept for all queues alike"),
        (("set", "--retention", "long"), "is not a duration"),
        (("set", "Mail!", "--retention", "1d"), "queue"),
    ],
)
def test_A4_set_refuses_what_cannot_be(cli: Cli, arguments: tuple[str, ...], said: str) -> None:
    assert said in cli(*arguments, code=2).stderr
    assert rows(cli, "select * from holdfast.setting") == []


def test_figures_are_kept_as_long_as_set_says(cli: Cli) -> None:
    assert cli("set", "--figures", "90d", "--why", "a quarter").stdout == "figures are kept for 90 d.\n"
    assert rows(cli, "select retention, figures from holdfast.setting") == [(None, timedelta(days=90))]
    assert rows(cli, "select why, new ->> 'figures' from holdfast.change") == [("a quarter", "2160:00:00")]
    assert cli.json("set", "--retention", "8d") == {"queue": None, "retention": 8 * 86400.0, "figures": 90 * 86400.0}
    assert cli("set", "--figures", "default").stdout == "figures are kept for 30 d.\n"


def test_A4_maintain_drops_old_days_and_a_dry_run_only_shows_them(cli: Cli) -> None:
    day = plant_day(cli)
    shown = cli("maintain", "--dry-run")
    assert f"would drop archive_p{day}" in shown.stdout
    assert "history is kept for 7 d" in shown.stderr
    found = cli.json("maintain", "--dry-run")
    assert found["retention"] == 7 * 86400
    assert {each["name"] for each in found["would_drop"]} == {f"archive_p{day}", f"attempt_p{day}"}
    assert cli("maintain").stdout.startswith(f"dropped the history of {OLD:%Y-%m-%d} (")
    assert cli("maintain").stdout == "nothing to do.\n"
    assert cli.json("maintain") == {"done": [], "more": False, "failed": {}}
    assert cli("maintain", "--dry-run").stdout == "nothing would be dropped.\n"


def test_A4_maintain_says_what_a_worker_would(cli: Cli) -> None:
    cli.environment["HOLDFAST_RETENTION"] = "30d"
    plant_day(cli)
    assert cli("maintain").stdout == "nothing to do.\n"
    assert rows(cli, "select holdfast.retention()") == [(timedelta(days=30),)]


def test_A4_maintain_without_tables_or_database_says_what_to_do(cli: Cli) -> None:
    assert "Run: holdfast migrate --schema nowhere" in cli("maintain", "--schema", "nowhere", code=1).stderr
    cli.environment["HOLDFAST_URL"] = "postgresql://127.0.0.1:1/none"
    assert "cannot connect" in cli("maintain", code=4).stderr


async def test_B6_show_says_that_the_first_attempts_are_no_longer_in_the_log(cli: Cli, holdfast: Harness) -> None:
    @holdfast.app.task
    async def fail() -> None:
        raise ValueError("no")

    ref = await fail.enqueue()
    for _ in range(2):
        await holdfast.drain()
        await holdfast.app.retry(ref.id)
    assert "no longer in the log" not in cli("show", ref.id).stdout
    holdfast.clock.advance("30d")
    while (await asyncio.to_thread(cli.json, "maintain"))["more"]:
        pass
    shown = cli("show", ref.id).stdout
    assert "(the first 2 attempts are no longer in the log: history is not kept for ever)" in shown
    assert "Its first 2 attempts are no longer in the log: history is kept for 7 d." in shown
    await holdfast.drain()
    shown = cli("show", ref.id).stdout
    assert "(the first 2 attempts are no longer in the log" in shown and "ValueError: no" in shown
