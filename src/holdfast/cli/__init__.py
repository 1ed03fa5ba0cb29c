"""The command line: `holdfast`."""

import io
import sys
from typing import Any

import click

from holdfast._db.connection import DriverError
from holdfast.cli.demo import demo
from holdfast.cli.enqueue import enqueue
from holdfast.cli.migrate import migrate
from holdfast.cli.options import Setup, common_options, pass_setup
from holdfast.cli.output import FAILED, code_of, failure_of, note, report
from holdfast.cli.pg import pg
from holdfast.cli.show import show
from holdfast.cli.tasks import cancel, discard, list_tasks, retry
from holdfast.cli.work import stop, worker
from holdfast.errors import HoldfastError

_SECTIONS: dict[str, list[click.Command]] = {
    "Begin": [demo, pg, migrate],
    "Work": [worker, stop],
    "Tasks": [enqueue, list_tasks, show, retry, cancel, discard],
}
_INTERRUPTED = 130


class _Main(click.Group):
    """The group of all commands; it turns errors into a line on stderr and an exit code."""

    def main(self, *args: Any, **extra: Any) -> Any:
        if not extra.get("standalone_mode", True):
            return super().main(*args, **extra)
        extra["standalone_mode"] = False
        given = args[0] if args else extra.get("args")
        arguments = sys.argv[1:] if given is None else list(given)
        for stream in (sys.stdout, sys.stderr):
            # A terminal that cannot show a character must not end a command.
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        sys.exit(self._run(_asks_for_json(arguments), args, extra))

    def _run(self, as_json: bool, args: tuple[Any, ...], extra: dict[str, Any]) -> int:
        try:
            code = super().main(*args, **extra)
        except click.ClickException as error:
            report(error, as_json=as_json)
            return code_of(error)
        except (HoldfastError, DriverError) as error:
            failure = failure_of(error)
            report(failure, as_json=as_json)
            return failure.code
        except click.Abort as abort:
            note("aborted.")
            return _INTERRUPTED if isinstance(abort.__cause__, KeyboardInterrupt) else FAILED
        return code if isinstance(code, int) else 0

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by what they are for."""
        width = max(map(len, self.commands))
        for title, commands in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [((c.name or "").ljust(width), c.get_short_help_str(formatter.width - width - 6)) for c in commands]
                )


def _asks_for_json(arguments: list[str]) -> bool:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return "--json" in arguments[:end]


@click.group(cls=_Main, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@common_options
@click.version_option(None, "--version", package_name="holdfast", prog_name="holdfast", message="%(prog)s %(version)s")
@pass_setup
def main(setup: Setup) -> None:
    """Durable, resumable tasks on PostgreSQL.

    \b
    Begin with:
      holdfast demo

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 the database cannot be reached.
    """
    if setup.json:
        # `pg` has its own --json.
        click.get_current_context().default_map = {"pg": {name: {"as_json": True} for name in pg.commands}}


for _commands in _SECTIONS.values():
    for _command in _commands:
        main.add_command(_command)
