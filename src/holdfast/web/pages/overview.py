"""The first page: whether all is well, and if not, where."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypeAlias

from holdfast import insights
from holdfast._model.read.filter import EVERYTHING
from holdfast._model.read.formats import amount
from holdfast._model.read.infos import COUNTED, KindInfo, QueueInfo
from holdfast.insights import WorkerInfo
from holdfast.web.context import Look
from holdfast.web.pages.parked import Group, grouped
from holdfast.web.routes import page
from holdfast.web.view.activity import Activity, Span, activity

Tone: TypeAlias = Literal["bad", "warning"]

SOME, MANY = 10, 100
"""So many tasks that were parked within an hour are worth a warning; more than so many are worse."""


@dataclass(frozen=True)
class Banner:
    """Something that needs a person: what it is, and the page that shows it."""

    tone: Tone
    text: str
    path: str
    filter: str = ""


@dataclass(frozen=True)
class Totals:
    """All queues together. No count goes further than that of a queue; `is_exact`: none has reached its bound."""

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
    activity: Activity
    queues: list[QueueInfo]
    workers: list[WorkerInfo]
    parked: list[Group]


@page("/", "Overview", "overview.html", menu=True)
async def overview(look: Look, *, span: Span = "1h") -> Overview:
    """How everything stands: queues, workers, what is parked, what needs a person, and what happened lately."""
    queues = await look(insights.queues(look.queries))
    workers = await look(insights.workers(look.queries, limit=200))
    kinds = await look(insights.kinds(look.queries))
    lately = await look(insights.recent_failures(look.queries, limit=MANY + 1))
    live = [each for each in workers if each.live]
    parked = await look(insights.parked_groups(look.queries, limit=5)) if any(q.parked for q in queues) else []
    lost = [each for each in workers if each.condition == "lost"]
    shown = await activity(look, span)
    hour_ago = shown.until - timedelta(hours=1)
    told = [
        *banners(queues, [*live, *lost]),
        *growth(sum(each.at > hour_ago for each in lately)),
        *(paused_kind(each) for each in kinds if each.paused_at is not None),
    ]
    worst_first = sorted(told, key=lambda each: each.tone != "bad")
    groups = grouped(EVERYTHING, parked)
    return Overview(worst_first, totals(queues, live), shown, queues, [*live, *lost], groups)


def totals(queues: Sequence[QueueInfo], workers: Sequence[WorkerInfo]) -> Totals:
    """The sums, bounded as each count is."""

    def total(counts: Iterator[int]) -> int:
        return min(sum(counts), COUNTED + 1)

    due, scheduled = total(q.due for q in queues), total(q.scheduled for q in queues)
    running, parked = total(q.running for q in queues), total(q.parked for q in queues)
    exact = max(due, scheduled, running, parked) <= COUNTED
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
        if worker.late and worker.live:
            loops = ", ".join(worker.late)
            yield Banner("bad", f"Worker {worker.name} is late: {loops} has not succeeded for too long.", "/workers")


def growth(parked: int) -> Iterator[Banner]:
    """A word about many tasks that were parked in the last hour."""
    if parked >= SOME:
        told = f"More than {MANY}" if parked > MANY else f"{parked}"
        tone: Tone = "bad" if parked > MANY else "warning"
        yield Banner(tone, f"{told} tasks were parked in the last hour.", "/parked", "since:1h")


def paused_kind(kind: KindInfo) -> Banner:
    by = f" by {kind.paused_by}" if kind.paused_by else ""
    return Banner("warning", f"Kind {kind.name} is paused{by}.", f"/kinds/{kind.name}")
