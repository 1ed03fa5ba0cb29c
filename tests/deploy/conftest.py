"""A PgBouncer of the test's own, in front of the server of the session."""

from collections.abc import Iterator

import pytest

from pgbouncer import MISSING, PROGRAM, Pooler, pgbouncer


@pytest.fixture
def direct_url(holdfast_url: str, way: object) -> str:
    """A migrated database, without a pooler; tests here bring their own."""
    return holdfast_url


@pytest.fixture(scope="session")
def pooler(holdfast_server: str) -> Iterator[Pooler]:
    if PROGRAM is None:
        pytest.skip(MISSING)
    with pgbouncer(holdfast_server) as made:
        yield made


@pytest.fixture
def pooled_url(pooler: Pooler, direct_url: str) -> str:
    """The same database through PgBouncer in transaction mode."""
    return pooler.url(direct_url)
