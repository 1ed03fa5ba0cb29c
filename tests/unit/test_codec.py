"""T13 and Q11: what goes into JSON comes back the same, and what would not is refused with the place and the cure."""

import enum
import json
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import DecodeError, EncodeError
from holdfast._model.json.codec import MAX_BYTES, decoder_for, encode, encode_result, safe_text


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0


@dataclass(kw_only=True)
class Everything:
    when: datetime
    day: date
    hour: time
    length: timedelta
    id: UUID
    price: Decimal
    blob: bytes
    colour: Colour
    level: Level
    point: Point
    maybe: int | None
    either: int | str
    pair: tuple[int, str]
    many: tuple[int, ...]
    some: set[int]
    frozen: frozenset[str]
    names: list[str]
    by_id: dict[int, Point]
    anything: Any
    share: float
    yes: bool


@dataclass
class Fields:
    a: Any
    b: float | None = None


class Struct(msgspec.Struct):
    a: int
    b: str = "b"


@attrs.define
class Attrs:
    a: int
    b: str = "b"


class Model(pydantic.BaseModel):
    a: int
    when: datetime | None = None
    amount: Decimal = Decimal("1.50")
    id: UUID | None = None
    colour: Colour = Colour.RED
    pair: tuple[int, str] = (1, "x")
    some: set[int] = set()
    blob: bytes = b""


class Strict(pydantic.BaseModel, extra="forbid"):
    a: int

    @pydantic.computed_field
    def double(self) -> int:
        return self.a * 2


text = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"))
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text,
    lambda inner: st.lists(inner) | st.dictionaries(text, inner),
    max_leaves=20,
)
everything = st.builds(
    Everything,
    when=st.datetimes(timezones=st.just(UTC)) | st.datetimes(),
    day=st.dates(),
    hour=st.times(),
    length=st.timedeltas(timedelta(days=-1000), timedelta(days=1000)),
    id=st.uuids(),
    price=st.decimals(allow_nan=False, allow_infinity=False),
    blob=st.binary(),
    colour=st.sampled_from(Colour),
    level=st.sampled_from(Level),
    point=st.builds(Point, st.integers(0, 9)),
    maybe=st.none() | st.integers(-(2**63), 2**63 - 1),
    either=st.integers(0, 9) | text,
    pair=st.tuples(st.integers(0, 9), text),
    many=st.lists(st.integers(0, 9)).map(tuple),
    some=st.sets(st.integers(0, 9)),
    frozen=st.frozensets(text),
    names=st.lists(text),
    by_id=st.dictionaries(st.integers(0, 99), st.builds(Point, st.integers(0, 9))),
    anything=json_values,
    share=st.floats(allow_nan=False, allow_infinity=False),
    yes=st.booleans(),
)


@given(everything)
def test_t13_every_supported_type_comes_back_the_same(value: Everything) -> None:
    assert decoder_for(Everything)(encode(value)) == value


@given(json_values)
def test_q11_encoding_agrees_with_the_standard_library(value: Any) -> None:
    assert json.loads(encode(value)) == value
    assert encode_result(value) == encode(value)


@pytest.mark.parametrize(
    "value",
    [
        Point(3),
        Struct(a=3),
        Attrs(a=3),
        Model(a=3),
        Model(a=1, when=datetime(2030, 1, 2, 3, 4, tzinfo=UTC), id=UUID(int=7), some={1, 2}, blob=b"x"),
        Strict(a=3),
    ],
)
def test_t13_every_kind_of_class_comes_back_the_same(value: Any) -> None:
    assert decoder_for(type(value))(encode(value)) == value


@pytest.mark.parametrize("cls", [Point, Struct, Attrs, Model])
def test_t13_unknown_fields_are_ignored_and_defaults_taken(cls: type) -> None:
    name = "x" if cls is Point else "a"
    value = decoder_for(cls)(json.dumps({name: 5, "of_a_newer_version": [1]}).encode())
    assert value == cls(**{name: 5})


def test_t13_a_class_may_forbid_unknown_fields_itself() -> None:
    with pytest.raises(DecodeError, match=r"Strict\.b: "):
        decoder_for(Strict)(b'{"a":1,"b":2}')


@pytest.mark.parametrize("cls", [Point, Struct, Attrs, Model])
@pytest.mark.parametrize("wrong", ['"5"', "5.5", "null", "[]", "{}", "true"])
def test_t13_types_are_strict_and_the_field_is_named(cls: type, wrong: str) -> None:
    name = "x" if cls is Point else "a"
    with pytest.raises(DecodeError, match=rf"{cls.__name__}\.{name}: "):
        decoder_for(cls)(f'{{"{name}":{wrong}}}'.encode())


