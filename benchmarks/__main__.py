"""Measures Holdfast, its peers and the server alone, side by side.

    python -m benchmarks                          everything, in an hour and a half; peers are installed into
                                                  benchmarks/.peers first
    python -m benchmarks --quick                  Holdfast and the server alone, in about two minutes
    python -m benchmarks --only drain,bulk --systems holdfast,graphile-worker --tasks 50000
    python -m benchmarks --only idle --add        measured once more, or later than the rest; the other figures stay
    python -m benchmarks --publish                the page and the chart of docs/, from the last full run

Starts embedded servers with fsync and synchronous_commit on, unless a URL is given: that server must allow to
create databases. Prints the machine, versions, settings and a table; writes results.json, report.md and chart.svg, anew
after each workload.
"""

import argparse
import json
import signal
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks import peers
from benchmarks.bench import QUICK, Sizes
from benchmarks.chart import draw
from benchmarks.place import place
from benchmarks.report import page, terminal
from benchmarks.results import Results
from benchmarks.runner import run
from benchmarks.systems import SYSTEMS
from benchmarks.workloads import WORKLOADS

LAST = Path(__file__).parent / "last"
DOCS = Path(__file__).parent.parent / "docs"


def main(arguments: list[str] | None = None) -> None:
    given = _parser().parse_args(arguments)
    if given.publish:
        publish(LAST)
        return
    names, chosen = _names(given.systems), _names(given.only)
    _refuse_unknown("system", names, [s.name for s in SYSTEMS])
    _refuse_unknown("workload", chosen, [w.name for w in WORKLOADS])
    sizes = QUICK if given.quick else Sizes()
    if given.tasks:
        sizes = replace(sizes, tasks=given.tasks)
    if given.rounds:
        sizes = replace(sizes, rounds=given.rounds)
    if not names and given.quick:
        names = ["holdfast", "raw SQL"]
    systems = [s for s in SYSTEMS if not names or s.name in names]
    workloads = [w for w in WORKLOADS if w.name in chosen or (not chosen and (w.quick or not given.quick))]
    troubles = peers.install() if any(s.package for s in systems) else {}
    absent = {
        s.name: troubles.get(s.package, "it is not installed")
        for s in systems
        if s.package and peers.version(s) is None
    }
    systems = [s for s in systems if s.name not in absent]
    for number in (signal.SIGTERM, signal.SIGHUP):  # or its server and workers would outlive it
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    earlier = _last(given.output) if given.add else None

    def keep(found: Results) -> None:
        write(found if earlier is None else found.added_to(earlier), given.output)

    with place(given.url) as server:
        results = run(
            server,
            workloads,
            systems,
            sizes,
            absent=absent,
            versions=peers.versions(),
            keep=keep,
        )
    print(json.dumps(results.to_json(), indent=1) if given.json else terminal(results))
    if not given.json:
        print(f"\n{given.output}/results.json, report.md and chart.svg")
    if results.failures and any("holdfast" in failed for failed in results.failures.values()):
        sys.exit(1)


def write(results: Results, folder: Path) -> None:
    """The three files of a run."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(results.to_json(), indent=1) + "\n")
    (folder / "report.md").write_text(page(results, "chart.svg"))
    (folder / "chart.svg").write_text(draw(results))


def _last(folder: Path) -> Results:
    """What was measured before."""
    return Results.from_json(json.loads((folder / "results.json").read_text()))


def publish(folder: Path) -> None:
    """The last full run becomes the page of the documentation."""
    results = _last(folder)
    (DOCS / "benchmarks.md").write_text(page(results, "_static/benchmarks.svg"))
    (DOCS / "_static" / "benchmarks.svg").write_text(draw(results))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer tasks, workloads and systems: two minutes")
    parser.add_argument("--only", default="", help="workloads: " + ", ".join(w.name for w in WORKLOADS))
    parser.add_argument("--systems", default="", help="systems: " + ", ".join(s.name for s in SYSTEMS))
    parser.add_argument("--tasks", type=int, help="how many tasks are enqueued and drained (100000)")
    parser.add_argument("--rounds", type=int, help="how often each figure is measured (3)")
    parser.add_argument("--url", help="a server to measure on, instead of an embedded one")
    parser.add_argument("--output", type=Path, default=LAST, help="a folder for the files (benchmarks/last)")
    parser.add_argument("--add", action="store_true", help="keep the figures of other workloads that are there")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    parser.add_argument("--publish", action="store_true", help="measure nothing: write docs/ from the last run")
    return parser


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _refuse_unknown(what: str, names: list[str], known: list[str]) -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"no such {what}: {', '.join(unknown)}. There are: {', '.join(known)}")


if __name__ == "__main__":
    main()
