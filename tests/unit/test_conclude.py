"""T2, T5, T6, T9: what the ending of a step means."""

import asyncio
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Cancel, Done, Fail, Later, Retry, Snooze, Tasks
from holdfast._model.run.outcome import Advanced, Cancelled, Failed, Finished, Outcome, Retried, Snoozed
from holdfast._model.run.outcome_of import outcome_of_error, outcome_of_return

AT = datetime(2030, 1, 1, tzinfo=UTC)
tasks = Tasks()
greeter = tasks.kind("greeter", retry=Retry(2, delay="4s", backoff=1, jitter=0))
other = tasks.kind("other")
elsewhere = Tasks()
stranger = elsewhere.kind("greeter")


@greeter.step
@dataclass
class Hello:
    name: Any

    def run(self) -> None: ...


@greeter.step(name="Bye")
@dataclass
class Goodbye:
    name: str = "x"

    def run(self) -> None: ...


@other.step
@dataclass
class Foreign:
    def run(self) -> None: ...


@stranger.step
@dataclass
class Namesake:
    def run(self) -> None: ...


class SubclassOfHello(Hello):
    pass


@dataclass
class Undeclared:
    def run(self) -> None: ...


@tasks.task
def add(a: int, b: int) -> int:
    return a + b


hello = tasks._steps["greeter", "Hello"]
main = tasks._steps["add", "main"]


def returned(value: Any) -> Outcome:
    return outcome_of_return(tasks, hello, value)


def refusal(outcome: Outcome) -> str:
    assert isinstance(outcome, Failed)
    message = json.loads(outcome.error)["message"]
    assert isinstance(message, str)
    return message


@pytest.mark.parametrize(
    ("value", "outcome"),
    [
        (None, Finished(None)),
        (Done(None), Finished(None)),
        (Done("x"), Finished(b'"x"')),
        (Done(False), Finished(b"false")),
        (Hello("a"), Advanced("Hello", b'{"name":"a"}')),
        (Goodbye("b"), Advanced("Bye", b'{"name":"b"}')),
        (Later(Hello("a"), "5m"), Advanced("Hello", b'{"name":"a"}', 300.0)),
        (Later(Hello("a"), at=AT), Advanced("Hello", b'{"name":"a"}', 0.0, AT)),
        (Done("a\0\ud800"), Finished(b'"a\\\\x00\\\\ud800"')),
        (Done(float("nan")), Finished(b'"NaN"')),
    ],
)
def test_t2_what_is_returned_says_where_the_task_goes(value: Any, outcome: Outcome) -> None:
    assert returned(value) == outcome


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (Hello("\0"), r"Hello.name"),
        (Hello([1, object()]), r"Hello.name[1]"),
        (Later(Hello(float("nan")), "5m"), r"Hello.name"),
        (Goodbye("x" * 2_000_000), "2,000,011 bytes"),
        (Done(object()), "type object"),
        (Done({"a": {1, 2j}}), "complex"),
        (Done("x" * 2_000_000), "2,000,002 bytes"),
    ],
)
def test_t5_what_cannot_be_encoded_parks_and_names_the_field(value: Any, place: str) -> None:
    message = refusal(returned(value))
    assert place in message
    assert message.startswith("greeter.Hello: ")


@pytest.mark.parametrize(
    ("value", "cure"),
    [
        (Foreign(), "Foreign(...), a step of other"),
        (Later(Foreign(), 5), "Foreign(...), a step of other"),
        (Namesake(), "Namesake(...), a step of greeter"),
        (SubclassOfHello("a"), "not a step"),
        (Undeclared(), "not a step"),
        (Later(Undeclared(), 5), "@greeter.step"),
        (Hello, "return a value of it, Hello(...)"),
        (Later(Hello, 5), "return a value of it, Hello(...)"),
        (Fail("x"), "raise it instead"),
        (Snooze(5), "raise it instead"),
        (Cancel(), "raise it instead"),
        (ValueError("x"), "raise it instead"),
        (42, "Done(result)"),
        ("Hello", "Done(result)"),
        (add, "Done(result)"),
    ],
)
def test_t6_anything_else_parks_and_says_what_to_do(value: Any, cure: str) -> None:
    assert cure in refusal(returned(value))


def test_a_forgotten_await_parks_without_a_warning() -> None:
    assert "async def" in refusal(returned(asyncio.sleep(0)))
    assert "async def" in refusal(outcome_of_return(tasks, main, asyncio.sleep(0)))