def test_t13_nested_places_are_named() -> None:
    @dataclass
    class Route:
        points: list[Point]

    with pytest.raises(DecodeError, match=r"Route\.points\[1\]\.x: Expected `int`, got `str`"):
        decoder_for(Route)(b'{"points":[{"x":1},{"x":"2"}]}')


@pytest.mark.parametrize("cls", [Point, Struct, Attrs, Model, Any])
@given(garbage=st.binary() | json_values.map(json.dumps).map(str.encode))
def test_t13_garbage_is_a_decode_error_and_nothing_else(cls: Any, garbage: bytes) -> None:
    try:
        decoder_for(cls)(garbage)
    except DecodeError as error:
        assert str(error)


@pytest.mark.parametrize("cls", [Point, Any, Model])
def test_t13_bottomless_json_is_a_decode_error(cls: Any) -> None:
    with pytest.raises(DecodeError):
        decoder_for(cls)(b"[" * 100_000)


def test_t13_a_check_of_the_class_itself_is_a_decode_error() -> None:
    @dataclass
    class Even:
        n: int

        def __post_init__(self) -> None:
            if self.n % 2:
                raise ValueError("it is odd")

    with pytest.raises(DecodeError, match="it is odd"):
        decoder_for(Even)(b'{"n":3}')


def test_t13_a_class_that_breaks_while_it_is_made_is_a_decode_error() -> None:
    @dataclass
    class Fragile:
        n: int

        def __post_init__(self) -> None:
            dict[int, int]()[self.n]

    with pytest.raises(DecodeError, match=r"^Fragile: "):
        decoder_for(Fragile)(b'{"n":3}')


def test_pydantic_models_may_be_fields_of_other_classes() -> None:
    @dataclass
    class Holder:
        models: list[Model]

    value = Holder([Model(a=1), Model(a=2, when=datetime(2030, 1, 1))])
    assert decoder_for(Holder)(encode(value)) == value
    with pytest.raises(DecodeError, match=r"Holder\.models\[0\].*Model\.a"):
        decoder_for(Holder)(b'{"models":[{"a":"1"}]}')


class Words(str):
    pass


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (Words("x"), b'"x"'),
        (OrderedDict(a=1), b'{"a":1}'),
        (deque([1]), b"[1]"),
        ({1: 2}, b'{"1":2}'),
        ({Colour.RED: 1}, b'{"red":1}'),
        ((1, "x"), b'[1,"x"]'),
        ("9" * 40, b'"' + b"9" * 40 + b'"'),
        ("null \\u0000", b'"null \\\\u0000"'),
        (2**64 - 1, b"18446744073709551615"),
        (-(2**63), b"-9223372036854775808"),
        ({"a": None, "b": 1.5}, b'{"a":null,"b":1.5}'),
    ],
)
def test_q11_harmless_values_pass(value: Any, written: bytes) -> None:
    assert encode(value) == written


REPAIRABLE: list[tuple[Any, str, str]] = [
    ("a\0b", "NUL", r'"a\\x00b"'),
    ("a\ud800b", "surrogate", r'"a\\ud800b"'),
    (float("nan"), "nan", '"NaN"'),
    (float("inf"), "inf", '"Infinity"'),
    (float("-inf"), "inf", '"-Infinity"'),
]
HOPELESS: list[tuple[Any, str]] = [
    (2**64, "64 bits"),
    (-(2**63) - 1, "64 bits"),
    (10**300, "64 bits"),
    (object(), "type object"),
    (1j, "complex"),
    (Path("x"), r"str\(path\)"),
    (Point, "the class Point"),
    (len, "its name"),
    (iter([1]), "list"),
    ({(1, 2): 3}, "key of type tuple"),
    ({None: 3}, "key None"),
    ({True: 3}, "key True"),
]


@pytest.mark.parametrize(("value", "problem", "_"), REPAIRABLE)
def test_q11_args_that_postgres_cannot_hold_are_refused_with_the_place(value: Any, problem: str, _: str) -> None:
    with pytest.raises(EncodeError, match=rf"^Fields\.a: .*{problem}"):
        encode(Fields(value))
    with pytest.raises(EncodeError, match=rf"^Fields\.a\['list'\]\[1\]\.a: .*{problem}"):
        encode(Fields({"list": [1, Fields(value), 2]}))
    with pytest.raises(EncodeError, match=rf"^value\['to'\]: .*{problem}"):
        encode({"to": value})


