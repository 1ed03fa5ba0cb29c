"""Steps with `transactional=True`: what they write, and the record of their outcome, commit together or not at all.

The fence is asked only at the end, by the write of the outcome: a row locked at the beginning would hold up beats and
everybody else. Nothing commits unless the step returned; every other outcome rolls back and is recorded by the settler.
"""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeAlias, TypeVar

from holdfast._db.connection import (
    is_contended,
    is_in_failed_transaction,
    is_missing_partition,
    is_passing,
    is_unknown,
)
from holdfast._db.transactions import StepTransaction, Transactions
from holdfast._engine.attempt import Attempt, now
from holdfast._engine.ending import Ending, Recorded, Times, Unsure
from holdfast._engine.execution import Execution, fields
from holdfast._engine.settle import Settler
from holdfast._engine.writing import groups, write
from holdfast._model.codec import simple_error
from holdfast._model.conclude import outcome_of_error
from holdfast._model.outcome import Advanced, Cancelled, Failed, Finished, Outcome, Released
from holdfast._model.tasks import Tasks
from holdfast._sql import plans
from holdfast._sql.queries import Queries
from holdfast.errors import EnqueueRefused

log = logging.getLogger("holdfast.worker")

T = TypeVar("T")

RERUNS = 5
"""How often a step is executed anew because its transaction met another one, before it is given back for a while."""
REST_SECONDS = 1.0

_CLOSED = (
    "it closed the connection of its transaction, and everything is rolled back. Leave ctx.tx open, and do not write "
    "`with ctx.tx`: the worker commits when the step has returned"
)
_CAUGHT = (
    "(An error was caught inside of it, and PostgreSQL takes nothing more after one. Let it pass, or put what may fail "
    "into a savepoint: ctx.tx.transaction(), ctx.tx_sync.transaction().)"
)

Answer: TypeAlias = Outcome | Recorded | Unsure | None


class _MetAnother(Exception):
    """Another transaction was in the way: the step is to run again."""


class TransactionalSteps:
    """Executes the transactional steps of one worker."""

    def __init__(
        self,
        transactions: Transactions,
        queries: Queries,
        tasks: Tasks,
        execution: Execution,
        settler: Settler,
        *,
        lease: float,
    ) -> None:
        self._transactions = transactions
        self._queries = queries
        self._tasks = tasks
        self._execution = execution
        self._settler = settler
        self._lease = timedelta(seconds=lease)

    async def execute(self, attempt: Attempt) -> Answer:
        """Runs an attempt in a transaction. Gives what the settler is to record, if anything is left to record."""
        for _ in range(RERUNS):
            try:
                return await self._once(attempt)
            except _MetAnother:
                attempt.children, attempt.raised = (), None
        log.info("%s met other transactions %s times: it rests a while", attempt, RERUNS, extra=fields(attempt))
        return Released(delay=REST_SECONDS)

    async def _once(self, attempt: Attempt) -> Answer:
        step = attempt.definition
        made = self._transactions.for_loop() if step.is_async else self._transactions.for_thread()
        transaction = await made
        try:
            await _to_the_end(transaction.begin())
        except Exception as error:
            log.warning("no transaction for %s: %s", attempt, error, extra=fields(attempt))
            return Released(delay=REST_SECONDS) if is_passing(error) else outcome_of_error(step, error, attempt.errors)
        attempt.transaction = transaction
        outcome = await self._execution.execute(attempt)
        if isinstance(outcome, (Advanced, Finished)):
            return await _to_the_end(self._record(transaction, attempt, outcome))
        await _to_the_end(transaction.roll_back(drop=attempt.lingering))
        if attempt.raised is not None and is_contended(attempt.raised) and attempt.interruption is None:
            raise _MetAnother
        return outcome

    async def _record(self, transaction: StepTransaction, attempt: Attempt, outcome: Outcome) -> Answer:
        """Writes the outcome in the step's transaction, and commits both."""
        connection = transaction.tx or transaction.tx_sync
        if connection is not None and connection.closed and not connection.broken:
            await transaction.roll_back()
            name = f"{attempt.kind}.{attempt.step}"
            return Failed(simple_error("holdfast.errors.DeclarationError", f"{name}: {_CLOSED}"))
        ending = Ending(attempt, outcome)
        try:
            answer = await self._write(transaction, ending)
            if not answer:
                # Cancelled meanwhile, or lost: the settler, with the same fence, will find out which.
                await transaction.roll_back()
                self._settler.keeper.forget(ending)
                return Cancelled("")
        except EnqueueRefused as error:
            await transaction.roll_back()
            return self._settler.refusal(ending, error)
        except Exception as error:
            await transaction.roll_back(drop=is_unknown(error))
            if is_missing_partition(error):
                await self._settler.make_partitions()
                self._settler.keeper.forget(ending)
                raise _MetAnother from error
            return self._failed(ending, error)
        try:
            await transaction.commit()
        except Exception as error:
            if is_unknown(error):
                # Committed or not, nobody can tell: then the log says so, and else the step runs again.
                ending.otherwise = Released()
                return Unsure(ending)
            return self._failed(ending, error)
        with suppress(Exception):  # a notification is only a hint
            await self._settler.tell_enqueued([ending])
        return Recorded(ending, answer[attempt.id])

    async def _write(self, transaction: StepTransaction, ending: Ending) -> Times:
        requests = ending.attempt.children
        ending.children = await plans.drive(plans.new_tasks(self._queries, requests), transaction.run)
        await self._settler.keeper.look([ending])
        (group,) = groups([ending], self._settler.keeper)
        query = write(self._queries, self._tasks, self._lease, group, with_children=False)
        rules: list[plans.OnConflict] = [request.on_conflict for request in requests]
        ending.sent = now()
        plan = plans.settle_with_children(self._queries, query, list(zip(ending.children, rules, strict=True)))
        return await plans.drive(plan, transaction.run)

    def _failed(self, ending: Ending, error: Exception) -> Outcome:
        """The transaction was rolled back: run it again, give it back, or charge the step with its error."""
        self._settler.keeper.forget(ending)
        if is_contended(error):
            raise _MetAnother from error
        if is_passing(error):
            return Released(delay=REST_SECONDS)
        if is_in_failed_transaction(error):
            error.add_note(_CAUGHT)
        return outcome_of_error(ending.attempt.definition, error, ending.attempt.errors)


async def _to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Awaits something that must not be broken off: an interruption of the attempt comes too late by now."""
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
        except Exception:
            break
    return task.result()
