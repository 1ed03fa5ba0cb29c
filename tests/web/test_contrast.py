"""Every text can be read: contrasts of the stylesheet's colours in both themes, as WCAG 2 computes them (level AA)."""

import re
from importlib import resources

import pytest

CSS = resources.files("holdfast.web").joinpath("static", "style.css").read_text("utf-8")
READABLE, VISIBLE = 4.5, 3.0
"""The least contrast of a text, and of anything else that must be seen."""

TONES = ("good", "running", "due", "warning", "bad", "waiting", "accent")
TEXTS = ("ink", "soft", "faint", *TONES)
GROUNDS = ("ground", "paper", "raised")
PAIRS = [
    *((text, ground) for text in TEXTS for ground in GROUNDS),
    *((tone, f"{tone}-soft") for tone in TONES),
    *((text, "due-soft") for text in ("ink", "soft")),
    ("accent-ink", "accent"),
    ("paper", "bad"),
]


def variables(block: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))


def themes() -> dict[str, dict[str, str]]:
    light, dark = re.findall(r":root \{(.*?)\n *\}", CSS, re.DOTALL)
    return {"light": variables(light), "dark": variables(light) | variables(dark)}


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_the_contrast_is_computed_as_the_standard_does() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_can_be_read_on_every_ground(theme: str) -> None:
    colours = themes()[theme]
    found = {pair: contrast(colours[pair[0]], colours[pair[1]]) for pair in PAIRS}
    assert {pair: round(ratio, 2) for pair, ratio in found.items() if ratio < READABLE} == {}
    rings = {ground: contrast(colours["accent"], colours[ground]) for ground in GROUNDS}
    assert min(rings.values()) >= VISIBLE, rings


def test_no_text_has_a_colour_that_is_only_for_lines() -> None:
    used = set(re.findall(r"(?<![\w-])color: var\(--([\w-]+)\)", CSS))
    assert used - {*TEXTS, "accent-ink", "paper"} == set()
    for at in re.findall(r"([^{}]*)\{[^{}]*(?<![\w-])color: var\(--paper\)[^{}]*\}", CSS):
        assert "danger" in at or "production" in at, at
