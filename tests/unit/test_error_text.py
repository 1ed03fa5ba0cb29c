"""Q11: an error becomes JSON that PostgreSQL takes, whatever it holds, and describing it never raises."""

import json
import pickle
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast._engine.run.processes import _portable
from holdfast._model.json import error_attributes
from holdfast._model.json.codec import MAX_BYTES, encode_error, simple_error
from holdfast._model.json.error_json import MAX_CAUSES, MAX_MESSAGE, MAX_TRACEBACK


def described(error: BaseException) -> Any:
    return json.loads(encode_error(error))


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_type_message_and_traceback() -> None:
    told = described(raised(KeyError("name")))
    assert told["type"] == "KeyError"
    assert told["message"] == "'name'"
    assert told["traceback"].startswith("Traceback (most recent call last):\n")
    assert "in raised" in told["traceback"]
    assert told["traceback"].endswith("KeyError: 'name'")
    assert told["causes"] == []


class Declined(Exception):
    code = "card_declined"
    _private = "p"

    def __init__(self, message: str, **given: Any) -> None:
        super().__init__(message)
        self.message = message
        vars(self).update(given)

    @property
    def asked(self) -> str:
        raise AssertionError("nothing of the exception is called")


class Status(Enum):
    GONE = 410


def test_what_an_exception_carries_is_kept_if_it_is_public_and_json() -> None:
    given = {
        "code": 402,
        "status": Status.GONE,
        "details": {"field": "number", "tries": [1, 2.5, None, True], 7: "seven"},
        "at": datetime(2030, 1, 2, tzinfo=UTC),
        "response": object(),
        "nested": {"client": object()},
        "_secret": "s",
    }
    told = described(Declined("no", **given))
    assert told["attributes"] == {
        "code": 402,
        "status": 410,
        "details": {"field": "number", "tries": [1, 2.5, None, True], "7": "seven"},
        "at": "2030-01-02T00:00:00+00:00",
    }, "the message is told once"
    assert described(Declined("no"))["attributes"] == {"code": "card_declined"}, "the class may say it"
    assert "attributes" not in described(KeyError("name"))
    from_here = ValueError("x")
    from_here.__cause__ = Declined("no")
    assert described(from_here)["causes"][0]["attributes"] == {"code": "card_declined"}
    assert described(_portable(raised(Declined("no", code=402))))["attributes"]["code"] == 402, "of a child process"


@pytest.mark.parametrize(
    "given",
    [
        {f"name{n}": n for n in range(1000)},
        {f"name{n}": "x" * 100_000 for n in range(100)},
        {"deep": json.loads("[" * 900 + "]" * 900)},
        {"wide": {str(n): list(range(1000)) for n in range(1000)}},
        {"nul\0": "\0\ud800", "big": 2**70, "nan": float("nan")},
    ],
)
def test_what_an_exception_carries_is_bounded(given: dict[str, Any]) -> None:
    error = Declined("no", **given)
    assert len(json.dumps(described(error).get("attributes", {}))) < 2 * error_attributes.MAX_BYTES
    assert b"\\u0000" not in encode_error(error)


def test_a_carried_circle_is_left_out() -> None:
    circle: list[Any] = []
    circle.append(circle)
    assert described(Declined("no", code=1, circle=circle))["attributes"] == {"code": 1}


def test_types_are_qualified_by_module() -> None:
    assert described(json.JSONDecodeError("x", "", 0))["type"] == "json.decoder.JSONDecodeError"


def test_the_chain_of_causes() -> None:
    try:
        try:
            try:
                raise KeyError(1)
            except KeyError:
                raise ValueError(2)  # noqa: B904
        except ValueError as error:
            raise OSError(3) from error
    except OSError as error:
        told = described(error)
    assert [(cause["type"], cause["message"]) for cause in told["causes"]] == [("ValueError", "2"), ("KeyError", "1")]
    assert all(cause["traceback"] for cause in told["causes"])


def test_a_suppressed_context_is_left_out() -> None:
    try:
        try:
            raise KeyError(1)
        except KeyError:
            raise ValueError(2) from None
    except ValueError as error:
        assert described(error)["causes"] == []


def test_members_of_a_group_are_causes() -> None:
    told = described(ExceptionGroup("both", [KeyError(1), ExceptionGroup("inner", [OSError(2)])]))
    assert [cause["type"] for cause in told["causes"]] == ["KeyError", "ExceptionGroup", "OSError"]


def test_causes_are_bounded_and_may_go_in_a_circle() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert [cause["message"] for cause in described(first)["causes"]] == ["second"]
    assert len(described(ExceptionGroup("many", [ValueError(n) for n in range(500)]))["causes"]) == MAX_CAUSES


