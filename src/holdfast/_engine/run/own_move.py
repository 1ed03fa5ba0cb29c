"""`ctx.move`: the move to the next step, written in a transaction of the step's own.

The statement and its fence are those of the settler; only the connection is the user's. Whether it was committed is
found out when the step has ended.
"""

from datetime import timedelta
from functools import partial
from typing import Any

import msgspec

from holdfast._db.callers import run_on, run_on_sync
from holdfast._engine.run.attempt import Attempt
from holdfast._engine.settle.ending import Ending, MaybeRecorded
from holdfast._engine.settle.statements import StatementGroup, write
from holdfast._model.declare.tasks import Tasks
from holdfast._model.json.codec import simple_error
from holdfast._model.run.context import Context
from holdfast._model.run.outcome import Advanced, Failed, Finished, Outcome
from holdfast._model.run.outcome_of import outcome_of_return
from holdfast._sql import plans
from holdfast._sql.queries import Queries
from holdfast.errors import DeclarationError, LeaseLost


class Moves:
    """Writes moves for the steps of one worker."""

    def __init__(self, queries: Queries, tasks: Tasks) -> None:
        self._queries = queries
        self._tasks = tasks

    async def move(self, ctx: Context, attempt: Attempt, next: Any, conn: object) -> None:
        """Writes the move on an asynchronous connection."""
        attempt.moved = next, await plans.drive(self._plan(ctx, attempt, next), partial(run_on, conn))

    def move_sync(self, ctx: Context, attempt: Attempt, next: Any, conn: object) -> None:
        """Writes the move on a blocking connection."""
        attempt.moved = next, plans.drive_sync(self._plan(ctx, attempt, next), partial(run_on_sync, conn))

    def _plan(self, ctx: Context, attempt: Attempt, next: Any) -> plans.Plan[Ending]:
        if attempt.moved is not None:
            raise DeclarationError("ctx.move was called twice in one attempt: a task makes one move at a time")
        if attempt.transaction is not None:
            raise DeclarationError(
                "ctx.move is for a transaction of your own: a step with transactional=True returns the next step, "
                "and both commit together"
            )
        outcome = outcome_of_return(self._tasks, attempt.definition, next)
        if isinstance(outcome, Advanced) and attempt.moves >= attempt.definition.max_moves:
            raise DeclarationError(
                f"ctx.move: the task has made {attempt.moves} moves, and that is max_moves: does it loop?"
            )
        if not isinstance(outcome, (Advanced, Finished)):
            raise DeclarationError(f"ctx.move: {_message(outcome)}")
        ending = Ending(attempt, outcome)
        statement = "advance" if isinstance(outcome, Advanced) else "finish"
        # Not kept: another worker may go on as soon as the transaction commits.
        group = StatementGroup(attempt.queue, attempt.worker_id, statement, [ending], [ending])
        query = write(self._queries, self._tasks, timedelta(0), group)
        yield from _needs_transaction(self._queries)
        # An error would end the user's transaction.
        yield self._queries.ensure_today()
        requests = ctx._enqueued or ()
        children = yield from plans.new_tasks(self._queries, requests)
        written = yield from plans.settle_with_children(self._queries, query, children)
        if not written:
            raise LeaseLost(
                f"attempt {attempt.number} no longer holds its task, or the task was cancelled: nothing was written. "
                "Let this error pass, and roll your transaction back"
            )
        for queue in sorted({attempt.queue, *(child.queue for child in children)}):
            yield self._queries.notify(queue)
        return ending


def _needs_transaction(queries: Queries) -> plans.Plan[None]:
    """Refuses a connection that commits each statement by itself: the move would not commit with anything else.

    The server is asked, whatever the library is: what a statement has written is forgotten by the next one, or not.
    """
    if not (yield queries.has_written()):
        yield queries.begin_to_write()
        if not (yield queries.has_written()):
            raise DeclarationError(
                "ctx.move: this connection is not in a transaction, but commits each statement by itself (autocommit). "
                "Begin a transaction on it, write into it what belongs to this step, and commit it after ctx.move"
            )


def raised_after_move(attempt: Attempt, outcome: Outcome) -> MaybeRecorded:
    """The step moved by itself and then raised: the move counts if it was committed, else what was raised."""
    ending: Ending = attempt.moved[1]
    ending.otherwise = outcome
    return MaybeRecorded(ending)


def returned_after_move(attempt: Attempt, returned: Any) -> MaybeRecorded:
    """The step moved by itself and returned: the move counts if it was committed."""
    value, ending = attempt.moved
    why = (
        "the transaction given to ctx.move was not committed when the step ended: commit it before you return"
        if returned is value
        else "it called ctx.move and then returned something else: return what ctx.move gives"
    )
    name = f"{attempt.kind}.{attempt.step}"
    ending.otherwise = Failed(simple_error("holdfast.errors.DeclarationError", f"{name}: {why}"))
    return MaybeRecorded(ending)


def _message(outcome: Any) -> str:
    error = msgspec.json.decode(outcome.error, type=dict[str, Any]) if isinstance(outcome, Failed) else {}
    return str(error.get("message", "this is not a step to move to"))
