"""`retry`, `cancel` and `discard` with --where: what they touch, ask, tell and exit with."""

import itertools
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast._db.config.describe import described
from holdfast._db.config.resolve import EMBEDDED_FACTS
from holdfast._db.driver.connection import connect_sync
from holdfast._sql import repair
from holdfast._sql.queries import Queries

from .conftest import Cli
from .planted import is_harmless, park, parked, plant, plant_kind, rows, states
from .terminal import Terminal


def retrying(cli: Cli) -> str:
    """A task that waits for its next attempt."""
    id = cli.enqueue("greeter.ReadName", "--delay", "1h")
    rows(cli, "update holdfast.task set errors = 1, attempt = 1 where id = $1::uuid", id)
    return id


@contextmanager
def before_each_batch(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]) -> Iterator[None]:
    """Lets something happen between the look for tasks and the act on them, as others do."""
    retry = Queries.retry_many

    def late(self: Queries, *args: Any, **options: Any) -> Any:
        happens()
        return retry(self, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Queries, "retry_many", late)
        yield


def test_retry_means_parked_tasks_unless_a_state_is_said(cli: Cli) -> None:
    """T12."""
    stopped, waiting, fresh = parked(cli), retrying(cli), cli.enqueue("greeter.ReadName", "--delay", "1h")
    other = parked(cli, "send")
    done = cli("retry", "--where", "kind:greeter", "--yes", "--why", "repaired")
    assert "1 task matches kind:greeter state:parked" in done.stdout
    assert done.stdout.endswith("1 task is ready.\n")
    assert states(cli, [stopped, other]) == ["ready", "parked"]
    assert [cli.show(id)["task"]["phase"] for id in (waiting, fresh)] == ["retrying", "scheduled"]
    change = cli.show(stopped)["changes"][0]
    assert (change["action"], change["by"], change["why"]) == ("retry", "tester", "repaired")

    assert cli("retry", "--where", "state:retrying", "--yes").stdout.endswith("1 task is ready.\n")
    assert cli.show(waiting)["task"]["errors"] == 0
    assert cli.show(fresh)["changes"] == []


def test_discard_means_parked_tasks_and_cancel_unfinished_ones(cli: Cli) -> None:
    """Q8."""
    stopped, waiting = parked(cli), cli.enqueue("greeter.ReadName")
    ended = cli.enqueue("greeter.ReadName")
    cli("cancel", ended)
    assert cli.json("discard", "--where", "kind:greeter", "--yes")["done"] == {"discarded": 1}
    assert states(cli, [stopped, waiting, ended]) == ["discarded", "ready", "cancelled"]
    assert cli("discard", "--where", "state:ready", "--yes").stdout.endswith(
        "no task matches state:ready state:parked\n"
    )
    again = parked(cli)
    running = cli.enqueue("greeter.ReadName")
    rows(
        cli,
        "update holdfast.task set state = 'running', worker_id = holdfast.new_id(), attempt = 1,"
        " claimed_at = holdfast.now(), lease_expires_at = holdfast.now() + '1 h'::interval where id = $1::uuid",
        running,
    )
    told = cli("cancel", "--where", "kind:greeter", "--yes").stdout
    assert "3 tasks match kind:greeter state:ready,running,waiting,parked" in told
    assert "2 tasks are cancelled" in told
    assert "1 task is cancelling" in told
    assert states(cli, [waiting, again, running]) == ["cancelled", "cancelled", "running"]


@pytest.mark.parametrize("verb", ["retry", "cancel", "discard"])
def test_everything_is_never_meant(cli: Cli, verb: str) -> None:
    id = parked(cli)
    for where in ("", "   "):
        said = cli(verb, "--where", where, "--yes", code=2).stderr
        assert "an empty filter means every task" in said
        assert "Say state:" in said
    assert states(cli, [id]) == ["parked"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--where", "state:parked"], "nobody can be asked here: add --yes, or --dry-run"),
        (["--where", "state:parked", "--json"], "nobody can be asked here"),
        (["--where", "state:parked", "01890a5d-ac96-774b-bcce-b302099a8057", "-y"], "not both"),
        (["--where", "state:parked", "kind:greeter", "-y"], "needs quotes: --where 'state:parked …'"),
        ([], "give the ID of a task, or --where FILTER"),
        (["--where", "nonsense", "-y"], "write field:value"),
        (["--where", "state:parked", "-y", "--args", "{}"], "--args and --expected-attempt are for one task"),
        (["--where", "state:parked", "-y", "--expected-attempt", "1"], "are for one task"),
        (["--where", "state:parked", "-y", "--rate", "fast"], "is not a rate"),
        (["--where", "state:parked", "-y", "--rate", "0"], "is not a rate"),
        (["--where", "state:parked", "-y", "--rate", "5/d"], "is not a rate"),
        (["--where", "state:parked", "-y", "--limit", "0"], "--limit"),
        (["01890a5d-ac96-774b-bcce-b302099a8057", "--dry-run"], "--dry-run is for --where"),
        (["01890a5d-ac96-774b-bcce-b302099a8057", "--limit", "1"], "--limit is for --where"),
    ],
)
def test_wrong_usage_changes_nothing(cli: Cli, arguments: list[str], said: str) -> None:
    id = parked(cli)
    assert said in cli("retry", *arguments, code=2).stderr
    assert states(cli, [id]) == ["parked"]


