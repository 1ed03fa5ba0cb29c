"""`examples/sqlalchemy_orders.py`: orders and tasks, both or neither."""

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.testing import Harness

from .support import example

orders = example("sqlalchemy_orders")


@pytest.fixture
def holdfast_tasks() -> Iterator[Any]:
    yield orders.app
    orders.engine.dispose()


async def test_an_order_and_its_task_are_one_transaction(holdfast: Harness, capsys: pytest.CaptureFixture[str]) -> None:
    orders.main()
    first, second, third, *_ = capsys.readouterr().out.splitlines()
    assert (first, second) == ("order 1: 1 x book", "order 2: 2 x lamp")
    assert third.startswith("1000 x sofa: no order, and no task, because the database said:")
    assert "enough_in_stock" in third
    assert holdfast.sql("SELECT item FROM placed_order ORDER BY id") == [("book",), ("lamp",)]
    assert holdfast.enqueued(orders.confirm_order) == 2
    await holdfast.drain()
    sent = [("1 x book: on its way",), ("2 x lamp: on its way",)]
    assert holdfast.sql("SELECT confirmation FROM placed_order ORDER BY id") == sent
    assert holdfast.sql("SELECT result #>> '{}' FROM holdfast.archive ORDER BY id") == sent


async def test_rolled_back_after_the_enqueue_there_is_neither(holdfast: Harness) -> None:
    orders.Base.metadata.create_all(orders.engine)
    with orders.Session(orders.engine) as session:
        session.add(orders.Stock(item="book", pieces=10))
        session.commit()
        orders.place_order(session, "book", 1)
        session.rollback()
    assert holdfast.sql("SELECT count(*) FROM placed_order") == [(0,)]
    assert holdfast.enqueued(orders.confirm_order) == 0
