"""New tasks as the rows of a COPY, in its text format.

A COPY takes no expressions, so times are worked out here, from the database's clock as it was read in the same
transaction right before: `delay` and `deadline` count from then, and tasks of one COPY have one `created_at`.
If all are due at once, the table's defaults say the same, and the server has two times less to read in each row.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice

from holdfast._model.enqueue.request import Request
from holdfast.errors import EnqueueRefused

AT_ONCE = 1000
"""Rows in one piece of what is sent."""
NULL = "\\N"


def pieces(tasks: Iterable[Request], now: datetime) -> Iterator[bytes]:
    """The rows in pieces, in UTF-8: id, queue, kind, step, priority, run_at, created_at, deadline, args, headers.

    Requests say all of that themselves, if nothing is left to what is declared in the database.
    """
    alike: dict[tuple[object, ...], str] = {}
    left = iter(tasks)
    while part := list(islice(left, AT_ONCE)):
        rows: list[str] = []
        for task in part:
            what = (task.queue, task.kind, task.step, task.priority, task.delay, task.at, task.deadline)
            middle = alike.get(what)
            if middle is None:
                middle = alike[what] = _middle(task, now)
            headers = NULL if task.headers is None else _escaped(task.headers)
            rows.append(f"{task.id.int:032x}\t{middle}\t{_escaped(task.args)}\t{headers}\n")
        yield "".join(rows).encode()


def bare_pieces(tasks: Iterable[Request]) -> Iterator[bytes]:
    """The same of tasks that are all bare, with nothing to say but: id, queue, kind, step, priority, args."""
    alike: dict[tuple[object, ...], str] = {}
    left = iter(tasks)
    while part := list(islice(left, AT_ONCE)):
        rows: list[str] = []
        for task in part:
            what = (task.queue, task.kind, task.step, task.priority)
            middle = alike.get(what)
            if middle is None:
                middle = alike[what] = "\t".join(map(str, what))
            rows.append(f"{task.id.int:032x}\t{middle}\t{_escaped(task.args)}\n")
        yield "".join(rows).encode()


def _middle(task: Request, now: datetime) -> str:
    run_at = _time(now, task.delay if task.at is None else task.at)
    deadline = NULL if task.deadline is None else _time(now, task.deadline)
    return "\t".join((task.queue, task.kind, task.step, str(task.priority), run_at, _time(now, now), deadline))


def _time(now: datetime, when: datetime | timedelta) -> str:
    try:
        time = when if isinstance(when, datetime) else now + when
    except OverflowError:
        raise EnqueueRefused(f"no task can wait for {when}") from None
    return time.astimezone(UTC).isoformat()


def _escaped(json: bytes) -> str:
    text = json.decode()
    if "\\" not in text and text.isprintable():
        return text
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
