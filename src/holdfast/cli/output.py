"""What commands print: text, tables, JSON and errors.

Texts from the database are untrusted, such as error messages and the names of workers: `clean` and `line` take
out what would move the cursor, change colours or hide something, before it reaches a terminal.
"""

import json
import re
import sys
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

import click
import msgspec

from holdfast._db.config import redact
from holdfast._db.connection import DriverError
from holdfast.errors import ConfigError, DatabaseUnreachable, HoldfastError, TaskNotFound

FAILED, USAGE, NOT_FOUND, UNREACHABLE = 1, 2, 3, 4
"""Exit codes; 0 is success."""

Cell: TypeAlias = str | tuple[str, str]
"""A text, or a text and its colour."""

_COLOURS = {
    "done": "green",
    "advanced": "green",
    "running": "cyan",
    "due": "cyan",
    "retrying": "yellow",
    "retried": "yellow",
    "snoozed": "yellow",
    "released": "yellow",
    "unroutable": "yellow",
    "parked": "red",
    "failed": "red",
    "lost": "red",
}

# Whole sequences go: CSI (colours, cursor), OSC and the like (titles, links, clipboard), and other two-byte ones.
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-Z\\^_`-~]"
)


class Failure(click.ClickException):
    """The end of a command that did not do what it was asked to."""

    def __init__(self, message: str, code: int = FAILED, name: str = "Failed") -> None:
        super().__init__(message)
        self.code = code
        self.name = name


# Untrusted text -------------------------------------------------------------------------------------


def clean(text: object) -> str:
    """Text without escape sequences; other control characters are written out. Line ends and tabs stay."""
    shown = _SEQUENCE.sub("", str(text).replace("\r\n", "\n"))
    return "".join(each if _is_harmless(each) else _written_out(each) for each in shown)


def line(text: object, limit: int = 2000) -> str:
    """The same in one line."""
    return shortened(" ".join(clean(text).split()), limit)


def shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: max(0, limit - 1)] + "…"


def _is_harmless(character: str) -> bool:
    # Cc: control; Cf: direction overrides, invisible; Cs: half of a pair; Zl, Zp: line ends nobody expects.
    return character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _written_out(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def value(content: Any, limit: int = 2000) -> str:
    """A JSON value in one line."""
    return shortened(clean(json.dumps(content, ensure_ascii=False)), limit)


def error_line(error: Any) -> str:
    """A stored error in one line: `FileNotFoundError: no such file`."""
    if not isinstance(error, dict):
        return ""
    return line(": ".join(str(error[part]) for part in ("type", "message") if error.get(part)))


# Time -----------------------------------------------------------------------------------------------


def moment(at: datetime | None) -> str:
    """A time as people here read it, and how far away it is."""
    return "" if at is None else f"{at.astimezone():%Y-%m-%d %H:%M:%S} ({relative(at)})"


def relative(at: datetime | None) -> str:
    """`in 4s`, `3m ago`, by this machine's clock: for people, nothing is decided by it."""
    if at is None:
        return ""
    seconds = (at - datetime.now(UTC)).total_seconds()
    return f"in {_length(seconds)}" if seconds >= 0 else f"{_length(-seconds)} ago"


def lasted(start: datetime | None, end: datetime | None) -> str:
    """How long something took: `12 ms`, `3.2 s`, `4m`."""
    if start is None or end is None:
        return ""
    seconds = max(0.0, (end - start).total_seconds())
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s" if seconds < 60 else _length(seconds)


def _length(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


# Printing -------------------------------------------------------------------------------------------


def coloured(word: str) -> Cell:
    """A phase or an outcome in its colour."""
    return word, _COLOURS.get(word, "")


def styled(cell: Cell, width: int = 0) -> str:
    text, colour = cell if isinstance(cell, tuple) else (cell, "")
    padded = text.ljust(width)
    return click.style(padded, fg=colour) if colour else padded


def table(headings: Sequence[str], rows: Sequence[Sequence[Cell]], indent: str = "") -> None:
    """Columns as wide as they need to be; on a terminal the last one is cut at its edge."""
    texts = [[cell[0] if isinstance(cell, tuple) else cell for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *texts, strict=True)]
    click.echo(indent + click.style(_joined([h.ljust(w) for h, w in zip(headings, widths, strict=True)]), dim=True))
    room = max(20, _columns() - len(indent) - sum(widths[:-1]) - 2 * (len(widths) - 1))
    for row, text in zip(rows, texts, strict=True):
        cells = [styled(cell, width) for cell, width in zip(row[:-1], widths, strict=False)]
        last = row[-1] if len(text[-1]) <= room else shortened(text[-1], room)
        click.echo(indent + _joined([*cells, styled(last)]))


def facts(pairs: Sequence[tuple[str, Cell]], indent: str = "  ") -> None:
    """Names and what they are, one per line; empty ones are left out."""
    told = [(name, cell) for name, cell in pairs if cell not in ("", ("", ""))]
    width = max((len(name) for name, _ in told), default=0)
    for name, cell in told:
        click.echo(f"{indent}{click.style(name.ljust(width), dim=True)}  {styled(cell)}")


def print_json(content: Any) -> None:
    """JSON for programs: ASCII only, so it cannot harm a terminal either."""
    click.echo(json.dumps(msgspec.to_builtins(content), indent=2))


def note(text: str) -> None:
    """Something for people beside the output proper."""
    click.echo(text, err=True)


def _joined(cells: list[str]) -> str:
    return "  ".join(cells).rstrip()


def _columns() -> int:
    import shutil

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000


# Errors ---------------------------------------------------------------------------------------------


def failure_of(error: Exception) -> Failure:
    """How a command ends by an error that a person can do something about."""
    name = type(error).__name__
    match error:
        case TaskNotFound():
            return Failure(str(error), NOT_FOUND, name)
        case DatabaseUnreachable():
            return Failure(redact(str(error)), UNREACHABLE, name)
        case ConfigError():
            return Failure(str(error), USAGE, name)
        case HoldfastError():
            return Failure(redact(str(error)), FAILED, name)
        case DriverError():
            return Failure(_said_by_database(error), FAILED, "DatabaseError")
        case _:
            raise error


def code_of(error: click.ClickException) -> int:
    """The exit code of a failure."""
    return error.code if isinstance(error, Failure) else error.exit_code


def report(error: click.ClickException, *, as_json: bool) -> None:
    """Tells on stderr why a command failed: `error: …`, or one line of JSON."""
    if as_json:
        cause = error.__cause__
        known = type(cause).__name__ if isinstance(cause, HoldfastError) else type(error).__name__.lstrip("_")
        name = error.name if isinstance(error, Failure) else known
        note(json.dumps({"error": name, "message": error.format_message()}))
    elif isinstance(error, click.UsageError):
        error.show()
    else:
        note(click.style("error:", fg="red") + f" {clean(error.format_message())}")


def _said_by_database(error: DriverError) -> str:
    said = error.diag.message_primary or str(error).strip() or type(error).__name__
    hint = f"\n{error.diag.message_hint}" if error.diag.message_hint else ""
    return redact(f"the database refused this: {said.removeprefix('holdfast: ')}{hint}")
