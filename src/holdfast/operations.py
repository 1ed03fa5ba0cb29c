"""The verbs of operators as methods of `App`; `app.sync` has the same for blocking code. `verbs` has their rules."""

from abc import ABC, abstractmethod
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from typing_extensions import Unpack

from holdfast import insights, verbs
from holdfast._model.enqueue.ids import as_uuid
from holdfast._model.time.duration import Duration
from holdfast._sql import history, plans
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query
from holdfast._sql.repair import Tally, in_batches
from holdfast.errors import WrongState
from holdfast.verbs import ManyOptions, RetryManyOptions

T = TypeVar("T")


class Operations(ABC):
    """The verbs of operators."""

    @property
    @abstractmethod
    def _queries(self) -> Queries: ...

    @abstractmethod
    async def _run(self, query: Query[T]) -> T: ...

    async def cancel(self, id: UUID | str, reason: str = "", /, *, by: str | None = None) -> bool:
        """Cancels a task: at once, or by telling its step if it is running. False if it had already ended."""
        try:
            await self._run(verbs.cancel(self._queries, id, by=by, why=reason or None))
        except WrongState:
            return False
        return True

    async def retry(
        self,
        id: UUID | str,
        /,
        *,
        args: dict[str, Any] | None = None,
        step: str | None = None,
        by: str | None = None,
        why: str | None = None,
        expected_attempt: int | None = None,
        force: bool = False,
    ) -> None:
        """Resumes a parked task with a fresh budget, also with repaired args or at another step.

        A step that nobody knows, neither a live worker nor the declared kind, is refused unless `force` is given.
        """
        query = verbs.retry(
            self._queries, id, args=args, step=step, force=force, expected_attempt=expected_attempt, by=by, why=why
        )
        await self._run(query)

    async def discard(self, id: UUID | str, /, *, by: str | None = None, why: str | None = None) -> None:
        """Gives a parked task up."""
        await self._run(verbs.discard(self._queries, id, by=by, why=why))

    async def again(self, id: UUID | str, /, *, by: str | None = None, why: str | None = None) -> UUID:
        """Enqueues a task that has ended anew, a cancelled one perhaps, and answers the new one's id.

        The new one begins at the step where the old one ended, with the same args. Its header `holdfast-again` has the
        old one's id.
        """
        return await self._run(verbs.again(self._queries, id, by=by, why=why))

    async def retry_many(self, filter: str, /, **options: Unpack[RetryManyOptions]) -> Tally:
        """Resumes all parked tasks that a filter lets through, as `retry` does one.

        Tasks that wait for their next attempt too, if the filter says a state. `rate` is a number of tasks per second:
        all are written at once, and due one after another. `limit`: at most so many. `dry_run` only counts. `progress`
        is called after each batch; what it raises ends everything, and what was done stays done.
        """
        return await plans.drive(in_batches(self._queries, verbs.many("retry", filter, **options)), self._run)

    async def cancel_many(self, filter: str, /, **options: Unpack[ManyOptions]) -> Tally:
        """Cancels all unfinished tasks that a filter lets through. More on the options: `retry_many`."""
        return await plans.drive(in_batches(self._queries, verbs.many("cancel", filter, **options)), self._run)

    async def discard_many(self, filter: str, /, **options: Unpack[ManyOptions]) -> Tally:
        """Gives up all parked tasks that a filter lets through. More on the options: `retry_many`."""
        return await plans.drive(in_batches(self._queries, verbs.many("discard", filter, **options)), self._run)

    async def stop_workers(
        self, worker: UUID | str | None = None, /, *, by: str | None = None, why: str | None = None
    ) -> int:
        """Asks one worker, or all, to stop; tells how many were asked."""
        return await self._run(verbs.stop_workers(self._queries, worker, by=by, why=why))

    async def pause(self, name: str, *, what: str | None = None, by: str | None = None, why: str | None = None) -> str:
        """Pauses a queue or a kind: none of its tasks is claimed until it is resumed; running steps finish.

        `what` says which is meant, if the name is both or that of a queue not used yet. Answers "paused".
        """
        return await self._run(verbs.pause(self._queries, name, what=what, by=by, why=why))

    async def resume(self, name: str, *, what: str | None = None, by: str | None = None, why: str | None = None) -> str:
        """Lets the tasks of a paused queue or kind be claimed again. Answers "resumed" or "not paused"."""
        return await self._run(verbs.resume(self._queries, name, what=what, by=by, why=why))

    async def set_queue(
        self, name: str, *, retention: Duration | None = None, by: str | None = None, why: str | None = None
    ) -> None:
        """Changes settings of a queue.

        `retention`: how long its finished tasks and their attempts are kept, a day at least; "default": as all others.
        """
        await self._run(verbs.set_queue(self._queries, name, retention=retention, by=by, why=why))

    async def set_default(
        self,
        *,
        retention: Duration | None = None,
        figures: Duration | None = None,
        by: str | None = None,
        why: str | None = None,
    ) -> None:
        """Changes what holds for all queues that say nothing else; a `retention` of "default" is 7 days.

        `figures`: how long figures are kept, whatever becomes of the history; "default" is 30 days.
        """
        await self._run(verbs.set_default(self._queries, retention=retention, figures=figures, by=by, why=why))

    async def retention(self, queue: str | None = None, /) -> timedelta:
        """How long finished tasks of a queue are kept at least; without a name, what holds for all."""
        return await self._run(history.retention(self._queries, queue))

    async def explain(self, id: UUID | str, /) -> str:
        """Why a task is not running, or how it stands, in one sentence."""
        return await self._run(insights.explain(self._queries, as_uuid(id)))
