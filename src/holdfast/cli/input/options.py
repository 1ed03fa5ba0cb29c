"""Options that every command takes, before or after its name, and what they come to."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import click

from holdfast._db.config.resolve import Database, Resolved, setting
from holdfast._db.config.settings import SETTINGS, Setting, checked
from holdfast._model.time.duration import seconds
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast._sql.queries import Queries
    from holdfast.sync import SyncApp

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class Setup:
    """What was said on the command line about the database and the output."""

    url: str | None = None
    chosen_schema: str | None = None
    json: bool = False
    flags: dict[str, Resolved] = field(default_factory=dict)

    def setting(self, name: str) -> Resolved:
        """A setting and where it came from: a flag of this command line, or as `App()` finds it."""
        if name in self.flags:
            return self.flags[name]
        given = {"url": self.url, "schema": self.chosen_schema}.get(name)
        found = setting(name, given)
        return replace(found, source=f"--{name}") if given else found

    @property
    def schema(self) -> str:
        return str(self.setting("schema").value)

    def database(self) -> Database:
        """The database, found in the same way as `App()` finds it."""
        found = self.setting("url")
        return Database(found.value, found.source, self.setting("direct_url").value)

    @contextmanager
    def opened(self) -> Iterator[tuple["SyncApp", "Queries"]]:
        """The verbs and queries of this database; its connections are closed afterwards."""
        from holdfast._sql.queries import queries
        from holdfast.sync import SyncApp

        made = SyncApp(queries(self.schema), self.database, lambda: bool(self.setting("durable").value))
        try:
            yield made, queries(self.schema)
        finally:
            made.close()


def duration(text: str) -> float:
    """The type of options such as `--delay`: `250ms`, `90s`, `1h30m`, or a number of seconds."""
    try:
        return seconds(_number(text))
    except ConfigError as error:
        # Nobody can write a timedelta here.
        said = str(error).removeprefix("duration: ").replace(", a number of seconds, or a timedelta", ", or seconds")
        raise click.BadParameter(said) from None


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def setting_option(name: str, *flags: str, **how: Any) -> Callable[[F], F]:
    """A flag for a setting: `@setting_option("concurrency", "-c")`.

    The command gets the value of the flag, else of the variable or pyproject.toml, else the default; always checked,
    and durations in seconds. `setup.setting(name)` also says where it came from.
    """
    about = SETTINGS[name]
    how = {"help": about.about, **how}
    how["help"] += f"  [{about.variable}; default: {about.default_text}]"

    def chosen(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        if ctx.resilient_parsing:
            return value
        found = _from_flag(about, ",".join(value) if isinstance(value, tuple) else value)
        ctx.ensure_object(Setup).flags[name] = found
        return found.value

    return click.option(*flags, f"--{name.replace('_', '-')}", name, callback=chosen, **how)


def _from_flag(about: Setting, text: str | None) -> Resolved:
    if not text:
        return setting(about.name)
    try:
        return Resolved(about.name, checked(about, text, is_text=True), f"--{about.name.replace('_', '-')}")
    except ConfigError as error:
        raise click.BadParameter(str(error)) from None


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value and param.name is not None:
        setattr(ctx.ensure_object(Setup), param.name, value)


def database_options(command: F) -> F:
    """`--url` and `--schema`."""
    command = click.option(
        "--schema",
        "chosen_schema",
        metavar="NAME",
        expose_value=False,
        callback=_remember,
        help="The schema that holds the tables.  [HOLDFAST_SCHEMA; default: holdfast]",
    )(command)
    return click.option(
        "--url",
        metavar="URL",
        expose_value=False,
        callback=_remember,
        help="The database. Default: HOLDFAST_URL, pyproject.toml, DATABASE_URL, or the embedded server.",
    )(command)


def json_option(command: F) -> F:
    """`--json`."""
    return click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        callback=_remember,
        help="Print JSON, errors too.",
    )(command)


def common_options(command: F) -> F:
    """All of them."""
    return database_options(json_option(command))


def pass_setup(function: Callable[Concatenate[Setup, P], R]) -> Callable[P, R]:
    """Gives a command its `Setup` as the first argument."""

    def with_setup(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(click.get_current_context().ensure_object(Setup), *args, **kwargs)

    return update_wrapper(with_setup, function)


_OBJECT = """Write for example '{"filename": "name.txt"}', with the quotes."""


def json_object(text: str, what: str) -> dict[str, Any]:
    """A JSON object that was given on the command line."""
    try:
        found = json_value(text, what)
    except click.UsageError as error:
        raise click.UsageError(f"{error.message}. {_OBJECT}") from None
    if not isinstance(found, dict):
        raise click.UsageError(f"{what} must be a JSON object. {_OBJECT}")
    return found


def json_value(text: str, what: str) -> Any:
    """Any JSON that was given on the command line."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"{what} is not JSON: {error}") from None
