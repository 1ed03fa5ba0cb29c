"""Statements from files: numbered parameters, the schema's name, prose, and the form that passes over locked rows."""

import re
from pathlib import Path

import holdfast
from holdfast._sql.plans import Plan, drive_sync
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query, for_schema, statements
from holdfast._sql.template import compose

PACKAGE = Path(holdfast.__file__).parent


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


def test_every_statement_has_its_method_in_the_module_of_its_file() -> None:
    """A statement that nobody sends is dead text; one that is sent by its name from elsewhere has no types."""
    sql, queries = PACKAGE / "_sql" / "statements", PACKAGE / "_sql" / "queries"
    files = sorted(sql.glob("*.sql"))
    for file, found in zip(files, compose(file.read_text() for file in files), strict=True):
        if found:
            source = (queries / f"{file.stem}.py").read_text()
            named = set(re.findall(r'"([a-z_]+)"(?!:)', source)) & statements("holdfast").keys()
            assert named == found.keys(), file.name


def test_no_statement_is_called_by_its_name_from_elsewhere() -> None:
    allowed = {"query.py", "measures.py"}
    for file in PACKAGE.rglob("*.py"):
        if file.parent.name != "queries" and file.name not in allowed:
            assert not re.search(r"\b_statements\[|\bstatements\(|queries\._query\(", file.read_text()), file


def test_a_plan_is_driven_to_its_end() -> None:
    queries = Queries()

    def plan() -> Plan[list[str]]:
        first = yield queries.notify("a")
        second = yield queries.notify("b")
        return [first, second]

    assert drive_sync(plan(), lambda query: str(query.parameters[0]) + "!") == ["a!", "b!"]
