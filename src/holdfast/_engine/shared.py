"""What the stages of one worker share. It is made before them."""

from dataclasses import dataclass, field

from holdfast._engine.claim.steps import KnownSteps
from holdfast._engine.lease.contact import Contact, Identity
from holdfast._engine.lifecycle import Lifecycle
from holdfast._engine.loops import Pulse
from holdfast._engine.run.roster import Roster
from holdfast._engine.settings import WorkerSettings
from holdfast._model.declare.tasks import Tasks
from holdfast._sql.queries import Queries


@dataclass(frozen=True, slots=True)
class Shared:
    """The tasks, the settings and the state of one worker."""

    tasks: Tasks
    settings: WorkerSettings
    queries: Queries
    known: KnownSteps
    roster: Roster
    contact: Contact
    life: Lifecycle = field(default_factory=Lifecycle)
    identity: Identity = field(default_factory=Identity)
    pulse: Pulse = field(default_factory=Pulse)
