"""X5: what each part can do, and that it can do nothing else: through SQL, Python and the command line."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from click.testing import CliRunner

from holdfast import App, Entry, named
from holdfast.cli import main
from holdfast.errors import KeyTaken, SchemaError, TaskCancelled

from .conftest import execute

STEP = "greeter.ReadName"
EVERYBODY = "producer worker viewer operator"
READERS = "worker viewer operator"


@dataclass
class Case:
    """One role at work on one database, and what the owner has put there for it."""

    url: str
    owner: str

    def task(self) -> UUID:
        (row,) = execute(self.owner, f"SELECT holdfast.enqueue('{STEP}', '{{\"secret\": 1}}')")
        return row[0]  # type: ignore[return-value]

    def parked(self) -> UUID:
        id = self.task()
        execute(self.owner, "UPDATE holdfast.task SET state = 'parked', error = '{}' WHERE id = $1", id)
        return id

    def sql(self, text: str, *values: object) -> list[tuple[object, ...]]:
        return execute(self.url, text, *values)

    def cli(self, *arguments: object) -> str:
        result = CliRunner().invoke(main, [*map(str, arguments)], env={"HOLDFAST_URL": self.url, "USER": "tester"})
        if result.exit_code == 1 and "may not do that: permission denied" in result.output:
            assert "holdfast roles grant producer|worker|viewer|operator ROLE" in result.output
            raise SchemaError(result.output)
        assert result.exit_code == 0, result.output
        return result.output

    def python(self, act: Callable[[App], Any]) -> Any:
        app = App(self.url)
        try:
            return act(app)
        finally:
            app.sync.close()


OPERATIONS: dict[str, tuple[str, Callable[[Case], object]]] = {}
"""What may be tried, by its name, and who may do it."""


def may(who: str) -> Callable[[Callable[[Case], object]], None]:
    def add(operation: Callable[[Case], object]) -> None:
        OPERATIONS[operation.__name__] = (who, operation)

    return add


def statement(name: str, who: str, text: str) -> None:
    def run(case: Case) -> object:
        if "$1" not in text:
            return case.sql(text)
        return case.sql(text, case.parked() if "retry" in text or "discard" in text else case.task())

    OPERATIONS[name] = (who, run)


def command(who: str, *arguments: str) -> None:
    def run(case: Case) -> object:
        id = case.parked() if arguments[0] in ("retry", "discard") else case.task()
        return case.cli(*(str(id) if each == "ID" else each for each in arguments))

    OPERATIONS["holdfast " + " ".join(arguments)] = (who, run)


def new() -> Any:
    return named(STEP, {"filename": "x"})


# --- enqueueing


@may("producer worker")
def enqueue(case: Case) -> None:
    ref = case.python(lambda app: app.sync.enqueue(new(), delay="1h", headers={"a": "b"}))
    assert execute(case.owner, "SELECT headers->>'a' FROM holdfast.task WHERE id = $1", ref.id) == [("b",)]


@may("producer worker")
def enqueue_async_and_together(case: Case) -> None:
    async def several() -> None:
        async with App(case.url) as app:
            answers = await asyncio.gather(*(app.enqueue(new()) for _ in range(5)), return_exceptions=True)
        for each in answers:
            if isinstance(each, BaseException):
                raise each

    asyncio.run(several())


@may("producer worker")
def enqueue_with_a_key(case: Case) -> None:
    def act(app: App) -> None:
        first = app.sync.enqueue(new(), key="k")
        assert app.sync.enqueue(new(), key="k").id == first.id
        with pytest.raises(KeyTaken):
            app.sync.enqueue(new(), key="k", on_conflict="raise")

    case.python(act)


@may("producer worker")
def enqueue_that_replaces(case: Case) -> None:
    def act(app: App) -> None:
        first = app.sync.enqueue(new(), key="r", delay="1h")
        assert app.sync.enqueue(named(STEP, {"filename": "y"}), key="r", on_conflict="replace").id == first.id
        assert execute(case.owner, "SELECT args->>'filename' FROM holdfast.task WHERE id = $1", first.id) == [("y",)]

    case.python(act)


@may("producer worker")
def enqueue_many_by_copy(case: Case) -> None:
    case.python(lambda app: app.sync.enqueue_many([new() for _ in range(500)]))


@may("producer worker")
def enqueue_many_with_keys(case: Case) -> None:
    case.python(lambda app: app.sync.enqueue_many([Entry(new(), key=f"k{i}") for i in range(3)]))


@may("producer worker")
def enqueue_on_a_connection(case: Case) -> None:
    with psycopg.connect(case.url) as connection:
        case.python(lambda app: app.sync.enqueue(new(), conn=connection, key=str(uuid4())))


@may("producer worker")
def enqueue_by_sql(case: Case) -> None:
    case.sql(f"SELECT holdfast.enqueue('{STEP}', '{{}}', '{{\"key\": \"s\"}}')")
    case.sql(f'SELECT holdfast.enqueue(\'{STEP}\', \'{{}}\', \'{{"key": "s", "on_conflict": "replace"}}\')')
    case.sql(f'SELECT holdfast.enqueue_many(\'[{{"step": "{STEP}"}}]\')')


command("producer worker", "enqueue", STEP, '{"filename": "x"}')

# --- looking


@may(READERS)
def info_of_a_task(case: Case) -> None:
    id = case.task()
    assert case.python(lambda app: app.sync.info(id)).args == {"secret": 1}


@may(READERS)
def result_of_a_task(case: Case) -> None:
    id = case.task()
    execute(case.owner, "SELECT holdfast.cancel($1)", id)
    with suppress(TaskCancelled):
        case.python(lambda app: app.sync.ref(id).result(timeout="5s"))


TABLES = (
    "archive attempt change grantee key migration queue setting tasks attempts parked history schedules occurrences"
)
for _table in TABLES.split(" "):
    statement(f"read {_table}", READERS, f"SELECT * FROM holdfast.{_table}")
for _column in ("args", "error", "headers", "key", "*"):
    statement(f"read {_column} of tasks", READERS, f"SELECT {_column} FROM holdfast.task")
statement("read results", READERS, "SELECT result FROM holdfast.archive")
statement("read where workers run", READERS, "SELECT host FROM holdfast.worker")
statement("explain", READERS, "SELECT holdfast.explain($1)")
statement("read the ids of tasks", EVERYBODY, "SELECT id FROM holdfast.task")
for _arguments in ("tasks", "show ID", "parked", "queues", "kinds", "workers", "migrate --check", "maintain --dry-run"):
    command(READERS, *_arguments.split())

# --- acting on tasks

for _verb in ("retry", "discard", "cancel"):
    statement(_verb, "operator", f"SELECT holdfast.{_verb}($1)")
    command("operator", _verb, "ID")
    command("operator", _verb, "--where", f"kind:greeter state:{'ready' if _verb == 'cancel' else 'parked'}", "--yes")


@may("operator")
def again(case: Case) -> None:
    id = case.task()
    execute(case.owner, "SELECT holdfast.cancel($1)", id)
    case.sql("SELECT holdfast.again($1)", id)


statement("pause", "operator", """SELECT holdfast.pause('q', '{"what": "queue"}')""")
statement("resume", "operator", """SELECT holdfast.resume('q', '{"what": "queue"}')""")
statement("stop_workers", "operator", "SELECT holdfast.stop_workers()")
statement("set_queue", "operator", """SELECT holdfast.set_queue('q', '{"retention": "2 days"}')""")
statement("set_default", "operator worker", """SELECT holdfast.set_default('{"retention": "2 days"}')""")
command("operator", "pause", "default", "--queue")
command("operator", "resume", "default", "--queue")
command("operator", "stop")
command("operator", "set", "default", "--retention", "3d")

# --- schedules

_HOURLY = """'{"timing": {"every": "1h"}, "step": "greeter.ReadName"}'"""
statement("set_schedule", "operator", f"SELECT holdfast.set_schedule('hourly', {_HOURLY})")
for _verb in ("pause", "resume", "fire", "delete"):
    statement(f"{_verb}_schedule", "operator", f"SELECT holdfast.{_verb}_schedule('hourly')")
statement("note_backfill", "operator worker", "SELECT holdfast.note_backfill('hourly', '{}')")
statement("change a schedule by hand", "worker", "DELETE FROM holdfast.schedule")
command(READERS, "schedules")

# --- working

statement("claim", "worker", "UPDATE holdfast.task SET priority = 9 WHERE id = $1")
statement("finish", "worker", "DELETE FROM holdfast.task WHERE id = $1")
statement("lock a task", "worker", "SELECT id FROM holdfast.task FOR UPDATE")
statement("log an attempt", "worker", "DELETE FROM holdfast.attempt")
statement("declare a kind", "worker", "INSERT INTO holdfast.kind VALUES ('k', 'default', 0, NULL, '{}')")
statement("make partitions", "worker", "SELECT holdfast.ensure_partitions()")
statement("drop old history", "worker", "SELECT holdfast.drop_oldest_partition()")
command("worker", "maintain")

# --- nobody but the owner

statement("forge a running task", "worker", f"""INSERT INTO holdfast.task (id, kind, step, state, worker_id,
                                                                           lease_expires_at)
    VALUES ('{uuid4()}', 'greeter', 'ReadName', 'running', '{uuid4()}', now())""")  # fmt: skip
statement("forge a change", "", "INSERT INTO holdfast.change (action, by) VALUES ('retry', 'somebody else')")
statement("give oneself a part", "", "INSERT INTO holdfast.grantee (role, part) VALUES ('public', 'operator')")
statement("change settings by hand", "", "INSERT INTO holdfast.setting (retention) VALUES ('1 day')")
statement("change migrations", "", "DELETE FROM holdfast.migration")
statement("empty a table", "", "TRUNCATE holdfast.task")
statement("drop a table", "", "DROP TABLE holdfast.task")
statement("make a table", "", "CREATE TABLE holdfast.mine ()")
statement(
    "change the clock",
    "",
    "CREATE OR REPLACE FUNCTION holdfast.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT now()'",
)


@may("worker")
def archive_a_task(case: Case) -> None:
    """An internal function does only what its caller may do."""
    execute(case.owner, "SELECT holdfast.enqueue('greeter.ReadName')")
    case.sql("SELECT holdfast.archive_task(t, 'done', '') FROM holdfast.task t")


@may("")
def migrate(case: Case) -> None:
    result = CliRunner().invoke(main, ["migrate", "--to", "0", "--yes"], env={"HOLDFAST_URL": case.url})
    assert result.exit_code == 1 and "may not migrate schema" in result.output, result.output
    raise PermissionError


@may("")
def give_parts(case: Case) -> None:
    result = CliRunner().invoke(main, ["roles", "grant", "operator", "postgres"], env={"HOLDFAST_URL": case.url})
    expected = ("only its owner can. Connect as 'postgres'", "may not do that: permission denied")
    assert result.exit_code == 1 and any(each in result.output for each in expected), result.output
    raise PermissionError


def outcome(case: Case, operation: Callable[[Case], object]) -> str:
    try:
        operation(case)
    except (psycopg.errors.InsufficientPrivilege, PermissionError):
        return "refused"
    except SchemaError as error:
        return "refused" if "may not do that: permission denied" in str(error) else repr(error)
    except Exception as error:
        return repr(error)
    return "done"


@pytest.mark.parametrize("part", ["producer", "worker", "viewer", "operator", "nobody"])
def test_X5_each_part_can_do_its_part_and_nothing_else(
    part: str, urls: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    case = Case(urls[part], urls["owner"])
    expected = {name: "done" if part in who.split() else "refused" for name, (who, _) in OPERATIONS.items()}
    found = {name: outcome(case, operation) for name, (_, operation) in OPERATIONS.items()}
    assert {name: each for name, each in found.items() if each != expected[name]} == {}
