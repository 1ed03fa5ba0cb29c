"""Rows written by SQL that no Python code would write: no stuck task, no dead worker."""

import asyncio
import json
from typing import Any
from uuid import UUID

import psycopg
import pytest

from holdfast import Context, DecodeError, Retry, Tasks, named
from holdfast.testing import Harness

from .support import attempts, row, running, sql, until

tasks = Tasks()


@pytest.fixture
def holdfast_tasks() -> Tasks:
    return tasks


@tasks.task
async def add(a: int, b: int = 1) -> int:
    return a + b


@tasks.task(retry=Retry(3, delay=0.05))
async def fail_once(ctx: Context) -> int:
    if ctx.attempt == 1:
        raise ValueError("once")
    return ctx.attempt


@tasks.task
async def headers_of(ctx: Context) -> dict[str, str]:
    return dict(ctx.headers)


def insert(url: str, kind: str = "add", **columns: object) -> UUID:
    """A task as somebody with SQL would write it; values are SQL text."""
    given = {"id": "holdfast.new_id()", "kind": f"'{kind}'", "step": "'main'", **columns}
    names, values = ", ".join(given), ", ".join(map(str, given.values()))
    id: UUID = sql(url, f"INSERT INTO holdfast.task ({names}) VALUES ({values}) RETURNING id")[0][0]
    return id


async def check_worker_lives(holdfast: Harness) -> None:
    ref = await holdfast.app.enqueue(add.bind(1, 2))
    assert await ref.result(timeout=60) == 3


@pytest.mark.parametrize(
    "args",
    [
        """'{"a": "1"}'""",
        "'{}'",
        """'{"a": 1.5}'""",
        """'{"a": null}'""",
        """'{"a": true}'""",
        """'{"a": [[[[{}]]]], "b": {}}'""",
        """jsonb_build_object('a', repeat('x', 3000000))""",
        """('{"a":' || repeat('[', 2000) || repeat(']', 2000) || '}')::jsonb""",
    ],
)
async def test_T13_args_that_do_not_fit_are_parked_and_not_charged(holdfast: Harness, args: str) -> None:
    id = insert(holdfast.url, args=args)
    async with running(holdfast.worker()):
        await until(lambda: row(holdfast.url, id)["state"] == "parked", "for the bad row")
        await check_worker_lives(holdfast)
    found = row(holdfast.url, id)
    assert found["errors"] == 0
    assert b"DecodeError" in found["error"]
    assert attempts(holdfast.url, id) == [(1, "main", "failed")]


@pytest.mark.parametrize(
    ("headers", "seen"),
    [
        ("'[1, 2]'", {}),
        ("'42'", {}),
        ("""'{"a": 1}'""", {}),
        ("'null'", {}),
        ("""('{"a":' || repeat('[', 5000) || repeat(']', 5000) || '}')::jsonb""", {}),
        ("""'{"holdfast-plan-time": "never"}'""", {"holdfast-plan-time": "never"}),
    ],
)
async def test_bad_headers_do_not_hurt(holdfast: Harness, headers: str, seen: Any) -> None:
    id = insert(holdfast.url, "headers_of", headers=headers)
    async with running(holdfast.worker()):
        ended = "SELECT result = $2::jsonb FROM holdfast.archive WHERE id = $1"
        assert await until(lambda: sql(holdfast.url, ended, id, json.dumps(seen)), "for its end") == [(True,)]


@pytest.mark.parametrize(
    "columns",
    [
        {"deadline": "'infinity'"},
        {"deadline": "'-infinity'"},
        {"deadline": "'20000-01-01'"},
        {"deadline": "'0099-01-01 BC'"},
        {"created_at": "'infinity'"},
        {"claimed_at": "'infinity'"},
        {"errors": "2147483647"},
        {"moves": "2147483647"},
        {"errors": "-5", "moves": "-5", "crashes": "-5"},
        {"max_crashes": "-1"},
        {"key": "repeat('k', 2000) || holdfast.new_id()"},
        {"cancel_by": "repeat('x', 100000)"},
    ],
    ids=lambda columns: ",".join(columns),
)
async def test_hostile_numbers_and_times_neither_stick_nor_kill(holdfast: Harness, columns: dict[str, str]) -> None:
    try:
        ids = [insert(holdfast.url, kind, **columns, args=args) for kind, args in KINDS]
    except psycopg.errors.CheckViolation:
        ids = []  # refused at the door
    async with running(holdfast.worker()) as workers:
        await check_worker_lives(holdfast)
        await until(
            lambda: not sql(holdfast.url, "SELECT 1 FROM holdfast.task WHERE state <> 'parked'") or workers[0].done(),
            "for the bad rows",
        )
        assert not workers[0].done()
    for id in ids:
        state = (await holdfast.app.info(id)).state
        if state != "expired":  # such a deadline may have passed
            assert attempts(holdfast.url, id)[-1][2] in ("done", "failed") and state in ("done", "parked")


