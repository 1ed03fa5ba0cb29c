"""What follows when something was written: who goes on, who is told, who looks again."""

from collections.abc import Callable, Collection

from holdfast._db.driver.session import Link
from holdfast._db.errors import tell_no_hint
from holdfast._engine.claim.claimer import Claimer
from holdfast._engine.observe.failure_hooks import Hooks
from holdfast._engine.observe.notifications import News
from holdfast._engine.observe.task_log import tell_recorded
from holdfast._engine.run.dispatcher import Dispatch
from holdfast._engine.settle.ending import Ending, continued
from holdfast._model.declare.tasks import Tasks
from holdfast._model.run.outcome import Cancelled, Failed, Finished
from holdfast._sql.queries import Queries
from holdfast._sql.rows import Reaped


class Aftermath:
    """What follows in one worker."""

    def __init__(
        self,
        link: Link,
        queries: Queries,
        tasks: Tasks,
        *,
        queues: Collection[str],
        claimer: Claimer,
        dispatch: Dispatch,
        hooks: Hooks,
        news: News,
    ) -> None:
        self._link = link
        self._queries = queries
        self._tasks = tasks
        self._queues = queues
        self._claimer = claimer
        self._dispatch = dispatch
        self._hooks = hooks
        self._news = news
        self.tells = False
        """Whether somebody reads what is logged of each attempt."""
        self.count: Callable[[Ending], None] | None = None
        """Who counts attempts, if anybody does."""

    def recorded(self, ending: Ending, claimed_at: float | None) -> None:
        """An outcome is recorded."""
        if self.tells:
            tell_recorded(ending)
        if self.count is not None:
            self.count(ending)
        if ending.attempt.crashes:
            self._claimer.wake()  # the next suspect may come
        if ending.kept and claimed_at is not None:
            self._dispatch.go_on(continued(ending, self._tasks, claimed_at))
        elif isinstance(ending.outcome, Failed):
            self._hooks.parked(ending.attempt, ending.outcome)
            self._news.parked(ending.attempt.id)
        elif isinstance(ending.outcome, (Finished, Cancelled)):
            if self._news.awaited:
                self._news.ended([ending.attempt.id])
        else:
            # Something may be due sooner than we meant to look.
            self._claimer.wake()

    def finished(self, endings: list[Ending], suspects: bool) -> None:
        """Many tasks are done, and that is recorded. As a rule nobody asks for each of them."""
        if self.tells or self.count is not None or self._news.awaited:
            for ending in endings:
                self.recorded(ending, None)
        elif suspects:
            self._claimer.wake()  # the next one may come

    def reaped(self, queue: str, reaped: list[Reaped]) -> None:
        """Tasks of a lost worker may be ours now."""
        for task in reaped:
            self._hooks.reaped(queue, task)
            if task.state == "parked":
                self._news.parked(task.id)
        self._claimer.wake()

    def enqueued(self, queue: str) -> None:
        """A step enqueued something that may be for us."""
        if queue in self._queues:
            self._claimer.wake()

    async def planned(self, queue: str) -> None:
        """The scheduler enqueued something: a hint. Whatever becomes of it, everything is written."""
        self.enqueued(queue)
        try:
            await self._link.run(self._queries.notify_if_idle(queue))
        except Exception as error:
            tell_no_hint(error)
