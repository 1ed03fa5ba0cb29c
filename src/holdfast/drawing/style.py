"""The style of pictures. A page that holds some may set the variables to colours of its own."""

_LIGHT = {
    "paper": "#fff",
    "ink": "#1f2328",
    "soft": "#656d76",
    "line": "#8c959f",
    "box": "#f6f8fa",
    "edge": "#d0d7de",
    "way": "#0969da",
    "ready": "#6e7781",
    "scheduled": "#6e7781",
    "running": "#0a7ea4",
    "waiting": "#8250df",
    "parked": "#cf222e",
    "unknown": "#9a6700",
}
_DARK = {
    "paper": "#0d1117",
    "ink": "#e6edf3",
    "soft": "#8d96a0",
    "line": "#6e7681",
    "box": "#161b22",
    "edge": "#3d444d",
    "way": "#4493f8",
    "ready": "#9198a1",
    "scheduled": "#9198a1",
    "running": "#39c5cf",
    "waiting": "#a371f7",
    "parked": "#f85149",
    "unknown": "#d29922",
}
_MONO = 'ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono","Liberation Mono",monospace'
_SANS = 'system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif'
_RULES = {
    "text": "fill:currentColor;dominant-baseline:central",
    ".paper": "fill:var(--hf-paper)",
    ".kind": "font-size:15px;font-weight:600",
    ".box": "fill:var(--hf-box);stroke:var(--hf-edge);stroke-width:1.2",
    ".name": "text-anchor:middle;font-weight:500",
    ".end .box": "fill:none;stroke:var(--hf-line)",
    ".end .name": "fill:var(--hf-soft)",
    ".unknown .box": "fill:none;stroke:var(--hf-unknown);stroke-dasharray:4 3",
    ".unknown .name": "fill:var(--hf-unknown);font-weight:700",
    ".stranger .box": "stroke:var(--hf-parked);stroke-dasharray:4 3",
    ".stranger .name": "font-style:italic",
    ".line": "fill:none;stroke:var(--hf-line);stroke-width:1.4;stroke-linejoin:round",
    ".head": "fill:var(--hf-line)",
    ".start": "fill:var(--hf-line)",
    ".later .line": "stroke-dasharray:5 4",
    ".label": f"font:11px {_SANS};fill:var(--hf-soft);text-anchor:middle;paint-order:stroke;"
    "stroke:var(--hf-paper);stroke-width:5px;stroke-linejoin:round",
    ".count": "font-size:11px",
    ".count text": "fill:var(--hf-soft)",
    ".ready .sign": "fill:none;stroke:var(--hf-ready);stroke-width:1.6",
    ".scheduled .sign": "fill:var(--hf-scheduled)",
    ".running .sign": "fill:var(--hf-running)",
    ".waiting .sign": "fill:var(--hf-waiting)",
    ".parked .sign": "fill:var(--hf-parked)",
    ".parked text": "fill:var(--hf-parked);font-weight:600",
    ".dim :is(.line,.head,.box,.label)": "opacity:.5",
    ".dim .name": "fill:var(--hf-soft)",
    ".taken .line": "stroke:var(--hf-way);stroke-width:2.4",
    ".taken .head": "fill:var(--hf-way)",
    ".taken .label": "fill:var(--hf-way);font-weight:600",
    ".visited .box": "stroke:var(--hf-way);stroke-width:1.6",
    ".current .box": "stroke:var(--hf-way);stroke-width:3",
    "a:hover .box": "stroke:var(--hf-way)",
}


def _variables(colours: dict[str, str]) -> str:
    return "".join(f"--hf-{name}:{colour};" for name, colour in colours.items())


STYLE = "\n".join(
    [
        # Without any weight of its own, so that a page's colours win wherever they are written.
        f":where(.holdfast-graph){{{_variables(_LIGHT)}}}",
        f"@media (prefers-color-scheme:dark){{:where(.holdfast-graph){{{_variables(_DARK)}}}}}",
        f".holdfast-graph{{color:var(--hf-ink);font:13px {_MONO}}}",
        *(f".holdfast-graph {selector}{{{rule}}}" for selector, rule in _RULES.items()),
    ]
)
"""For a page that holds pictures which do not stand alone."""
