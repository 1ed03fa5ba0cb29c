"""The fixtures of pytest. Loaded at every start of pytest, so it imports what it needs only where it is used."""

import inspect
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from holdfast import Tasks
    from holdfast.testing.harnesses import Harness


@pytest.fixture(scope="session")
def holdfast_server() -> Iterator[str]:
    """The URL of a server for tests: of the environment (HOLDFAST_TEST_URL), or an embedded one without fsync."""
    from holdfast.testing.server import server

    with server() as url:
        yield url


@pytest.fixture(scope="session")
def holdfast_template(holdfast_server: str) -> Iterator[str]:
    """The name of a migrated database that each test's own is copied from."""
    from holdfast.testing.server import template

    with template(holdfast_server) as name:
        yield name


@pytest.fixture
def holdfast_url(holdfast_server: str, holdfast_template: str) -> Iterator[str]:
    """The URL of a migrated database for one test."""
    from holdfast.testing.server import database

    with database(holdfast_server, holdfast_template) as url:
        yield url


@pytest.fixture
def holdfast_tasks() -> "Tasks":
    """What is tested: override it with your own App or Tasks. By default an empty one, to declare tasks in a test."""
    from holdfast import Tasks

    return Tasks()


@pytest.fixture
def holdfast(request: pytest.FixtureRequest, holdfast_url: str, holdfast_tasks: "Tasks") -> Iterator["Harness"]:
    """An app on a database of its own, for `def` and `async def` tests."""
    from holdfast.testing.attach import attached

    with attached(holdfast_tasks, holdfast_url) as made:
        if loop := _loop(request):
            request.getfixturevalue(loop)
        yield made


def _loop(request: pytest.FixtureRequest) -> str | None:
    """The fixture that keeps the event loop of an async test until the harness has closed what is on it."""
    if not inspect.iscoroutinefunction(inspect.unwrap(request.function)):
        return None
    by_anyio = request.node.get_closest_marker("anyio") is not None or "anyio_backend" in request.fixturenames
    return "_holdfast_anyio" if by_anyio else "_holdfast_asyncio"


def _asyncio_fixture(function: Any) -> Any:
    """pytest-asyncio in its strict mode, which is its default, looks after its own fixtures only."""
    try:
        from pytest_asyncio import fixture
    except ImportError:
        return pytest.fixture(function)
    return fixture(function)


@_asyncio_fixture
async def _holdfast_asyncio() -> AsyncIterator[None]:
    yield


@pytest.fixture
async def _holdfast_anyio() -> AsyncIterator[None]:  # not the same function: pytest-asyncio marks its own
    yield