def test_a_dry_run_tells_and_does_nothing(cli: Cli) -> None:
    found = [parked(cli), parked(cli, type="ValueError", message="\x1b[2Jbad")]
    waiting = cli.enqueue("send")
    told = cli("retry", "--where", "kind:greeter", "--dry-run")
    assert "2 tasks match" in told.stdout
    assert "FileNotFoundError" in told.stdout
    assert "ValueError" in told.stdout
    assert is_harmless(told.output)
    told = cli("cancel", "--where", "-kind:nobody", "--dry-run")
    assert "3 tasks match" in told.stdout
    assert "send.main" in told.stdout
    answer = cli.json("discard", "--where", "kind:greeter", "--dry-run")
    assert (answer["count"], answer["dry_run"], answer["done"]) == (2, True, {})
    assert states(cli, [*found, waiting]) == ["parked", "parked", "ready"]


def test_nothing_to_do_is_no_failure(cli: Cli) -> None:
    assert "no task matches kind:greeter state:parked\n" in cli("retry", "--where", "kind:greeter", "-y").stdout
    assert cli.json("retry", "--where", "kind:greeter", "-y")["count"] == 0


@pytest.mark.parametrize("verb", ["retry", "cancel", "discard"])
def test_it_begins_with_the_database_it_acts_on(cli: Cli, project: Path, verb: str) -> None:
    """Somebody may have been in the wrong folder, or have an old variable in this terminal."""
    first = cli(verb, "--where", "kind:greeter", "--dry-run").stdout.splitlines()[0]
    assert first == f"database: PostgreSQL at {described(cli.url)} (HOLDFAST_URL)"
    assert cli.json(verb, "--where", "kind:greeter", "--dry-run")["database"] == first.removeprefix("database: ")
    (project / ".holdfast").mkdir()
    facts = {"url": cli.url, "pid": os.getpid(), "folder": str(project / ".holdfast")}
    (project / ".holdfast" / EMBEDDED_FACTS).write_text(json.dumps(facts))
    cli.environment["HOLDFAST_URL"] = None
    assert str(project / ".holdfast") in cli(verb, "--where", "kind:greeter", "--dry-run").stdout.splitlines()[0]


