"""Workers and loads by chance keep to rules that an outsider can check; and each rule objects to what breaks it."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from in_short import place as place
from in_short import run_short

from faults.history import Attempt
from faults.liveness.rules import RULES, Enqueued, Life, Sample, Seen, check
from faults.liveness.setup import Burst, Setup, choose
from faults.oracle import Execution
from faults.places import Place


def test_W1_W2_W4_L9_set_ups_by_chance(place: Place) -> None:
    run_short("liveness", place)


def test_a_seed_is_the_same_set_up_again() -> None:
    assert choose(5) == choose(5)
    assert len({str(choose(seed)) for seed in range(50)}) == 50


SETUP = Setup(1, {"a": None, "b": 1}, 2, 2, 0.2, (Burst(0.0, "a", "toil", 3, 1.0),))


def sound() -> Seen:
    """Two workers with two slots each; one of them was killed, and what it was at ran again."""
    return Seen(
        SETUP,
        tasks={
            "one": Enqueued("a", 0.0),
            "two": Enqueued("b", 0.0),
            "late": Enqueued("b", 0.5),
            "lost": Enqueued("a", 0.0),
            "retried": Enqueued("a", 2.0),
        },
        executions=[
            Execution("one", "main", 1, 0, "w1", 0.1, 5.0),
            Execution("two", "main", 1, 0, "w1", 0.1, 3.0),
            Execution("late", "main", 1, 0, "w1", 3.1, 4.0),
            Execution("lost", "main", 1, 0, "w2", 0.1),
            Execution("lost", "main", 2, 0, "w1", 6.0, 7.0),
            Execution("retried", "main", 1, 0, "w1", 5.1, 5.2),
            Execution("retried", "main", 2, 0, "w1", 5.6, 5.7),
        ],
        attempts=[
            Attempt("one", "main", 1, 0, "done"),
            Attempt("two", "main", 1, 0, "done"),
            Attempt("late", "main", 1, 0, "done"),
            Attempt("lost", "main", 1, 0, "lost"),
            Attempt("lost", "main", 2, 0, "done"),
            Attempt("retried", "main", 1, 0, "retried"),
            Attempt("retried", "main", 2, 0, "done"),
        ],
        crashes={"one": 0, "lost": 1},
        lives={"w1": Life(0.0, 8.0), "w2": Life(0.0, 0.2, killed=True)},
        samples=[Sample(1.0, (("w1", "one", 1), ("w1", "two", 1)))],
        silences={"w1": 0.3},
        stops={"w1": (0.2, 0)},
    )


def test_a_sound_history_is_accepted() -> None:
    assert check(sound()) == []


def begin_late(seen: Seen) -> Seen:
    """A free slot, and a task that is due, for five seconds."""
    retried = replace(seen.executions[-1], begin=11.0, end=11.1)
    return replace(seen, executions=[*seen.executions[:-1], retried], lives={**seen.lives, "w1": Life(0.0, 12.0)})


def hoard(seen: Seen) -> Seen:
    leases = tuple(("w1", f"t{n}", 1) for n in range(3))
    return replace(seen, samples=[Sample(1.0, leases)])


def keep_waiting(seen: Seen) -> Seen:
    """Claimed four seconds before it begins."""
    short = replace(seen.setup, bursts=(replace(seen.setup.bursts[0], seconds=0.01),))
    return replace(seen, setup=short, samples=[Sample(at, (("w1", "retried", 1),)) for at in (1.0, 5.0)])


def kill_nobody(seen: Seen) -> Seen:
    return replace(seen, lives={"w1": Life(0.0, 8.0), "w2": Life(0.0, 0.2)})


def charge_all(seen: Seen) -> Seen:
    return replace(seen, crashes=dict.fromkeys(seen.tasks, 2))


BROKEN: dict[str, tuple[str, Callable[[Seen], Seen]]] = {
    "a task is left": ("done", lambda seen: replace(seen, unfinished={"one": "ready"})),
    "a free slot is not used": ("W2", begin_late),
    "more steps at once than slots": (
        "W1 slots",
        lambda seen: replace(seen, setup=replace(seen.setup, concurrency=1)),
    ),
    "more of a queue than its limit": (
        "W1 slots",
        lambda seen: replace(seen, tasks={**seen.tasks, "one": Enqueued("b", 0.0)}),
    ),
    "more leases than slots": ("W1 leases", hoard),
    "a lease that nothing comes of": ("W1 leases", keep_waiting),
    "a crash for what never began": ("L9", charge_all),
    "a lease lost without a death": ("L9", kill_nobody),
    "a silent loop": ("loop", lambda seen: replace(seen, silences={"w1": 1.5})),
    "a stop that is not obeyed": ("W4", lambda seen: replace(seen, stops={"w1": (40.0, None)})),
    "a stop with an error": ("W4", lambda seen: replace(seen, stops={"w1": (0.1, 1)})),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_breaks_a_rule_is_found(name: str) -> None:
    rule, break_it = BROKEN[name]
    assert rule in {violation.rule for violation in check(break_it(sound()))}


def test_each_rule_is_tried() -> None:
    assert {rule for rule, _ in BROKEN.values()} == set(RULES)
