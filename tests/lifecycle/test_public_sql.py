"""The whole tutorial through the real psql, as a producer and an operator without Python (T8, T12, Q7, Q8, Q13)."""

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from holdfast import Context, Done, Retry, Tasks
from holdfast.embedded import binaries
from holdfast.embedded.account import account_for
from holdfast.testing import Harness

PATIENCE = 60.0
tasks = Tasks()
greeter = tasks.kind("greeter", result=str, retry=Retry(2, delay="10ms"))


@greeter.step
@dataclass
class ReadName:
    filename: str

    def run(self) -> "SayHello":
        return SayHello(Path(self.filename).read_text("utf-8").strip())


@greeter.step
@dataclass
class SayHello:
    name: str

    async def run(self) -> Done[str]:
        return Done(f"Hello, {self.name}!")


@tasks.task(queue="slow")
async def wait_for_ever(ctx: Context) -> None:
    await asyncio.Event().wait()


@pytest.fixture
def holdfast_tasks() -> Tasks:
    return tasks


class Psql:
    """psql on one database, without the settings of whoever runs this."""

    def __init__(self, program: Path, url: str) -> None:
        self._command = [str(program), "--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--dbname", url]

    async def __call__(self, text: str, *, fails: bool = False, **variables: Any) -> str:
        """Runs a script in which `:'name'` is a variable, and gives what it printed; or, if it fails, its complaint."""
        given = [f"--set={name}={value}" for name, value in variables.items()]
        done = await asyncio.to_thread(
            subprocess.run,
            [*self._command, "--set=ON_ERROR_STOP=1", *given],
            input=text,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env={**os.environ, "PGTZ": "UTC"},
        )
        assert bool(done.returncode) == fails, done.stdout + done.stderr
        return done.stderr if fails else done.stdout.strip()

    async def until(self, text: str, answer: str, **variables: Any) -> None:
        """Asks until the answer comes."""
        end = time.monotonic() + PATIENCE
        while (found := await self(text, **variables)) != answer:
            assert time.monotonic() < end, f"{found!r} instead of {answer!r} from {text}"
            await asyncio.sleep(0.05)

    async def state(self, id: str, state: str) -> None:
        await self.until("select state from holdfast.tasks where id = :'id';", state, id=id)


@pytest.fixture
def psql(holdfast_url: str, tmp_path: Path) -> Psql:
    program = binaries.locate(account_for(tmp_path)).bindir / "psql"
    found = str(program) if program.is_file() else shutil.which("psql")
    if found is None:
        pytest.skip("this machine has no psql")
    return Psql(Path(found), holdfast_url)


@pytest_asyncio.fixture
async def worker(holdfast: Harness) -> AsyncIterator[None]:
    async with holdfast.app.worker(queues=["default", "slow"], poll=0.05):
        yield


def is_id(text: str) -> bool:
    return UUID(text).version == 7


