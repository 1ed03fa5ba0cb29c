"""What came out: a line for the terminal, a page for people, JSON for programs."""

import json
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from faults.suite import Result

Say: TypeAlias = Callable[[str], None]
PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
_BEGIN, _END = "<!-- figures: begin -->", "<!-- figures: end -->"


def line(result: Result) -> str:
    """One fault on one line."""
    figures = ", ".join(f"{name} {value}" for name, value in result.figures.items())
    word = "holds" if result.holds else f"{len(result.violations)} WRONG"
    return f"{result.name:<4} {word:<8} {result.took:4.0f} s  {result.title}: {figures}"


def table(results: Sequence[Result]) -> str:
    """All faults as a Markdown table."""
    rows = ["| | fault | what came out |", "|---|---|---|"]
    for result in results:
        figures = "; ".join(f"{name}: {value}" for name, value in result.figures.items())
        rows.append(f"| {result.name} | {result.title} | {figures if result.holds else '**does not hold**'} |")
    return "\n".join(rows)


def write(results: Sequence[Result], seed: int, folder: Path) -> None:
    """`faults.md` and `faults.json` in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    wrong = "\n".join(f"- {result.name}: {each}" for result in results for each in result.violations)
    (folder / "faults.md").write_text(
        f"# Faults\n\nSeed {seed}.\n\n{table(results)}\n" + (f"\n## Wrong\n\n{wrong}\n" if wrong else "")
    )
    told = [
        {
            "fault": result.name,
            "title": result.title,
            "seed": result.seed,
            "seconds": round(result.took, 1),
            "figures": result.figures,
            "violations": [str(each) for each in result.violations],
        }
        for result in results
    ]
    (folder / "faults.json").write_text(json.dumps({"seed": seed, "faults": told}, indent=2, ensure_ascii=False) + "\n")


def write_page(results: Sequence[Result], seed: int) -> None:
    """The figures in the documentation, between two marks."""
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    told = f"Python {platform.python_version()}, seed {seed}."
    PAGE.write_text(f"{before}{_BEGIN}\n{table(results)}\n\n{told}\n{_END}{after}")
