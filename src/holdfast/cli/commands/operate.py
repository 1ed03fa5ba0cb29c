"""`holdfast queues`, `kinds`, `workers`, `pause` and `resume`: what is there, and what may begin."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from holdfast._model.read.formats import amount, duration, relative, things
from holdfast._model.read.infos import COUNTED
from holdfast.cli.input.filters import command_line
from holdfast.cli.input.options import Setup, common_options, pass_setup
from holdfast.cli.output.printing import NOT_FOUND, Cell, Failure, line, note, print_json
from holdfast.cli.output.tables import fitted_table

if TYPE_CHECKING:
    from holdfast._model.read.infos import KindInfo, QueueInfo, Standing
    from holdfast._sql.queries import Queries
    from holdfast.insights import WorkerInfo
    from holdfast.sync import SyncApp

_ATTENTION = "yellow"


# --- queues


@click.command()
@common_options
@pass_setup
def queues(setup: Setup, /) -> None:
    """Show the queues: how many tasks they have, since when the oldest is due, and who serves them.

    \b
    Example:
      holdfast queues
    """
    from holdfast import insights

    with setup.opened() as (app, queries):
        found = app.ask(insights.queues(queries))
    if setup.json:
        print_json(found)
    elif found:
        headings = ("QUEUE", "DUE", "SCHEDULED", "RUNNING", "PARKED", "OLDEST DUE", "WORKERS", "NOTE")
        fitted_table(headings, [_queue_row(each) for each in found], spare=("SCHEDULED", "WORKERS"))
        _advise([each for queue in found for each in _queue_advice(setup, queue)])
    else:
        note("no queues: there are no tasks and no workers.")


def _queue_row(queue: "QueueInfo") -> list[Cell]:
    notes = ["paused"] if queue.paused_at else []
    notes += ["no worker"] if _is_deserted(queue) else []
    notes += [f"{amount(queue.unroutable)} unroutable"] if _has_strangers(queue) else []
    notes += [f"kept {duration(queue.retention)}"] if queue.retention is not None else []
    return [
        line(queue.name),
        amount(queue.due),
        amount(queue.scheduled),
        amount(queue.running),
        _alarming(queue.parked, amount(queue.parked)),
        relative(queue.oldest_due),
        f"{queue.workers:,}",
        _attention(", ".join(notes)),
    ]


def _is_deserted(queue: "QueueInfo") -> bool:
    return queue.due > 0 and queue.workers == 0


def _has_strangers(queue: "QueueInfo") -> bool:
    """Whether there are tasks that nobody there knows, and nothing else keeps them from being executed."""
    return queue.unroutable > 0 and queue.workers > 0 and queue.paused_at is None


def _queue_advice(setup: Setup, queue: "QueueInfo") -> Iterator[str]:
    if queue.paused_at:
        yield _paused(setup, "queue", queue)
    if _is_deserted(queue):
        name, due = line(queue.name), things(queue.due, "task", COUNTED)
        yield f"queue {name} has {due} due, and no live worker: holdfast worker APP -q {name}"
    elif _has_strangers(queue):
        listed = command_line(setup, "tasks", "state:unroutable", f"queue:{queue.name}")
        unroutable = things(queue.unroutable, "task", COUNTED)
        yield f"queue {line(queue.name)} has {unroutable} that no live worker there knows: {listed}"


def _paused(setup: Setup, what: str, it: "QueueInfo | KindInfo") -> str:
    again = command_line(setup, "resume", it.name, f"--{what}")
    return f"{what} {line(it.name)} was paused {relative(it.paused_at)} by {line(it.paused_by or 'somebody')}: {again}"


def _advise(sentences: Sequence[str]) -> None:
    """What follows a table, for people to act on."""
    if sentences:
        click.echo()
    for each in sentences:
        click.echo(click.style(each, fg=_ATTENTION))


def _attention(text: str) -> Cell:
    return (text, _ATTENTION) if text else ""


def _alarming(count: int, text: str) -> Cell:
    return (text, "red") if count else text


# --- kinds


@click.command()
@click.argument("kind", required=False)
@common_options
@pass_setup
def kinds(setup: Setup, /, kind: str | None) -> None:
    """Show the kinds of task, their steps, and how many tasks stand at each.

    \b
    Example:
      holdfast kinds
      holdfast kinds greeter
    """
    from holdfast import insights

    with setup.opened() as (app, queries):
        declared = {each.name: each for each in app.ask(insights.kinds(queries)) if kind in (None, each.name)}
        counted, is_exact = app.ask(insights.standing_now(queries, kind))
    standing = _by_kind(counted)
    names = sorted(declared.keys() | standing.keys())
    if kind is not None and not names:
        raise Failure(f"there is no kind {line(kind)}: no worker has declared it", NOT_FOUND, "KindNotFound")
    if setup.json:
        print_json([_kind_json(name, declared.get(name), standing.get(name, {}), is_exact) for name in names])
    elif names:
        rows = [row for name in names for row in _kind_rows(name, declared.get(name), standing.get(name, {}))]
        headings = ("KIND", "STEP", "READY", "SCHEDULED", "RUNNING", "PARKED", "QUEUE", "WORKERS", "NOTE")
        fitted_table(headings, rows, spare=("WORKERS", "QUEUE", "SCHEDULED"))
        if not is_exact:
            note("(there are too many tasks to count them all here: those due first and those that come next are)")
        _advise(
            [
                *(_paused(setup, "kind", each) for each in declared.values() if each.paused_at),
                *_differing(declared.values()),
            ]
        )
    else:
        note("no kinds: workers declare them when they start (holdfast worker APP).")


def _differing(kinds: "Iterable[KindInfo]") -> list[str]:
    return [f"kind {line(each.name)}: {line(each.differs, 400)}" for each in kinds if each.differs]


def _by_kind(standing: "Sequence[Standing]") -> dict[str, dict[str, dict[str, int]]]:
    """How many tasks there are, by kind, step and state."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for each in standing:
        found.setdefault(each.kind, {}).setdefault(each.step, {})[each.state] = each.count
    return found


