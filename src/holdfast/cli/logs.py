"""What a worker writes to stderr: one line per record, for people or as JSON."""

import json
import logging
import sys
from datetime import UTC, datetime

import click

from holdfast.cli.output import clean

_COLOURS = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}
_FIELDS = ("task_id", "kind", "step", "attempt", "queue", "worker")


class PrettyFormatter(logging.Formatter):
    """`20:14:03 WARNING greeter.ReadName is parked … task=0199…`"""

    def format(self, record: logging.LogRecord) -> str:
        told = f"{record.getMessage()}"
        if record.exc_info:
            told += "\n" + self.formatException(record.exc_info)
        task = getattr(record, "task_id", None)
        time = click.style(f"{datetime.fromtimestamp(record.created):%H:%M:%S}", dim=True)  # noqa: DTZ006 - local, for people
        level = click.style(f"{record.levelname:<7}", fg=_COLOURS.get(record.levelname))
        return f"{time} {level} {clean(told)}" + (click.style(f"  task={task}", dim=True) if task else "")


class JsonFormatter(logging.Formatter):
    """One object per line, with what the record says about its task."""

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{name: getattr(record, name) for name in _FIELDS if hasattr(record, name)},
        }
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str)


class _EchoHandler(logging.Handler):
    """Through click, which leaves colours out where nobody sees them."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            click.echo(self.format(record), file=sys.stderr)
        except Exception:
            self.handleError(record)


def configure(level: str, format: str) -> None:
    """Sends the records of all loggers to stderr; what the user's code has set up by itself stays."""
    handler = _EchoHandler()
    handler.setFormatter(JsonFormatter() if format == "json" else PrettyFormatter())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level.upper())
    # The pool's own records repeat what ours say.
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
