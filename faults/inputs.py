"""F16: whatever callers ask for, steps return or raise, or somebody writes by SQL: nothing is stuck, no worker ends."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from faults.crew import echo, nap, spoil, spoil_in_a_thread
from faults.lab import Lab
from faults.nasty import ENDINGS
from faults.places import run_sql
from faults.suite import Figures, fault
from holdfast import HoldfastError

_TEXT = st.text(st.characters(), max_size=20) | st.sampled_from(
    ["\0", "\ud800", "\udfff\ud800", "a" * 100_000, "\x1b[2J"]
)
_LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.binary(max_size=10),
    _TEXT,
    st.just(2**70),
    st.just(10**4000),
)
VALUES = st.recursive(_LEAVES, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(_TEXT, inner, max_size=5))
NAMES = _TEXT | st.from_regex(r"[a-z0-9_.-]{0,70}", fullmatch=True)

_GARBAGE = {
    "args": [
        "null",
        "[]",
        "5",
        '"x"',
        '{"seconds": "x"}',
        '{"seconds": null}',
        '{"seconds": 1e400}',
        "{}",
        "[" * 5000 + "]" * 5000,
    ],
    "headers": ["null", "[]", "5", '{"tag": 5}', '{"tag": null}', '{"traceparent": []}'],
    "run_at": ["infinity", "-infinity", "1001-01-01", "9998-01-01"],
    "priority": ["-1", "10", "9"],
    "attempt": ["2147483647", "-5"],
    "moves": ["2147483647", "-1"],
    "errors": ["2147483647", "-1"],
    "crashes": ["32767", "-1"],
    "kind": ["nobody", "Ünknown", ""],
    "step": ["nothing", "", "main main"],
    "deadline": ["infinity", "-infinity"],
    "created_at": ["infinity", "-infinity"],
    "max_crashes": ["-1", "32767"],
    "state": ["running", "parked", "done", "waiting"],
}
"""Values by columns. Most are refused by the tables; with the others, workers have to live."""


@fault("F16", "args, results, errors, names and rows that nobody should have written", seconds=40, short=4)
async def bad_input(lab: Lab) -> Figures:
    """Refused at the door, or done, or parked."""
    lab.may_park = frozenset({"echo", "spoil", "spoil_in_a_thread", "nap"})
    lab.workers = 2
    lab.lease = 3.0
    many = max(40, int(8 * lab.seconds))
    refused, asked = 0, 0
    async with lab.under_load(rate=lab.rate / 3) as load:
        for value in _drawn(VALUES, lab.seed, many):
            asked += 1
            refused += not await _asked(lab, partial(echo.bind, value))
        for name in _drawn(NAMES, lab.seed, many // 2):
            for options in ({"queue": name}, {"key": name}, {"headers": {name: name}}):
                asked += 1
                # In a queue that nobody serves it would wait for ever, and rightly so.
                refused += not await _asked(lab, partial(nap.bind, 0), **options, cancel="queue" in options)
        for how in ENDINGS:
            asked += 2
            await load.many([spoil.bind(how), spoil_in_a_thread.bind(how)])
        rows = [_inserted(lab, column, value) for column, values in _GARBAGE.items() for value in values]
        lab.ignored = {id for id in rows if id is not None}
        await lab.wait(lambda: not _stuck(lab), strict=False)
        for stuck in _stuck(lab):
            lab.require(False, "F16", f"stuck: {stuck}")
        # Of kinds that nobody knows, or due in a thousand years.
        run_sql(lab.direct, "DELETE FROM holdfast.task WHERE id = ANY ($1::uuid[])", list(lab.ignored))
    lab.nobody_charged("F16")
    return {"asked": str(asked), "refused at the door": str(refused), "odd rows": str(len(lab.ignored))}


_STUCK = """
SELECT id::text, kind, state, args::text, error FROM holdfast.task
WHERE id = ANY ($1::uuid[])
  AND (state = 'running' OR state = 'ready' AND run_at <= holdfast.now() AND kind = 'nap' AND step = 'main')
"""


def _stuck(lab: Lab) -> list[tuple[Any, ...]]:
    """Odd rows that a worker should have dealt with by now."""
    return run_sql(lab.direct, _STUCK, list(lab.ignored))


async def _asked(lab: Lab, what: Callable[[], Any], *, cancel: bool = False, **options: Any) -> bool:
    """Whether it was taken; whatever is raised must be an error of ours that tells why."""
    try:
        ref = await lab.app.enqueue(what(), **options)
    except (HoldfastError, TypeError, ValueError) as error:
        lab.require(str(error).strip(), "F16", f"{type(error).__name__} without a word")
        return False
    except Exception as error:
        lab.require(
            False, "F16", f"a caller was told {type(error).__name__}: {error!s:.200} ({what!r:.200} {options!r:.200})"
        )
        return False
    if cancel and ref.created:
        await lab.app.cancel(ref.id)
    return True


def _inserted(lab: Lab, column: str, value: str) -> str | None:
    """The id of a row with this value, if the tables take it."""
    given = {"kind": "nap", "step": "main", "args": json.dumps({"seconds": 0}), column: value}
    if value == "running":
        given |= {"worker_id": "00000000-0000-7000-8000-000000000000", "lease_expires_at": "now"}
    places = ", ".join(f"${n}" for n in range(1, len(given) + 1))
    text = f"INSERT INTO holdfast.task (id, {', '.join(given)}) VALUES (holdfast.new_id(), {places}) RETURNING id::text"
    try:
        return str(run_sql(lab.direct, text, *given.values())[0][0])
    except psycopg.Error:
        return None


def _drawn(strategy: st.SearchStrategy[Any], chance: int, count: int) -> list[Any]:
    """Values by chance, the same for the same seed."""
    found: list[Any] = []

    @seed(chance)
    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )
    @given(strategy)
    def draw(value: Any) -> None:
        found.append(value)

    draw()
    return found
