"""What is refused where it enters or leaves: values of a wrong type, and values that cannot be stored."""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any

import psycopg
import pytest
from pydantic import BaseModel

from holdfast import App, Context, DecodeError, Done, EncodeError, Every, Schedules, SyncSchedules, Tasks, named
from holdfast.testing import Harness

tasks = Tasks()
counted = tasks.kind("counted", result=int)
measured = tasks.kind("measured", result=float)


@counted.step
@dataclass
class Count:
    to: Any

    def run(self) -> Done[Any]:
        return Done(self.to)


@counted.step
@dataclass
class Goes:
    on: Any

    def run(self) -> Any:
        return Order(self.on)


@counted.step
@dataclass
class Order:
    id: int
    lines: list[str] | None = None

    def run(self) -> None: ...


@measured.step
@dataclass
class Measure:
    def run(self) -> Done[float]:
        return Done(float("nan"))


class Model(BaseModel):
    at: int


@tasks.task
def send(order_id: int, to: str = "", about: Model | None = None) -> int:
    return to  # type: ignore[return-value]


@tasks.task
def enqueues(ctx: Context, what: str) -> None:
    bad: Any = object()
    ctx.enqueue(Order(bad) if what == "class" else send.bind(bad))


@pytest.fixture
def holdfast_tasks() -> Tasks:
    return tasks


async def test_T5_a_result_of_another_type_than_the_kind_declares_is_an_error_of_the_step(holdfast: Harness) -> None:
    ref = await counted.enqueue(Count("x"))
    good = await counted.enqueue(Count(3))
    none = await counted.enqueue(Count(None))
    await holdfast.drain()
    assert await good.result() == 3
    assert (await none.info()).state == "done"
    info = await ref.info()
    assert info.state == "parked" and info.error is not None
    assert "counted.Count: its result is not what app.kind('counted', result=…) says: int: Expected `int`" in str(
        info.error["message"]
    )


async def test_T5_a_result_that_can_only_be_kept_as_text_is_kept(holdfast: Harness) -> None:
    ref = await measured.enqueue(Measure())
    await holdfast.drain()
    assert (await ref.info()).result == "NaN"


async def test_A3_a_result_of_another_type_than_annotated_is_told_with_its_task(holdfast: Harness) -> None:
    ref = await send.enqueue(1, "nobody")
    await holdfast.drain()
    with pytest.raises(DecodeError, match=rf"task {ref.id} \(send\) is done, but .* `int`.*info\(\)\.result"):
        await ref.result()
    assert (await ref.info()).result == "nobody"


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: send.bind("1"), r"^send: args\.order_id: Expected `int`, got `str`"),  # type: ignore[arg-type]
    (lambda: send.bind(1, to=None), r"^send: args\.to: Expected `str`, got `null`"),  # type: ignore[arg-type]
    (lambda: Order("1"), r"^Order\.id: Expected `int`, got `str`"),  # type: ignore[arg-type]
    (lambda: Order(1, ["a", 2]), r"^Order\.lines\[1\]: Expected `str`, got `int`"),  # type: ignore[list-item]
    (lambda: send.bind(1, about={"at": "x"}), r"^send: args\.about: "),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("make", "said"), WRONG)
async def test_T13_a_value_of_a_wrong_type_is_refused_at_the_door(
    holdfast: Harness, make: Callable[[], Any], said: str
) -> None:
    app = holdfast.app
    with pytest.raises(EncodeError, match=said):
        await app.enqueue(make())
    with pytest.raises(EncodeError, match=said):
        await app.enqueue_many([Order(1), make()])
    assert holdfast.sql("SELECT count(*) FROM holdfast.task") == [(0,)]


async def test_T13_a_move_with_a_value_of_a_wrong_type_is_an_error_of_the_step_that_returned_it(
    holdfast: Harness,
) -> None:
    ref = await counted.enqueue(Goes("x"))
    await holdfast.drain()
    info = await ref.info()
    assert (info.state, info.step) == ("parked", "Goes") and info.error is not None
    assert "Order.id: Expected `int`, got `str`" in info.error["message"]


