"""Testing tasks on a real database: a pytest plugin, and the same for unittest. It needs the extra `embedded`.

    async def test_greeting(holdfast: Harness) -> None:
        ref = await holdfast.app.enqueue(ReadName("name.txt"))
        await holdfast.drain()
        assert (await ref.info()).state == "done"

Every test gets a database of its own, copied from a migrated template on an embedded server that lives for the
test session; nothing is faked. Time is moved with `holdfast.clock.advance("1h")`: the database's clock is the
only clock that decides. Point the fixture `holdfast_tasks` at your own App or Tasks:

    @pytest.fixture
    def holdfast_tasks() -> App:
        return my_app

Without pytest, `with harness(my_app) as holdfast:` is the same.
"""

import typing as _typing
from importlib import import_module as _import_module
from importlib.util import find_spec as _find_spec

if _typing.TYPE_CHECKING:
    from holdfast.testing.attach import harness
    from holdfast.testing.clock import Clock
    from holdfast.testing.contexts import context
    from holdfast.testing.crash import SimulatedCrash
    from holdfast.testing.drain import Attempted, Drained
    from holdfast.testing.harnesses import Harness

# This package is the plugin, which pytest loads at every start: the fixtures must be here, and nothing slow may be.
if _find_spec("pytest") is not None:  # unittest needs none of it
    from holdfast.testing.plugin import (  # noqa: F401
        _holdfast_anyio,
        _holdfast_asyncio,
        holdfast,
        holdfast_server,
        holdfast_tasks,
        holdfast_template,
        holdfast_url,
    )

__all__ = ["Attempted", "Clock", "Drained", "Harness", "SimulatedCrash", "context", "harness"]

_HOMES = {
    "Attempted": "drain",
    "Clock": "clock",
    "Drained": "drain",
    "Harness": "harnesses",
    "SimulatedCrash": "crash",
    "context": "contexts",
    "harness": "attach",
}

if not _typing.TYPE_CHECKING:  # a checker would take it for a promise that every name exists

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'holdfast.testing' has no attribute {name!r}")
        found = globals()[name] = getattr(_import_module(f"holdfast.testing.{_HOMES[name]}"), name)
        return found
