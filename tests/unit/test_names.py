"""Q1: names are checked at the door. Ids are ordered by time and never repeat."""

import os
import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import RFC_4122, UUID

import pytest

from holdfast import ConfigError
from holdfast._model.declare.names import check_kind, check_priority, check_queue, check_schedule, check_step
from holdfast._model.enqueue import ids
from holdfast._model.enqueue.ids import uuid7, uuid7s

Check = Callable[[object], str]


@pytest.mark.parametrize(
    ("check", "name"),
    [(check_queue, name) for name in ("default", "0", "_x", "a.b-c_d", "a" * 63)]
    + [(check_schedule, "nightly.eu-1")]
    + [(check_kind, name) for name in ("greeter", "a", "resize-image", "a_b-9", "a" * 63)]
    + [(check_step, name) for name in ("ReadName", "main", "_x", "A1", "a" * 63)],
)
def test_q1_good_names_pass(check: Check, name: str) -> None:
    assert check(name) == name


@pytest.mark.parametrize(
    ("check", "name"),
    [(check_queue, name) for name in ("", "Mail", ".a", "-a", "a b", "a\n", "a\0", "a;drop", "é", "a" * 64, "a/b")]
    + [(check_schedule, name) for name in ("", "Nightly", "a\n")]
    + [(check_kind, name) for name in ("", "Greeter", "1a", "_a", "a.b", "a\n", "a" * 64, "ä", "a'b")]
    + [(check_step, name) for name in ("", "1a", "a-b", "a.b", "a\n", "a" * 64, "É", 'a"b', "a b")]
    + [(check, name) for check in (check_queue, check_kind, check_step) for name in (None, 3, b"a", ["a"])],
)
def test_q1_bad_names_are_refused(check: Check, name: Any) -> None:
    with pytest.raises(ConfigError, match=r"queue|schedule|kind|step") as refusal:
        check(name)
    assert len(str(refusal.value)) < 400


@pytest.mark.parametrize("priority", range(10))
def test_q1_priorities_are_0_to_9(priority: int) -> None:
    assert check_priority(priority) == priority


@pytest.mark.parametrize("priority", [-1, 10, 5.0, True, "5", None])
def test_q1_other_priorities_are_refused(priority: Any) -> None:
    with pytest.raises(ConfigError, match="0 to 9"):
        check_priority(priority)


def test_ids_are_version_7_and_say_when_they_were_made() -> None:
    before = time.time_ns() // 1_000_000
    made = uuid7()
    after = time.time_ns() // 1_000_000
    assert (made.version, made.variant) == (7, RFC_4122)
    assert before <= made.int >> 80 <= after + 1


def test_ids_increase_within_the_process() -> None:
    made = [uuid7() for _ in range(50_000)]
    assert made == sorted(set(made))


def test_ids_increase_when_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    first = uuid7()
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000)
    assert first < uuid7() < uuid7()


def test_ids_of_threads_never_repeat() -> None:
    made: list[list[UUID]] = [[] for _ in range(8)]

    def make(mine: list[UUID]) -> None:
        mine.extend(uuid7() for _ in range(2_000))

    threads = [threading.Thread(target=make, args=(mine,)) for mine in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({each for mine in made for each in mine}) == 16_000
    assert all(mine == sorted(mine) for mine in made)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_makes_other_ids() -> None:
    uuid7()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, b"".join(uuid7().bytes for _ in range(100)))
        os._exit(0)
    mine = {uuid7().bytes for _ in range(100)}
    os.waitpid(child, 0)
    theirs = os.read(reading, 1600)
    os.close(reading)
    os.close(writing)
    assert len(theirs) == 1600
    assert mine.isdisjoint(theirs[start : start + 16] for start in range(0, 1600, 16))


def test_many_ids_at_once_are_like_single_ones() -> None:
    before = uuid7()
    many = uuid7s(5000)
    after = uuid7()
    assert [before, *many, after] == sorted({before, *many, after})
    assert {id.version for id in many} == {7}
    assert {id.variant for id in many} == {before.variant}
    assert len({id.int & 0xFFFF_FFFF for id in many}) > 4900  # the last 32 bits are random
    assert uuid7s(0) == []


def test_many_ids_do_not_run_out_of_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "_clock", clock := ids._IdClock())
    clock.millisecond, clock.counter = 2**47, 0x3FF_FFFF_FFFF - 10
    before = uuid7()
    many = uuid7s(100)
    assert [before, *many] == sorted({before, *many})
    assert uuid7() > many[-1]


@pytest.mark.parametrize("before", [0, 1, 2, 50, 99, 100, 101])
def test_many_ids_count_on_when_the_lower_bits_of_the_counter_are_full(
    monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    monkeypatch.setattr(ids, "_clock", clock := ids._IdClock())
    clock.millisecond, clock.counter = 2**47, 5 * 2**30 - 1 - before
    made = [*uuid7s(100), uuid7()]
    counters = [(id.int >> 64 & 0xFFF) << 30 | (id.int >> 32 & 0x3FFF_FFFF) for id in made]
    assert counters == list(range(5 * 2**30 - before, 5 * 2**30 - before + 101))
    assert {id.int >> 80 for id in made} == {2**47}
    assert {(id.version, id.variant) for id in made} == {(7, made[-1].variant)}