KINDS = [("add", """'{"a": 1}'"""), ("fail_once", "'{}'")]


@pytest.mark.parametrize("number", ["1e400", "123456789012345678901234567890", "-1e300"])
async def test_huge_numbers_in_args_do_not_hurt(holdfast: Harness, number: str) -> None:
    id = insert(holdfast.url, args=f"""'{{"a": {number}}}'""")
    async with running(holdfast.worker()):
        await until(lambda: row(holdfast.url, id)["state"] == "parked", "for the bad row")
        await check_worker_lives(holdfast)


async def test_T14_unknown_kinds_and_steps_are_left_alone_and_listed(holdfast: Harness) -> None:
    ids = [insert(holdfast.url, "unheard_of"), insert(holdfast.url, "add", step="'Elsewhere'")]
    async with running(holdfast.worker()):
        await check_worker_lives(holdfast)
        await asyncio.sleep(0.3)
        for id in ids:
            info = await holdfast.app.info(id)
            assert (info.state, info.phase, info.attempt) == ("ready", "unroutable", 0)
            assert attempts(holdfast.url, id) == []


async def test_T14_M12_many_unknown_rows_in_front_do_not_hide_the_others(holdfast: Harness) -> None:
    sql(
        holdfast.url,
        "INSERT INTO holdfast.task (id, kind, step, run_at)"
        " SELECT holdfast.new_id(), 'unheard_of', 'main', holdfast.now() - interval '1 hour'"
        " FROM generate_series(1, 20000)",
    )
    before = await holdfast.app.enqueue(add.bind(1))
    async with running(holdfast.worker(poll=0.2)) as workers:
        assert await before.result(timeout=60) == 2
        for n in range(5):
            ref = await holdfast.app.enqueue(add.bind(n))
            assert await ref.result(timeout=60) == n + 1
        # Also one whose time is before the mark that the worker has set.
        late = insert(holdfast.url, args="""'{"a": 5}'""", run_at="holdfast.now() - interval '30 minutes'")
        assert await holdfast.app.ref(late, add).result(timeout=60) == 6
        assert not workers[0].done()
    assert sql(holdfast.url, "SELECT count(*), max(attempt) FROM holdfast.task") == [(20000, 0)]


async def test_T13_after_a_fixed_deploy_retry_runs_it(holdfast: Harness) -> None:
    ref = await holdfast.app.enqueue(named("later_fixed", {"amount": "12"}))
    v1 = Tasks()

    @v1.task(name="later_fixed")
    async def wants_int(amount: int) -> str:
        return f"int {amount}"

    holdfast.app._include(v1)
    async with running(holdfast.worker()):
        await until(lambda: row(holdfast.url, ref.id)["state"] == "parked", "for the decode error")
    error = (await ref.info()).error
    assert error is not None
    assert error["type"].endswith(DecodeError.__name__)
    assert "amount" in error["message"]
    del holdfast.app._kinds["later_fixed"], holdfast.app._steps["later_fixed", "main"]
    v2 = Tasks()

    @v2.task(name="later_fixed")
    async def wants_text(amount: str) -> str:
        return f"text {amount}"

    holdfast.app._include(v2)
    await holdfast.app.retry(ref.id)
    await holdfast.drain()
    assert await ref.result(timeout=60) == "text 12"


@pytest.mark.parametrize("name", ["x; drop table task", "A.b", "", "a" * 64, "ünï", "a b", "a'b", 'a"b', "../x"])
async def test_hostile_names_are_refused_by_the_table(holdfast: Harness, name: str) -> None:
    for column in ("kind", "step", "queue"):
        given = {"kind": "add", "step": "main", "queue": "default", column: name}
        if (column == "step" and name == "A.b") or (column == "queue" and name in ("a.b",)):
            continue
        with pytest.raises(psycopg.errors.CheckViolation):
            sql(
                holdfast.url,
                "INSERT INTO holdfast.task (id, kind, step, queue) VALUES (holdfast.new_id(), $1, $2, $3)",
                *given.values(),
            )
