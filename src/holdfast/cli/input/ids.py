"""Ids of tasks as people give them: whole, or the beginning of one."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from holdfast.cli.output.printing import USAGE, Failure, line
from holdfast.errors import TaskNotFound

if TYPE_CHECKING:
    from holdfast._model.enqueue.ref import TaskInfo
    from holdfast._sql.queries import Queries
    from holdfast.sync import SyncApp

SHORTEST = 8
"""Fewer characters would be a guess: an id begins with the time, and the first eight change every 65 seconds."""
LISTED = 10
_BEGINNING = re.compile(rf"[0-9a-f]{{{SHORTEST},31}}")


def find_id(app: "SyncApp", queries: "Queries", text: str) -> UUID:
    """The id that is meant by `01890a5d-ac96-774b-bcce-b302099a8057`, or by `01890a5d-ac` if that is unique."""
    try:
        return UUID(text)
    except ValueError:
        found = _beginning_with(app, queries, text)
    if not found:
        raise TaskNotFound(f"there is no task whose id begins with {text} in this database")
    if len(found) > 1:
        raise Failure(_several(text, found), USAGE, "AmbiguousId")
    return found[0].id


def _beginning_with(app: "SyncApp", queries: "Queries", text: str) -> "list[TaskInfo]":
    from holdfast import insights
    from holdfast._model.read.filter import EVERYTHING

    digits = text.replace("-", "").lower()
    if not _BEGINNING.fullmatch(digits):
        raise TaskNotFound(
            f"{line(text, 100)!r} is not the id of a task: it should look like 01890a5d-ac96-774b-bcce-b302099a8057, "
            f"or be the first {SHORTEST} or more characters of one"
        )
    return app.ask(insights.tasks(queries, EVERYTHING.with_term("id", digits), limit=LISTED + 1))


def _several(text: str, found: "Sequence[TaskInfo]") -> str:
    listed = "".join(f"\n  {task.id}  {task.kind}.{task.step}  {task.phase}" for task in found[:LISTED])
    more = "\n  …" if len(found) > LISTED else ""
    many = f"more than {LISTED}" if more else str(len(found))
    return f"{many} tasks have an id that begins with {text}: give more of it.{listed}{more}"
