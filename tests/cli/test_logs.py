"""What a worker writes: for people, as JSON, and in `dev`; and that what went well costs nothing unless asked for."""

import asyncio
import json
import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast import Cancel, Context, Done, Fail, Later, Retry, Snooze, Tasks
from holdfast.cli.output.logs import DevFormatter, JsonFormatter, PrettyFormatter, configure, own_frames
from holdfast.testing import Harness

from .conftest import Cli, Process

tasks = Tasks()
kind = tasks.kind("walk")


@kind.step
@dataclass
class Leave:
    later: bool = False

    async def run(self) -> "Arrive | Later[Arrive]":
        return Later(Arrive(), "5m") if self.later else Arrive()


@kind.step
@dataclass
class Arrive:
    async def run(self) -> Done[list[str]]:
        return Done(["x" * 200])


@tasks.task(retry=Retry(1, delay="2m", jitter=0))
async def say(how: str) -> str | None:
    match how:
        case "snooze":
            raise Snooze("90s")
        case "cancel":
            raise Cancel("not wanted")
        case "error":
            raise ValueError("two\nlines")
        case "fail":
            raise Fail("no use")
        case "text":
            return "äöü\x1b[31m"
        case _:
            return None


@pytest.fixture
def holdfast_tasks() -> Tasks:
    return tasks


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, as it was before afterwards."""
    root, told = logging.getLogger(), logging.getLogger("holdfast.task")
    before = root.level, list(root.handlers), told.level
    yield root
    root.setLevel(before[0])
    root.handlers[:] = before[1]
    told.setLevel(before[2])


def record(
    message: str, *arguments: object, level: int = logging.INFO, name: str = "holdfast.task", **extra: Any
) -> Any:
    made = logging.LogRecord(name, level, "", 0, message, arguments, None)
    vars(made).update(extra)
    return made


# --- the ends of attempts


async def test_how_attempts_end_is_told_once_somebody_listens(
    holdfast: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "holdfast.task")
    await holdfast.app.enqueue(Leave())
    await holdfast.app.enqueue(Leave(later=True))
    for how in ("snooze", "cancel", "error", "fail", "text", "none"):
        await say.enqueue(how)
    await holdfast.drain()
    told = [r for r in caplog.records if r.name == "holdfast.task"]
    said = {getattr(r, "outcome", ""): r for r in told}
    texts = [r.getMessage() for r in told]

    def has(*parts: str) -> bool:
        return any(all(part in text for part in parts) for text in texts)

    assert has("walk.Leave → Arrive (", " ms)")
    assert has("walk.Leave → Arrive (", "), in 5 min (")
    assert has("walk.Arrive done in ", ' → ["xxx', "…")
    assert max(map(len, texts)) < 200
    assert has("say snoozed after ", ", again in 1 min 30 s (")
    assert has("say cancelled after ", ": not wanted")
    assert has("say failed in attempt 1, again in 2 min (", "): ValueError: two lines")
    assert has("say is parked after attempt 1: holdfast.Fail: no use")
    assert has("say done in ", ' → "äöü')
    assert any(text.startswith("say done in ") and "→" not in text for text in texts)
    assert len(told) == 9
    assert {name: r.levelname for name, r in said.items()} == {
        "advanced": "DEBUG",
        "done": "DEBUG",
        "snoozed": "DEBUG",
        "cancelled": "DEBUG",
        "retried": "INFO",
        "failed": "WARNING",
    }
    assert all(
        getattr(r, "task_id", None) and getattr(r, "attempt", None) == 1 + ("Arrive done" in r.message) for r in told
    )
    assert "test_logs.py" in getattr(said["failed"], "traceback", "")


async def test_what_went_well_is_not_even_put_into_words_when_nobody_listens(
    holdfast: Harness, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "holdfast.task")
    monkeypatch.setattr(
        "holdfast._engine.settle.consequences.tell_recorded", lambda ending: pytest.fail("put into words")
    )
    await holdfast.app.enqueue(Leave())
    await say.enqueue("fail")
    await holdfast.drain()
    assert [r.message for r in caplog.records if r.name == "holdfast.task"] == [
        "say is parked after attempt 1: holdfast.Fail: no use"
    ]


# --- formats


def test_a_line_for_people_has_the_whole_id_and_no_escapes() -> None:
    told = PrettyFormatter().format(
        record("%s is parked", "x\x1b[2Jy", level=logging.WARNING, task_id="0199-full", outcome="failed", traceback="T")
    )
    assert told.endswith("  task=0199-full\x1b[0m")
    assert "WARNING" in told
    assert "xy is parked" in told
    assert "\n" not in told


def test_records_of_others_say_who_made_them() -> None:
    assert "httpx: " in PrettyFormatter().format(record("GET", name="httpx"))
    assert "root" not in PrettyFormatter().format(record("hello", name="root"))
    assert "holdfast.worker" not in PrettyFormatter().format(record("hello", name="holdfast.worker"))


def test_a_traceback_follows_the_line_it_belongs_to() -> None:
    try:
        raise KeyError("k")
    except KeyError:
        made = record("it failed", task_id="0199")
        made.exc_info = sys.exc_info()
    lines = PrettyFormatter().format(made).split("\n")
    assert "it failed" in lines[0]
    assert "task=0199" in lines[0]
    assert lines[1] == "Traceback (most recent call last):"
    assert lines[-1] == "KeyError: 'k'"
    assert "KeyError" in json.loads(JsonFormatter().format(made))["traceback"]


def test_dev_shows_what_went_well_as_information_and_where_it_went_wrong() -> None:
    done = DevFormatter().format(record("hello done in 3 ms", level=logging.DEBUG, outcome="done", task_id="0199"))
    assert "INFO" in done
    assert "DEBUG" not in done
    trace = (
        "Traceback (most recent call last):\n"
        '  File "/home/ada/shop.py", line 3, in run\n    read()\n    ~~~~^^\n'
        f'  File "{asyncio.__file__}", line 9, in read\n    deep()\n'
        "OSError: no such file\n  with more lines"
    )
    parked = DevFormatter().format(
        record("it is parked", level=logging.WARNING, outcome="failed", task_id="0199", traceback=trace)
    )
    first, *others = parked.split("\n")
    assert "WARNING" in first
    assert [each.strip() for each in others[:-1]] == ['File "/home/ada/shop.py", line 3, in run', "read()", "~~~~^^"]
    assert "holdfast show 0199" in others[-1]


def test_frames_of_libraries_are_shown_if_there_are_no_others() -> None:
    only = f'Traceback (most recent call last):\n  File "{asyncio.__file__}", line 9, in read\n    deep()\nOSError: no'
    assert own_frames(only) == [f'  File "{asyncio.__file__}", line 9, in read', "    deep()"]
    assert own_frames("") == []


async def test_records_that_a_step_makes_carry_its_task(
    holdfast: Harness, root: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = logging.getLogger("shop")

    @holdfast.app.task
    async def on_the_loop(ctx: Context) -> None:
        shop.info("here")

    @holdfast.app.task
    def in_a_thread(ctx: Context) -> None:
        shop.info("there")

    configure("info", "json")
    first, second = await on_the_loop.enqueue(), await in_a_thread.enqueue()
    await holdfast.drain()
    shop.info("outside")
    told = {each["message"]: each for each in map(json.loads, capsys.readouterr().err.splitlines())}
    assert told["here"]["task_id"] == str(first.id)
    assert (told["here"]["kind"], told["here"]["step"], told["here"]["attempt"]) == ("on_the_loop", "main", 1)
    assert told["there"]["task_id"] == str(second.id)
    assert "task_id" not in told["outside"]


@pytest.mark.parametrize(
    ("level", "dev", "shown"),
    [
        ("info", False, {"information"}),
        ("debug", False, {"information", "done", "routine"}),
        ("info", True, {"information", "done"}),
        ("debug", True, {"information", "done", "routine"}),
        ("warning", True, set()),
    ],
)
def test_which_level_shows_what(
    root: logging.Logger, capsys: pytest.CaptureFixture[str], level: str, dev: bool, shown: set[str]
) -> None:
    configure(level, "json", dev=dev)
    worker, task = logging.getLogger("holdfast.worker"), logging.getLogger("holdfast.task")
    worker.info("information")
    worker.log(logging.INFO if dev else logging.DEBUG, "routine", extra={"routine": True})
    task.debug("done")
    assert {json.loads(each)["message"] for each in capsys.readouterr().err.splitlines()} == shown


# --- as a process


def test_a_configuration_of_the_users_own_does_not_silence_the_worker(
    cli: Cli, start: Callable[..., Process], project: Path
) -> None:
    """`dictConfig` disables all loggers that exist and are not named, unless told otherwise."""
    (project / "hello.py").write_text(
        "import logging.config\nfrom holdfast import App\napp = App()\n"
        "@app.task\nasync def hello() -> None:\n    raise ValueError('no')\n"
        "logging.config.dictConfig({'version': 1})\n"
    )
    cli.enqueue("hello")
    worker = start("worker", "hello.py", "--drain", url=cli.url)
    assert worker.ended() == 0
    assert "serves default" in worker.stderr
    assert "hello is parked after attempt 1: ValueError: no" in worker.stderr


def test_a_worker_tells_what_went_well_at_debug(cli: Cli, start: Callable[..., Process], project: Path) -> None:
    (project / "hello.py").write_text(
        "import logging\nfrom holdfast import App\napp = App()\n"
        "@app.task\nasync def hello(name: str) -> str:\n"
        "    print('printed')\n    logging.getLogger('shop').info('logged')\n    return f'Hello, {name}'\n"
    )
    id = cli.enqueue("hello", "name=Ada")
    worker = start("worker", "hello.py", "--drain", "--log-level", "debug", "--json", url=cli.url)
    assert worker.ended() == 0
    assert worker.stdout == "printed\n"
    records = [json.loads(each) for each in worker.stderr.splitlines()]
    [done] = [each for each in records if each["logger"] == "holdfast.task"]
    assert done["message"].endswith('→ "Hello, Ada"')
    assert (done["level"], done["outcome"], done["task_id"], done["kind"]) == ("debug", "done", id, "hello")
    assert done["seconds"] >= 0
    [logged] = [each for each in records if each["logger"] == "shop"]
    assert logged["task_id"] == id