async def test_the_tutorial_in_psql(psql: Psql, holdfast: Harness, tmp_path: Path) -> None:
    file = tmp_path / "name.txt"

    # A producer: in its own transaction, and it exists exactly if that commits.
    enqueue = "select holdfast.enqueue('greeter.ReadName', jsonb_build_object('filename', :'file'));"
    assert is_id(await psql(f"begin; {enqueue} rollback;", file=file))
    assert await psql("select count(*) from holdfast.tasks;") == "0"
    id = await psql(enqueue, file=file)
    assert await psql("select phase from holdfast.tasks where id = :'id';", id=id) == "unroutable"
    assert "no worker is alive" in await psql("select holdfast.explain(:'id');", id=id)

    async with holdfast.app.worker(poll=0.05):
        # The file is not there: three attempts, then parked.
        await psql.state(id, "parked")
        log = "select attempt, step, outcome, error ->> 'type' from holdfast.attempts where task_id = :'id' order by 1;"
        assert (await psql(log, id=id)).splitlines() == [
            "1|ReadName|retried|FileNotFoundError",
            "2|ReadName|retried|FileNotFoundError",
            "3|ReadName|failed|FileNotFoundError",
        ]
        parked = "select kind, step, error_type, attempt, parked_at is not null from holdfast.parked;"
        assert await psql(parked) == "greeter|ReadName|FileNotFoundError|3|t"
        told = await psql("select holdfast.explain(:'id');", id=id)
        assert "It is parked since" in told and f"No such file or directory: '{file}'" in told
        assert f"select holdfast.retry('{id}')" in told

        # An operator repairs the world and does what is said.
        file.write_text("Ada\n")
        assert await psql("select holdfast.retry(id) from holdfast.parked where id = :'id';", id=id) == "ready"
        await psql.state(id, "done")
        assert await psql("select result from holdfast.tasks where id = :'id';", id=id) == '"Hello, Ada!"'
        assert "It was done at" in await psql("select holdfast.explain(:'id');", id=id)
        assert (await psql(log, id=id)).splitlines()[3:] == ["4|ReadName|advanced|", "5|SayHello|done|"]
        changed = "select action, by = session_user, old ->> 'state' from holdfast.change where task_id = :'id';"
        assert await psql(changed, id=id) == "retry|t|parked"
        complaint = await psql("select holdfast.retry(:'id');", id=id, fails=True)
        assert f"ERROR:  holdfast: cannot retry task {id}: it is already done" in complaint and "HINT:" in complaint


@pytest.mark.usefixtures("worker")
async def test_T12_a_repair_of_args_in_psql(psql: Psql, tmp_path: Path) -> None:
    file = tmp_path / "right.txt"
    file.write_text("Grace\n")
    id = await psql("""select holdfast.enqueue('greeter.ReadName', '{"filename": "/wrong.txt"}');""")
    await psql.state(id, "parked")
    repair = """select holdfast.retry(:'id', jsonb_build_object('args', jsonb_build_object('filename', :'file'),
                                                                'by', 'ann', 'why', 'a wrong name'));"""
    assert await psql(repair, id=id, file=file) == "ready"
    await psql.state(id, "done")
    change = "select by, why, old -> 'args' ->> 'filename', new -> 'args' ->> 'filename' from holdfast.change;"
    assert await psql(change) == f"ann|a wrong name|/wrong.txt|{file}"


@pytest.mark.usefixtures("worker")
async def test_T12_another_step_or_giving_up_in_psql(psql: Psql) -> None:
    make = """select holdfast.enqueue('greeter.ReadName', '{"filename": "/wrong.txt"}');"""
    moved, given_up = await psql(make), await psql(make)
    for id in (moved, given_up):
        await psql.state(id, "parked")
    skip = """select holdfast.retry(:'id', '{"step": "SayHello", "args": {"name": "Bob"}}');"""
    assert await psql(skip, id=moved) == "ready"
    await psql.state(moved, "done")
    assert await psql("""select holdfast.discard(:'id', '{"why": "hopeless"}');""", id=given_up) == "discarded"
    assert "(hopeless), while it was parked" in await psql("select holdfast.explain(:'id');", id=given_up)
    assert await psql("select count(*) from holdfast.parked;") == "0"


@pytest.mark.usefixtures("worker")
async def test_Q7_pause_and_resume_in_psql(psql: Psql, tmp_path: Path) -> None:
    assert await psql("""select holdfast.pause('default', '{"by": "ann", "why": "a deploy"}');""") == "paused"
    id = await psql("""select holdfast.enqueue('greeter.SayHello', '{"name": "Ada"}');""")
    slow = await psql("select holdfast.enqueue('wait_for_ever');")
    await psql.state(slow, "running")  # the same worker goes on with other queues
    assert await psql("select phase from holdfast.tasks where id = :'id';", id=id) == "paused"
    assert "queue default is paused since" in await psql("select holdfast.explain(:'id');", id=id)
    assert await psql("select name, paused_by from holdfast.queue;") == "default|ann: a deploy"
    assert await psql("select holdfast.resume('default'); select holdfast.resume('default');") == "resumed\nnot paused"
    await psql.state(id, "done")
    assert await psql("select holdfast.pause('greeter');") == "paused"
    other = await psql("""select holdfast.enqueue('greeter.SayHello', '{"name": "Bob"}');""")
    assert "kind greeter is paused" in await psql("select holdfast.explain(:'id');", id=other)
    assert await psql("select holdfast.resume('greeter');") == "resumed"
    await psql.state(other, "done")
    assert await psql("select action, new from holdfast.change order by id;") == "\n".join(
        f'{action}|{{"{what}": "{name}"}}'
        for what, name in (("queue", "default"), ("kind", "greeter"))
        for action in ("pause", "resume")
    )
    await psql("select holdfast.cancel(:'id');", id=slow)


