"""What commands print: text, tables, JSON and errors.

Texts from the database are untrusted, such as error messages and the names of workers: `clean` and `line` take
out what would move the cursor, change colours or hide something, before it reaches a terminal; and passwords of URLs.
"""

import json
import os
import re
import sys
import traceback
import unicodedata
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from holdfast._model.json.redact import redact, redact_all
from holdfast._model.json.text import told
from holdfast.errors import ConfigError, DatabaseUnreachable, HoldfastError, TaskNotFound

if TYPE_CHECKING:
    from holdfast._db.driver.connection import DriverError

FAILED, USAGE, NOT_FOUND, UNREACHABLE, INTERRUPTED = 1, 2, 3, 4, 130
"""Exit codes; 0 is success."""

Cell: TypeAlias = str | tuple[str, str]
"""A text, or a text and its colour."""

ATTENTION = "yellow"

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
    "unserved": "yellow",
    "paused": "yellow",
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


# A group without a command; older versions of click print the help by themselves.
_NO_ARGUMENTS: tuple[type[Exception], ...] = tuple(filter(None, [getattr(click.exceptions, "NoArgsIsHelpError", None)]))


class Failure(click.ClickException):
    """The end of a command that did not do what it was asked to."""

    def __init__(self, message: str, code: int = FAILED, name: str = "Failed") -> None:
        super().__init__(message)
        self.code = code
        self.name = name


# Untrusted text -------------------------------------------------------------------------------------


def clean(text: object) -> str:
    """Text without escape sequences; other control characters are written out. Line ends and tabs stay."""
    shown = redact(_SEQUENCE.sub("", str(text).replace("\r\n", "\n")))
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
    return shortened(clean(json.dumps(redact_all(content), ensure_ascii=False)), limit)


def error_line(error: Any) -> str:
    """A stored error in one line: `FileNotFoundError: no such file`."""
    if not isinstance(error, dict):
        return ""
    return line(told(error))


# Printing -------------------------------------------------------------------------------------------


def coloured(word: str) -> Cell:
    """A phase or an outcome in its colour."""
    return word, _COLOURS.get(word, "")


def styled(cell: Cell, width: int = 0) -> str:
    text, colour = cell if isinstance(cell, tuple) else (cell, "")
    # Padding outside of the colour can be cut off at the end of a line.
    return (click.style(text, fg=colour) if colour else text) + " " * (width - len(text))


def alarming(is_bad: object, text: str) -> Cell:
    """A text that is red if something is wrong."""
    return (text, "red") if is_bad else text


def attention(text: str) -> Cell:
    """What a person should see; nothing if there is nothing to see."""
    return (text, ATTENTION) if text else ""


def advise(sentences: Sequence[str]) -> None:
    """What follows a table, for people to act on."""
    if sentences:
        click.echo()
    for each in sentences:
        click.echo(click.style(each, fg=ATTENTION))


def facts(pairs: Sequence[tuple[str, Cell]], indent: str = "  ") -> None:
    """Names and what they are, one per line; empty ones are left out."""
    told = [(name, cell) for name, cell in pairs if cell not in ("", ("", ""))]
    width = max((len(name) for name, _ in told), default=0)
    for name, cell in told:
        click.echo(f"{indent}{click.style(name.ljust(width), dim=True)}  {styled(cell)}")


def print_json(content: Any) -> None:
    """JSON for programs: ASCII only, so it cannot harm a terminal either."""
    import msgspec

    from holdfast._model.read.infos import as_json

    click.echo(json.dumps(msgspec.to_builtins(content, enc_hook=as_json), indent=2))


def print_json_line(content: Any) -> None:
    """One of many, in a line of its own, at once."""
    import msgspec

    from holdfast._model.read.infos import as_json

    click.echo(json.dumps(msgspec.to_builtins(content, enc_hook=as_json)))
    sys.stdout.flush()


def print_result(result: Any) -> None:
    """A result on stdout as `x=$(holdfast …)` wants it: a text as it is, anything else as JSON."""
    text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
    is_terminal = sys.stdout.isatty()
    # click would take escape sequences out of a script's data, believing them to be colours.
    click.echo(clean(text) if is_terminal else text, color=not is_terminal or None)


