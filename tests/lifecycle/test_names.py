"""Q1: names are refused at the door, by the table itself and exactly where Python refuses them."""

from collections.abc import Callable

import psycopg
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast._model.declare.names import check_kind, check_queue, check_step
from holdfast._model.enqueue.ids import uuid7
from holdfast.errors import ConfigError

from .support import Db

CHECKS: dict[str, Callable[[object], str]] = {"queue": check_queue, "kind": check_kind, "step": check_step}
NASTY = [
    "", " ", "a b", "a\n", "\na", "a'b", 'a"b', "a;b", "a\\b", "a/b", "a%b", "a$b", "\u00e4", "a\u200b", "\u0430",
    "\uff41", "\u0661", "\u017f", "\u212a", "a" * 63, "a" * 64, "_" * 63, "A" * 63, "1" * 63, "-a", ".a", "_a", "1a",
    "aA", "A", "a.b", "a-b", "a_b", "a\t", "a\r", "' OR 1=1 --", "\U0001f600", "a\x01",
]  # fmt: skip

near = st.text(st.sampled_from("abzABZ019_.-' \"\n\u0131é"), max_size=5)
anything = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=70)


def accepts(check: Callable[[object], str], name: str) -> bool:
    try:
        check(name)
    except ConfigError:
        return False
    return True


def taken(db: Db, column: str, name: str) -> bool:
    """Whether a hand-written INSERT with this name goes through."""
    values = {"queue": "default", "kind": "greeter", "step": "main"} | {column: name}
    try:
        with db.connection.transaction(force_rollback=True):
            db.sql(
                "INSERT INTO holdfast.task (id, queue, kind, step) VALUES ($1, $2, $3, $4)",
                uuid7(), values["queue"], values["kind"], values["step"],
            )  # fmt: skip
    except psycopg.errors.CheckViolation as error:
        assert f"{column}_name" in str(error)
        return False
    return True


@pytest.mark.parametrize("column", CHECKS)
@pytest.mark.parametrize("name", NASTY)
def test_Q1_the_table_and_python_agree_on_nasty_names(db: Db, column: str, name: str) -> None:
    assert taken(db, column, name) == accepts(CHECKS[column], name)


@pytest.mark.parametrize("column", CHECKS)
def test_Q1_fuzzed_names_are_judged_alike_everywhere(db: Db, column: str) -> None:
    @settings(max_examples=150)
    @given(name=near | anything)
    @example(name="a\n")
    def judge(name: str) -> None:
        assert taken(db, column, name) == accepts(CHECKS[column], name)

    judge()


def test_Q1_names_are_judged_alike_under_any_locale(own_db: Db) -> None:
    """A case-folding or language-aware collation must not let ranges like [a-z] take in more letters."""
    assert own_db.sql(
        "SELECT DISTINCT c.collname FROM pg_type t JOIN pg_collation c ON c.oid = t.typcollation"
        " WHERE t.typnamespace = 'holdfast'::regnamespace AND t.typtype = 'd'"
    ) == [("C",)]


def test_Q1_a_move_to_a_bad_step_is_refused(db: Db) -> None:
    worker = uuid7()
    task = db.claimed(worker)
    before = db.snapshot()
    with pytest.raises(psycopg.errors.CheckViolation, match="step_name"):
        db.run(db.advance(worker, [task], step="Say Hello"))
    assert db.snapshot() == before
    parked = db.parked()
    with pytest.raises(psycopg.errors.CheckViolation, match="step_name"):
        db.retry(parked, step="x'; --")
    assert db.state(parked) == "parked"
