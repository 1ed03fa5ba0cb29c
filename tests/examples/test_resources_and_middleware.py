"""`examples/resources_and_middleware.py`: what is opened once, and what happens around every attempt."""

import logging
from typing import Any

import pytest

from holdfast.testing import Harness

from .support import attempts, example

surroundings = example("resources_and_middleware")


@pytest.fixture
def holdfast_tasks() -> Any:
    return surroundings.app


async def test_steps_share_what_was_opened_and_know_their_tenant(
    holdfast: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rates")
    convert = surroundings.convert
    dollars = await holdfast.app.enqueue(convert.bind(100, to="USD"), headers={"tenant": "acme"})
    pounds = await holdfast.app.enqueue(convert.bind(50, to="GBP"), headers={"tenant": "umbrella"})
    await holdfast.drain(concurrency=1)
    assert await dollars.result() == 108.0
    assert await pounds.result() == 42.0
    said = [record.getMessage() for record in caplog.records if record.name == "rates"]
    assert said[0] == "rates are loaded"
    assert said[-1] == "rates were asked for 2 times"
    assert f"asked by acme in task {dollars.id}" in said
    assert f"asked by umbrella in task {pounds.id}" in said
    assert sum(line.startswith("convert.main, attempt 1: ") for line in said) == 2


async def test_without_a_tenant_nothing_is_executed(holdfast: Harness, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rates")
    ref = await surroundings.convert.enqueue(100, to="USD")
    await holdfast.drain()
    info = await ref.info()
    assert info.state == "parked"
    assert info.error is not None
    assert "this task has no tenant" in info.error["message"]
    assert attempts(holdfast, ref.id) == [("main", "failed")]
    assert not any("asked by" in record.getMessage() for record in caplog.records)