def note(text: str) -> None:
    """Something for people beside the output proper."""
    click.echo(text, err=True)


# Errors ---------------------------------------------------------------------------------------------


def failure_of(error: Exception) -> Failure:
    """How a command ends by an error that a person can do something about; raises any other."""
    known = known_failure(error)
    if known is None:
        raise error
    return known


def known_failure(error: Exception) -> Failure | None:
    """The same, or None if this error should not have happened."""
    name = type(error).__name__
    match error:
        case TaskNotFound():
            return Failure(str(error), NOT_FOUND, name)
        case DatabaseUnreachable():
            return Failure(redact(str(error)), UNREACHABLE, name)
        case ConfigError():
            return Failure(redact(str(error)), USAGE, name)
        case HoldfastError():
            return Failure(redact(str(error)), FAILED, name)
        case OSError():
            # The machine's fault: a full disk, a file that may not be read.
            return Failure(redact(str(error) or name), FAILED, name)
    if "psycopg" not in sys.modules:
        return None
    from holdfast._db.driver.connection import DriverError

    return Failure(_said_by_database(error), FAILED, "DatabaseError") if isinstance(error, DriverError) else None


def code_of(error: click.ClickException) -> int:
    """The exit code of a failure."""
    return error.code if isinstance(error, Failure) else error.exit_code


def exit_code(command: Callable[[], Any], *, as_json: bool) -> int:
    """Runs a command and tells what went wrong; its exit code."""
    try:
        code = command()
    except click.ClickException as error:
        report(error, as_json=as_json)
        return code_of(error)
    except click.Abort as abort:
        note("aborted.")
        return INTERRUPTED if isinstance(abort.__cause__, KeyboardInterrupt) else FAILED
    except Exception as error:
        failure = known_failure(error)
        if failure is None:
            report_bug(error, as_json=as_json)
            return FAILED
        report(failure, as_json=as_json)
        return failure.code
    return code if isinstance(code, int) else 0


def report(error: click.ClickException, *, as_json: bool) -> None:
    """Tells on stderr why a command failed: `error: …`, or one line of JSON."""
    message = _message(error)
    if isinstance(error, _NO_ARGUMENTS) and not as_json:
        note(error.format_message())
        return
    if as_json:
        cause = error.__cause__
        known = type(cause).__name__ if isinstance(cause, HoldfastError) else type(error).__name__.lstrip("_")
        name = error.name if isinstance(error, Failure) else known
        note(json.dumps({"error": name, "message": message}))
        return
    _print_error(clean(message))
    if isinstance(error, click.UsageError) and error.ctx is not None:
        note(f"Try '{error.ctx.command_path} --help'.")


def report_bug(error: Exception, *, as_json: bool) -> None:
    """Tells on stderr about an error that nobody expected."""
    what = f"{type(error).__name__}: {redact(str(error))}"
    trace = redact("".join(traceback.format_exception(error)))
    if as_json:
        note(json.dumps({"error": "Bug", "message": what, "traceback": trace}))
        return
    _print_error(f"this is a bug in holdfast: {line(what)}")
    note("Please report it, with the command, what follows, and what `holdfast config` prints.\n")
    note(clean(trace).rstrip())


def _message(error: click.ClickException) -> str:
    message = "no command was given" if isinstance(error, _NO_ARGUMENTS) else error.format_message()
    # click's own begin with a capital letter: `No such option`.
    is_clicks = type(error).__module__.startswith("click.")
    return message[:1].lower() + message[1:] if is_clicks else message


def _print_error(message: str) -> None:
    # The context is gone by now, and with it what it knew about colours.
    colour = False if os.environ.get("NO_COLOR") else None
    click.echo(click.style("error:", fg="red") + f" {message}", err=True, color=colour)


def _said_by_database(error: "DriverError") -> str:
    said = error.diag.message_primary or str(error).strip() or type(error).__name__
    hint = f"\n{error.diag.message_hint}" if error.diag.message_hint else ""
    return redact(f"the database refused this: {said.removeprefix('holdfast: ')}{hint}")
