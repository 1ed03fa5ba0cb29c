"""Filters on the command line: `state:parked kind:greeter`, as words of their own or as one text."""

import re
import shlex
from collections.abc import Callable, Sequence
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli.output.printing import line

if TYPE_CHECKING:
    from holdfast._model.read.filter import Filter
    from holdfast.cli.input.options import Setup

F = TypeVar("F", bound=Callable[..., Any])

_TERM = re.compile(r'-?[A-Za-z_]+(?:\.[^\s:"]+)?:')
_MARK = "\ue000"

LANGUAGE = """
\b
A FILTER is a list of terms, and all must hold:
  state:parked               a state or phase: ready, running, parked, due, done, …
  kind:greeter step:Read*    names; * stands for anything; also queue: and key:
  args.order_id:42           a field of the args
  error:FileNotFound         a part of the error's type or message
  error:"no such file"       a value with blanks
  since:1h before:2030-01-31 when it was enqueued
  id: worker: priority:      the id or its beginning, the worker's name, 0 to 9
  state:done,cancelled       one of several values
  -queue:mail                not this one
"""


class FilterCommand(click.Command):
    """A command with filters: a negated term such as `-queue:mail` is not taken for an option."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.help = f"{cleandoc(self.help or '')}\n{LANGUAGE}"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, [_MARK + each[1:] if _is_negated(each) else each for each in args])
        ctx.params = {name: _unmarked(value) for name, value in ctx.params.items()}
        return rest


def filter_words(command: F) -> F:
    """The argument `[FILTER]...`."""
    return click.argument("words", nargs=-1, metavar="[FILTER]...")(command)


def filter_of(words: Sequence[str]) -> "Filter":
    """The filter that words say. What the shell took for one word is one value: `error:no such file`."""
    from holdfast._model.read.filter import parse_filter

    return parse_filter(" ".join(map(_quoted, words)))


def command_line(setup: "Setup", *words: str) -> str:
    """A command that can be pasted, on the same database."""
    from holdfast._model.json.redact import redact

    given = ["holdfast", *words]
    if setup.chosen_schema:
        given += ["--schema", setup.chosen_schema]
    if setup.url:
        given += ["--url", redact(setup.url)]
    return line(shlex.join(given))


def _is_negated(word: str) -> bool:
    return word.startswith("-") and _TERM.match(word) is not None


def _unmarked(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_unmarked, value))
    return "-" + value[1:] if isinstance(value, str) and value.startswith(_MARK) else value


def _quoted(word: str) -> str:
    first, *others = word.split() or [""]
    field = _TERM.match(first)
    if not others or field is None or '"' in word or any(map(_TERM.match, others)):
        return word
    value = word.strip()[field.end() :].replace("\\", "\\\\")
    return f'{field[0]}"{value}"'
