"""Callers on the test's database: of every kind, or one for each way in which statements travel."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from holdfast.testing import Harness

from .support import OPENERS, VARIANTS, Caller


@pytest_asyncio.fixture(params=OPENERS)
async def any_caller(request: pytest.FixtureRequest, holdfast: Harness) -> AsyncIterator[Caller]:
    name: Any = request.param
    async with OPENERS[name](holdfast.app, holdfast.url) as made:
        yield made


@pytest_asyncio.fixture(params=[name for name in OPENERS if name not in VARIANTS])
async def caller(request: pytest.FixtureRequest, holdfast: Harness) -> AsyncIterator[Caller]:
    name: Any = request.param
    async with OPENERS[name](holdfast.app, holdfast.url) as made:
        yield made
