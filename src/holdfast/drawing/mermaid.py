"""Graphs as mermaid flowcharts, which GitHub and many others draw."""

import re
from collections.abc import Sequence

from holdfast._model.declare.graph import END
from holdfast._model.declare.step import MAIN
from holdfast.drawing.subject import Drawing, Link, shown, told

_CLASSES = {
    "current": "stroke-width:3px",
    "stranger": "stroke-dasharray:4 3,font-style:italic",
    "unknown": "stroke-dasharray:4 3",
}


def as_mermaid(drawings: Sequence[Drawing], *, downwards: bool = False) -> str:
    """One flowchart, from left to right or from top to bottom, with a frame around each kind if there are several."""
    direction = "TB" if downwards else "LR"
    lines = [f"flowchart {direction}"]
    taken: list[int] = []
    links = 0
    for number, drawing in enumerate(drawings):
        if drawing.is_function and len(drawings) > 1:
            continue
        # Ids of our own: a name such as `end` would be taken for a word of the language.
        ids = {name: f"k{number}s{i}" for i, name in enumerate(drawing.nodes)}
        inside = [f"{id}{_node(drawing, name)}" for name, id in ids.items()]
        for link in drawing.links:
            inside.append(f"{ids[link.source]} {_arrow(link)} {ids[link.target]}")
            taken += [links] if link.taken else []
            links += 1
        lines += _framed(f"k{number}", drawing.kind, direction, inside) if len(drawings) > 1 else _indented(inside)
    functions = [each for each in drawings if each.is_function and len(drawings) > 1]
    if functions:
        inside = [f'f{i}["{_label(each.kind, each, MAIN)}"]' for i, each in enumerate(functions)]
        lines += _framed("functions", "functions", direction, inside)
    lines += [f"  classDef {name} {style}" for name, style in _CLASSES.items() if any(f":::{name}" in e for e in lines)]
    if taken:
        lines.append(f"  linkStyle {','.join(map(str, taken))} stroke-width:4px")
    return "\n".join(lines) + "\n"


def _framed(id: str, title: str, direction: str, inside: Sequence[str]) -> list[str]:
    frame = [f'subgraph {id}["{_escaped(shown(title))}"]', *_indented([f"direction {direction}", *inside]), "end"]
    return _indented(frame)


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _node(drawing: Drawing, name: str) -> str:
    label = _label(name, drawing, name)
    current = ":::current" if name in drawing.way[-1:] else ""
    if not drawing.is_mark(name):
        return f'["{label}"]' + (current or (":::stranger" if name in drawing.strangers else ""))
    return f'(["{label}"]){current}' if name == END else f'{{{{"{label}"}}}}:::unknown'


def _label(title: str, drawing: Drawing, step: str) -> str:
    return "<br/>".join(_escaped(text) for text in (shown(title), told(drawing.counts.get(step, {}))) if text)


def _arrow(link: Link) -> str:
    return ("-->" if link.at_once else "-.->") + (f'|"{_escaped(link.label)}"|' if link.label else "")


def _escaped(text: str) -> str:
    """Everything but letters, digits and a few others as an entity in mermaid's own writing."""
    return re.sub(r"[^A-Za-z0-9 _,.-]", lambda match: f"#{ord(match[0])};", text)
