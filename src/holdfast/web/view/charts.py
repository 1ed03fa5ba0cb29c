"""Charts of what happened lately: the numbers for the page's script, and a picture of them for pages without one."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from holdfast._model.read.formats import duration, number, percent
from holdfast.web.view.activity import Activity, Pace, Percentiles

WIDTH, HEIGHT = 600, 100
"""Of the picture; it is drawn as wide as there is room."""


@dataclass(frozen=True)
class Line:
    """A line of a chart, in one of the stylesheet's tones. `is_filled`: the area below it is tinted."""

    label: str
    tone: str
    values: Sequence[float | None]
    is_filled: bool = False


@dataclass(frozen=True)
class Chart:
    """A chart. `measure` says how its numbers are told; it reaches up to `least`, even if all of them are less."""

    title: str
    told: str
    measure: str
    least: float
    times: Sequence[float]
    lines: Sequence[Line]

    @property
    def as_json(self) -> str:
        """What the page's script draws it from."""
        return json.dumps(
            {
                "measure": self.measure,
                "least": self.least,
                "data": [self.times, *([_rounded(each) for each in line.values] for line in self.lines)],
                "series": [
                    {"label": line.label, "colour": f"--{line.tone}", "fill": line.is_filled} for line in self.lines
                ],
            }
        )

    @property
    def picture(self) -> Markup:
        """The same as SVG, without axes."""
        top = max([self.least, *(each for line in self.lines for each in line.values if each is not None)])
        drawn = Markup("").join(part for line in self.lines for part in _drawn(line, top))
        return Markup(
            '<svg class="spark" viewBox="0 0 {} {}" preserveAspectRatio="none" aria-hidden="true">{}</svg>'
        ).format(WIDTH, HEIGHT, drawn)


def charts(found: Activity) -> list[Chart]:
    """Throughput, errors, waits and runs."""
    times = [each.at.timestamp() for each in found.points]
    total = found.total

    def values(of: Callable[[Pace], float | None]) -> list[float | None]:
        return [of(each) for each in found.points]

    rate = values(lambda each: None if each.error_rate is None else 100 * each.error_rate)
    return [
        Chart(
            "Throughput",
            f"{number(total.per_minute or 0)} attempts a minute",
            "per_minute",
            1,
            times,
            [
                Line("Attempts", "accent", values(lambda each: each.per_minute), is_filled=True),
                Line("Tasks done", "good", values(lambda each: each.done_per_minute)),
            ],
        ),
        Chart(
            "Error rate",
            "" if total.error_rate is None else f"{percent(total.error_rate)} of attempts",
            "percent",
            1,
            times,
            [Line("Errors", "bad", rate, is_filled=True)],
        ),
        _times("Wait, from due to begun", found, lambda each: each.wait),
        _times("Run, from begun to ended", found, lambda each: each.run),
    ]


def _times(title: str, found: Activity, of: Callable[[Pace], Percentiles]) -> Chart:
    total, each = of(found.total), [of(pace) for pace in found.points]
    return Chart(
        title,
        "" if total.p50 is None else f"p50 {duration(total.p50)}, p95 {duration(total.p95)}",
        "seconds",
        0.01,
        [pace.at.timestamp() for pace in found.points],
        [
            Line("p50", "good", [spread.p50 for spread in each]),
            Line("p95", "accent", [spread.p95 for spread in each]),
            Line("p99", "waiting", [spread.p99 for spread in each]),
        ],
    )


def _drawn(line: Line, top: float) -> list[Markup]:
    """A line, in pieces where there is nothing, and a dot where a piece is a single point."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for place, value in enumerate(line.values):
        if value is None:
            pieces.append([])
        else:
            x = WIDTH * place / max(1, len(line.values) - 1)
            pieces[-1].append((x, HEIGHT - HEIGHT * value / top))
    return [_piece(each if len(each) > 1 else [each[0], (each[0][0] + 1, each[0][1])], line) for each in pieces if each]


def _piece(points: Sequence[tuple[float, float]], line: Line) -> Markup:
    told = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return Markup('<polyline class="{}" points="{}"/>').format(line.tone, told)


def _rounded(value: float | None) -> float | None:
    """To four figures: more are not to be seen, and what has not changed is not sent again."""
    return None if value is None else float(f"{value:.4g}")
