"""Queues: how much there is to do, for how long the oldest has been due, who serves them; pause and resume."""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast import insights
from holdfast._model.read.formats import amount
from holdfast._model.read.infos import QueueInfo
from holdfast.insights import WorkerInfo
from holdfast.web.context import Act, Look
from holdfast.web.pages.overview import Banner, banners
from holdfast.web.routes import action, page
from holdfast.web.view.activity import Pace, last_hour
from holdfast.web.view.problems import Problem
from holdfast.web.view.questions import Question


@dataclass(frozen=True)
class Queue:
    """A queue, how many of its tasks its live workers take at most at the same time, and what it did in an hour."""

    info: QueueInfo
    limit: int
    kinds: list[str]
    pace: Pace | None


@dataclass(frozen=True)
class QueueList:
    """All queues by name."""

    banners: list[Banner]
    queues: list[Queue]


@page("/queues", "Queues", "queues.html", menu=True)
async def queues(look: Look) -> QueueList:
    """All queues: what is due, running, scheduled and parked there, how fast they are, and who serves them."""
    found = await look(insights.queues(look.queries))
    workers = [each for each in await look(insights.workers(look.queries, limit=1000)) if each.live]
    kinds = await look(insights.kinds(look.queries))
    lately = await last_hour(look, "queue")
    return QueueList(
        list(banners(found, [])),
        [
            Queue(
                each,
                limit_of(each.name, workers),
                [kind.name for kind in kinds if kind.queue == each.name],
                lately.get(each.name),
            )
            for each in found
        ],
    )


def limit_of(queue: str, workers: Sequence[WorkerInfo]) -> int:
    """How many tasks of a queue these workers take at most at the same time."""
    return sum(min(each.slots, each.limits.get(queue, each.slots)) for each in workers if queue in each.queues)


# --- pause and resume


@dataclass(frozen=True)
class Paused:
    """Whether tasks of a queue or a kind may begin: paused, resumed, or not paused if there was nothing to resume."""

    name: str
    state: str


async def _one(look: Look, name: str) -> QueueInfo:
    found = [each for each in await look(insights.queues(look.queries)) if each.name == name]
    if not found:
        raise Problem(404, "Not found", f"There is no queue {name}: nothing is in it and nobody serves it.")
    return found[0]


@page("/queues/{name}/pause", "Pause a queue", "question.html", live=False)
async def ask_to_pause_queue(look: Look, *, name: str) -> Question:
    """What it means to pause a queue."""
    queue = await _one(look, name)
    return Question(
        f"Pause the queue {name}?",
        [
            "Running steps finish. Nothing new of it begins until somebody resumes it; tasks can be enqueued all the "
            "same, and wait. It holds for all workers, also for those that are started later.",
            f"Now: {amount(queue.due)} due, {amount(queue.running)} running, {amount(queue.scheduled)} scheduled.",
        ],
        "Pause it",
        f"/queues/{name}/pause",
        "/queues",
        is_danger=True,
    )


@page("/queues/{name}/resume", "Resume a queue", "question.html", live=False)
async def ask_to_resume_queue(look: Look, *, name: str) -> Question:
    """What it means to resume a queue."""
    queue = await _one(look, name)
    by = f" It was paused by {queue.paused_by}." if queue.paused_by else ""
    return Question(
        f"Resume the queue {name}?",
        [f"Its tasks begin again: {amount(queue.due)} are due.{by}"],
        "Resume it",
        f"/queues/{name}/resume",
        "/queues",
    )


def _to_queues(_: Paused) -> str:
    return "/queues"


@action("/queues/{name}/pause", _to_queues)
async def pause_queue(act: Act, *, name: str, why: str | None = None) -> Paused:
    """Lets nothing more of a queue begin until it is resumed; running steps finish."""
    return Paused(name, await act.app.pause(name, what="queue", by=act.by, why=why))


@action("/queues/{name}/resume", _to_queues)
async def resume_queue(act: Act, *, name: str, why: str | None = None) -> Paused:
    """Lets the tasks of a paused queue begin again."""
    return Paused(name, await act.app.resume(name, what="queue", by=act.by, why=why))
