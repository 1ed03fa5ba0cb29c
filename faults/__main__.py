"""`python -m faults`: all faults, one after the other, and a report."""

import argparse
import logging
import random
import signal
import sys
import time
from pathlib import Path

from faults import report
from faults.all import FAULTS
from faults.places import own_server
from faults.suite import Result, run

SPARE = 15.0
"""Seconds that a fault takes beside its own: to start workers, and to wait for the rest."""


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers and workers are ended too
    for ignored in (signal.SIGINT, signal.SIGQUIT):  # in the background of a script; workers would inherit that
        if signal.getsignal(ignored) is signal.SIG_IGN:
            signal.signal(ignored, signal.SIG_DFL)
    logging.getLogger("psycopg").setLevel(logging.CRITICAL)  # that connections break is no news here
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1_000_000)
    names = options.only.split(",") if options.only else [each.name for each in FAULTS.values() if not each.alone]
    if unknown := [name for name in names if name not in FAULTS]:
        print(f"there is no fault {', '.join(unknown)}: choose from {', '.join(FAULTS)}", file=sys.stderr)
        return 2
    if options.docs and not report.may_be_told(names):
        print("--docs wants a run of all faults, or of the soak alone (--only F30)", file=sys.stderr)
        return 2
    wanted = sum(FAULTS[name].seconds for name in names)
    left = options.minutes * 60 - SPARE * len(names)
    scale = max(0.1, min(1.0 if options.only is None else 10.0, left / wanted)) if options.minutes else 1.0
    print(f"seed {seed}, {len(names)} faults")
    results: list[Result] = []
    with own_server() as place:
        for name in names:
            chosen = FAULTS[name]
            say = _progress(name)
            result = run(chosen, place, seed, chosen.seconds * scale, say)
            results.append(result)
            say("")
            print(report.line(result), flush=True)
            for violation in result.violations[:20]:
                print(f"    {violation}", flush=True)
    report.write(results, options.report)
    print(f"report: {options.report}/faults.md and .json")
    if options.docs:
        report.write_page(results)
    return 0 if all(result.holds for result in results) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m faults", description="Runs workers under faults and checks them.")
    parser.add_argument("--only", help="some faults: F1,F5")
    parser.add_argument("--seed", type=int, help="the chance of an earlier run")
    parser.add_argument("--minutes", type=float, default=30.0, help="about how long all may take (30)")
    parser.add_argument("--report", type=Path, default=Path("faults-report"), help="the folder of the report")
    parser.add_argument("--docs", action="store_true", help="write the figures of this run into docs/reliability.md")
    return parser.parse_args()


def _progress(name: str) -> "report.Say":
    """What happens just now, on one line of a terminal."""
    begun = time.monotonic()

    def say(text: str) -> None:
        if sys.stderr.isatty():
            told = f"{name} {time.monotonic() - begun:4.0f} s  {text}" if text else ""
            print(f"\r\x1b[K{told}", end="", file=sys.stderr, flush=True)

    return say


if __name__ == "__main__":
    sys.exit(main())
