"""What it takes to write an ending, for the settler and for transactional steps, which write theirs by themselves."""

from dataclasses import dataclass
from datetime import timedelta

from holdfast._engine.events import OnEnqueued
from holdfast._engine.settle.continuation import Keeper
from holdfast._engine.settle.ending import Ending, Times
from holdfast._engine.settle.partitions import Partitions
from holdfast._engine.settle.statements import StatementGroup, write
from holdfast._model.declare.tasks import Tasks
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query


@dataclass(frozen=True, slots=True)
class Settlement:
    """The statements, the decision about kept moves, missing partitions, and the wake-ups that follow."""

    queries: Queries
    tasks: Tasks
    lease: timedelta
    keeper: Keeper
    partitions: Partitions
    wake_ups: OnEnqueued

    def statement(self, group: StatementGroup, *, together: bool = False) -> Query[Times]:
        """The statement that records a group of endings; see `statements.write`."""
        return write(self.queries, self.tasks, self.lease, group, together=together)

    async def enqueued(self, endings: list[Ending]) -> None:
        """What the steps of these endings enqueued is committed."""
        if queues := {child.queue for ending in endings for child in ending.children}:
            await self.wake_ups.enqueued(queues)
