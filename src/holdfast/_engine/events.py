"""What the stages of a worker say to each other: an event happened, and here is what it was about.

    claimer ── claimed ──► dispatcher ── ended ──► pending endings ──► settler ── recorded ──► dispatcher
                                                                               └─ finished ──► consequences
    reaper ── reaped, expired ──► consequences      heartbeat ── answered ──► messages
    settler, transactional steps, scheduler ── enqueued ──► wake-ups

A stage gets those who listen to its events when it is made. Where two stages need each other, an object that is made
before both stands between them: the bell, the pending endings, the contact, the lifecycle, the pulse, the roster.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from holdfast._engine.run.attempt import Attempt
from holdfast._model.run.outcome import Outcome
from holdfast._sql.rows import Reaped

if TYPE_CHECKING:
    from holdfast._engine.lease.heartbeat import HeartbeatReport
    from holdfast._engine.settle.ending import Ending


class OnClaimed(Protocol):
    """Hears of claimed attempts, the most urgent first."""

    def claimed(self, attempts: list[Attempt]) -> None: ...


class OnEnded(Protocol):
    """Hears of attempts that have ended."""

    def ended(self, attempt: Attempt, outcome: Outcome) -> None:
        """The outcome is to be recorded."""

    def unsure(self, ending: "Ending") -> None:
        """The outcome may have been written, by a transaction whose end is not known."""


class OnRecorded(Protocol):
    """Hears of endings that are recorded, one by one."""

    def recorded(self, ending: "Ending", claimed_at: float | None) -> None:
        """`claimed_at`: when the next attempt began, if the move to it was kept."""


class OnFinished(Protocol):
    """Hears of many tasks that are done, and of which that is recorded."""

    def finished(self, endings: "list[Ending]", suspects: bool) -> None:
        """`suspects`: whether one of them had lost a worker before."""


class OnEnqueued(Protocol):
    """Hears of tasks that were enqueued and committed."""

    async def enqueued(self, queues: Iterable[str]) -> None: ...


class OnReaped(Protocol):
    """Hears of tasks that the reaper took from lost workers, or that it archived."""

    def reaped(self, queue: str, tasks: list[Reaped]) -> None:
        """These lost their worker."""

    def archived(self, ids: Iterable[UUID]) -> None:
        """These were cancelled, or have passed their deadline."""


class OnHeartbeat(Protocol):
    """Hears the answers to heartbeats."""

    def answered(self, report: "HeartbeatReport") -> None: ...