def test_many_are_done_in_batches_and_not_more_than_the_limit(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = plant(cli, 250)
    batches: list[int] = []
    with before_each_batch(monkeypatch, lambda: batches.append(1)):
        limited = cli("retry", "--where", "state:parked", "--limit", "120", "--yes").stdout
        assert len(batches) == 2
        assert limited.endswith("120 tasks are ready.\n")
        assert states(cli, planted) == ["ready"] * 120 + ["parked"] * 130
        rest = cli.json("retry", "--where", "state:parked", "--yes")
    assert len(batches) == 4
    assert (rest["count"], rest["done"], rest["passed_over"]) == (130, {"ready": 130}, {})
    assert states(cli, planted) == ["ready"] * 250
    assert rows(cli, "select count(*), count(distinct task_id) from holdfast.change") == [(250, 250)]


def test_all_may_go_on_at_another_step(cli: Cli) -> None:
    plant_kind(cli)
    planted = plant(cli, 3)
    cli("retry", "--where", "kind:greeter", "--step", "SayHello", "--yes")
    assert {cli.show(id)["task"]["step"] for id in planted} == {"SayHello"}


def test_what_is_locked_is_passed_over(cli: Cli) -> None:
    first, second = plant(cli, 2)
    with connect_sync(cli.url) as other, other.transaction():
        other.execute(b"select from holdfast.task where id = $1::uuid for update", [first])
        told = cli("retry", "--where", "state:parked", "--yes").stdout
        assert "1 task is ready.\n1 passed over: 1 locked by somebody else.\n" in told
        only = cli("retry", "--where", "state:parked", "--yes", "--json", code=1)
        assert json.loads(only.stdout)["passed_over"] == {"locked by somebody else": 1}
    assert states(cli, [first, second]) == ["parked", "ready"]


def test_what_changed_meanwhile_is_passed_over_with_the_reason(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = plant(cli, 4)

    def others() -> None:
        rows(cli, "select holdfast.discard($1::uuid)", planted[0])
        rows(cli, "select holdfast.retry($1::uuid)", planted[1])
        rows(cli, "delete from holdfast.task where id = $1::uuid", planted[2])

    with before_each_batch(monkeypatch, others):
        answer = cli.json("retry", "--where", "kind:greeter", "--yes")
    assert answer["done"] == {"ready": 1}
    assert answer["passed_over"] == {"discarded by now": 1, "ready by now": 1, "not there any more": 1}


def test_tasks_that_come_meanwhile_are_left_alone(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "BATCH", 2)
    planted = plant(cli, 3)
    later: list[str] = []
    with before_each_batch(monkeypatch, lambda: later.extend(plant(cli, 5))):
        assert cli.json("retry", "--where", "state:parked", "--yes")["done"] == {"ready": 3}
    assert states(cli, planted) == ["ready"] * 3
    assert set(states(cli, later)) == {"parked"}


def test_a_failure_in_the_middle_tells_what_was_done(cli: Cli) -> None:
    planted = plant(cli, 150)
    rows(cli, f"alter table holdfast.change add constraint closed check (task_id < '{planted[120]}')")
    result = cli("retry", "--where", "state:parked", "--yes", code=1)
    assert "100 tasks are ready." in result.stdout
    assert "error: the database refused this" in result.stderr
    assert states(cli, planted) == ["ready"] * 100 + ["parked"] * 50


def test_T12_a_rate_spreads_the_tasks_over_time(cli: Cli) -> None:
    """They are all written at once, so nothing depends on the command going on."""
    planted = plant(cli, 120)
    told = cli("retry", "--where", "state:parked", "--rate", "60/m", "--yes").stdout
    assert told.endswith("120 tasks are ready, due one after another within 1 min 59 s.\n")
    times = [row[0] for row in rows(cli, "select run_at from holdfast.task order by id")]
    assert {(b - a).total_seconds() for a, b in itertools.pairwise(times)} == {1.0}
    last = cli.show(planted[-1])
    assert last["task"]["phase"] == "scheduled"
    assert "run_at" in last["changes"][0]["new"]


def test_rates_are_understood(cli: Cli) -> None:
    for rate in ("1000", "1000/s", "60000/m", "1e7/h"):
        park(cli, id := cli.enqueue("greeter.ReadName"))
        cli("retry", "--where", "state:parked", "--yes", "--rate", rate)
        assert states(cli, [id]) == ["ready"]


def test_T12_a_step_that_nobody_knows_is_refused(cli: Cli) -> None:
    plant_kind(cli)
    planted = plant(cli, 2)
    for which in (["--where", "kind:greeter", "--yes"], [planted[0]]):
        said = cli("retry", *which, "--step", "SayHelo", code=1).stderr
        assert "nobody knows the step greeter.SayHelo" in said
        assert "The steps of greeter are: ReadName, SayHello. With force, the task waits there" in said
    assert states(cli, planted) == ["parked", "parked"]
    cli("retry", planted[0], "--step", "SayHelo", "--force")
    cli("retry", "--where", "kind:greeter", "--step", "SayHelo", "--force", "--yes")
    assert [cli.show(id)["task"]["step"] for id in planted] == ["SayHelo", "SayHelo"]
    assert "--force is for --step" in cli("retry", planted[0], "--force", code=2).stderr


# --- on a terminal


def test_a_person_is_asked(cli: Cli) -> None:
    planted = plant(cli, 3)
    with Terminal(cli.url, "retry", "--where", "kind:greeter", "--limit", "2") as terminal:
        terminal.says("retry 2 of 3 tasks? [y/N]")
        terminal.answer("n\n")
        assert terminal.ended() == 1
        assert "aborted." in terminal.shown
    assert states(cli, planted) == ["parked"] * 3
    with Terminal(cli.url, "retry", "--where", "kind:greeter") as terminal:
        terminal.says("OSError")
        terminal.says("retry 3 tasks? [y/N]")
        terminal.answer("y\n")
        assert terminal.ended() == 0
        assert "3 of 3 (Ctrl-C stops after this batch)" in terminal.shown
        assert terminal.shown.endswith("\x1b[2K3 tasks are ready.\n"), "the progress is wiped away"
    assert states(cli, planted) == ["ready"] * 3


SLOW = """
    create function held() returns trigger language plpgsql as $$
    begin
        perform pg_advisory_xact_lock(1);
        return new;
    end $$;
    create trigger held before insert on holdfast.change for each row when (new.task_id > '%s') execute function held();
"""


def test_ctrl_c_ends_after_a_batch_and_tells_what_was_done(cli: Cli) -> None:
    planted = plant(cli, 250)
    rows(cli, SLOW % planted[99])
    with connect_sync(cli.url) as other:
        other.execute(b"select pg_advisory_lock(1)")
        with Terminal(cli.url, "discard", "--where", "kind:greeter", "--yes") as terminal:
            terminal.says("100 of 250")
            terminal.interrupt()
            other.execute(b"select pg_advisory_unlock(1)")
            assert terminal.ended() == 130
            assert "interrupted." in terminal.shown
    assert states(cli, planted).count("discarded") == 200
    assert "200 tasks are discarded." in terminal.shown
