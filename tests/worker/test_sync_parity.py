"""`app.sync` is the same app for blocking code: the same verbs, the same signatures, the same answers."""

import asyncio
import inspect
import threading
from typing import Any

import psycopg
import pytest

from holdfast import (
    App,
    DatabaseUnreachable,
    KeyTaken,
    ResultTimeout,
    SyncApp,
    SyncRef,
    Tally,
    TaskNotFound,
    TaskParked,
    WrongState,
    named,
)
from holdfast._db.driver import connection as driver_connection
from holdfast._model.enqueue.ref import Ref
from holdfast.testing import Harness

from .support import running, until

SHARED = ["cancel", "close", "discard", "enqueue", "enqueue_many", "info", "ref", "result", "retry", "stop_workers"]
SHARED += ["again", "retry_many", "cancel_many", "discard_many", "explain", "pause", "resume", "failures"]


def parameters(function: Any) -> list[tuple[str, Any, Any, str]]:
    return [(p.name, p.kind, p.default, str(p.annotation)) for p in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize("verb", SHARED)
def test_the_signatures_are_the_same(verb: str) -> None:
    there, here = getattr(App, verb), getattr(SyncApp, verb)
    assert parameters(there) == parameters(here)
    assert not inspect.iscoroutinefunction(here)


@pytest.mark.parametrize("verb", ["result", "info", "cancel"])
def test_references_have_the_same_signatures(verb: str) -> None:
    assert parameters(getattr(Ref, verb)) == parameters(getattr(SyncRef, verb))


def test_no_public_verb_of_the_sync_app_is_missing_in_the_app() -> None:
    public = {name for name, value in vars(SyncApp).items() if callable(value) and not name.startswith("_")}
    assert public - {"ask"} <= {name for name in dir(App) if not name.startswith("_")}


async def test_the_answers_are_the_same(holdfast: Harness) -> None:
    @holdfast.app.task
    async def double(n: int) -> int:
        if n < 0:
            raise ValueError("negative")
        return 2 * n

    sync = holdfast.app.sync

    def blocking() -> None:
        ref = sync.enqueue(double.bind(4), key="four")
        assert ref.created
        again = sync.enqueue(double.bind(5), key="four")
        assert (again.created, again.id) == (False, ref.id)
        with pytest.raises(KeyTaken):
            sync.enqueue(double.bind(5), key="four", on_conflict="raise")
        with pytest.raises(ResultTimeout):
            ref.result(timeout=0.05)
        many = sync.enqueue_many([double.bind(n) for n in (1, -2)])
        sync.enqueue_many([double.bind(77), double.bind(77)], delay="1h")
        waiting.set()
        assert ref.result(timeout=60) == 8
        assert many[0].result(timeout=60) == 2
        with pytest.raises(TaskParked, match="negative"):
            many[1].result(timeout=60)
        sync.retry(many[1].id, args={"n": 3})
        assert sync.ref(many[1].id, double).result(timeout=60) == 6
        assert sync.info(ref.id).result == 8
        assert not sync.cancel(ref.id)
        later = sync.enqueue(double.bind(1), delay="1h")
        assert later.cancel("no")
        assert later.info().state == "cancelled"
        with pytest.raises(WrongState):
            sync.discard(ref.id)
        assert sync.info(sync.again(later.id, by="ann")).headers == {"holdfast-again": str(later.id)}
        assert sync.retry_many("state:parked") == Tally()
        assert sync.cancel_many("args.n:77").done == {"cancelled": 2}
        with pytest.raises(TaskNotFound):
            sync.info("01890a5d-ac96-774b-bcce-b302099a8057")

    waiting = threading.Event()
    caller = asyncio.create_task(asyncio.to_thread(blocking))
    await until(lambda: waiting.is_set() or caller.done(), "for the blocking calls")
    async with running(holdfast.worker()):
        await caller


def test_blocking_calls_give_up_when_no_answer_comes(holdfast: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is locked: to a caller, that is a server that has fallen silent."""
    monkeypatch.setattr(driver_connection, "CALL_TIMEOUT", 0.3)
    app = App(holdfast.url)
    kept = app.sync.enqueue(named("a", {}), queue="default")
    with psycopg.connect(holdfast.url) as other:
        other.execute("LOCK TABLE holdfast.task")
        for asked in (
            lambda: app.sync.enqueue(named("a", {}), queue="default"),
            lambda: app.sync.enqueue_many([named("a", {})] * 300, queue="default"),
            lambda: app.sync.explain(kept.id),
        ):
            with pytest.raises(DatabaseUnreachable, match=r"no answer for 0\.3 seconds"):
                asked()
    monkeypatch.undo()
    assert app.sync.explain(kept.id)
    assert app.sync.enqueue(named("a", {}), queue="default").created
    # What was given up was cancelled in the server as well.
    assert holdfast.sql("SELECT count(*) FROM holdfast.task") == [(2,)]
    app.sync.close()