def _steps(declared: "KindInfo | None", standing: Mapping[str, Any]) -> list[str]:
    """The steps as declared, then those where tasks stand nevertheless."""
    known = _declared_steps(declared)
    return [*known, *sorted(standing.keys() - set(known))]


def _declared_steps(declared: "KindInfo | None") -> list[str]:
    # Written by workers of any version.
    return list(declared.graph) if declared is not None and isinstance(declared.graph, Mapping) else []


def _kind_rows(name: str, declared: "KindInfo | None", standing: Mapping[str, Mapping[str, int]]) -> "list[list[Cell]]":
    rows: list[list[Cell]] = []
    for step in _steps(declared, standing):
        at = standing.get(step, {})
        is_first = not rows
        rows.append(
            [
                line(name) if is_first else "",
                line(step),
                _number(at.get("ready", 0)),
                _number(at.get("scheduled", 0)),
                _number(at.get("running", 0)),
                _alarming(at.get("parked", 0), _number(at.get("parked", 0))),
                line(declared.queue) if is_first and declared is not None else "",
                f"{declared.workers:,}" if is_first and declared is not None else "",
                _attention(_kind_note(declared, step, is_first=is_first)),
            ]
        )
    return rows


def _kind_note(declared: "KindInfo | None", step: str, *, is_first: bool) -> str:
    if declared is None:
        return "not declared by any worker"
    notes = ["paused"] if declared.paused_at and is_first else []
    notes += ["declared differently"] if declared.differs and is_first else []
    notes += [] if step in _declared_steps(declared) else ["no such step declared"]
    return ", ".join(notes)


def _number(count: int) -> str:
    return amount(count) if count else "-"


def _kind_json(
    name: str, declared: "KindInfo | None", standing: Mapping[str, Mapping[str, int]], is_exact: bool
) -> dict[str, Any]:
    steps = {step: dict(standing.get(step, {})) for step in _steps(declared, standing)}
    return {"name": name, "declared": declared, "steps": steps, "count_is_exact": is_exact}


# --- workers


