"""The loop of a stage: it survives passing errors, lets others have their turn, and ends on a permanent error."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from holdfast._engine.loops import Loop, Pulse, Words
from holdfast._model.safe_log import Log
from holdfast.errors import DatabaseUnreachable

Round = Callable[[], Awaitable[float | None]]

AWAY = DatabaseUnreachable("the database is away")
WORDS = Words(Log("holdfast.worker"), "trying is interrupted", recovered="trying goes on")


def rounds_of(*results: float | Exception | None) -> Round:
    """A round that returns or raises one of these after the other, and never waits by itself."""
    left = list(results)

    async def round() -> float | None:
        result = left.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    return round


async def turns_while(loop: Loop, round: Round) -> int:
    """How often another task has its turn until the loop ends."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    try:
        await loop.run(round)
    finally:
        task.cancel()
    return turns


async def at_once(seconds: float) -> None:
    """As a rest whose event is set already."""


async def test_each_round_lets_others_have_their_turn() -> None:
    loop = Loop("try", Pulse(), 1.0, WORDS, rest=at_once)
    assert await turns_while(loop, rounds_of(0.0, 1.0, AWAY, AWAY, 0.0, None)) >= 6


async def test_the_first_failure_and_the_recovery_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "holdfast.worker")
    await Loop("try", Pulse(), 1.0, WORDS, rest=at_once).run(rounds_of(AWAY, AWAY, AWAY, 0.0, None))
    assert caplog.messages == [
        "trying is interrupted: the database is away",
        "trying goes on after 3 failed tries",
    ]


async def test_pauses_after_failures_grow_and_success_ends_them() -> None:
    pauses: list[float] = []

    async def rest(seconds: float) -> None:
        pauses.append(seconds)

    await Loop("try", Pulse(), 1.0, WORDS, longest=0.3, rest=rest).run(rounds_of(*[AWAY] * 6, 7.0, AWAY, None))
    *first, asked_for, last = pauses
    assert asked_for == 7.0
    assert first[0] <= 0.1 < 0.15 <= first[-1] <= 0.3
    assert last <= 0.1


async def test_an_error_that_will_not_pass_ends_the_loop() -> None:
    with pytest.raises(ZeroDivisionError):
        await Loop("try", Pulse(), 1.0, WORDS).run(rounds_of(0.0, ZeroDivisionError()))


async def test_a_loop_that_has_words_for_it_goes_on_after_any_error(caplog: pytest.LogCaptureFixture) -> None:
    words = Words(WORDS.log, "trying is interrupted", permanent="this may not pass")
    errors = [ZeroDivisionError("by nought") for _ in range(3)]
    await Loop("try", Pulse(), 1.0, words, rest=at_once).run(rounds_of(*errors, None))
    assert caplog.messages == ["trying is interrupted: by nought", "this may not pass"]


async def test_only_rounds_that_went_well_are_successes() -> None:
    pulse = Pulse()
    ages: list[float] = []

    def aged(well: bool) -> Callable[[], bool]:
        def is_well() -> bool:
            pulse._loops["try"].at -= 100
            return well

        return is_well

    for well in (True, False):
        loop = Loop("try", pulse, 1.0, WORDS, is_well=aged(well))
        await loop.run(rounds_of(None))
        ages.append(pulse.ages["try"])
    assert ages[0] < 50 < ages[1]
    assert list(pulse.late) == ["try"]
