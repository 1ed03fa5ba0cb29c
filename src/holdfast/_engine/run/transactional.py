"""Steps with `transactional=True`: what they write, and the record of their outcome, commit together or not at all.

The fence is checked only at the end, by the write of the outcome: a row locked at the beginning would hold up
heartbeats and other sessions. Nothing commits unless the step returned; every other outcome rolls back and is
recorded by the settler.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeAlias, TypeVar

from holdfast._db.errors import (
    is_contended,
    is_full,
    is_in_failed_transaction,
    is_missing_partition,
    is_outdated,
    is_passing,
    is_unknown,
    pause_after,
)
from holdfast._db.transactions import StepTransaction, Transactions
from holdfast._engine.run.attempt import Attempt, fields, now
from holdfast._engine.run.executor import Executor
from holdfast._engine.settle.ending import AlreadyRecorded, Ending, MaybeRecorded, Times
from holdfast._engine.settle.settlement import Settlement
from holdfast._engine.settle.statements import groups
from holdfast._model.json.codec import simple_error
from holdfast._model.run.outcome import Advanced, Cancel, Cancelled, Fail, Failed, Finished, Outcome, Released, Snooze
from holdfast._model.run.outcome_of import outcome_of_error
from holdfast._model.safe_log import Log
from holdfast._sql import plans

log = Log("holdfast.worker")

T = TypeVar("T")

RUNS = 5
"""How often a step is executed in one attempt because its transaction met others or broke, before that is its error."""
LONGEST_PAUSE = 1.0
REST_SECONDS = 1.0

_CLOSED = (
    "it closed the connection of its transaction, and everything is rolled back. Leave ctx.tx open, and do not write "
    "`with ctx.tx`: the worker commits when the step has returned"
)
_CAUGHT = (
    "(An error was caught inside of it, and PostgreSQL takes nothing more after one. Let it pass, or put what may fail "
    "into a savepoint: ctx.tx.transaction(), ctx.tx_sync.transaction().)"
)
_MET_OTHERS = "(Each of {runs} runs met another transaction, and was rolled back.)"
_BROKEN = (
    "(Each of {runs} runs lost its connection, and was rolled back. Does the step wait inside of its transaction for "
    "longer than idle_in_transaction_session_timeout allows, or does what it asks for end its session?)"
)
_OUTLASTED = (
    "(The step has raised the isolation level of its transaction, and it lasts longer than a beat: what it met is the "
    "renewal of its own lease. Keep the transaction short, with what takes long in a step before it; or leave the "
    "isolation level as it is, and lock the rows that must not change: SELECT … FOR UPDATE.)"
)

Answer: TypeAlias = Outcome | AlreadyRecorded | MaybeRecorded | None


class _RolledBack(Exception):
    """Another transaction was in the way, or the connection broke: the step is to run again."""

    def __init__(self, error: BaseException, why: str = _MET_OTHERS) -> None:
        self.error = error
        self.why = why


class TransactionalSteps:
    """Executes the transactional steps of one worker."""

    def __init__(self, transactions: Transactions, executor: Executor, settlement: Settlement) -> None:
        self._transactions = transactions
        self._executor = executor
        self._settlement = settlement

    async def execute(self, attempt: Attempt) -> Answer:
        """Runs an attempt in a transaction. Gives what the settler is to record, if anything is left to record."""
        for run in range(1, RUNS):
            try:
                return await self._once(attempt)
            except _RolledBack:
                attempt.children, attempt.raised, attempt.told = (), None, None
            await _to_the_end(asyncio.sleep(pause_after(run, longest=LONGEST_PAUSE)))
        try:
            return await self._once(attempt)
        except _RolledBack as last:
            last.error.add_note(last.why.format(runs=RUNS))
            return outcome_of_error(attempt.definition, last.error, attempt.errors)

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
        outcome = await self._executor.execute(attempt)
        if isinstance(outcome, (Advanced, Finished)):
            return await _to_the_end(self._record(transaction, attempt, outcome))
        broke = _is_broken(transaction)
        await _to_the_end(transaction.roll_back(drop=attempt.lingering))
        if attempt.raised is not None and attempt.interruption is None:
            if broke and not isinstance(attempt.raised, (Fail, Snooze, Cancel)):
                raise _RolledBack(attempt.raised, _BROKEN)
            if is_contended(attempt.raised):
                raise _RolledBack(attempt.raised)
            if is_full(attempt.raised):
                log.warning("%s is given back: %s", attempt, attempt.raised, extra=fields(attempt))
                return Released(delay=REST_SECONDS)
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
                self._settlement.keeper.forget(ending)
                return Cancelled("")
        except Exception as error:
            broke = _is_broken(transaction)
            await transaction.roll_back(drop=is_unknown(error))
            if broke:
                # Not given back without end: what the step does may be what breaks it.
                self._settlement.keeper.forget(ending)
                raise _RolledBack(error, _BROKEN) from error
            if is_missing_partition(error):
                try:
                    await self._settlement.partitions.make()
                except Exception as trouble:
                    return self._failed(ending, trouble)
                self._settlement.keeper.forget(ending)
                raise _RolledBack(error) from error
            if is_outdated(error):
                error.add_note(_OUTLASTED)
            return self._failed(ending, error)
        try:
            await transaction.commit()
        except Exception as error:
            if is_unknown(error):
                # Committed or not? The settler reads the log, and if it was not, the step runs again.
                ending.otherwise = Released()
                return MaybeRecorded(ending)
            return self._failed(ending, error)
        await self._settlement.enqueued([ending])
        return AlreadyRecorded(ending, answer[attempt.id])

    async def _write(self, transaction: StepTransaction, ending: Ending) -> Times:
        children = plans.new_tasks(self._settlement.queries, ending.attempt.children)
        ending.children = await plans.drive(children, transaction.run)
        # On this connection too: one that waits for another while it holds its own can stop a small pool.
        await self._settlement.keeper.read_obstacles([ending], transaction.run)
        (group,) = groups([ending], [ending], self._settlement.keeper)
        query = self._settlement.statement(group)
        ending.sent = now()
        plan = plans.settle_with_children(self._settlement.queries, query, ending.children)
        return await plans.drive(plan, transaction.run)

    def _failed(self, ending: Ending, error: Exception) -> Outcome:
        """The transaction was rolled back: run it again, give it back, or charge the step with its error."""
        self._settlement.keeper.forget(ending)
        if is_contended(error):
            raise _RolledBack(error) from error
        if is_passing(error):
            return Released(delay=REST_SECONDS)
        if is_in_failed_transaction(error):
            error.add_note(_CAUGHT)
        return outcome_of_error(ending.attempt.definition, error, ending.attempt.errors)


def _is_broken(transaction: StepTransaction) -> bool:
    """Whether the server or the network has ended the connection; not the step, nor we."""
    connection = transaction.tx or transaction.tx_sync
    return connection is not None and connection.broken


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
