"""F30: hours of mixed load with a few faults. Nothing may grow: memory, descriptors, threads, connections, tables."""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression, mean
from typing import TypeAlias

from faults.database import end_sessions
from faults.lab import CONCURRENCY, Lab, Member
from faults.places import run_sql
from faults.suite import Figures, fault
from holdfast._db.pool import SIZE

WARM_UP = 0.3
"""The share of the time that does not count: caches fill, and autovacuum finds its pace."""
MEASURED = 2
"""Workers that are left alone; the others are killed now and then."""
TABLES = ("task", "key", "worker", "progress", "occurrence")
"""Those that must stay small, whatever has gone through them. The history grows until its retention."""


@dataclass(frozen=True)
class Limit:
    """How much may be added between the end of the warm-up and the end, by a linear fit: a share, or so much."""

    unit: str
    share: float
    least: float


LIMITS = {
    "memory of a worker": Limit("MB", 0.10, 8),
    "descriptors of a worker, but for sockets": Limit("", 0.10, 2),
    "threads of a worker": Limit("", 0.10, 3),
    "connections of loops": Limit("", 0.10, 3),
    "live tables": Limit("MB", 0.25, 8),
}

CALLERS, STEPS, SOCKETS = "connections of callers", "connections of steps", "sockets of a worker"
POOLS = {"holdfast": CALLERS, "holdfast step": STEPS}
"""Pools open what a busy moment asks for, and give it back one by one, after minutes. Whenever all sessions are ended
they begin anew, so a line through their values says nothing: they have a size instead, beyond which they never go."""
OTHER_SOCKETS = 12
"""Of a worker, beside those of its steps: six loops', four for signals and wake-ups, two that are being replaced."""


@fault("F30", "hours of load with a few faults", seconds=3600, short=5, alone=True)
async def soak(lab: Lab) -> Figures:
    """Memory, descriptors, threads, connections and the live tables have no slope."""
    lab.lease = 3.0
    seen: dict[str, list[tuple[float, float]]] = defaultdict(list)
    begun = time.monotonic()
    every = max(0.5, min(5.0, lab.seconds / 100))
    async with lab.under_load():
        harm: Counter[str] = Counter()
        trouble = asyncio.create_task(_trouble(lab, max(5.0, min(60.0, lab.seconds / 20)), harm))
        try:
            while (at := time.monotonic() - begun) < lab.seconds and not trouble.done():
                await asyncio.sleep(every)
                for name, value in (await asyncio.to_thread(_measured, lab)).items():
                    seen[name].append((at, value))
                lab.say(", ".join(f"{name} {values[-1][1]:.1f}" for name, values in seen.items()))
        finally:
            trouble.cancel()
        with suppress(asyncio.CancelledError):
            await trouble  # it ends by itself only by an error
    figures, wrong = judge(seen, lab.seconds, most(lab.workers))
    for text in wrong:
        lab.require(False, "F30", text)
    return {"minutes": f"{lab.seconds / 60:.0f}", **{name: str(count) for name, count in harm.items()}, **figures}


Series: TypeAlias = Sequence[tuple[float, float]]
"""Seconds since the beginning, and what was measured then."""


def judge(seen: Mapping[str, Series], seconds: float, bounds: Mapping[str, int]) -> tuple[Figures, list[str]]:
    """What came out, and what is wrong with it. `bounds`: what may never be more than so many."""
    figures: Figures = {}
    wrong = []
    for name, limit in LIMITS.items():
        grown, usual = _growth([(at, value) for at, value in seen[name] if at >= WARM_UP * seconds])
        figures[name] = f"{usual:.1f} {limit.unit} ({grown:+.2f})".replace("  ", " ")
        if grown > max(limit.least, limit.share * usual):
            wrong.append(f"{name}: {figures[name]}")
    for name, bound in bounds.items():
        values = [value for _, value in seen[name]]
        figures[name] = f"{mean(values):.1f}, never more than {max(values):.0f} of {bound}"
        if max(values) > bound:
            wrong.append(f"{name}: {figures[name]}")
    return figures, wrong


def _growth(counted: Series) -> tuple[float, float]:
    """What a line through the values adds from the first to the last, and their mean."""
    times, values = zip(*counted, strict=True)
    slope, _ = linear_regression(times, values)
    return slope * (times[-1] - times[0]), mean(values)


def most(workers: int) -> dict[str, int]:
    """The sizes of pools, all workers' together. One connection of callers is kept for enqueues."""
    return {CALLERS: SIZE + 1, STEPS: workers * CONCURRENCY, SOCKETS: OTHER_SOCKETS + CONCURRENCY}


_OPEN = """
SELECT application_name FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'holdfast%'
"""


def _measured(lab: Lab) -> dict[str, float]:
    steady = lab.members[:MEASURED]
    sizes = " + ".join(f"pg_total_relation_size('holdfast.{name}')" for name in TABLES)
    ((tables,),) = run_sql(lab.direct, f"SELECT ({sizes})::float8")
    connections = Counter(name for (name,) in run_sql(lab.direct, _OPEN))
    return {
        "memory of a worker": mean(_memory(each) for each in steady),
        "descriptors of a worker, but for sockets": mean(_descriptors(each)[False] for each in steady),
        SOCKETS: max(_descriptors(each)[True] for each in steady),
        "threads of a worker": mean(len(list(_proc(each).joinpath("task").iterdir())) for each in steady),
        "connections of loops": sum(count for name, count in connections.items() if name not in POOLS),
        **{told: connections[name] for name, told in POOLS.items()},
        "live tables": tables / 1e6,
    }


def _proc(member: Member) -> Path:
    return Path(f"/proc/{member.process.pid}")


def _descriptors(member: Member) -> Counter[bool]:
    """How many are sockets, and how many are not."""
    found: Counter[bool] = Counter()
    for each in (_proc(member) / "fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found[str(each.readlink()).startswith("socket:")] += 1
    return found


def _memory(member: Member) -> float:
    """Resident megabytes."""
    pages = int((_proc(member) / "statm").read_text().split()[1])
    return pages * 4096 / 1e6


async def _trouble(lab: Lab, pause: float, harm: Counter[str]) -> None:
    """Now and then somebody is killed, but never those that are measured, or all sessions end."""
    while True:
        await asyncio.sleep(pause * lab.chance.uniform(0.5, 1.5))
        if lab.chance.random() < 0.5:
            victims = [each for each in lab.members[MEASURED:] if each.is_alive]
            lab.chance.choice(victims).kill()
            lab.start()
            harm["workers killed"] += 1
        else:
            await asyncio.to_thread(end_sessions, lab, "holdfast%")
            harm["times all sessions ended"] += 1
