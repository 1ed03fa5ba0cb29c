"""How SQL files are composed: what the markers mean, and which mistakes are found when the files are read."""

import pytest

from holdfast._sql.query import statement
from holdfast._sql.template import SLOTS, compose, slots_of

FRAGMENTS = """-- Lines before the first heading are for the reader.

-- fragment is_due(row) --
-- A task whose time has come.
{{row}}.state = 'ready' AND {{> in_time row}}

-- fragment in_time(row) --
{{row}}.run_at <= holdfast.now()

-- fragment nobody --
NULL
"""
STATEMENTS = """
-- oldest --
-- The tasks that have been due for longest,
-- some of them.
SELECT c.id, {{> nobody}} FROM holdfast.task c
-- Those of a filter.
WHERE {{> is_due c}} AND {{filter}} AND c.queue = :queue::text ORDER BY c.run_at LIMIT :limit::integer
"""


def composed(text: str) -> dict[str, str]:
    return compose([FRAGMENTS.replace("-- fragment nobody --\nNULL\n", "") + "\n-- all --\n{{> is_due t}}\n", text])[1]


def test_fragments_are_included_with_their_word() -> None:
    fragments, statements = compose([FRAGMENTS, STATEMENTS])
    assert fragments == {}
    made = statement("oldest", statements["oldest"], "mine")
    assert made.prose == "The tasks that have been due for longest, some of them. Those of a filter."
    assert " ".join(made.text.split()) == (
        'SELECT c.id, NULL FROM "mine".task c WHERE c.state = \'ready\' AND c.run_at <= "mine".now() AND true'
        " AND c.queue = $1::text ORDER BY c.run_at LIMIT $2::integer"
    )
    assert made.parameters == ("queue", "limit")


def test_a_slot_is_filled_once_and_may_name_parameters() -> None:
    made = statement("oldest", compose([FRAGMENTS, STATEMENTS])[1]["oldest"], "mine")
    assert made.slots == {"filter"}
    filled = made.filled(filter="c.queue <> :queue AND c.kind = $3")
    assert "AND c.queue <> $1 AND c.kind = $3 AND" in filled.text and filled.slots == set()
    with pytest.raises(ValueError, match="oldest has no slot partition"):
        made.filled(partition="archive_p20300101")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-- a --\nSELECT {{filtr}}", "{{filtr}} is neither a fragment nor a slot"),
        ("-- a --\nSELECT {{> is_dew c}}", "{{> is_dew c}} is neither a fragment nor a slot"),
        ("-- a --\nSELECT {{ filter }}", "{{ filter }} is neither a fragment nor a slot"),
        ("-- a --\nSELECT {{> is_due}}", "{{> is_due}} must have a word"),
        ("-- a --\nSELECT {{> x c}}\n-- fragment x --\n1", "{{> x c}} must have no word"),
        ("-- a --\nSELECT {{> x}}\n-- fragment x --\n1 + {{> x}}", "the fragment x includes itself"),
        ("-- a --\nSELECT {{> x c}}\n-- fragment x(y) --\n{{z}}", "{{z}} is neither a fragment nor a slot"),
        ("-- a --\nSELECT 1\n-- fragment x --\n1", "no statement includes the fragment x"),
        ("-- a --\nSELECT 1\n-- a --\nSELECT 2", "a: this name is used twice"),
        ("-- is_due --\nSELECT 1", "is_due: this name is used twice"),
        ("-- a(row) --\nSELECT 1", "a: only a fragment has a parameter"),
    ],
)
def test_mistakes_are_found_when_the_files_are_read(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        composed(text)
    assert message in str(caught.value)


def test_every_slot_is_used_by_a_statement() -> None:
    from holdfast._sql.query import statements

    used = {slot for each in statements("holdfast").values() for slot in each.slots}
    assert used == set(SLOTS)
    assert not any(slots_of(each.text) for each in statements("holdfast").values())