@click.command()
@click.option("--all", "everyone", is_flag=True, help="Also those that have stopped.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="At most so many.")
@common_options
@pass_setup
def workers(setup: Setup, /, everyone: bool, limit: int) -> None:
    """Show the workers: where they run, what they serve, and whether they are alive.

    One that vanished without a word is shown for some minutes as lost.

    \b
    Example:
      holdfast workers
      holdfast workers --all --json
    """
    from holdfast import insights

    with setup.opened() as (app, queries):
        found = app.ask(insights.workers(queries, limit=limit if everyone else 10_000))
        kinds = [] if setup.json else app.ask(insights.kinds(queries))
    shown = found if everyone else [each for each in found if each.stopped_at is None][:limit]
    if setup.json:
        print_json(shown)
    elif shown:
        headings = ("ID", "NAME", "WHERE", "CONDITION", "QUEUES", "SLOTS", "SEEN", "VERSION")
        rows = [_worker_row(each) for each in shown]
        fitted_table(headings, rows, spare=("VERSION", "WHERE", "SEEN", "QUEUES"))
        _advise(_differing(kinds))
    else:
        note("no workers." if everyone else "no worker is running; --all shows those that have stopped.")


def _worker_row(worker: "WorkerInfo") -> list[Cell]:
    colours = {"running": "green", "stopped": "", "lost": "red"}
    condition: Cell = (worker.condition, colours.get(worker.condition, _ATTENTION))
    if worker.late and worker.live:
        condition = (line(f"{worker.condition}, late: {', '.join(worker.late)}"), "red")
    return [
        str(worker.id),
        line(worker.name, 60),
        line(f"{worker.host}:{worker.pid}", 60),
        condition,
        line(_serves(worker), 60),
        f"{worker.running:,}/{worker.slots:,}" + (f" ({worker.stuck} stuck)" if worker.stuck else ""),
        relative(worker.seen_at),
        line(worker.version),
    ]


def _serves(worker: "WorkerInfo") -> str:
    """`mail:5, default`, and what it was told to keep to."""
    queues = ", ".join(f"{name}:{worker.limits[name]}" if name in worker.limits else name for name in worker.queues)
    return f"{queues} (only {', '.join(worker.only)})" if worker.only else queues


# --- pause and resume


def _named(command: Any) -> Any:
    for option in (
        click.option("--why", help="The reason; it is kept."),
        click.option("--kind", "what", flag_value="kind", help="NAME is a kind."),
        click.option("--queue", "what", flag_value="queue", help="NAME is a queue."),
        click.argument("name"),
    ):
        command = option(command)
    return command


@click.command()
@_named
@common_options
@pass_setup
def pause(setup: Setup, /, name: str, what: str | None, why: str | None) -> None:
    """Let no more tasks of a queue or a kind begin, until it is resumed.

    Running steps finish. Tasks can be enqueued all the same; they wait. It holds for all workers, also for those that
    are started later. Say --queue or --kind if NAME is both; say --queue for a queue that is not used yet.

    \b
    Example:
      holdfast pause mail --why "the mail server is down"
      holdfast pause greeter --kind
    """
    from holdfast.cli.commands.repair import me

    with setup.opened() as (app, queries):
        what = what or _what(app, queries, name)
        app.pause(name, what=what, by=me(), why=why)
    if setup.json:
        print_json({"name": name, "what": what, "state": "paused"})
        return
    again = command_line(setup, "resume", name, f"--{what}")
    click.echo(f"{what} {line(name)} is paused: running steps finish; nothing new of it is claimed until: {again}")


@click.command()
@_named
@common_options
@pass_setup
def resume(setup: Setup, /, name: str, what: str | None, why: str | None) -> None:
    """Take a pause back: tasks of the queue or kind begin again.

    \b
    Example:
      holdfast resume mail
    """
    from holdfast.cli.commands.repair import me

    with setup.opened() as (app, queries):
        what = what or _what(app, queries, name)
        state = app.resume(name, what=what, by=me(), why=why)
    if setup.json:
        print_json({"name": name, "what": what, "state": state})
        return
    click.echo(f"{what} {line(name)} is {state}." if state == "resumed" else f"{what} {line(name)} was not paused.")


def _what(app: "SyncApp", queries: "Queries", name: str) -> str:
    """Whether a name is that of a queue or of a kind."""
    from holdfast import insights

    is_kind = any(each.name == name for each in app.ask(insights.kinds(queries)))
    is_queue = any(each.name == name for each in app.ask(insights.queues(queries)))
    if is_kind and is_queue:
        raise click.UsageError(f"{name!r} is both a queue and a kind: say --queue or --kind.")
    if not is_kind and not is_queue:
        raise Failure(
            f"there is neither a queue nor a kind {line(name, 100)!r}. A kind is known once a worker has declared it; "
            "for a queue that is not used yet, say --queue",
            NOT_FOUND,
            "NotFound",
        )
    return "kind" if is_kind else "queue"
