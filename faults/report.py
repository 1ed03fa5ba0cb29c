"""What came out: a line for the terminal, a page for people, JSON for programs."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from faults.suite import FAULTS, Result

Say: TypeAlias = Callable[[str], None]
PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
_BEGIN, _END = "<!-- figures: begin -->", "<!-- figures: end -->"


def line(result: Result) -> str:
    """One fault on one line."""
    figures = ", ".join(f"{name} {value}" for name, value in result.figures.items())
    if result.skipped:
        return f"{result.name:<4} skipped         {result.title}: {result.skipped}"
    word = "holds" if result.holds else f"{len(result.violations)} WRONG"
    return f"{result.name:<4} {word:<8} {result.took:4.0f} s  {result.title}: {figures}"


def write(results: Sequence[Result], folder: Path) -> list[dict[str, Any]]:
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
    return ordered


def write_page(told: Sequence[dict[str, Any]]) -> None:
    """The figures in the documentation, between two marks."""
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    PAGE.write_text(f"{before}{_BEGIN}\n{_table(told)}\n{_END}{after}")


def _told(result: Result) -> dict[str, Any]:
    return {
        "fault": result.name,
        "title": result.title,
        "seed": result.seed,
        "seconds": round(result.took, 1),
        "figures": {"skipped": result.skipped} if result.skipped else result.figures,
        "violations": [str(each) for each in result.violations],
    }


def _table(told: Sequence[dict[str, Any]]) -> str:
    rows = ["| | fault | what came out |", "|---|---|---|"]
    for each in told:
        figures = "; ".join(f"{name}: {value}" for name, value in each["figures"].items())
        rows.append(f"| {each['fault']} | {each['title']} | {'**does not hold**' if each['violations'] else figures} |")
    return "\n".join(rows)
