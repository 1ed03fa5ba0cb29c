"""Pictures in pages: the way of a task through the graph of its kind, and when each attempt was.

They are SVG without styles of their own: a page may not have any beside its stylesheets.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from markupsafe import Markup

from holdfast._model.declare.graph import declared, in_order
from holdfast.drawing import Drawing, as_svg
from holdfast.drawing.svg import Address
from holdfast.insights import AttemptInfo
from holdfast.web.view.tones import tone

if TYPE_CHECKING:
    from holdfast.web.pages.kinds import KindPage
    from holdfast.web.pages.task import TaskPage

LONGEST_WAY = 2000
"""Steps of a way that are drawn: the last ones."""
THINNEST = 0.8
"""Of a hundred: also a short attempt is to be seen."""


def way(found: "TaskPage") -> Markup:
    """The graph of a task's kind with the way that it took; as the task stands, so is the colour of its end."""
    edges = declared(found.graph)
    # The database keeps no order; where it knows no first step either, the way tells where tasks begin.
    edges = {step: edges[step] for step in dict.fromkeys((*found.way, *in_order(edges, found.first))) if step in edges}
    pictures = _both_ways(Drawing(found.task.kind, edges, way=found.way[-LONGEST_WAY:], first=found.first))
    return Markup(f'<div class="now-{tone(found.task.phase)}">{pictures}</div>')  # noqa: S704 - escaped


def kind(found: "KindPage", url: Callable[..., str]) -> Markup:
    """The graph of a kind with how many tasks stand at each step; a step leads to its tasks."""
    filters = {each.name: each.filter for each in found.steps}
    first = found.declared.first if found.declared is not None else None
    drawing = Drawing(found.name, declared(found.graph), {each.name: each.tasks for each in found.steps}, first=first)
    return _both_ways(drawing, lambda _, step: url("/tasks", q=filters[step]) if step in filters else None)


def _both_ways(drawing: Drawing, address: Address | None = None) -> Markup:
    """The picture for a wide page, and the one for a phone, which reads downwards: the stylesheet shows one of them."""
    wide, narrow = (
        as_svg([drawing], alone=False, titles=False, downwards=downwards, address=address) for downwards in (None, True)
    )
    # Whoever wrote the names, as_svg escapes them.
    return Markup(f'<div class="across">{wide}</div><div class="down">{narrow}</div>')  # noqa: S704


def bar(attempt: AttemptInfo, found: "TaskPage") -> Markup:
    """When an attempt was, between the task's beginning and its end, or now."""
    times = [each.claimed_at for each in found.attempts if each.claimed_at]
    begin = min([*times, found.task.created_at or found.now]) if not found.earlier else min(times, default=found.now)
    last = max((each.finished_at for each in found.attempts if each.finished_at), default=found.now)
    end = found.task.finished_at or (found.now if found.task.state == "running" else last)
    whole = max((end - begin).total_seconds(), 0.001)

    def place(at: float) -> float:
        return max(0.0, min(100.0, 100 * at / whole))

    start = place(((attempt.claimed_at or begin) - begin).total_seconds())
    stop = place(((attempt.finished_at or end) - begin).total_seconds())
    width = max(THINNEST, stop - start)
    return Markup(
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="ground" y="4.5" width="100" height="1"/>'
        '<rect class="{}" x="{}" y="1" width="{}" height="8"/></svg>'
    ).format(tone(attempt.outcome or "running"), f"{min(start, 100 - width):.2f}", f"{width:.2f}")
