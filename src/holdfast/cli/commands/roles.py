"""`holdfast roles`: which roles of the database may enqueue, work, look and operate."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from holdfast._model.read.formats import relative
from holdfast.cli.input.options import Setup, common_options, pass_setup
from holdfast.cli.output.printing import line, note, print_json
from holdfast.cli.output.tables import fitted_table

if TYPE_CHECKING:
    from holdfast._db.roles import Grantee, Part

_PARTS = ("producer", "worker", "viewer", "operator")


def _change(command: Any) -> Any:
    for option in (
        click.option("--sql", "as_sql", is_flag=True, help="Print the statements instead; nothing is changed."),
        click.argument("roles", nargs=-1, required=True, metavar="ROLE..."),
        click.argument("part", type=click.Choice(_PARTS)),
    ):
        command = option(command)
    return command


@click.group("roles")
@common_options
def roles() -> None:
    """Let other database roles than the owner use the tables, each for its part.

    \b
    The parts:
      producer   enqueues; sees no args, errors or results of others
      worker     executes tasks, makes and drops history; may enqueue too
      viewer     sees everything, changes nothing
      operator   sees everything; retries, cancels, discards, pauses, stops workers

    A role may have several parts. A migration renews what each part needs.

    \b
    Example:
      holdfast roles grant worker shop_worker
      holdfast roles list
    """


@roles.command()
@_change
@common_options
@pass_setup
def grant(setup: Setup, /, part: "Part", roles: Sequence[str], as_sql: bool) -> None:
    """Give roles a part: PART is producer, worker, viewer or operator.

    To be done by the owner of the tables, as often as you like. The roles must exist; groups will do.

    \b
    Example:
      holdfast roles grant producer shop_web
      holdfast roles grant operator ann bob
      holdfast roles grant worker shop_worker --sql
    """
    from holdfast._db.roles import grant

    sent = grant(setup.database().url, setup.schema, part, roles, only_tell=as_sql)
    _tell(setup, sent, as_sql, [f"role {line(role)} is {_article(part)} {part} now." for role in roles])


@roles.command()
@_change
@common_options
@pass_setup
def revoke(setup: Setup, /, part: "Part", roles: Sequence[str], as_sql: bool) -> None:
    """Take a part from roles. What their other parts need stays.

    Sessions that are open lose it at once.

    \b
    Example:
      holdfast roles revoke operator bob
    """
    from holdfast._db.roles import revoke

    sent = revoke(setup.database().url, setup.schema, part, roles, only_tell=as_sql)
    _tell(setup, sent, as_sql, [f"role {line(role)} is no {part} any more." for role in roles])


@roles.command("list")
@common_options
@pass_setup
def list_(setup: Setup, /) -> None:
    """Show which roles have which parts.

    \b
    Example:
      holdfast roles list --json
    """
    from holdfast._db.roles import grantees

    found = grantees(setup.database().url, setup.schema)
    if setup.json:
        print_json(found)
    elif found:
        fitted_table(("ROLE", "PART", "SINCE", "BY", "NOTE"), [_row(each) for each in found])
    else:
        note("no role but the owner of the tables has a part.")


def _row(grantee: "Grantee") -> list[Any]:
    gone = "" if grantee.exists else ("there is no such role any more", "yellow")
    return [line(grantee.role), grantee.part, relative(grantee.granted_at), line(grantee.granted_by), gone]


def _tell(setup: Setup, sent: Sequence[str], as_sql: bool, said: Sequence[str]) -> None:
    if setup.json:
        print_json({"schema": setup.schema, "sql": sent, "done": not as_sql})
        return
    for each in sent if as_sql else said:
        click.echo(each)


def _article(part: str) -> str:
    return "an" if part[0] in "aeiou" else "a"
