"""What steps say when they end."""

import pickle
from dataclasses import FrozenInstanceError, fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Cancel, Done, Fail, InvalidDuration, Later, Snooze
from holdfast._model.read import figures
from holdfast._model.run.outcome import (
    LOST,
    OUTCOMES,
    Advanced,
    Cancelled,
    Failed,
    Finished,
    Outcome,
    Released,
    Retried,
    Snoozed,
)

AT = datetime(2030, 1, 1, tzinfo=UTC)


def test_figures_count_every_outcome_by_its_word() -> None:
    assert {*figures.OUTCOMES} == {LOST, *(outcome.word for outcome in OUTCOMES)}
    assert set(figures.ERRORS) < set(figures.OUTCOMES)


def test_only_errors_are_charged_and_only_if_the_step_ran() -> None:
    assert (Retried(b"{}", 1).charge, Failed(b"{}").charge, Failed(b"{}", charged=False).charge) == (1, 1, 0)
    assert {Advanced("s", b"{}").charge, Finished(None).charge, Snoozed(1).charge, Released().charge} == {0}
    assert Cancelled("why").charge == 0


def test_later_takes_a_delay_or_a_time() -> None:
    assert (Later("step", "5m").delay, Later("step", "5m").at) == (300, None)
    assert Later("step", at=AT).at == AT
    assert Later("step", timedelta(minutes=5)) == Later("step", 300)
    assert Later("step", 1) != Later("step", 2)
    assert Later("step", 1) != Later("other", 1)


def test_a_time_without_a_zone_is_local_time() -> None:
    local = datetime(2030, 1, 1)
    at = Later("step", at=local).at
    assert at == local.astimezone()
    assert at is not None and at.tzinfo is not None
    assert Snooze(at=local).at == local.astimezone()


@pytest.mark.parametrize("make", [lambda **given: Later("step", *given.values()), Snooze])
def test_neither_delay_nor_time_is_refused(make: Any) -> None:
    with pytest.raises(TypeError, match="either a delay"):
        make()


def test_both_delay_and_time_are_refused() -> None:
    with pytest.raises(TypeError, match="either a delay"):
        Later("step", "5m", at=AT)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="either a delay"):
        Snooze("5m", at=AT)


def test_wrong_delays_are_refused_where_they_are_written() -> None:
    with pytest.raises(InvalidDuration, match=r"Later\("):
        Later("step", "soon")
    with pytest.raises(InvalidDuration, match="Snooze"):
        Snooze(-1)
    with pytest.raises(TypeError, match="must be a datetime"):
        Snooze(at="2030-01-01")  # type: ignore[arg-type]


def test_words_that_are_raised_are_exceptions() -> None:
    assert str(Fail("no such name")) == "no such name"
    assert str(Snooze("90s")) == "for 90 s"
    assert Cancel().reason == ""
    assert {cls.__module__ for cls in (Fail, Snooze, Cancel)} == {"holdfast"}


@pytest.mark.parametrize("said", [Fail("x"), Snooze("5m"), Snooze(at=AT), Cancel("x"), Later("step", 5), Done([1])])
def test_what_a_step_says_can_be_pickled(said: Any) -> None:
    back = pickle.loads(pickle.dumps(said))
    assert type(back) is type(said)
    assert repr(back) == repr(said)
    assert getattr(back, "at", None) == getattr(said, "at", None)


@pytest.mark.parametrize(
    "outcome",
    [
        Advanced("Next", b"{}", 5.0, AT),
        Finished(b"3"),
        Retried(b"{}", 1.5),
        Failed(b"{}"),
        Snoozed(1.0, AT),
        Cancelled("x"),
        Released(),
    ],
)
def test_outcomes_are_values_that_can_be_pickled(outcome: Outcome) -> None:
    assert pickle.loads(pickle.dumps(outcome)) == outcome
    with pytest.raises(FrozenInstanceError):
        setattr(outcome, fields(outcome)[0].name, "changed")
