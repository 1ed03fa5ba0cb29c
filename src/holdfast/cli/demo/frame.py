"""The first chapter, in which all is started, and what comes after the last: the user's turn."""

import shlex
import shutil
import sys
import time
from pathlib import Path

from holdfast.cli.demo.measures import counts
from holdfast.cli.demo.screen import Board, Row, progress
from holdfast.cli.demo.stage import QUEUE, SETTINGS, TASKS, Stage, WorkerProcess
from holdfast.cli.demo.story import Chapter, Story
from holdfast.cli.output.printing import line
from holdfast.errors import HoldfastError, NoDatabase

_PATIENCE_WITH_LEFTOVERS = 15.0
_BUSY = ("due", "running", "retrying")
_RESTARTABLE_AFTER = 5.0
"""Seconds a worker must have lived to be started again when it dies."""


def beginning(story: Story) -> None:
    """A server, tables, workers."""
    why = "Everything is kept in PostgreSQL. Where there is none, Holdfast brings one."
    with story.chapter("A database and two workers", why) as chapter:
        if story.stage.setup.url is None:
            _server(story, chapter)
        else:
            _given_database(story)
        story.command("holdfast migrate")
        with progress(story.screen, "The tables are made") as tick:
            applied = story.stage.migrate(tick)
        story.stage.open()
        story.screen.say("The tables are made." if applied else "The tables are there already.")
        chapter.figures["migrations"] = len(applied)
        if story.stage.stays:
            _dashboard(story)
        _workers(story, chapter)


def _dashboard(story: Story) -> None:
    story.command("holdfast web")
    made = story.stage.start_dashboard()
    story.screen.say(f"All this can be watched in a browser: {made.address}" if made.address else line(made.trouble))


def _server(story: Story, chapter: Chapter) -> None:
    from holdfast import embedded

    story.command("holdfast pg start")
    began = time.monotonic()
    told = embedded.find() is None
    with progress(story.screen, "PostgreSQL starts; the first time it sets up its data", told=told) as tick:
        server, was_running = story.stage.start_server(tick)
    took = time.monotonic() - began
    how = "was already running" if was_running else f"started in {took:.1f} s"
    story.screen.say(f"PostgreSQL {server.version} {how}. Only a private socket leads to it.")
    story.screen.say(f"Its data: {server.data}")
    chapter.figures |= {"postgresql": server.version, "was_running": was_running, "start_seconds": round(took, 3)}
    _tell_where(story)


def _given_database(story: Story) -> None:
    from holdfast._model.json.redact import redact

    setup = story.stage.setup
    story.screen.say(
        f"It uses {redact(setup.url or '')}: tables in the schema {setup.schema}, tasks in the queue {QUEUE}, "
        "where they stay afterwards."
    )
    _tell_where(story)


def _tell_where(story: Story) -> None:
    """What commands in another terminal need, unless they find the database by themselves."""
    from holdfast._db.config.resolve import resolve
    from holdfast._model.json.redact import redact

    url = story.stage.setup.url or ""
    try:
        found = resolve().url == url
    except NoDatabase:
        found = False
    if not found:
        story.screen.say("Commands in another terminal find it by this:")
        story.screen.command(f"export HOLDFAST_URL={shlex.quote(redact(url))}")


def _workers(story: Story, chapter: Chapter) -> None:
    stage, screen = story.stage, story.screen
    left = stage.stop_leftovers()
    if left:
        screen.say(f"Workers of an earlier demo are asked to stop: {left}.")
    story.command(f"holdfast worker {TASKS} {SETTINGS}")
    with progress(screen, "Two such processes start") as tick:
        for _ in range(2):
            stage.start_worker()
        stage.await_workers(tick)
    one, two = stage.workers
    screen.say(f"Twice: {one.name} (process {one.process.pid}) and {two.name} (process {two.process.pid}).")
    chapter.figures["workers"] = {each.name: each.process.pid for each in stage.workers}
    _finish_leftovers(story)


def _finish_leftovers(story: Story) -> None:
    """Tasks of an interrupted demo would disturb this one: the workers do them first."""
    until = time.monotonic() + _PATIENCE_WITH_LEFTOVERS

    def left() -> int:
        found = story.stage.app.ask(counts(story.stage.setup.schema, QUEUE))
        return sum(found.get(phase, 0) for phase in _BUSY)

    if found := left():
        story.screen.say(f"Tasks that an earlier demo left unfinished come first: {found:,}.")
        story.stage.until(lambda: not left() or time.monotonic() > until, "they were not done")


# --- the user's turn


def your_turn(story: Story) -> None:
    """Suggests commands, and keeps the workers running until Ctrl-C."""
    story.screen.heading("Your turn, in another terminal, in this folder. Ctrl-C here ends the demo.")
    if shutil.which("holdfast") is None:
        story.command(f'export PATH="{Path(sys.executable).parent}:$PATH"')
    for command in _suggestions(story):
        story.command(command)
    story.screen.say(f"The logs of the workers: {story.stage.folder}/demo-*.log")
    story.screen.say("To begin with a file of your own: holdfast init, then holdfast dev tasks.py.")
    try:
        _stay(story)
    except KeyboardInterrupt:
        story.screen.interrupted()


def _suggestions(story: Story) -> list[str]:
    """Commands, each of which does something here."""
    taken_over = story.chapters[5].figures["taken_over"][0]
    return [
        "holdfast tasks kind:order",
        f"holdfast show {taken_over}",
        "holdfast enqueue add x:=20 y:=22 --wait",
        f"holdfast enqueue greeter.ReadName filename={story.stage.folder}/other.txt",
        "holdfast parked",
        "holdfast tasks state:parked",
        "holdfast workers",
        f"holdfast graph {TASKS}",
    ]


def _stay(story: Story) -> None:
    while True:
        with story.screen.board(stays=False) as board:
            ended = _watch(story, board)
        _tell_end(story, ended)


def _watch(story: Story, board: Board) -> WorkerProcess:
    """Shows how the queue stands until a worker has ended."""
    while True:
        board.show([Row([_standing(story)])])
        for each in story.stage.workers:
            if not each.runs and not each.given_up:
                return each
        story.stage.ending.pause(0.5)


def _standing(story: Story) -> str:
    running = ", ".join(each.name for each in story.stage.workers if each.runs) or "no worker"
    try:
        found = story.stage.app.ask(counts(story.stage.setup.schema, QUEUE))
    except HoldfastError as error:
        return f"The database does not answer: {line(error)}"
    return f"{running}: " + ", ".join(f"{number:,} {phase}" for phase, number in found.items())


def _tell_end(story: Story, worker: WorkerProcess) -> None:
    stage: Stage = story.stage
    code = worker.process.returncode
    worker.given_up = True
    lived = time.monotonic() - worker.began
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    if code == 0:
        story.screen.say(f"{worker.name} was asked to stop, and has. A new one: holdfast worker {TASKS} -q {QUEUE}")
    elif lived < _RESTARTABLE_AFTER:
        story.screen.say(f"{worker.name} {how}. It is not started again; see {worker.log}")
    else:
        new = stage.start_worker()
        story.screen.say(f"{worker.name} {how}. {new.name} (process {new.process.pid}) takes its place.")
