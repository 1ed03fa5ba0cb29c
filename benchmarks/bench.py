"""What a workload is, and what it is given: a server with fresh databases, and how much of everything."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec, TypeAlias, TypeVar

import psycopg

from benchmarks.place import Place
from benchmarks.systems import Crew, System, Trouble, ask

P = ParamSpec("P")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    tasks: int = 100_000
    seconds: float = 6.0
    samples: int = 500
    mixed_seconds: float = 10.0
    behind: int = 1_000_000
    unroutable: int = 100_000
    snapshot: int = 300_000
    settle_seconds: float = 3.0
    idle_after: float = 45.0
    idle_seconds: float = 60.0
    rounds: int = 3
    most_turns: int = 9


QUICK = Sizes(
    tasks=40_000,
    seconds=1.0,
    samples=100,
    mixed_seconds=3.0,
    behind=100_000,
    unroutable=20_000,
    snapshot=60_000,
    settle_seconds=2.0,
    most_turns=1,
)
"""For two minutes."""


@dataclass
class Bench:
    """Measures on one server. `found` has what was measured so far in this round, by workload and system."""

    place: Place
    sizes: Sizes
    found: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)

    def apart(self, system: System, what: str = "apart") -> "Bench":
        """For what is measured at the same time as something else."""
        return replace(self, place=self.place.apart(f"{what}_{_short(system)}"))

    def beside(self, number: int) -> "Bench":
        """On one of several servers: for what goes on by turns with something else."""
        return replace(self, place=self.place.beside(number))

    def count(self, system: System, tasks: int | None = None) -> int:
        """How many tasks a system gets: slow ones get fewer."""
        return max(50, int((self.sizes.tasks if tasks is None else tasks) * system.few))

    def fresh(self, system: System, plant: str = "", planting: Callable[[], None] | None = None) -> None:
        """A fresh database with the system's tables, and what `planting` puts there, which is done only once."""
        name = _short(system)
        if not self.place.exists(name):
            self.place.create()
            ask(system, "setup", self.place.work, {})
            self.place.rename(name)
        if plant and planting is not None and not self.place.exists(f"{name}_{plant}"):
            self.place.create(template=name)
            planting()
            self.place.execute("VACUUM ANALYZE", at_work=True)
            self.place.rename(f"{name}_{plant}")
        self.place.create(template=f"{name}_{plant}" if plant else name)

    def ask(self, system: System, verb: str, **options: Any) -> dict[str, Any]:
        return ask(system, verb, self.place.work, {"pgbench": self.place.pgbench, **options})

    def fill(self, system: System, tasks: int, **options: Any) -> None:
        """Tasks that wait, in tables that are analyzed, as they are once autovacuum has come by.

        Whether it has is chance otherwise, and graphile-worker drains half as fast before.
        """
        self.ask(system, "bulk", tasks=tasks, **options)
        self.place.execute("ANALYZE", at_work=True)

    def rate(self, system: System, verb: str, **options: Any) -> float:
        answer = self.ask(system, verb, **options)
        return float(answer["count"] / answer["seconds"])

    def drain(self, system: System, tasks: int, processes: int = 1, **options: Any) -> float:
        """Tasks per second from the start of the workers to the last task, all of which are in the database already."""
        if "drain" in system.does:
            return self.rate(system, "drain", tasks=tasks, processes=processes)
        with Crew.of(system, self.place, processes, **options) as crew:
            began = crew.go()
            crew.until(tasks)
            return tasks / (crew.ended - began)


Found: TypeAlias = dict[str, float]
Turn: TypeAlias = Callable[[Bench, Sequence[System]], Iterable[Found | str]]
"""What was found of each system, or why nothing was."""


def one_by_one(measure: Callable[[Bench, System], Found]) -> Turn:
    """One system after the other."""
    return lambda bench, systems: (or_why_not(measure, bench, system) for system in systems)


def at_once(measure: Callable[[Bench, System], Found]) -> Turn:
    """All systems at the same time, each in a database of its own: they need hardly anything of the machine."""

    def turn(bench: Bench, systems: Sequence[System]) -> Iterable[Found | str]:
        with ThreadPoolExecutor(max(1, len(systems))) as threads:
            return list(threads.map(lambda system: or_why_not(measure, bench.apart(system), system), systems))

    return turn


def together(measure: Callable[[Bench, Sequence[System]], list[Found]]) -> Turn:
    """All systems by one measurement; if one of them fails, there is nothing of any."""

    def turn(bench: Bench, systems: Sequence[System]) -> Iterable[Found | str]:
        found = or_why_not(measure, bench, systems)
        return [found] * len(systems) if isinstance(found, str) else found

    return turn


def or_why_not(measure: Callable[P, Made], *args: P.args, **kwargs: P.kwargs) -> Made | str:
    """What was measured, or why it could not be."""
    try:
        return measure(*args, **kwargs)
    except (Trouble, psycopg.Error) as error:
        return str(error).strip()


@dataclass(frozen=True)
class Figure:
    """One number that a workload gives."""

    title: str
    unit: str
    higher_is_better: bool = True


@dataclass(frozen=True)
class Workload:
    """One workload: what it needs of a system, and how it measures it."""

    name: str
    title: str
    figures: Mapping[str, Figure]
    turn: "Turn"
    """Measures some systems, each once: `one_by_one`, `at_once` or `together`."""
    needs: Sequence[str] = ()
    quick: bool = True
    turns: int = 1
    """How many turns fast systems take in each round; what counts is the median of them. Several for what takes
    seconds, in which a machine may be busy with something else."""

    def suits(self, system: System) -> bool:
        return all(need in system.does for need in self.needs)


def quantile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def _short(system: System) -> str:
    return system.adapter.partition(".")[0]
