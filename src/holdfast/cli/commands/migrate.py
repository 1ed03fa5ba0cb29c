"""`holdfast migrate`: the schema, brought to a version, checked, or printed as SQL."""

import asyncio

import click

from holdfast.cli.input.options import Setup, common_options, pass_setup
from holdfast.cli.output.following import ProgressLine
from holdfast.cli.output.printing import FAILED, Failure, clean, print_json


@click.command()
@click.option("--to", type=click.IntRange(min=0), metavar="N", help="The version to go to. Default: the latest.")
@click.option(
    "--from", "above", type=click.IntRange(min=0), metavar="N", help="With --sql: only what comes after version N."
)
@click.option("--sql", "as_sql", is_flag=True, help="Print the SQL instead; no database is needed.")
@click.option("--check", "only_check", is_flag=True, help="Change nothing; exit code 1 if something is to be done.")
@click.option("--yes", is_flag=True, help="Do not ask before going down, which deletes tasks.")
@common_options
@pass_setup
def migrate(setup: Setup, /, to: int | None, above: int | None, as_sql: bool, only_check: bool, yes: bool) -> None:
    """Create the tables, or bring them up to date.

    It may run as often as you like, and while workers are working. Going down to an older version deletes what the
    newer one brought; version 0 deletes everything.

    \b
    Example:
      holdfast migrate
      holdfast migrate --check
      holdfast migrate --sql > holdfast.sql
      holdfast migrate --sql --from 3 --to 4
    """
    if as_sql and only_check:
        raise click.UsageError("--sql needs no database and --check asks one: give one of them.")
    if to is not None and only_check:
        raise click.UsageError("--check compares with the latest version: --to does not go with it.")
    if above is not None and not as_sql:
        raise click.UsageError("--from is for --sql: a database knows its version by itself.")
    if as_sql:
        _print_sql(setup, above or 0, to)
    elif only_check:
        _check(setup)
    else:
        _migrate(setup, to, yes)


def _print_sql(setup: Setup, above: int, to: int | None) -> None:
    from holdfast._db.migrate import script

    text = script(setup.schema, above=above, to=to)
    if setup.json:
        print_json({"schema": setup.schema, "sql": text})
    else:
        click.echo(text, nl=False)


def _check(setup: Setup) -> None:
    from holdfast._db.errors import migrate_command
    from holdfast._db.migrate import status

    found = asyncio.run(status(setup.database().url, setup.schema))
    if setup.json:
        print_json(
            {
                "schema": found.schema,
                "version": found.version,
                "latest": found.latest,
                "pending": found.pending,
                "drift": found.drift,
            }
        )
    for line in () if setup.json else found.drift:
        click.echo(clean(line))
    about, command = f"schema {found.schema!r} is at version {found.version}", migrate_command(found.schema)
    if found.version == 0:
        raise Failure(f"there are no tables in schema {found.schema!r} yet. Run: {command}", FAILED, "Pending")
    if found.version > found.latest:
        advice = "Upgrade holdfast here"
        raise Failure(f"{about}, newer than this code, which knows {found.latest}. {advice}", FAILED, "Newer")
    if found.pending:
        raise Failure(f"{about}, and this code has {found.latest}. Run: {command}", FAILED, "Pending")
    if found.drift:
        raise Failure(
            f"{about}, but it was changed by hand: {len(found.drift)} differences from what was applied",
            FAILED,
            "Drift",
        )
    if not setup.json:
        click.echo(f"{about}, the latest, and as it should be.")


def _migrate(setup: Setup, to: int | None, yes: bool) -> None:
    from holdfast._db.migrate import latest, migrate, status

    url = setup.database().url
    if to is not None and not yes:
        before = asyncio.run(status(url, setup.schema)).version
        if to < before:
            _ask(setup, before, to)
    with ProgressLine(quiet=setup.json) as progress:
        progress.show("migrating …")
        applied = asyncio.run(migrate(url, setup.schema, to=to))
    version = latest() if to is None else to
    if setup.json:
        print_json({"schema": setup.schema, "version": version, "applied": applied})
        return
    for each in applied:
        click.echo(
            f"applied {each}" if "(taken back)" not in each else f"took back {each.removesuffix(' (taken back)')}"
        )
    click.echo(f"schema {setup.schema!r} is at version {version}" + (": nothing to do." if not applied else "."))


def _ask(setup: Setup, before: int, to: int) -> None:
    from holdfast.cli.output.introduction import database_in_short

    if setup.json:
        raise click.UsageError(f"going down from version {before} to {to} deletes tasks: give --yes if that is meant.")
    what = "ALL tasks and their history" if to == 0 else "what the newer versions keep"
    click.echo(f"database: {database_in_short(setup.database(), setup.schema)}")
    click.confirm(f"Going down from version {before} to {to} deletes {what} there. Go on?", abort=True)