@pytest.mark.usefixtures("worker")
async def test_Q8_cancel_in_psql(psql: Psql) -> None:
    later = await psql("""select holdfast.enqueue('greeter.SayHello', '{"name": "A"}', '{"delay": "1 day"}');""")
    assert "It is not due until" in await psql("select holdfast.explain(:'id');", id=later)
    assert await psql("""select holdfast.cancel(:'id', '{"by": "ann"}');""", id=later) == "cancelled"
    assert "cancelled by ann" in await psql("select holdfast.explain(:'id');", id=later)
    slow = await psql("select holdfast.enqueue('wait_for_ever');")
    await psql.state(slow, "running")
    assert "It is running: attempt 1 at wait_for_ever.main by worker" in await psql(
        "select holdfast.explain(:'id');", id=slow
    )
    assert await psql("select outcome from holdfast.attempts where task_id = :'id';", id=slow) == ""
    assert await psql("select holdfast.cancel(:'id');", id=slow) == "cancelling"
    await psql.state(slow, "cancelled")


@pytest.mark.usefixtures("worker")
async def test_T8_many_in_psql(psql: Psql) -> None:
    many = """
        select holdfast.enqueue_many((
            select jsonb_agg(jsonb_build_object('step', 'greeter.SayHello', 'args', jsonb_build_object('name', n)))
            from unnest(array['Ada', 'Bob', 'Cem']) as n), '{"priority": 5}');
    """
    made = (await psql(many)).splitlines()
    assert len(made) == 3 and all(map(is_id, made))
    for id in made:
        await psql.state(id, "done")
    results = "select result #>> '{}' from holdfast.tasks where priority = 5 order by 1;"
    assert (await psql(results)).splitlines() == ["Hello, Ada!", "Hello, Bob!", "Hello, Cem!"]
    complaint = await psql("""select holdfast.enqueue_many('[{"step": "a"}, {"step": "b", "at": "x"}]');""", fails=True)
    assert "ERROR:  holdfast: entries[1]:" in complaint and "timestamp" in complaint


@pytest.mark.usefixtures("worker")
async def test_Q2_keys_in_psql(psql: Psql) -> None:
    once = """select holdfast.enqueue('greeter.SayHello', '{"name": "A"}', '{"key": "k", "delay": "1h"%s}');"""
    id = await psql(once % "")
    assert await psql(once % "") == await psql(once % ', "on_conflict": "replace"') == id
    complaint = await psql(once % ', "on_conflict": "raise"', fails=True)
    assert f"task {id} (greeter, ready) already holds the key 'k' in queue default" in complaint


async def test_W4_stop_workers_in_psql(psql: Psql, holdfast: Harness) -> None:
    async with holdfast.app.worker(poll=0.05):
        running = "select count(*) from holdfast.worker where stopped_at is null;"
        await psql.until(running, "1")
        assert await psql("select holdfast.stop_workers();") == "1"
        await psql.until(running, "0")
        id = await psql("""select holdfast.enqueue('greeter.SayHello', '{"name": "A"}');""")
        assert "no worker is alive" in await psql("select holdfast.explain(:'id');", id=id)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (r"\d+ holdfast.queue", "Since when none of its tasks is claimed"),
        (r"\d+ holdfast.task", "after that any worker may reap the task"),
        (r"\df+ holdfast.explain", "Says in one sentence why a task is not running"),
    ],
)
async def test_the_schema_explains_itself_in_psql(psql: Psql, command: str, says: str) -> None:
    assert says in await psql(command)
