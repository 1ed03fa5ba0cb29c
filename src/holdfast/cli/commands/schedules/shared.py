"""What the commands about schedules share."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from holdfast._model.read.formats import relative
from holdfast.cli.output.printing import NOT_FOUND, Failure, line

if TYPE_CHECKING:
    from holdfast._sql.queries import Queries
    from holdfast.schedules import ScheduleInfo
    from holdfast.sync import SyncApp


def why_option(command: Any) -> Any:
    return click.option("--why", help="The reason; it is kept.")(command)


def one(app: "SyncApp", queries: "Queries", name: str) -> "ScheduleInfo":
    from holdfast import schedules as asked

    found: Sequence[ScheduleInfo] = app.ask(asked.listed(queries, only=name))
    if not found:
        raise Failure(
            f"there is no schedule {line(name, 100)!r}; `holdfast schedules` lists them", NOT_FOUND, "ScheduleError"
        )
    return found[0]


def a_time(text: str, what: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"{what}: {text!r} is no time; write 2030-01-31T09:00+01:00, or 2030-01-31.") from None
    return found.astimezone(UTC)


def next_plan(info: "ScheduleInfo") -> datetime | None:
    """Its next plan time, not when a worker looks at it next."""
    from holdfast.errors import HoldfastError

    if info.condition in ("paused", "ended"):
        return None
    try:
        return next(iter(info.next(1)), None)
    except HoldfastError:
        return None


def advice(info: "ScheduleInfo") -> str:
    name = line(info.name)
    match info.condition:
        case "paused":
            who = line(info.paused_by or "somebody")
            return f"{name} was paused {relative(info.paused_at)} by {who}: holdfast schedules resume {name}"
        case "failing":
            return f"{name} cannot be planned: {line(info.error or '')}"
        case "orphaned":
            return f"{name} is declared in code that no live worker has, and rests: holdfast schedules delete {name}"
    return ""


def told_of(info: "ScheduleInfo") -> dict[str, Any]:
    import msgspec

    told: dict[str, Any] = msgspec.to_builtins(info)
    told["next_at"] = msgspec.to_builtins(next_plan(info))
    return {**told, "words": info.words}
