"""Statements from files: numbered parameters, the schema's name, prose, and the form that passes over locked rows."""

import inspect
import re

from holdfast import schedules
from holdfast._db import migrate, roles
from holdfast._sql import failures, figures, history, repair
from holdfast._sql import schedules as planning
from holdfast._sql.plans import Plan, drive_sync
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query, for_schema, statements
from holdfast.insights import bounded, database, lookup, totals


def test_every_statement_has_prose_and_no_open_placeholder() -> None:
    for statement in statements("other").values():
        assert statement.prose, statement.name
        assert not re.search(r"(?<![:\w]):[a-z]", statement.text), statement.name
        assert "holdfast." not in statement.text.replace("'holdfast.", ""), statement.name
        numbers = {int(n) for n in re.findall(r"\$(\d+)", statement.text)}
        assert numbers == set(range(1, len(statement.parameters) + 1)), statement.name


def test_the_schema_is_quoted() -> None:
    text = for_schema("""SELECT holdfast.now(), :'schema', :"schema" """, "o\"d'd")
    assert text == """SELECT "o""d'd".now(), 'o"d''d', "o""d'd" """


def test_every_settling_statement_can_pass_over_locked_rows() -> None:
    queries = Queries()
    for name in (
        "finish",
        "finish_counted",
        "finish_with_children",
        "advance",
        "advance_with_children",
        "stay",
        "cancel",
    ):
        statement = statements("holdfast")[name]
        skipping = queries.skip_locked(Query(statement, (), list)).statement
        assert "SKIP LOCKED" in skipping.text and "SKIP LOCKED" not in statement.text
        assert skipping.parameters == statement.parameters


def test_every_statement_is_used_by_a_query() -> None:
    """A statement that nobody sends is dead text."""
    source = (
        "".join(inspect.getsource(group) for group in Queries.__mro__[:-1])
        + inspect.getsource(lookup)
        + inspect.getsource(bounded)
        + inspect.getsource(totals)
        + inspect.getsource(database)
        + inspect.getsource(migrate)
    )
    source += inspect.getsource(history) + inspect.getsource(failures) + inspect.getsource(repair)
    source += (
        inspect.getsource(schedules)
        + inspect.getsource(planning)
        + inspect.getsource(roles)
        + inspect.getsource(figures)
    )
    # Written once, and found by a part of their names: `_with_children`.
    names = {re.sub("_with_children$", "", name) for name in statements("holdfast")}
    assert [name for name in names if f'"{name}"' not in source] == []


def test_a_plan_is_driven_to_its_end() -> None:
    queries = Queries()

    def plan() -> Plan[list[str]]:
        first = yield queries.notify("a")
        second = yield queries.notify("b")
        return [first, second]

    assert drive_sync(plan(), lambda query: str(query.parameters[0]) + "!") == ["a!", "b!"]
