"""The first page: whether all is well, and if not, where."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from holdfast import insights
from holdfast._model.overview import COUNTED, ParkedGroup, QueueInfo
from holdfast.insights import WorkerInfo
from holdfast.web.asking import Look
from holdfast.web.places import page
from holdfast.web.rendering import amount

Tone: TypeAlias = Literal["bad", "warning"]


@dataclass(frozen=True)
class Banner:
    """Something that needs a person: what it is, and the page that shows it."""

    tone: Tone
    text: str
    path: str
    filter: str = ""


@dataclass(frozen=True)
class Totals:
    """All queues together. `is_exact`: no count has reached its bound."""

    due: int
    scheduled: int
    running: int
    parked: int
    slots: int
    is_exact: bool


@dataclass(frozen=True)
class Overview:
    """How everything stands."""

    banners: list[Banner]
    totals: Totals
    queues: list[QueueInfo]
    workers: list[WorkerInfo]
    parked: list[ParkedGroup]


@page("/", "Overview", "overview.html", menu=True)
async def overview(look: Look) -> Overview:
    """How everything stands: queues, workers, what is parked, and what needs a person."""
    queues = await look(insights.queues(look.queries))
    workers = await look(insights.workers(look.queries, limit=200))
    live = [each for each in workers if each.live]
    parked = await look(insights.parked_groups(look.queries, limit=5)) if any(q.parked for q in queues) else []
    lost = [each for each in workers if each.condition == "lost"]
    return Overview(list(banners(queues, [*live, *lost])), totals(queues, live), queues, [*live, *lost], parked)


def totals(queues: Sequence[QueueInfo], workers: Sequence[WorkerInfo]) -> Totals:
    """The sums. Each count is bounded, so a sum may be a lower bound."""
    counts = [(q.due, q.scheduled, q.running, q.parked) for q in queues]
    due, scheduled, running, parked = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0, 0, 0)
    exact = all(count <= COUNTED for row in counts for count in row)
    return Totals(due, scheduled, running, parked, sum(each.slots for each in workers), exact)


def banners(queues: Sequence[QueueInfo], workers: Sequence[WorkerInfo]) -> Iterator[Banner]:
    """What somebody should know, the worst first."""
    for queue in queues:
        one = "task is" if queue.due == 1 else "tasks are"
        if queue.due and not queue.workers and queue.paused_at is None:
            yield Banner(
                "bad",
                f"Queue {queue.name}: {amount(queue.due)} {one} due, and no live worker serves it.",
                "/tasks",
                f"queue:{queue.name} state:ready",
            )
    for worker in workers:
        if worker.condition == "lost":
            yield Banner(
                "bad",
                f"Worker {worker.name} has not been heard of for a while: it seems lost.",
                "/tasks",
                f"worker:{worker.id}",
            )
    for queue in queues:
        if queue.unroutable and queue.workers and queue.paused_at is None:
            yield Banner(
                "warning",
                f"Queue {queue.name}: no live worker there knows the step of {amount(queue.unroutable)} due tasks.",
                "/tasks",
                f"queue:{queue.name} state:unroutable",
            )
    for queue in queues:
        if queue.paused_at is not None:
            by = f" by {queue.paused_by}" if queue.paused_by else ""
            yield Banner("warning", f"Queue {queue.name} is paused{by}.", "/tasks", f"queue:{queue.name} state:ready")
    for worker in workers:
        if worker.stuck:
            yield Banner(
                "warning", f"Worker {worker.name} has {worker.stuck} stuck threads.", "/tasks", f"worker:{worker.id}"
            )
