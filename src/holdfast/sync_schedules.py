"""`app.sync.schedules`: the schedules of the database for blocking code."""

from collections.abc import Callable, Coroutine, Sequence
from contextlib import closing
from datetime import datetime
from typing import Any, Protocol, TypeVar
from uuid import UUID

from typing_extensions import Unpack

from holdfast._db.background_loop import BackgroundLoop
from holdfast._db.callers import run_on_sync
from holdfast._model.enqueue.call import Call, StepValue
from holdfast._model.time.plan_times import Answers, Plans, Question, ask, ask_async, is_async
from holdfast._model.time.schedule import Schedule, When
from holdfast._sql.plans import Plan
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query
from holdfast.schedules import Backfill, OccurrenceInfo, ScheduleInfo, Schedules, SetOptions

T = TypeVar("T")


class BlockingScheduleApp(Protocol):
    """What an `app.sync` lends to its schedules."""

    @property
    def _queries(self) -> Queries: ...
    @property
    def _schedules(self) -> dict[str, Schedule]: ...
    def _run(self, query: Query[T]) -> T: ...
    def _together(self, plan: Plan[T], wake: Callable[[T], set[str]]) -> T: ...


class SyncSchedules:
    """The methods of `Schedules` for blocking code: `app.sync.schedules.pause("nightly")`.

    With `conn=`, a change is made in that connection's transaction: it holds once that commits.
    """

    def __init__(self, app: BlockingScheduleApp) -> None:
        self._schedules = _Blocking(_Answering(app))

    def all(self, *, above: str | None = None, limit: int = 1000) -> list[ScheduleInfo]:
        """As `Schedules.all`, blocking."""
        return _answer(self._schedules.all(above=above, limit=limit))

    def get(self, name: str) -> ScheduleInfo:
        """As `Schedules.get`, blocking."""
        return _answer(self._schedules.get(name))

    def next(self, name: str, number: int = 10, *, after: datetime | None = None, scope: str = "") -> list[datetime]:
        """As `Schedules.next`, blocking."""
        return _answer(self._schedules.next(name, number, after=after, scope=scope))

    def set(
        self,
        name: str,
        when: When,
        what: Call[Any] | StepValue,
        /,
        *,
        by: str | None = None,
        why: str | None = None,
        conn: object = None,
        **options: Unpack[SetOptions],
    ) -> str:
        """As `Schedules.set`, blocking."""
        return _answer(self._schedules.set(name, when, what, by=by, why=why, conn=conn, **options))

    def pause(self, name: str, *, by: str | None = None, why: str | None = None, conn: object = None) -> str:
        """As `Schedules.pause`, blocking."""
        return _answer(self._schedules.pause(name, by=by, why=why, conn=conn))

    def resume(self, name: str, *, by: str | None = None, why: str | None = None, conn: object = None) -> str:
        """As `Schedules.resume`, blocking."""
        return _answer(self._schedules.resume(name, by=by, why=why, conn=conn))

    def delete(self, name: str, *, by: str | None = None, why: str | None = None, conn: object = None) -> bool:
        """As `Schedules.delete`, blocking."""
        return _answer(self._schedules.delete(name, by=by, why=why, conn=conn))

    def fire(
        self,
        name: str,
        *,
        plan_time: datetime | None = None,
        scope: str | None = None,
        by: str | None = None,
        why: str | None = None,
        conn: object = None,
    ) -> list[UUID]:
        """As `Schedules.fire`, blocking."""
        fired = self._schedules.fire(name, plan_time=plan_time, scope=scope, by=by, why=why, conn=conn)
        return _answer(fired)

    def occurrences(
        self, name: str, *, scope: str | None = None, before: datetime | None = None, limit: int = 50
    ) -> list[OccurrenceInfo]:
        """As `Schedules.occurrences`, blocking."""
        return _answer(self._schedules.occurrences(name, scope=scope, before=before, limit=limit))

    def backfill(
        self,
        name: str,
        since: datetime,
        until: datetime,
        *,
        dry_run: bool = False,
        by: str | None = None,
        why: str | None = None,
    ) -> Backfill:
        """As `Schedules.backfill`, blocking."""
        return _answer(self._schedules.backfill(name, since, until, dry_run=dry_run, by=by, why=why))


class _Blocking(Schedules):
    """Schedules of which nothing waits: on blocking connections, with functions called right here."""

    async def _act(self, query: Query[T], conn: object) -> T:
        return await self._app._run(query) if conn is None else run_on_sync(conn, query)

    async def _asked(self, plans: Plans, questions: Sequence[Question]) -> Answers:
        if not is_async(plans):
            return ask(plans, questions)
        with closing(BackgroundLoop("holdfast-plans")) as aside:
            return aside.wait_for(ask_async(plans, questions), None)


class _Answering:
    """A blocking app as `Schedules` wants it: what it awaits has its answer already."""

    def __init__(self, app: BlockingScheduleApp) -> None:
        self._app = app

    @property
    def _queries(self) -> Queries:
        return self._app._queries

    @property
    def _schedules(self) -> dict[str, Schedule]:
        return self._app._schedules

    async def _run(self, query: Query[T]) -> T:
        return self._app._run(query)

    async def _together(self, plan: Plan[T], wake: Callable[[T], set[str]]) -> T:
        return self._app._together(plan, wake)


def _answer(asked: Coroutine[Any, Any, T]) -> T:
    """What a coroutine that never waits comes to."""
    try:
        asked.send(None)
    except StopIteration as end:
        answer: T = end.value
        return answer
    asked.close()
    raise RuntimeError(f"{asked!r} waits for something that is not there yet")
