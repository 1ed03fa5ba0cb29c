"""What tests of users expect to be enqueued, and what they are told when something else is."""

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from holdfast import Done, Fail, Later, Tasks, named
from holdfast.testing import Harness

tasks = Tasks()
reminder = tasks.kind("reminder", result=str)


@pytest.fixture
def holdfast_tasks() -> Tasks:
    return tasks


@tasks.task(queue="mail")
async def send(order_id: int, to: str = "a@b.c") -> str:
    return f"{order_id} to {to}"


@tasks.task
async def doomed() -> None:
    raise Fail("no way")


@reminder.step
@dataclass
class Wait:
    text: str

    async def run(self) -> "Later[Send]":
        return Later(Send(self.text), "1d")


@reminder.step
@dataclass
class Send:
    text: str

    async def run(self) -> Done[str]:
        return Done(self.text)


async def test_it_is_found_by_every_name_that_it_has(holdfast: Harness) -> None:
    ref = await send.enqueue(1, to="x")
    hello = await reminder.enqueue(Wait("plants"))
    what: object
    for what in (send, "send", "send.main", send.bind(1, to="x"), send.bind(order_id=1, to="x")):
        assert [task.id for task in holdfast.assert_enqueued(what, times=1)] == [ref.id]
        assert holdfast.enqueued(what) == 1
    for what in (
        reminder,
        "reminder",
        "reminder.Wait",
        Wait,
        Wait("plants"),
        named("reminder.Wait", {"text": "plants"}),
    ):
        assert [task.id for task in holdfast.assert_enqueued(what)] == [hello.id]
        assert holdfast.enqueued(what) == 1
    for what in (send.bind(2, to="x"), send.bind(1), "send.other", Send, Wait("cat"), "nobody"):
        holdfast.assert_not_enqueued(what)
        assert holdfast.enqueued(what) == 0
        with pytest.raises(AssertionError, match="not enqueued"):
            holdfast.assert_enqueued(what)
    with pytest.raises(AssertionError, match=r"send is enqueued:\n  send .*queue mail, ready, due now"):
        holdfast.assert_not_enqueued(send)
    with pytest.raises(TypeError, match=r"assert_enqueued\(\) takes a function"):
        holdfast.assert_enqueued(42)


async def test_options_and_some_of_the_args_are_compared(holdfast: Harness) -> None:
    [task] = [await holdfast.app.enqueue(send.bind(1, to="x"), key="k", priority=5)]
    holdfast.assert_enqueued(send, queue="mail", key="k", priority=5, args={"order_id": 1})
    wrong: list[dict[str, object]] = [
        {"queue": "default"},
        {"key": "other"},
        {"priority": 0},
        {"args": {"order_id": 2}},
        {"args": {"order": 1}},
        {"args": {"order_id": "1"}},
    ]
    for each in wrong:
        holdfast.assert_not_enqueued(send, **each)  # type: ignore[arg-type]
    with pytest.raises(AssertionError) as told:
        holdfast.assert_enqueued(send, queue="default", key="other", args={"to": "y"})
    text = str(told.value)
    assert "send, queue='default', key='other', args={'to': 'y'}: not enqueued. Enqueued is:" in text
    assert (
        """send {"to":"x","order_id":1}: queue mail""" in text or """send {"order_id":1,"to":"x"}: queue mail""" in text
    )
    assert "its to is 'x', not 'y'" in text
    assert "its queue is 'mail', not 'default'" in text
    assert "its key is 'k', not 'other'" in text
    assert task.created


async def test_how_often(holdfast: Harness) -> None:
    holdfast.assert_enqueued(send, times=0)
    with pytest.raises(AssertionError, match=r"send: not enqueued\. Nothing is enqueued"):
        holdfast.assert_enqueued(send)
    await holdfast.app.enqueue_many([send.bind(n) for n in range(3)])
    assert len(holdfast.assert_enqueued(send)) == 3
    holdfast.assert_enqueued(send, times=3)
    with pytest.raises(AssertionError, match="send: enqueued 3 times, not 2"):
        holdfast.assert_enqueued(send, times=2)


async def test_the_time_of_a_task_as_it_was_enqueued_is_exact(holdfast: Harness) -> None:
    await holdfast.app.enqueue(send.bind(1), delay="1h")
    holdfast.clock.advance("10m")  # the delay counts from the enqueue
    holdfast.assert_enqueued(send, delay="1h")
    holdfast.assert_not_enqueued(send, delay="3601s")
    holdfast.assert_enqueued(send, delay="3601s", within="2s")
    holdfast.assert_not_enqueued(send, delay=0)
    with pytest.raises(AssertionError, match=r"it is due in 0:50:0.*, not in 1:50:0"):
        holdfast.assert_enqueued(send, delay="2h")
    at = datetime(2200, 1, 1, tzinfo=UTC)
    await holdfast.app.enqueue(doomed.bind(), at=at)
    holdfast.assert_enqueued(doomed, at=at)
    holdfast.assert_not_enqueued(doomed, at=at.replace(hour=1))


async def test_the_time_of_a_task_that_moved_counts_from_now(holdfast: Harness) -> None:
    await reminder.enqueue(Wait("plants"))
    holdfast.clock.advance("2h")
    await holdfast.drain()
    holdfast.assert_enqueued(Send("plants"), delay="1d")
    holdfast.assert_not_enqueued(Send, delay="26h")


async def test_what_has_already_run_is_told_too(holdfast: Harness) -> None:
    await send.enqueue(1)
    await holdfast.drain()
    holdfast.assert_not_enqueued(send)
    with pytest.raises(
        AssertionError, match=r'Nothing is enqueued.\nFinished is:\n  send {"order_id":1}: queue mail, done'
    ):
        holdfast.assert_enqueued(send)


async def test_long_lists_and_args_are_cut(holdfast: Harness) -> None:
    await holdfast.app.enqueue_many([send.bind(n, to="x" * 500) for n in range(30)])
    with pytest.raises(AssertionError) as told:
        holdfast.assert_enqueued(doomed)
    assert "… and 10 more" in str(told.value)
    assert len(str(told.value)) < 20 * 400


async def test_failures_are_told_with_their_errors(holdfast: Harness) -> None:
    holdfast.assert_no_failures()
    await doomed.enqueue()
    await holdfast.drain()
    with pytest.raises(
        AssertionError, match=r"(?s)1 parked:\n  doomed {}: queue default, parked, holdfast.Fail: no way"
    ):
        holdfast.assert_no_failures()
