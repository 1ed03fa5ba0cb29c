"""Graphs as text for a terminal."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from holdfast._model.declare.graph import END, UNKNOWN, Edge
from holdfast._model.declare.step import MAIN
from holdfast.drawing.subject import STATES, Counts, Drawing, shown

Paint: TypeAlias = Callable[[str, str], str]
"""Takes a text and what it is: kind, step, end, unknown, dim, or a state. Gives the text, coloured perhaps."""

_BELOW = {"├→ ": "│  ", "└→ ": "   "}


def as_text(drawings: Sequence[Drawing], paint: Paint = lambda text, role: text) -> str:
    """A tree for each kind, and the functions in one line.

    A step with one follower goes on below it; several followers branch. What was drawn above is not drawn again.
    """
    blocks = [_tree(each, paint) for each in drawings if not each.is_function]
    functions = [_function(each, paint) for each in drawings if each.is_function]
    if functions:
        blocks.append(paint("functions", "kind") + "  " + ", ".join(functions))
    return "\n\n".join(blocks) + "\n" if blocks else ""


def _function(drawing: Drawing, paint: Paint) -> str:
    counts = _painted(drawing.counts.get(MAIN, {}), paint)
    return paint(shown(drawing.kind), "step") + (f" ({counts})" if counts else "")


def _tree(drawing: Drawing, paint: Paint) -> str:
    rows = list(_rows(drawing, paint))
    width = max((len(plain) for plain, _, _ in rows), default=0)
    lines = [paint(shown(drawing.kind), "kind")]
    for plain, painted, counts in rows:
        column = " " * (width - len(plain) + 3) + _painted(counts, paint)
        lines.append("  " + painted + column.rstrip())
    if not rows:
        lines.append("  " + paint("(no steps yet)", "dim"))
    return "\n".join(lines)


def _rows(drawing: Drawing, paint: Paint) -> Iterator[tuple[str, str, Counts]]:
    """The lines of a tree, plain and painted, each with the counts that belong to it."""
    strangers = drawing.strangers
    led_to = {edge.step for followers in drawing.edges.values() for edge in followers}
    first = [*drawing.beginnings, *(step for step in strangers if step not in led_to)]
    entered: set[str] = set()
    left: set[str] = set()
    # What is still to be drawn, the next one last: prefix, arrow, edge. No arrow means: this step is left.
    pending: list[tuple[str, str | None, Edge]] = [("", "", Edge(step)) for step in reversed(first)]
    while pending:
        prefix, arrow, edge = pending.pop()
        if arrow is None:
            left.add(edge.step)
            continue
        again = edge.step in entered
        followers = drawing.edges.get(edge.step, ())
        marks = ["(later)"] if edge.delayed else []
        if again:
            marks.append("(above)" if edge.step in left else "↺")
        elif edge.step in strangers:
            marks.append("(not in this code)")
        elif edge.step in drawing.edges and not followers:
            marks.append("(only raises)")
        if not again and edge.step in drawing.way[-1:]:
            marks.append("◀")
        name, tail = shown(edge.step), "".join(f" {mark}" for mark in marks)
        role = "dim" if again else {END: "end", UNKNOWN: "unknown"}.get(edge.step, "step")
        painted = paint(prefix + arrow, "dim") + paint(name, role) + paint(tail, "dim")
        yield prefix + arrow + name + tail, painted, {} if again else drawing.counts.get(edge.step, {})
        if again or edge.step not in drawing.edges:
            continue
        entered.add(edge.step)
        inner = prefix + _BELOW.get(arrow, "")
        pending.append((inner, None, edge))
        arrows = ["→ "] if len(followers) == 1 else ["├→ "] * (len(followers) - 1) + ["└→ "]
        pending += [(inner, *branch) for branch in reversed(list(zip(arrows, followers, strict=False)))]


def _painted(counts: Counts, paint: Paint) -> str:
    return ", ".join(paint(f"{counts[state]:,} {state}", state) for state in STATES if counts.get(state))
