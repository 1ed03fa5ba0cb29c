"""F30: hours of mixed load with a few faults. Nothing may grow: memory, descriptors, threads, connections, tables."""

import asyncio
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression, mean

from faults.database import end_sessions
from faults.lab import Lab, Member
from faults.places import run_sql
from faults.suite import Figures, fault

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
    "descriptors of a worker": Limit("", 0.10, 4),
    "threads of a worker": Limit("", 0.10, 3),
    "connections": Limit("", 0.10, 6),
    "live tables": Limit("MB", 0.25, 8),
}


@fault("F30", "hours of load with a few faults", seconds=3600, short=5, alone=True)
async def soak(lab: Lab) -> Figures:
    """Memory, descriptors, threads, connections and the live tables have no slope."""
    lab.lease = 3.0
    seen: dict[str, list[tuple[float, float]]] = defaultdict(list)
    begun = time.monotonic()
    every = max(0.5, min(5.0, lab.seconds / 100))
    async with lab.under_load():
        trouble = asyncio.create_task(_trouble(lab, max(5.0, min(60.0, lab.seconds / 20))))
        try:
            while (at := time.monotonic() - begun) < lab.seconds:
                await asyncio.sleep(every)
                for name, value in (await asyncio.to_thread(_measured, lab)).items():
                    seen[name].append((at, value))
                lab.say(", ".join(f"{name} {values[-1][1]:.1f}" for name, values in seen.items()))
        finally:
            trouble.cancel()
    figures = {}
    for name, limit in LIMITS.items():
        counted = [(at, value) for at, value in seen[name] if at >= WARM_UP * lab.seconds]
        grown, usual = _growth(counted)
        lab.require(
            grown <= max(limit.least, limit.share * usual), "F30", f"{name}: {usual:.1f} and {grown:+.1f} {limit.unit}"
        )
        figures[name] = f"{usual:.1f} {limit.unit} ({grown:+.2f})".replace("  ", " ")
    return {"minutes": f"{lab.seconds / 60:.0f}", **figures}


def _growth(counted: list[tuple[float, float]]) -> tuple[float, float]:
    """What a line through the values adds from the first to the last, and their mean."""
    times, values = zip(*counted, strict=True)
    slope, _ = linear_regression(times, values)
    return slope * (times[-1] - times[0]), mean(values)


def _measured(lab: Lab) -> dict[str, float]:
    steady = lab.members[:MEASURED]
    sizes = " + ".join(f"pg_total_relation_size('holdfast.{name}')" for name in TABLES)
    (tables, connections) = run_sql(
        lab.direct,
        f"SELECT ({sizes})::float8, (SELECT count(*)::float8 FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name LIKE 'holdfast%')",
    )[0]
    return {
        "memory of a worker": mean(_memory(each) for each in steady),
        "descriptors of a worker": mean(len(list(_proc(each).joinpath("fd").iterdir())) for each in steady),
        "threads of a worker": mean(len(list(_proc(each).joinpath("task").iterdir())) for each in steady),
        "connections": connections,
        "live tables": tables / 1e6,
    }


def _proc(member: Member) -> Path:
    return Path(f"/proc/{member.process.pid}")


def _memory(member: Member) -> float:
    """Resident megabytes."""
    pages = int((_proc(member) / "statm").read_text().split()[1])
    return pages * 4096 / 1e6


async def _trouble(lab: Lab, pause: float) -> None:
    """Now and then somebody is killed, or all sessions end; never those that are measured."""
    while True:
        await asyncio.sleep(pause * lab.chance.uniform(0.5, 1.5))
        if lab.chance.random() < 0.5:
            victims = [each for each in lab.members[MEASURED:] if each.is_alive]
            lab.chance.choice(victims).kill()
            lab.start()
        else:
            await asyncio.to_thread(end_sessions, lab, "holdfast%")
