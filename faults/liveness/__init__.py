"""Liveness: workers and loads chosen by chance, and rules that an outsider can check (W1, W2, W4, L9).

Each set-up has a seed of its own: the first one that of the run, the next ones those that follow. So
`--only liveness --seed N --minutes 0.1` tries the one again that was found wrong.
"""

import asyncio
import time

from faults.checker import Violation
from faults.lab import Lab
from faults.liveness.rules import Seen, check
from faults.liveness.run import Lateness, Run
from faults.liveness.setup import choose
from faults.suite import Figures, fault

SIDE_BY_SIDE = 4
"""Set-ups that are tried at the same time: most of theirs is waiting."""


@fault("liveness", "set-ups of workers and loads by chance", seconds=120, short=6)
async def liveness(lab: Lab) -> Figures:
    """What is due starts where a slot is free; nothing is hoarded; no loop is silent; SIGTERM ends every worker."""
    seeds = iter(range(lab.seed, lab.seed + 1_000_000))
    until = time.monotonic() + lab.seconds
    all_seen: list[Seen] = []

    async def try_some() -> None:
        while time.monotonic() < until:
            run = Run(choose(seed := next(seeds)), lab.place, lateness)
            try:
                seen = await run.seen()
            except Exception as error:
                lab.violations.append(Violation("liveness", f"seed {seed}: {error!r}\n{run.setup}"))
                continue
            all_seen.append(seen)
            lab.say(f"{len(all_seen)} set-ups")
            lab.violations += [
                Violation(each.rule, f"{each.text}\n  seed {seed}: {run.setup}") for each in check(seen)[:5]
            ]

    with Lateness() as lateness:
        await asyncio.gather(*(try_some() for _ in range(SIDE_BY_SIDE)))
    return {
        "set-ups": str(len(all_seen)),
        "tasks": str(sum(len(seen.tasks) for seen in all_seen)),
        "attempts": str(sum(len(seen.attempts) for seen in all_seen)),
    }
