"""Workers: where they run, what they do now, when they were last heard of; a request to stop."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from holdfast import insights
from holdfast._model.filter import EVERYTHING
from holdfast._model.reference import TaskInfo
from holdfast.insights import WorkerInfo
from holdfast.web.asking import Act, Look
from holdfast.web.places import action, page
from holdfast.web.problems import Problem
from holdfast.web.questions import Question

MOST = 500
"""Workers and running tasks that are looked at."""
SHOWN = 5
"""Running tasks of a worker that are shown; the others are one click away."""


@dataclass(frozen=True)
class Current:
    """A task that a worker has just now."""

    id: UUID
    kind: str
    step: str
    since: datetime | None


@dataclass(frozen=True)
class Worker:
    """A worker, and some of the tasks that it has."""

    info: WorkerInfo
    current: list[Current]


@dataclass(frozen=True)
class WorkerList:
    """Workers, the newest first. `all`: also those that have stopped. `stuck`: threads that do not end, of all."""

    all: bool
    workers: list[Worker]
    differing: list[str]
    slots: int
    running: int
    stuck: int


@page("/workers", "Workers", "workers.html", menu=True)
async def workers(look: Look, *, all: bool = False) -> WorkerList:
    """Workers with what they serve and have in hand; also those that have stopped, if asked for."""
    known = await look(insights.workers(look.queries, limit=MOST))
    shown = [each for each in known if all or each.stopped_at is None]
    running = await look(insights.tasks(look.queries, EVERYTHING.with_term("state", "running"), limit=MOST))
    kinds = await look(insights.kinds(look.queries))
    live = [each for each in known if each.live]
    return WorkerList(
        all,
        [Worker(each, _current(each, running)) for each in shown],
        [f"Kind {each.name}: {each.differs}." for each in kinds if each.differs],
        sum(each.slots for each in live),
        sum(each.running for each in live),
        sum(each.stuck for each in live),
    )


def _current(worker: WorkerInfo, running: Iterable[TaskInfo]) -> list[Current]:
    found = [Current(each.id, each.kind, each.step, each.claimed_at) for each in running if each.worker_id == worker.id]
    return found[:SHOWN]


# --- stop


@dataclass(frozen=True)
class Stopping:
    """How many workers were asked to stop."""

    asked: int


async def _one(look: Look, id: UUID) -> WorkerInfo:
    found = [each for each in await look(insights.workers(look.queries, limit=10_000)) if each.id == id]
    if not found:
        raise Problem(404, "Not found", f"There is no worker {id}.")
    return found[0]


@page("/workers/{id}/stop", "Stop a worker", "question.html", live=False)
async def ask_to_stop_worker(look: Look, *, id: UUID) -> Question:
    """What it means to stop a worker."""
    worker = await _one(look, id)
    return Question(
        f"Stop the worker {worker.name}?",
        [
            f"Process {worker.pid} on {worker.host} takes nothing new, lets its {worker.running:,} running steps finish"
            " within its grace period, gives the others back, and ends: as by SIGTERM.",
            "Nothing starts it again from here. Where something keeps it alive, such as systemd or Kubernetes, that "
            "starts a new one.",
        ],
        "Stop it",
        f"/workers/{id}/stop",
        "/workers",
        is_danger=True,
    )


def _to_workers(_: Stopping) -> str:
    return "/workers"


@action("/workers/{id}/stop", _to_workers)
async def stop_worker(act: Act, *, id: UUID, why: str | None = None) -> Stopping:
    """Asks a worker to stop, as by SIGTERM."""
    asked = await act.app.stop_workers(id, by=act.by, why=why)
    if not asked:
        raise Problem(404, "Not found", f"There is no running worker {id}.")
    return Stopping(asked)
