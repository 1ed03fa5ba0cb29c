"""`examples/order_flow.py`: every way through it."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast.testing import Harness

from .support import attempts, example

flow = example("order_flow")


@pytest.fixture
def holdfast_tasks() -> Any:
    flow.PAYMENTS.clear()
    return flow.app


async def test_an_order_is_charged_shipped_and_asked_about_two_weeks_later(holdfast: Harness) -> None:
    holdfast.clock.advance(0)
    now = holdfast.clock.now()
    ref = await flow.order.enqueue(flow.Check("book", card="4242"))
    await holdfast.drain()
    info = await ref.info()
    assert (info.state, info.step, info.args) == ("ready", "AskForReview", {"item": "book"})
    assert info.run_at is not None
    assert timedelta(days=13, hours=22) < info.run_at - now < timedelta(days=14, hours=2)
    await holdfast.drain(until=now + timedelta(days=15))
    assert await ref.result() == "book: shipped"
    assert attempts(holdfast, ref.id) == [
        ("Check", "advanced"),
        ("Charge", "advanced"),
        ("Ship", "advanced"),
        ("AskForReview", "done"),
    ]
    assert list(flow.PAYMENTS.values()) == ["payment 1 of 30.00"]


async def test_a_declined_card_ends_the_order_and_is_no_failure(holdfast: Harness) -> None:
    ref = await flow.order.enqueue(flow.Check("lamp", card="0002"))
    await holdfast.drain()
    assert await ref.result() == "lamp: refused, the card was declined"
    assert attempts(holdfast, ref.id)[1:] == [("Charge", "advanced"), ("Refuse", "done")]


async def test_a_slip_parks_the_order_and_repaired_args_send_it_on(holdfast: Harness) -> None:
    ref = await flow.order.enqueue(flow.Check("bok", card="4242"))
    await holdfast.drain()
    info = await ref.info()
    assert (info.state, info.step) == ("parked", "Check")
    assert info.error is not None
    assert info.error["message"] == "there is no 'bok' in the catalogue"
    assert attempts(holdfast, ref.id) == [("Check", "failed")]
    await holdfast.app.retry(ref.id, args={"item": "book", "card": "4242"})
    await holdfast.run_all()
    assert await ref.result() == "book: shipped"


async def test_a_crash_after_the_charge_charges_nobody_twice(holdfast: Harness) -> None:
    ref = await flow.order.enqueue(flow.Check("book", card="4242"))
    with holdfast.crash_after(flow.Charge):
        await holdfast.drain()
    assert len(flow.PAYMENTS) == 1
    holdfast.clock.advance("1m")
    await holdfast.run_all()
    assert await ref.result() == "book: shipped"
    assert ("Charge", "lost") in attempts(holdfast, ref.id)
    assert len(flow.PAYMENTS) == 1
