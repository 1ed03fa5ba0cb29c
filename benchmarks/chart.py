"""The picture of a run: one panel per workload, one bar per system, as an SVG made by hand."""

from html import escape

from benchmarks.results import OURS, Result, Results, number

PANELS = [
    ("drain", "rate"),
    ("drain-2", "rate"),
    ("bulk", "rate"),
    ("enqueue-1", "rate"),
    ("enqueue-16", "rate"),
    ("steps", "rate"),
    ("latency", "p50"),
    ("mixed", "p99"),
]
WIDTH, COLUMNS, GAP = 960, 2, 24
BAR, LABEL, VALUE, HEAD = 20, 120, 80, 40
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #1f2328 }
  .head { font-weight: 600; font-size: 13px }
  .unit { fill: #59636e }
  .ours { fill: #0b7a75 }
  .theirs { fill: #9aa7b1 }
  .range { stroke: #1f2328; stroke-width: 1 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .unit { fill: #9198a1 }
    .ours { fill: #2ec4b6 } .theirs { fill: #57636e } .range { stroke: #e6edf3 }
  }
"""


def draw(results: Results) -> str:
    """The chart; workloads that were not measured are left out."""
    panels = [(found, figure) for workload, figure in PANELS if (found := results.of(workload, figure))]
    most = max((len(found) for found, _ in panels), default=0)
    width, height = (WIDTH - GAP * (COLUMNS + 1)) / COLUMNS, HEAD + most * BAR + GAP
    total = GAP + height * -(-len(panels) // COLUMNS)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {total:.0f}" role="img"'
        ' aria-label="Benchmarks of Holdfast and its peers">',
        f"<style>{STYLE}</style>",
    ]
    for place, (found, _) in enumerate(panels):
        x, y = GAP + (width + GAP) * (place % COLUMNS), GAP + height * (place // COLUMNS)
        parts += _panel(found, x, y, width)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(found: list[Result], x: float, y: float, width: float) -> list[str]:
    best = found[0]
    ordered = sorted(found, key=lambda r: -r.median if best.higher_is_better else r.median)
    scale = (width - LABEL - VALUE) / max(max(max(r.values) for r in found), 1e-9)
    what = f"{best.title}, {best.unit}" if best.title != best.figure else f"{best.figure}, {best.unit}"
    better = "more is better" if best.higher_is_better else "less is better"
    parts = [
        f'<text class="head" x="{x:.0f}" y="{y + 4:.0f}">{escape(best.workload_title)}</text>',
        f'<text class="unit" x="{x:.0f}" y="{y + 20:.0f}">{escape(what)}; {better}</text>',
    ]
    for row, result in enumerate(ordered):
        top = y + HEAD - 8 + row * BAR
        left, length = x + LABEL, max(1.0, max(0.0, result.median) * scale)
        low, high = (left + max(0.0, value) * scale for value in (min(result.values), max(result.values)))
        kind = "ours" if result.system == OURS else "theirs"
        parts += [
            f'<text x="{x:.0f}" y="{top + 12:.0f}">{escape(result.system)}</text>',
            f'<rect class="{kind}" x="{left:.1f}" y="{top + 2:.0f}" width="{length:.1f}" height="{BAR - 6}" rx="2"/>',
            f'<path class="range" d="M{low:.1f} {top + 8:.0f}H{high:.1f}"/>',
            f'<text x="{max(high, left + length) + 6:.0f}" y="{top + 12:.0f}">{number(result.median)}</text>',
        ]
    return parts
