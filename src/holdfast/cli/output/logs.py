"""What a worker writes to stderr: one line per record, for people or as JSON.

The loggers are `holdfast.worker` for the worker itself and `holdfast.task` for what happens to tasks. Records that
the code of a step makes by itself carry the id of its task too.
"""

import json
import logging
import os
import re
import sys
import sysconfig
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import click

from holdfast.cli.output.printing import clean, coloured, line

TASKS = "holdfast.task"
ROUTINE = "routine"
"""The attribute of records that nobody needs to see who has started the worker himself a moment ago."""

_COLOURS = {"DEBUG": "bright_black", "WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}
_FIELDS = (
    *("process_number", "task_id", "kind", "step", "attempt", "queue", "worker", "trace_id"),
    *("outcome", "seconds", "error", "traceback"),
)
_INDENT = " " * 17
_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line \d+')
_LIBRARIES = (
    *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")},
    str(Path(__file__).parents[2]),
    "<frozen",
)


class PrettyFormatter(logging.Formatter):
    """`20:14:03 WARNING greeter.ReadName is parked … task=0199…`"""

    def format(self, record: logging.LogRecord) -> str:
        first, *others = clean(record.getMessage()).split("\n")
        time = click.style(f"{datetime.fromtimestamp(record.created):%H:%M:%S}", dim=True)  # noqa: DTZ006 - local, for people
        task = getattr(record, "task_id", None)
        number = getattr(record, "process_number", None)
        process = "" if number is None else click.style(f"[{number}] ", dim=True)
        shown = f"{time} {self.level(record)} {process}{_origin(record)}{first}"
        if task:
            shown += click.style(f"  task={line(task)}", dim=True)
        if record.exc_info:
            others += clean(self.formatException(record.exc_info)).split("\n")
        return "\n".join([shown, *others, *self.more(record)])

    def level(self, record: logging.LogRecord) -> str:
        return click.style(f"{record.levelname:<7}", fg=_COLOURS.get(record.levelname))

    def more(self, record: logging.LogRecord) -> list[str]:
        """Further lines."""
        return []


class DevFormatter(PrettyFormatter):
    """The same for somebody who writes the code: what ended well is shown too, and where it went wrong."""

    def level(self, record: logging.LogRecord) -> str:
        if record.name != TASKS or record.levelno > logging.INFO:
            return super().level(record)
        cell = coloured(getattr(record, "outcome", ""))
        return click.style("INFO   ", fg=cell[1] or None if isinstance(cell, tuple) else None)

    def more(self, record: logging.LogRecord) -> list[str]:
        if getattr(record, "outcome", None) != "failed":
            return []
        frames = own_frames(clean(getattr(record, "traceback", "")))
        look = click.style(f"Look at it: holdfast show {line(getattr(record, 'task_id', ''))}", dim=True)
        return [_INDENT + each for each in (*frames, look)]


class JsonFormatter(logging.Formatter):
    """One object per line, with what the record says about its task."""

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{name: getattr(record, name) for name in _FIELDS if getattr(record, name, "") != ""},
        }
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str)


def configure(level: str, format: str, *, dev: bool = False, process: int | None = None) -> None:
    """Sends the records of all loggers to stderr; what the user's code has set up by itself stays.

    `process`: the number of this one among several, told with each record.
    """
    handler = _EchoHandler()
    if process is not None:
        handler.addFilter(partial(_with_process, process))
    handler.setFormatter(JsonFormatter() if format == "json" else DevFormatter() if dev else PrettyFormatter())
    handler.addFilter(_with_task)
    handler.addFilter(_with_trace)
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level.upper())
    if dev and root.level <= logging.INFO:
        logging.getLogger(TASKS).setLevel(logging.DEBUG)
        if root.level == logging.INFO:
            handler.addFilter(lambda record: not hasattr(record, ROUTINE))
    # The pool's own records repeat what ours say.
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)


def revive() -> None:
    """After the user's code was loaded: a `dictConfig` in it disables the loggers it does not name, but not ours."""
    for name in ("holdfast.worker", TASKS):
        logging.getLogger(name).disabled = False


class _EchoHandler(logging.Handler):
    """Through click, which leaves colours out where nobody sees them."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            # Other threads than the command's do not know what it knows about colours.
            click.echo(self.format(record), file=sys.stderr, color=False if os.environ.get("NO_COLOR") else None)
        except Exception:
            self.handleError(record)


def _with_task(record: logging.LogRecord) -> bool:
    """Adds the task to a record that the code of its step made."""
    if not hasattr(record, "task_id") and not record.name.startswith("holdfast."):
        from holdfast._model.run.context import current_context

        context = current_context.get(None)
        if context is not None:
            record.task_id = str(context.id)
            record.kind, record.step, record.attempt = context.kind, context.step, context.attempt
            record.queue = context.queue
    return True


def _with_trace(record: logging.LogRecord) -> bool:
    """Adds the trace to a record that was made while a span of OpenTelemetry is current."""
    api = sys.modules.get("opentelemetry.trace")
    if api is not None and not hasattr(record, "trace_id"):
        context = api.get_current_span().get_span_context()
        if context.is_valid:
            record.trace_id = f"{context.trace_id:032x}"
    return True


def _with_process(number: int, record: logging.LogRecord) -> bool:
    record.process_number = number
    return True


def _origin(record: logging.LogRecord) -> str:
    """The logger, if it is somebody else's."""
    is_ours = record.name == "root" or record.name.partition(".")[0] == "holdfast"
    return "" if is_ours else click.style(f"{line(record.name)}: ", dim=True)


def own_frames(traceback: str) -> list[str]:
    """The frames of a traceback that are in the user's own code, as lines; all of them if there are none."""
    frames: list[list[str]] = []
    for each in traceback.split("\n"):
        if _FRAME.match(each):
            frames.append([])
        if frames and not each.startswith("  "):
            break  # the error itself
        if frames:
            frames[-1].append(each)
    own = [frame for frame in frames if not _is_library(frame[0])]
    return [each for frame in own or frames for each in frame]


def _is_library(first_line: str) -> bool:
    match = _FRAME.match(first_line)
    return match is not None and match["file"].startswith(_LIBRARIES)