def test_long_texts_lose_their_middle() -> None:
    told = described(raised(ValueError("begin" + "x" * 1_000_000 + "end")))
    assert told["message"].startswith("begin")
    assert told["message"].endswith("end")
    assert len(told["message"]) < MAX_MESSAGE + 100
    assert len(told["traceback"]) < MAX_TRACEBACK + 100
    assert "left out" in told["message"]


def test_the_worst_error_is_smaller_than_the_limit() -> None:
    worst = raised(BaseExceptionGroup("\x01" * 10**6, [raised(ValueError("\x01" * 10**6)) for _ in range(20)]))
    assert len(encode_error(worst)) < MAX_BYTES


def test_endless_recursion_is_told_briefly() -> None:
    def down(n: int) -> int:
        return up(n + 1)

    def up(n: int) -> int:
        return down(n + 1)

    with pytest.raises(RecursionError) as caught:
        down(0)
    told = described(caught.value)
    assert "frames left out" in told["traceback"]
    assert len(told["traceback"]) < MAX_TRACEBACK + 100


@given(st.text(st.characters()))
def test_q11_any_message_is_storable(message: str) -> None:
    told = described(raised(ValueError(message)))
    assert "\0" not in json.dumps(told, ensure_ascii=False)
    json.dumps(told, ensure_ascii=False).encode()


def test_notes_are_part_of_the_message() -> None:
    error = ValueError("x")
    error.add_note("while \0 shipping")
    assert described(error)["message"] == "x\nwhile \\x00 shipping"


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


class Lying(Exception):
    def __str__(self) -> str:
        return 3  # type: ignore[return-value]


class Odd(Exception):
    __notes__: Any = [1, "fine", object()]


@pytest.mark.parametrize("error", [Unprintable(), Lying(), Odd(), SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_q11_describing_never_raises(error: BaseException) -> None:
    told = described(raised(error))
    assert told["type"]
    assert "\0" not in told["type"]


@pytest.mark.parametrize("error", [Unprintable(), Lying()])
def test_an_error_without_a_message_keeps_its_traceback(error: Exception) -> None:
    told = described(raised(error))
    assert "cannot be shown" in told["message"]
    assert "in raised" in told["traceback"]


def test_a_class_without_a_proper_name_is_told_anyway() -> None:
    class Nameless(Exception):
        __module__ = None  # type: ignore[assignment]

    assert described(Nameless("x"))["message"] == "x"


def test_holdfasts_own_frames_at_the_beginning_are_left_out() -> None:
    # Called from a module of Holdfast, as the engine calls a step.
    def raised_here() -> None:
        raise ValueError("mine")

    engine: dict[str, Any] = {"__name__": "holdfast._engine.pretended", "raised_here": raised_here}
    exec("def call():\n    raised_here()\n", engine)
    with pytest.raises(ValueError, match="mine") as caught:
        engine["call"]()
    frames = caught.value.__traceback__
    told = described(caught.value.with_traceback(frames.tb_next if frames else None))
    assert "in call" not in told["traceback"]
    assert "in raised_here" in told["traceback"]


def test_the_place_is_the_innermost_line_of_the_users_code() -> None:
    shop: dict[str, Any] = {"__name__": "shop.mail"}
    exec("def send(to):\n    return post(to)\ndef post(to):\n\n    return int(loads(to))\n", shop)
    shop["loads"] = json.loads
    ours: dict[str, Any] = {"__name__": "holdfast._engine.pretended", "send": shop["send"]}
    exec("def call(to):\n    send(to)\n", ours)
    foreign: dict[str, Any] = {"__name__": "middleware", "call": ours["call"]}
    exec("def around(to):\n    call(to)\n", foreign)
    for text in ("{", "[]"):  # raised by a library, or by the line itself
        with pytest.raises((ValueError, TypeError)) as caught:
            foreign["around"](text)
        frames = caught.value.__traceback__
        told = described(caught.value.with_traceback(frames.tb_next if frames else None))
        assert told["place"] == "shop.mail.post:5"


def test_a_place_is_not_always_known() -> None:
    assert described(ValueError("never raised"))["place"] == ""
    ours: dict[str, Any] = {"__name__": "holdfast._engine.pretended"}
    exec("def call():\n    raise ValueError\n", ours)
    with pytest.raises(ValueError) as caught:
        ours["call"]()
    frames = caught.value.__traceback__
    assert described(caught.value.with_traceback(frames.tb_next if frames else None))["place"] == ""


def test_an_error_brings_its_place_from_a_child_process() -> None:
    error = raised(ValueError("over there"))
    brought = pickle.loads(pickle.dumps(_portable(error)))
    assert described(brought)["place"] == described(error)["place"] != ""


def test_errors_without_an_exception() -> None:
    assert json.loads(simple_error("Lost", "the\0worker")) == {
        "type": "Lost",
        "message": "the\\x00worker",
        "traceback": "",
        "causes": [],
    }