async def test_T5_a_value_that_cannot_be_stored_is_the_same_error_from_every_door(holdfast: Harness) -> None:
    app, bad = holdfast.app, "\0"
    ref = await send.enqueue(1)
    doors: list[Callable[[], Any]] = [
        lambda: app.enqueue(send.bind(1, bad)),
        lambda: app.enqueue(Count(bad)),
        lambda: app.enqueue(Count(bad), priority=5),
        lambda: app.enqueue_many([Count(bad)]),
        lambda: app.enqueue_many([Count(1), Count(bad)]),
        lambda: counted.enqueue(Count(bad)),
        lambda: app.enqueue(named("send", {"order_id": bad})),
        lambda: app.schedules.set("often", Every("1m"), Count(bad)),
        lambda: app.retry(ref.id, args={"order_id": bad}),
        lambda: app.retry(ref.id, args={"order_id": object()}),
    ]
    for door in doors:
        with pytest.raises(EncodeError):
            await door()
    for what in ("class", "function"):
        within = await enqueues.enqueue(what)
        await holdfast.drain()
        error = (await within.info()).error
        assert error is not None and error["type"] == "holdfast.errors.EncodeError"


async def test_Q2_a_default_written_out_is_not_another_unique_task(holdfast: Harness) -> None:
    app = holdfast.app
    first = await app.enqueue(send.bind(1), unique=True)
    second = await app.enqueue(send.bind(1, to=""), unique=True)
    many = await app.enqueue_many([send.bind(1, "", None), send.bind(2), send.bind(2, "")], unique=True)
    assert second.id == first.id == many[0].id
    assert many[1].id == many[2].id != first.id


async def test_Q2_nor_is_what_a_schedule_enqueues(holdfast: Harness) -> None:
    schedules = holdfast.app.schedules
    await schedules.set("often", Every("1h"), send.bind(1), unique=True)
    [fired] = await schedules.fire("often")
    assert (await holdfast.app.enqueue(send.bind(1, to=""), unique=True)).id == fired


async def test_T7_an_enqueue_in_another_database_is_told_once(
    holdfast: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    other = App("postgresql:///another", include=[tasks])
    with psycopg.connect(holdfast.url) as conn:
        name = conn.info.dbname
        holdfast.app.sync.enqueue(send.bind(1), conn=conn)
        assert "conn=" not in caplog.text
        for _ in range(2):
            other.sync.enqueue(send.bind(1), conn=conn)
    told = [record.getMessage() for record in caplog.records if "conn=" in record.getMessage()]
    assert len(told) == 1 and f"in the database {name!r}" in told[0] and "'another'" in told[0]


def test_S9_blocking_code_has_schedules(holdfast: Harness) -> None:
    schedules = holdfast.app.sync.schedules
    assert schedules.set("often", Every("1h"), send.bind(1)) == "created"
    assert [each.name for each in schedules.all()] == ["often"]
    schedules.pause("often")
    assert schedules.get("often").condition == "paused"
    schedules.resume("often")
    assert len(schedules.fire("often")) == len(schedules.occurrences("often")) == 1
    schedules.delete("often")
    assert schedules.all() == []


@pytest.mark.parametrize("name", [name for name in vars(Schedules) if not name.startswith("_")])
def test_blocking_schedules_have_the_same_methods(name: str) -> None:
    assert [*signature(getattr(SyncSchedules, name)).parameters] == [*signature(getattr(Schedules, name)).parameters]


def test_S9_blocking_schedules_are_changed_in_the_callers_transaction(holdfast: Harness) -> None:
    schedules = holdfast.app.sync.schedules
    schedules.set("often", Every("1h"), send.bind(1))
    with psycopg.connect(holdfast.url) as conn:
        schedules.pause("often", conn=conn)
        schedules.set("other", Every("1h"), send.bind(1), conn=conn)
        assert len(schedules.fire("often", conn=conn)) == 1
        assert schedules.delete("often", conn=conn) and not schedules.delete("nothing", conn=conn)
        conn.rollback()
    assert [(each.name, each.condition) for each in schedules.all()] == [("often", "active")]
    assert schedules.occurrences("often") == []
