"""T3 and what else a step is told, and references."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

import holdfast
from holdfast import Context, DeclarationError, Duration, HoldfastError, Ref, TaskInfo, current_context
from holdfast._model.run.context import Described, Offers


def context(resources: Mapping[type, object] | None = None, **fields: Any) -> Context:
    given: dict[str, Any] = {
        "id": UUID(int=7),
        "kind": "greeter",
        "step_name": "ReadName",
        "queue": "default",
        "number": 1,
        "errors": 0,
        "crashes": 0,
        "moves": 0,
        "key": None,
        "headers": {},
        "deadline": None,
    }
    return Context(Described(**{**given, **fields}), Offers(resources or {}))


def test_t3_the_idempotency_key_is_stable_for_the_visit() -> None:
    assert context(number=1).idempotency_key == context(number=2, errors=1, crashes=1).idempotency_key
    assert context(moves=0).idempotency_key != context(moves=1).idempotency_key
    assert context(moves=3).idempotency_key == f"{UUID(int=7)}:3"


def test_signals_are_read_when_asked() -> None:
    ctx = context()
    assert (ctx.cancelled, ctx.stopping) == (False, False)
    ctx._about.cancelled = ctx._about.stopping = True  # type: ignore[misc]
    assert (ctx.cancelled, ctx.stopping) == (True, True)


def test_what_an_occurrence_hands_over() -> None:
    headers = {
        "holdfast-schedule": "nightly",
        "holdfast-scope": "eu",
        "holdfast-plan-time": "2030-01-01T03:00:00+00:00",
    }
    ctx = context(headers=headers)
    assert (ctx.schedule, ctx.scope) == ("nightly", "eu")
    assert ctx.plan_time == datetime(2030, 1, 1, 3, tzinfo=UTC)
    assert (context().schedule, context().scope, context().plan_time) == (None, None, None)
    assert context(headers={"holdfast-plan-time": "rubbish"}).plan_time is None


def test_headers_are_read_once() -> None:
    ctx = context()
    ctx._about.strings = lambda: {"a": "b"}  # type: ignore[method-assign]
    assert ctx.headers is ctx.headers


class Client:
    pass


class SpecialClient(Client):
    pass


def test_resources_are_found_by_class_or_base_class() -> None:
    special, number = SpecialClient(), 0
    ctx = context({SpecialClient: special, int: number})
    assert ctx.resource(SpecialClient) is special
    assert ctx.resource(Client) is special
    assert ctx.resource(int) == 0
    with pytest.raises(DeclarationError, match=r"no resource of type str.*@app\.resource"):
        ctx.resource(str)


def test_the_current_context_is_a_contextvar() -> None:
    ctx = context()
    token = current_context.set(ctx)
    assert current_context.get() is ctx
    current_context.reset(token)


class Answers:
    async def result(self, ref: Ref[Any], timeout: Duration | None, /) -> Any:
        return ref.id, timeout

    async def info(self, id: UUID, /) -> TaskInfo:
        return TaskInfo(id=id, queue="default", kind="greeter", step="ReadName", state="ready")

    async def cancel(self, id: UUID, reason: str, /) -> bool:
        return reason == "not wanted"


async def test_a_reference_asks_its_app() -> None:
    ref: Ref[Any] = Ref(uuid4(), "greeter", queue="default", tracker=Answers())
    assert await ref.result("30s") == (ref.id, "30s")
    assert (await ref.info()).state == "ready"
    assert await ref.cancel("not wanted")
    assert ref.created
    assert ref == Ref(ref.id, "greeter")
    assert len({ref, Ref(ref.id, "greeter")}) == 1


async def test_a_reference_without_an_app_says_so() -> None:
    with pytest.raises(HoldfastError, match=r"app\.ref"):
        await Ref(uuid4(), "greeter").result()


def test_public_names_are_sorted_and_real() -> None:
    assert holdfast.__all__ == sorted(holdfast.__all__)
    assert all(hasattr(holdfast, name) for name in holdfast.__all__)