@pytest.mark.parametrize(
    ("value", "outcome"),
    [
        (None, Finished(None)),
        (3, Finished(b"3")),
        (Done(3), Finished(b"3")),
        ({"a": [1]}, Finished(b'{"a":[1]}')),
        (Undeclared(), Finished(b"{}")),
    ],
)
def test_what_a_function_returns_is_its_result(value: Any, outcome: Outcome) -> None:
    assert outcome_of_return(tasks, main, value) == outcome


@pytest.mark.parametrize("value", [Hello("x"), Later(Hello("x"), 5), Fail("x"), object(), ValueError("x")])
def test_t6_a_function_has_no_next_step(value: Any) -> None:
    assert refusal(outcome_of_return(tasks, main, value)).startswith("add.main: ")


def test_a_word_returned_by_a_function_parks_and_says_so() -> None:
    for word in (Fail("x"), Snooze(5), Cancel()):
        assert "raise it instead" in refusal(outcome_of_return(tasks, main, word))


def test_t2_what_is_raised_says_why_not() -> None:
    assert outcome_of_error(hello, Snooze("5m"), 0) == Snoozed(300.0)
    assert outcome_of_error(hello, Snooze(at=AT), 0) == Snoozed(0.1, AT)
    assert outcome_of_error(hello, Snooze(0), 7) == Snoozed(0.1)
    assert outcome_of_error(hello, Cancel("not\0wanted"), 0) == Cancelled("not\\x00wanted")
    assert refusal(outcome_of_error(hello, Fail("no such name"), 0)) == "no such name"


@pytest.mark.parametrize(
    "error", [ValueError("x"), TimeoutError(), SystemExit(1), KeyboardInterrupt(), GeneratorExit(), MemoryError()]
)
def test_t9_every_other_exception_uses_the_retry_budget(error: BaseException) -> None:
    outcomes = [outcome_of_error(hello, error, errors) for errors in range(4)]
    assert [type(each) for each in outcomes] == [Retried, Retried, Failed, Failed]
    assert isinstance(outcomes[0], Retried)
    assert outcomes[0].delay == 4
    assert json.loads(outcomes[0].error)["type"] == type(error).__name__


def test_t9_the_default_limit_is_0() -> None:
    assert isinstance(outcome_of_error(main, ValueError(), 0), Failed)


def test_a_word_said_inside_a_task_group_counts() -> None:
    assert outcome_of_error(hello, ExceptionGroup("g", [ExceptionGroup("h", [Snooze(5)])]), 0) == Snoozed(5.0)
    assert isinstance(outcome_of_error(hello, ExceptionGroup("g", [Fail("x")]), 0), Failed)
    for group in ([Fail("x"), OSError()], [OSError(), ExceptionGroup("h", [OSError(), Fail("x")])]):
        assert isinstance(outcome_of_error(hello, ExceptionGroup("g", group), 0), Failed), "no retry helps"
    assert isinstance(outcome_of_error(hello, ExceptionGroup("g", [Snooze(5), OSError()]), 0), Retried)


def test_a_raised_done_parks_and_says_so() -> None:
    try:
        raise Done(3)  # type: ignore[misc]
    except TypeError as error:
        assert "return Done(...)" in refusal(outcome_of_error(hello, error, 0))


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError


class HostileValue:
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError

    def __repr__(self) -> str:
        raise RuntimeError


def test_concluding_never_raises() -> None:
    assert isinstance(outcome_of_error(hello, Hostile(), 0), Retried)
    assert isinstance(returned(HostileValue()), Failed)
    assert isinstance(returned(Done(HostileValue())), Failed)
    assert isinstance(outcome_of_return(tasks, main, HostileValue()), Failed)


@given(
    st.recursive(
        st.none()
        | st.text()
        | st.floats()
        | st.integers()
        | st.just(object())
        | st.just(Hello)
        | st.builds(ValueError),
        lambda inner: (
            st.builds(Hello, inner) | st.builds(Done, inner) | st.builds(Later, inner, st.just(1)) | st.lists(inner)
        ),
        max_leaves=5,
    )
)
def test_any_value_is_concluded(value: Any) -> None:
    for step in (hello, main):
        assert isinstance(outcome_of_return(tasks, step, value), (Advanced, Finished, Failed))
