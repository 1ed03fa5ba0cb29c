"""Enqueues of many callers in one statement: those that come while a batch is under way are the next batch.

There is no timer, and a lone caller waits for nobody. Each caller gets an answer of its own: if the server refuses a
batch, its tasks are sent one by one; if an answer is lost, each caller learns that and asks again for itself. A caller
that goes away leaves the others alone: its task may then exist or not, as after any lost answer.

Only tasks without a key: one with a key waits for any open transaction that holds it, and all others would with it.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from uuid import UUID

import msgspec
from psycopg import OperationalError
from psycopg.errors import UniqueViolation
from psycopg.pq.abc import PGresult
from psycopg_pool import AsyncConnectionPool

from holdfast._db.driver.connection import CALL_TIMEOUT, DriverError
from holdfast._db.driver.facts import opening_queries
from holdfast._db.driver.pipeline import PipelinedConnection
from holdfast._db.errors import is_unknown, is_unusable, tell_no_hint
from holdfast._model.enqueue.request import Request
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query

MOST = 1000
"""Tasks in one batch."""
QUIET = 0.005
"""Seconds without an enqueue after which the next is taken for one of few, and its wake-up goes along with it."""
STREAM = 10
"""Batches without such a pause after which wake-ups are put off: the next one wakes for both."""
PUT_OFF = 0.01
"""Seconds for which that may go on."""
LARGEST = 4 * 1024 * 1024
"""Bytes of args after which a batch takes no more."""


class Alone(Exception):
    """The server refused the batch of this task, perhaps because of another task. Nothing of the batch was written."""


class _PendingEnqueue(msgspec.Struct, eq=False):
    """A task that a caller has asked for, and the future that the caller awaits."""

    task: Request
    durable: bool
    answer: "asyncio.Future[bool]"


class Coalescer:
    """Writes the tasks of one event loop, on a connection that it keeps."""

    _of: AsyncConnectionPool[Any]
    """Where the connection came from."""
    _loop: asyncio.AbstractEventLoop

    def __init__(self, queries: Queries, pool: Callable[[], Awaitable[AsyncConnectionPool[Any]]]) -> None:
        self._queries = queries
        self._pool = pool
        self._pipeline: PipelinedConnection | None = None
        self._closed = False
        self._opening = asyncio.Lock()
        self._waiting: list[_PendingEnqueue] = []
        self._flushed_at = -math.inf
        self._in_a_row = 0
        self._unwoken: set[str] = set()
        """Queues with tasks whose wake-up is still to be sent, after their commit."""
        self._woken_at = -math.inf
        self._first: dict[bool, list[Query[Any]]] = {}
        self._due = math.inf
        self._limit: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    async def enqueue(self, task: Request, *, durable: bool) -> bool:
        """Whether the task is new. Raises `Alone` if it must be sent by itself, and the driver's errors."""
        if self._pipeline is None or self._pipeline.broken:
            await self._open()
        pending = _PendingEnqueue(task, durable, self._loop.create_future())
        self._waiting.append(pending)
        if self._idle.is_set():
            self._idle.clear()
            # Not at once: callers that enqueue in this turn of the loop go into the same batch.
            self._loop.call_soon(self._flush)
        return await pending.answer

    async def close(self) -> None:
        """Waits for what is on its way and gives the connection back."""
        self._closed = True
        async with self._opening:
            try:
                while not self._idle.is_set():
                    await self._idle.wait()
            except BaseException:
                if self._pipeline is not None:
                    self._pipeline.close()
                raise
            finally:
                await self._drop()

    async def _open(self) -> None:
        async with self._opening:
            if self._pipeline is not None and not self._pipeline.broken:
                return
            await self._drop()
            self._loop = asyncio.get_running_loop()
            pool = self._of = await self._pool()
            pipeline = self._pipeline = PipelinedConnection(await pool.getconn(CALL_TIMEOUT))
            try:
                self._first = {
                    durable: opening_queries(pipeline.connection, self._queries, durable) for durable in (True, False)
                }
                async with asyncio.timeout(CALL_TIMEOUT):
                    await pipeline.prepare(self._queries.for_enqueue)
                if self._closed:
                    raise OperationalError("the app was closed meanwhile")
                self._wake(pipeline)  # for what was committed before the last connection broke
            except BaseException as error:
                if not isinstance(error, DriverError):
                    pipeline.close()  # the server may never answer, and a cancelled caller must not wait for it
                await self._drop()
                raise

    async def _drop(self) -> None:
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is None:
            return
        try:
            self._wake(pipeline)
            async with asyncio.timeout(CALL_TIMEOUT):
                await pipeline.release()
        except (DriverError, TimeoutError):
            pipeline.close()
        except BaseException:
            pipeline.close()  # in pipeline mode, nothing else could use the connection
            raise
        finally:
            await self._of.putconn(pipeline.connection)

    def _flush(self) -> None:
        batch, pipeline = self._next_batch(), self._pipeline
        if not batch:
            if pipeline is not None:
                self._wake(pipeline)
            self._rest()
            return
        if pipeline is None:
            self._answer(batch, [], OperationalError("the connection was closed"))
            return
        moment = self._loop.time()
        rested, self._flushed_at = moment - self._flushed_at > QUIET, moment
        self._due = moment + CALL_TIMEOUT
        if self._limit is None:
            self._watch()
        self._in_a_row = 0 if rested else self._in_a_row + 1
        queues: set[str] = {pending.task.queue for pending in batch} if rested else set()
        try:
            if len(queues) == 1:
                self._send_with_wake_up(pipeline, batch, *queues)
            else:
                self._send(pipeline, batch)
        except Exception as error:
            self._answer(
                batch, [], error
            )  # a value that cannot be sent: without an answer every caller would wait for ever
        if self._in_a_row < STREAM or moment - self._woken_at > PUT_OFF:
            self._woken_at = moment
            self._wake(pipeline)

    def _rest(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
        self._idle.set()

    def _watch(self) -> None:
        """Gives up a connection that does not answer. One timer for many batches, set anew only when it has run out."""
        moment = self._loop.time()
        if moment < self._due:
            self._limit = self._loop.call_at(min(self._due, moment + CALL_TIMEOUT), self._watch)
            return
        self._limit = None
        if self._pipeline is not None:
            self._pipeline.close(TimeoutError("no answer"))

    def _send(self, pipeline: PipelinedConnection, batch: list[_PendingEnqueue]) -> None:
        """Writes a batch. Workers are to be woken after its commit."""
        self._unwoken.update([pending.task.queue for pending in batch])
        pipeline.send(self._writes(batch), partial(self._answer, batch))

    def _send_with_wake_up(self, pipeline: PipelinedConnection, batch: list[_PendingEnqueue], queue: str) -> None:
        """Writes a batch of one queue, and along with it wakes a worker that may be asleep already."""
        along = self._queries.notify_along(queue, batch[0].task.id if len(batch) == 1 else None)

        def answered(results: list[PGresult], error: BaseException | None) -> None:
            if error is not None and not is_unknown(error):
                # Nothing was written. Perhaps notifications do not work just now: that must not stop an enqueue.
                self._send(pipeline, batch)
                self._wake(pipeline)
                return
            if error is None and not results.pop().ntuples:
                self._unwoken.add(queue)
                self._wake(pipeline)
            self._answer(batch, results, error)

        pipeline.send([*self._writes(batch), along], answered)

    def _wake(self, pipeline: PipelinedConnection) -> None:
        """Wakes workers in a transaction of its own, after what was sent before: it must see what is committed then."""
        if self._unwoken and not pipeline.broken:
            queues, self._unwoken = self._unwoken, set()
            pipeline.send([self._queries.notify_if_idle(queue) for queue in queues], _wake_up_answered)

    def _writes(self, batch: list[_PendingEnqueue]) -> list[Query[Any]]:
        """What writes a batch, after the queries that must come first on its connection."""
        first = self._first[batch[0].durable]
        if len(batch) == 1 and batch[0].task.bare:
            return [*first, self._queries.enqueue_bare(batch[0].task)]
        by_queue: dict[str, list[Request]] = {}
        for pending in batch:
            by_queue.setdefault(pending.task.queue, []).append(pending.task)
        return [*first, *(self._write(queue, group) for queue, group in sorted(by_queue.items()))]

    def _write(self, queue: str, tasks: list[Request]) -> Query[Any]:
        if len(tasks) == 1:
            return self._queries.enqueue(tasks[0])
        first = tasks[0].others
        if all(task.others == first for task in tasks):
            return self._queries.enqueue_alike(tasks)
        return self._queries.enqueue_many(queue, tasks)

    def _next_batch(self) -> list[_PendingEnqueue]:
        """As many as go together; those whose caller has gone away are left out."""
        if len(self._waiting) == 1 and not self._waiting[0].answer.done():
            alone, self._waiting = self._waiting, []
            return alone
        batch: list[_PendingEnqueue] = []
        left: list[_PendingEnqueue] = []
        size = 0
        for pending in self._waiting:
            if pending.answer.done():
                continue
            full = len(batch) == MOST or size > LARGEST
            if full or (batch and pending.durable != batch[0].durable):
                left.append(pending)
            else:
                batch.append(pending)
                size += len(pending.task.args)
        self._waiting = left
        return batch

    def _answer(self, batch: list[_PendingEnqueue], results: list[PGresult], error: BaseException | None) -> None:
        self._due = math.inf
        if error is None:
            new = _new_ids(results[len(self._first[batch[0].durable]) :], len(batch))
            for pending in batch:
                if not pending.answer.done():
                    pending.answer.set_result(new is None or pending.task.id in new)
        else:
            if self._pipeline is not None and is_unusable(error):
                self._pipeline.close()
            refused = isinstance(error, UniqueViolation) or (len(batch) > 1 and not is_unknown(error))
            for pending in batch:
                if not pending.answer.done():
                    pending.answer.set_exception(Alone() if refused else error)
        # After the callers that have just been answered: they may want the next.
        self._loop.call_soon(self._flush)


def _new_ids(results: list[PGresult], count: int) -> set[UUID] | None:
    """The ids that were new; None if all were."""
    if sum([result.command_tuples or 0 for result in results]) == count:
        return None
    found = [result.get_value(row, 0) for result in results for row in range(result.ntuples)]
    return {UUID(bytes=value) for value in found if value is not None}


def _wake_up_answered(results: list[PGresult], error: BaseException | None) -> None:
    if error is not None:
        tell_no_hint(error)
