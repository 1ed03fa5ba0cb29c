"""The filter language: what it understands, and what it says when it does not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast._model.read.filter import EVERYTHING, FIELDS, Filter, Term, parse_filter
from holdfast.errors import ConfigError, FilterError


def test_terms_stand_side_by_side() -> None:
    assert parse_filter("state:parked kind:greeter  since:1h").terms == (
        Term("state", ("parked",)),
        Term("kind", ("greeter",)),
        Term("since", ("1h",)),
    )
    assert parse_filter(["state:parked", "kind:greeter"]) == parse_filter("state:parked kind:greeter")


def test_values_by_comma_contrary_path_and_quotes() -> None:
    (term,) = parse_filter("-state:done,cancelled").terms
    assert term == Term("state", ("done", "cancelled"), negated=True)
    assert parse_filter("args.customer.name:Ada").terms == (Term("args", ("Ada",), path=("customer", "name")),)
    assert parse_filter('error:"No such file"').terms == (Term("error", ("No such file",)),)
    assert parse_filter(r'key:"a,b \"c\"",d').terms == (Term("key", ('a,b "c"', "d")),)
    assert parse_filter("key:mail:42").terms == (Term("key", ("mail:42",)),)
    assert parse_filter("since:2030-01-31T09:00:00+01:00").terms[0].values == ("2030-01-31T09:00:00+01:00",)


def test_nothing_is_everything() -> None:
    assert parse_filter("  ") == EVERYTHING and not EVERYTHING
    assert EVERYTHING.with_term("state", "parked") == parse_filter("state:parked")
    assert parse_filter("state:parked").names("state") and not EVERYTHING.names("state")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("parked", "error:parked"),
        ("colour:red", "there is no field 'colour'"),
        ("stat:parked", "did you mean state?"),
        ("state:parkd", "did you mean parked?"),
        ("state:", "a value is missing"),
        ("state:parked,", "a value is missing"),
        ("kind.x:1", "write kind:"),
        ("args:42", "args.order_id:42"),
        ("args.a..b:42", "args.order_id:42"),
        ("priority:ten", "0 to 9"),
        ("id:123", "first 8 characters"),
        ("state:failed", "did you mean parked?"),
        ("since:yesterday", "1h, 7d, 2030-01-31"),
        ("since:99999-01-01", "1h, 7d, 2030-01-31"),
        ('error:"no end', "no end"),
        ("error:a\x00b", "characters that no task can have"),
        ("x" * 20_000, "too long"),
        ("kind:a " * 51, "51 terms"),
    ],
)
def test_what_is_not_understood_is_told(text: str, says: str) -> None:
    with pytest.raises(FilterError) as told:
        parse_filter(text)
    assert says in str(told.value)
    assert isinstance(told.value, ConfigError)


@given(
    st.lists(
        st.builds(
            Term,
            st.sampled_from(["kind", "key", "error", "queue"]),
            st.lists(
                st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), min_size=1), min_size=1
            ).map(tuple),
            st.booleans(),
        ),
        max_size=5,
    )
)
def test_a_filter_as_text_is_the_same_filter(terms: list[Term]) -> None:
    filter = Filter(tuple(terms))
    try:
        again = parse_filter(str(filter))
    except FilterError as error:
        assert "characters that no task can have" in str(error)
    else:
        assert again == filter


def test_every_field_is_explained() -> None:
    assert all(FIELDS.values())
