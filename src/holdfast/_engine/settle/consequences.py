"""What follows when an ending is recorded, or a task was reaped: logs, counts, hooks, notifications, the next claim."""

from collections.abc import Callable, Iterable
from typing import TypeAlias
from uuid import UUID

from holdfast._engine.claim.bell import Bell
from holdfast._engine.observe.failure_hooks import FailureHooks
from holdfast._engine.observe.notifications import Notifications
from holdfast._engine.observe.task_log import is_heard, tell_recorded
from holdfast._engine.settle.ending import Ending
from holdfast._model.run.outcome import Cancelled, Failed, Finished
from holdfast._sql.rows import Reaped

RecordedObserver: TypeAlias = Callable[[Ending], None]
ReapedObserver: TypeAlias = Callable[[str, list[Reaped]], None]


class Consequences:
    """What follows in one worker. Observers see each recorded ending and each reaped task, before anything follows."""

    def __init__(
        self, bell: Bell, hooks: FailureHooks, notifications: Notifications, observers: Iterable[RecordedObserver] = ()
    ) -> None:
        self._bell = bell
        self._hooks = hooks
        self._notifications = notifications
        self._observers = list(observers)
        self._reaped_observers: list[ReapedObserver] = []

    def begin(self) -> None:
        """The worker begins: from now on each ending is logged, if a handler of the log takes more than errors."""
        if is_heard():
            self._observers.insert(0, tell_recorded)

    def observe(self, recorded: RecordedObserver, reaped: ReapedObserver) -> None:
        """Adds an observer of recorded endings and of reaped tasks."""
        self._observers.append(recorded)
        self._reaped_observers.append(reaped)

    def recorded(self, ending: Ending, goes_on: bool) -> None:
        """An ending is recorded; `goes_on`: the dispatcher goes on with the next step."""
        for observe in self._observers:
            observe(ending)
        if ending.attempt.crashes:
            self._bell.ring()  # the next suspect may come
        if goes_on:
            return
        if isinstance(ending.outcome, Failed):
            self._hooks.parked(ending.attempt, ending.outcome)
            self._notifications.parked(ending.attempt.id)
        elif isinstance(ending.outcome, (Finished, Cancelled)):
            if self._notifications.awaited:
                self._notifications.ended([ending.attempt.id])
        else:
            # Something may be due sooner than the claimer meant to ask.
            self._bell.ring()

    def finished(self, endings: list[Ending], suspects: bool) -> None:
        """Many tasks are done, and that is recorded. As a rule there is no observer who needs each of them."""
        if self._observers or self._notifications.awaited:
            for ending in endings:
                self.recorded(ending, False)
        elif suspects:
            self._bell.ring()  # the next one may come

    def reaped(self, queue: str, tasks: list[Reaped]) -> None:
        """Tasks of a lost worker may be claimed by this one now."""
        for observe in self._reaped_observers:
            observe(queue, tasks)
        for task in tasks:
            self._hooks.reaped(queue, task)
            if task.state == "parked":
                self._notifications.parked(task.id)
        self._bell.ring()

    def archived(self, ids: Iterable[UUID]) -> None:
        """The reaper has archived these."""
        self._notifications.ended(ids)