@pytest.mark.parametrize(("value", "_", "escaped"), REPAIRABLE)
def test_q11_results_that_postgres_cannot_hold_are_escaped(value: Any, _: str, escaped: str) -> None:
    assert encode_result(value).decode() == escaped
    assert encode_result(Fields([value], 2.5)).decode() == f'{{"a":[{escaped}],"b":2.5}}'


@pytest.mark.parametrize("write", [encode, encode_result])
@pytest.mark.parametrize(("value", "problem"), HOPELESS)
def test_q11_what_is_no_json_is_refused_with_the_place(
    write: Callable[[object], bytes], value: Any, problem: str
) -> None:
    with pytest.raises(EncodeError, match=rf"^Fields\.a(\[1\])?: .*{problem}"):
        write(Fields(value))
    with pytest.raises(EncodeError, match=rf"^value\['x'\]\[1\]: .*{problem}"):
        write({"x": [0, value]})


@pytest.mark.parametrize(("key", "problem"), [("\0", "NUL"), ("\ud800", "surrogate")])
def test_q11_keys_are_looked_at_too(key: str, problem: str) -> None:
    with pytest.raises(EncodeError, match=problem):
        encode({"outer": {key: 1}})
    assert json.loads(encode_result({key: 1})) == {safe_text(key): 1}


class Loose(pydantic.BaseModel, extra="allow"):
    a: Any = 0


@pytest.mark.parametrize(("value", "problem", "escaped"), REPAIRABLE)
def test_q11_pydantic_models_are_looked_into(value: Any, problem: str, escaped: str) -> None:
    with pytest.raises(EncodeError, match=rf"^Loose\.a: .*{problem}"):
        encode(Loose(a=value))
    with pytest.raises(EncodeError, match=rf"^Loose\.more: .*{problem}"):
        encode(Loose(more=value))  # type: ignore[call-arg]
    with pytest.raises(EncodeError, match=rf"^Fields\.a\.a: .*{problem}"):
        encode(Fields(Loose(a=value)))
    assert encode_result(Loose(a=value)).decode() == f'{{"a":{escaped}}}'


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("write", [encode, encode_result])
@pytest.mark.parametrize("levels", [501, 900, 5_000, 100_000])
def test_q11_bottomless_values_are_refused(write: Callable[[object], bytes], levels: int) -> None:
    with pytest.raises(EncodeError, match="500 levels"):
        write(nested(levels))


def test_q11_deep_values_that_can_be_read_back_pass() -> None:
    assert decoder_for(Any)(encode(nested(400))) == nested(400)


@pytest.mark.parametrize("write", [encode, encode_result])
def test_q11_a_value_that_contains_itself_is_refused(write: Callable[[object], bytes]) -> None:
    loop: dict[str, Any] = {"a": 1}
    loop["me"] = loop
    with pytest.raises(EncodeError, match="contain itself"):
        write(loop)


@pytest.mark.parametrize("write", [encode, encode_result])
def test_q11_the_size_is_limited_and_named(write: Callable[[object], bytes]) -> None:
    assert len(write("x" * (MAX_BYTES - 2))) == MAX_BYTES
    with pytest.raises(EncodeError, match=r"1,048,577 bytes .* 1,048,576"):
        write("x" * (MAX_BYTES - 1))


def test_q11_the_limit_may_be_another() -> None:
    with pytest.raises(EncodeError, match=r"12 bytes .* 10"):
        encode("x" * 10, limit=10)
    with pytest.raises(EncodeError, match=r"12 bytes .* 10"):
        encode_result("x" * 10, limit=10)


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.just(object())
    | st.decimals(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text() | st.integers() | st.floats() | st.none(), inner)
        | st.builds(Fields, inner)
    ),
    max_leaves=10,
)


def stored_by_postgres(data: bytes) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    value = json.loads(data, parse_constant=refuse)
    assert "\0" not in json.dumps(value, ensure_ascii=False)
    json.dumps(value, ensure_ascii=False).encode()


@given(anything)
def test_q11_whatever_is_given_is_stored_or_refused(value: Any) -> None:
    for write in (encode, encode_result):
        try:
            data = write(value)
        except EncodeError as error:
            str(error).encode()
        else:
            stored_by_postgres(data)


@given(st.text(st.characters()))
def test_safe_text_is_always_storable_and_leaves_good_text_alone(text: str) -> None:
    safe = safe_text(text)
    assert "\0" not in safe
    safe.encode()
    if "\0" not in text and not any("\ud800" <= each <= "\udfff" for each in text):
        assert safe == text


def test_a_factory_default_is_taken_anew() -> None:
    @dataclass
    class Bag:
        items: list[int] = field(default_factory=list)

    decode = decoder_for(Bag)
    decode(b"{}").items.append(1)
    assert decode(b"{}") == Bag([])
