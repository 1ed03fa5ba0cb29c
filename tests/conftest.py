"""For all tests, whoever started them; with `--through=pgbouncer`, on a pooler in front of every server.

With `--server=14` they run on that server instead of the embedded one.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, settings

from holdfast.testing.server import URL_VARIABLE
from pgbouncer import MISSING, PROGRAM, Way
from servers import SERVERS, Unavailable, started

# A shell starts what it runs in the background with SIGINT ignored, and children inherit that: then no test that
# interrupts a command could work.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No test fails because a machine is slow.
settings.register_profile("unhurried", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--through", choices=["pgbouncer"], help="run the tests through a pooler in transaction mode")
    parser.addoption("--server", choices=SERVERS, help="run the tests on this server, with its default configuration")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "direct(reason): cannot be run through a pooler, and why")
    if config.getoption("--through") and PROGRAM is None:
        raise pytest.UsageError(MISSING)
    server = config.getoption("--server")
    if server and not hasattr(config, "workerinput"):  # else it is there already: one for all processes
        starting = ExitStack()
        try:
            os.environ[URL_VARIABLE] = starting.enter_context(started(server))
        except Unavailable as why:
            raise pytest.UsageError(f"PostgreSQL {server} cannot be had: {why}") from None
        config.add_cleanup(starting.close)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--through"):
        for item in items:
            if mark := item.get_closest_marker("direct"):
                item.add_marker(pytest.mark.skip(reason=f"not through a pooler: {mark.args[0]}"))


@pytest.fixture(autouse=True)
def clean_imports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What a test imported from its own folder is not there for the next one, whose module may have the same name."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    folders = str(tmp_path_factory.getbasetemp())
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(folders):
            del sys.modules[name]


@pytest.fixture(scope="session")
def way(request: pytest.FixtureRequest) -> Iterator[Way]:
    """How tests reach their databases: directly, or through a pooler."""
    with ExitStack() as poolers:
        yield Way(bool(request.config.getoption("--through")), poolers)


@pytest.fixture
def holdfast_url(holdfast_url: str, holdfast_server: str, way: Way) -> str:
    """The URL of a migrated database for one test."""
    return way.to(holdfast_url, holdfast_server)
