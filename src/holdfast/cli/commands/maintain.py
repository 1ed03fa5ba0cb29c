"""`holdfast maintain`: the chores that workers do, by hand."""

import asyncio
from typing import TYPE_CHECKING, Any

import click

from holdfast._model.read.formats import duration, size
from holdfast.cli.input.options import Setup, common_options, pass_setup
from holdfast.cli.output.printing import FAILED, Failure, line, note, print_json

if TYPE_CHECKING:
    from holdfast._sql.rows import OldPartition

_ALL = 10_000


@click.command()
@click.option("--dry-run", is_flag=True, help="Only show what would be dropped.")
@common_options
@pass_setup
def maintain(setup: Setup, /, dry_run: bool) -> None:
    """Do one pass of the chores that keep the tables small. Workers do this by themselves every ten minutes.

    Partitions are made for the days to come, and days older than the retention are dropped, as far as nobody is reading
    them; it may run beside workers.

    \b
    Example:
      holdfast maintain --dry-run
      holdfast maintain --json
    """
    if dry_run:
        _show(setup)
        return
    done, more, failures = asyncio.run(_one_pass(setup))
    if setup.json:
        print_json({"done": done, "more": more, "failed": failures})
    else:
        for each in done:
            click.echo(line(each, 200))
        if not done and not failures:
            click.echo("nothing to do.")
        if more:
            note("there is more to do: run it again, or leave it to the workers.")
    if failures:
        raise Failure("; ".join(f"{chore} failed: {error}" for chore, error in failures.items()), FAILED)


async def _one_pass(setup: Setup) -> tuple[list[str], bool, dict[str, str]]:
    from holdfast._db.driver.session import Link
    from holdfast._db.errors import explained
    from holdfast._db.migrate import check_version
    from holdfast._engine.maintain.maintenance import Maintenance
    from holdfast._model.json.redact import redact
    from holdfast._sql.queries import queries
    from holdfast.cli.input.user import me
    from holdfast.errors import DatabaseUnreachable, SchemaError

    found, retention = queries(setup.schema), setup.setting("retention")
    link = Link(setup.database().url, found, "holdfast maintain")
    told = None if retention.is_default else retention.value
    try:
        try:
            check_version(await link.run(found.schema_version()), setup.schema)
        except Exception as error:
            raise explained(error, setup.schema) or error from None
        done, failures = await Maintenance(link, found, retention=told, by=me()).once()
    finally:
        await link.close()
    explanations = {chore: explained(error, setup.schema) or error for chore, error in failures.items()}
    for each in explanations.values():
        if isinstance(each, (DatabaseUnreachable, SchemaError)):
            raise each
    return done.what, done.more, {chore: redact(str(error)) for chore, error in explanations.items()}


def _show(setup: Setup) -> None:
    from holdfast._sql import history

    with setup.opened() as (app, queries):
        kept = app.retention()
        found = app.ask(history.to_drop(queries, _ALL))
    if setup.json:
        print_json({"retention": kept.total_seconds(), "would_drop": [_as_json(each) for each in found]})
        return
    for each in found:
        click.echo(f"would drop {each.name} ({size(each.bytes or 0)})")
    if not found:
        click.echo("nothing would be dropped.")
    note(f"history is kept for {duration(kept)}, unless a queue says otherwise.")


def _as_json(partition: "OldPartition") -> dict[str, Any]:
    return {"name": partition.name, "day": str(partition.day), "bytes": partition.bytes}
