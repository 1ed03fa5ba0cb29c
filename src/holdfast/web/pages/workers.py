"""Workers: where they run, what they do now, when they were last heard of; a request to stop, to one or to all."""

from dataclasses import dataclass
from uuid import UUID

from holdfast import insights
from holdfast.insights import RunningInfo, WorkerInfo
from holdfast.web.context import Act, Look
from holdfast.web.routes import action, page
from holdfast.web.view.problems import Problem
from holdfast.web.view.questions import Question

MOST = 500
"""Workers that are looked at."""
SHOWN = 5
"""Running tasks of a worker that are shown; the others are one click away."""


@dataclass(frozen=True)
class Worker:
    """A worker, and the tasks that it has had for the longest."""

    info: WorkerInfo
    current: list[RunningInfo]


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
    current = await look(insights.in_hand(look.queries, [each.id for each in shown if each.running], limit=SHOWN))
    kinds = await look(insights.kinds(look.queries))
    live = [each for each in known if each.live]
    return WorkerList(
        all,
        [Worker(each, current.get(each.id, [])) for each in shown],
        [f"Kind {each.name}: {each.differs}." for each in kinds if each.differs],
        sum(each.slots for each in live),
        sum(each.running for each in live),
        sum(each.stuck for each in live),
    )


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


@page("/workers/stop", "Stop all workers", "question.html", live=False)
async def ask_to_stop_all_workers(look: Look) -> Question:
    """What it means to stop all workers."""
    live = [each for each in await look(insights.workers(look.queries, limit=10_000)) if each.live]
    running = sum(each.running for each in live)
    return Question(
        "Stop all workers?" if len(live) != 1 else "Stop the only worker?",
        [
            f"{len(live):,} of them are live. Each takes nothing new, lets its running steps finish within its grace "
            f"period, gives the others back, and ends: as by SIGTERM. Now {running:,} tasks are running.",
            "Until workers are started again, nothing is executed. Where something keeps them alive, such as systemd "
            "or Kubernetes, that starts new ones: to hold tasks back, pause their queues instead.",
        ],
        "Stop all",
        "/workers/stop",
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


@action("/workers/stop", _to_workers)
async def stop_all_workers(act: Act, *, why: str | None = None) -> Stopping:
    """Asks all workers to stop, as by SIGTERM."""
    return Stopping(await act.app.stop_workers(by=act.by, why=why))
