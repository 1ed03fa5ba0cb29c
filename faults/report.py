"""What came out: a line for the terminal, a page for people, JSON for programs."""

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from faults.suite import FAULTS, Result

Say: TypeAlias = Callable[[str], None]
PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"


def line(result: Result) -> str:
    """One fault on one line."""
    figures = ", ".join(f"{name} {value}" for name, value in result.figures.items())
    if result.skipped:
        return f"{result.name:<4} skipped         {result.title}: {result.skipped}"
    word = "holds" if result.holds else f"{len(result.violations)} WRONG"
    return f"{result.name:<4} {word:<8} {result.took:4.0f} s  {result.title}: {figures}"


def write(results: Sequence[Result], folder: Path) -> None:
    """`faults.md` and `faults.json` in a folder; faults that were not run this time stay as they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "faults.json"
    told = {each["fault"]: each for each in json.loads(file.read_text())["faults"]} if file.exists() else {}
    told |= {result.name: _told(result) for result in results}
    ordered = [told[name] for name in FAULTS if name in told]
    file.write_text(json.dumps({"faults": ordered}, indent=2, ensure_ascii=False) + "\n")
    wrong = "\n".join(f"- {each['fault']}: {text}" for each in ordered for text in each["violations"])
    (folder / "faults.md").write_text(
        f"# Faults\n\n{_table(ordered)}\n" + (f"\n## Wrong\n\n{wrong}\n" if wrong else "")
    )


def may_be_told(names: Sequence[str]) -> bool:
    """Whether the documentation can be written from these: from one whole run, or from the soak alone."""
    return {name for name in FAULTS if not FAULTS[name].alone} == set(names) or all(FAULTS[n].alone for n in names)


def write_page(results: Sequence[Result], page: Path = PAGE) -> None:
    """The figures in the documentation, between marks: those of the faults, or of the soak, with the words on the run.

    Nothing of an earlier run is left there.
    """
    text = page.read_text()
    if faults := [_told(result) for result in results if not FAULTS[result.name].alone]:
        minutes = sum(result.took for result in results) / 60
        text = _between(text, "figures", f"{_run(results[0].seed, minutes)}\n\n{_table(faults)}")
    for result in results:
        if FAULTS[result.name].alone:
            rows = [f"| {name} | {value} |" for name, value in _said(_told(result))]
            figures = "\n".join(["| | |", "|---|---|", *rows])
            text = _between(text, "soak", f"{_run(result.seed, result.took / 60)}\n\n{figures}")
    page.write_text(text)


def _between(text: str, what: str, told: str) -> str:
    begin, end = f"<!-- {what}: begin -->", f"<!-- {what}: end -->"
    before, found, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise ValueError(f"the page has no place for this: {begin} … {end}")
    return f"{before}{begin}\n{told}\n{end}{after}"


def _run(seed: int, minutes: float) -> str:
    machine = f"{os.cpu_count()} cores, under a load of {os.getloadavg()[1]:.0f} at its end"
    return f"A run of {minutes:.0f} minutes with seed {seed}, on {machine}."


def _told(result: Result) -> dict[str, Any]:
    return {
        "fault": result.name,
        "title": result.title,
        "seed": result.seed,
        "seconds": round(result.took, 1),
        "figures": {"skipped": result.skipped} if result.skipped else result.figures,
        "violations": [str(each) for each in result.violations],
    }


def _said(told: dict[str, Any]) -> list[tuple[str, str]]:
    return [("**does not hold**", text) for text in told["violations"]] + list(told["figures"].items())


def _table(told: Sequence[dict[str, Any]]) -> str:
    rows = ["| | fault | what came out |", "|---|---|---|"]
    for each in sorted(told, key=lambda each: _in_order(each["fault"])):
        figures = "; ".join(f"{name}: {value}" for name, value in each["figures"].items())
        rows.append(f"| {each['fault']} | {each['title']} | {'**does not hold**' if each['violations'] else figures} |")
    return "\n".join(rows)


def _in_order(name: str) -> tuple[str, int, str]:
    """F5b before F12; what has no number comes last."""
    letters, number, rest = re.fullmatch(r"([A-Za-z]+)(\d*)(\w*)", name).groups()  # type: ignore[union-attr]
    return letters, int(number or 0), rest
