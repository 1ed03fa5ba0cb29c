"""The command line: `holdfast`.

A command's module is imported when the command is used, not before: `holdfast --help` and `--version` are quick.
"""

import io
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.input.options import common_options
from holdfast.cli.output.printing import FAILED, exit_code

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Begin": {
        "demo": ("demo:demo", "Show what Holdfast does, in half a minute."),
        "dev": ("dev:dev", "Run the tasks of an App while you write them."),
        "init": ("commands.init:init", "Write a small App to begin with."),
        "pg": ("commands.pg:pg", "Run a PostgreSQL of your own, for development and tests."),
        "migrate": ("commands.migrate:migrate", "Create the tables, or bring them up to date."),
        "config": ("commands.config:config", "Show every setting and where it came from."),
    },
    "Work": {
        "worker": ("commands.worker:worker", "Run the tasks of an App."),
        "stop": ("commands.stop:stop", "Ask workers to stop."),
        "check": ("commands.check:check", "Check that this code can execute every unfinished task."),
        "graph": ("commands.graph:graph", "Draw which step can follow which."),
    },
    "Tasks": {
        "enqueue": ("commands.enqueue:enqueue", "Enqueue a task by its name."),
        "tasks": ("commands.tasks:list_tasks", "List tasks, the newest first."),
        "show": ("commands.show:show", "Show a task, its attempts, its error and who changed it."),
        "parked": ("commands.parked:parked", "Show what waits for a person: parked tasks by their error."),
        "failures": ("commands.failures:failures", "Show what was parked, as it happens."),
        "retry": ("commands.repair:retry", "Resume parked tasks where they stand."),
        "cancel": ("commands.repair:cancel", "Cancel tasks."),
        "discard": ("commands.repair:discard", "Give parked tasks up."),
        "again": ("commands.repair:again", "Enqueue tasks that have ended anew."),
        "wait": ("commands.wait:wait", "Wait until tasks have ended."),
    },
    "Operate": {
        "top": ("commands.top:top", "Watch what happens, live."),
        "stats": ("commands.stats:stats", "Show how much was done, how fast, and with how many errors."),
        "doctor": ("commands.doctor:doctor", "Check that all is well; if not, say what to do."),
        "queues": ("commands.queues:queues", "Show how many tasks are in each queue."),
        "kinds": ("commands.kinds:kinds", "Show which kinds of task there are."),
        "workers": ("commands.workers:workers", "Show which workers are there, and what they do."),
        "schedules": ("commands.schedules:schedules", "Show what recurs, and change it."),
        "web": ("commands.web:web", "Serve the dashboard."),
        "pause": ("commands.pause:pause", "Let no more tasks of a queue or kind begin."),
        "resume": ("commands.pause:resume", "Take a pause back."),
        "set": ("commands.set:set_", "Change how long history is kept."),
        "maintain": ("commands.maintain:maintain", "Do the chores of workers once, by hand."),
        "roles": ("commands.roles:roles", "Let other database roles work, enqueue, look and operate."),
    },
    "More": {
        "completion": ("commands.completion:completion", "Print a script that completes commands in your shell."),
    },
}
"""The commands by what they are for: where each is, and what it does in a line."""

_COMMANDS = {name: place for section in SECTIONS.values() for name, place in section.items()}
_COMPLETING = "_HOLDFAST_COMPLETE"
"""The variable by which a shell asks for completions."""


class _Main(click.Group):
    """The group of all commands; it turns errors into a line on stderr and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _COMMANDS and cmd_name not in self.commands:
            module, _, attribute = _COMMANDS[cmd_name][0].partition(":")
            self.add_command(getattr(import_module(f"holdfast.cli.{module}"), attribute), cmd_name)
        return self.commands.get(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        # Only what looks like a command: `holdfast --nonsense` is an option nobody knows.
        if name in _COMMANDS or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        raise NoSuchCommand(_unknown(name), ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Commands without importing them, and options."""
        from click.shell_completion import CompletionItem

        found = [
            CompletionItem(name, help=about) for name, (_, about) in _COMMANDS.items() if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by what they are for."""
        width = max(map(len, _COMMANDS))
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), about) for name, (_, about) in commands.items()])

    def main(self, *args: Any, **extra: Any) -> Any:
        if not extra.get("standalone_mode", True):
            return super().main(*args, **extra)
        if _COMPLETING in os.environ:
            with suppress(Exception):  # nobody wants to read a traceback in the middle of a line
                super().main(*args, **extra)
            sys.exit(FAILED)
        extra["standalone_mode"] = False
        if os.environ.get("NO_COLOR"):
            extra.setdefault("color", False)
        given = args[0] if args else extra.get("args")
        arguments = sys.argv[1:] if given is None else list(given)
        for stream in (sys.stdout, sys.stderr):
            # A terminal that cannot show a character must not end a command.
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        sys.exit(exit_code(lambda: super(_Main, self).main(*args, **extra), as_json=_asks_for_json(arguments)))


class NoSuchCommand(click.UsageError):
    """A command nobody knows."""


def _unknown(name: str) -> str:
    from difflib import get_close_matches

    nearest = get_close_matches(name, _COMMANDS, 1)
    return f"no such command {name!r}." + (f" Did you mean '{nearest[0]}'?" if nearest else "")


def _asks_for_json(arguments: list[str]) -> bool:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return "--json" in arguments[:end]


@click.group("holdfast", cls=_Main, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@common_options
@click.version_option(None, "--version", package_name="holdfast", prog_name="holdfast", message="%(prog)s %(version)s")
def main() -> None:
    """Durable, resumable tasks on PostgreSQL.

    \b
    Begin with:
      holdfast demo

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 the database cannot be reached.
    """
