"""Set-ups of workers and loads, chosen by a seed: what production has, in the span of a few seconds."""

import random
from dataclasses import dataclass

from faults.liveness.tasks import KINDS

QUEUES = ("a", "b", "c")
LOAD_SECONDS = 1.5
MOST_WORK = 4.0
"""Seconds that one burst keeps all slots busy at most."""


@dataclass(frozen=True)
class Burst:
    """Tasks that are enqueued together. `spread`: they become due one after another, so many seconds apart."""

    at: float
    queue: str
    kind: str
    count: int
    seconds: float
    delay: float = 0.0
    spread: float = 0.0
    priority: int = 0
    failures: int = 0
    suspects: int = 0
    """So many of them have a crash on record."""


@dataclass(frozen=True)
class Pause:
    """A queue is paused for a while."""

    queue: str
    at: float
    until: float


@dataclass(frozen=True)
class Setup:
    """Workers that are alike, what they are given to do, and what happens to one of them."""

    seed: int
    queues: dict[str, int | None]
    """The queues that are served, with their limits."""
    workers: int
    concurrency: int
    poll: float
    bursts: tuple[Burst, ...]
    pauses: tuple[Pause, ...] = ()
    kill_at: float | None = None
    stop_at: float | None = None

    @property
    def served(self) -> str:
        """As `holdfast worker -q` takes it."""
        return ",".join(name if limit is None else f"{name}:{limit}" for name, limit in self.queues.items())

    def slots(self, queue: str) -> int:
        """How many steps of a queue all workers together execute at once."""
        return self.workers * min(self.concurrency, self.queues[queue] or self.concurrency)

    def __str__(self) -> str:
        bursts = "\n".join(f"    {burst}" for burst in self.bursts)
        return (
            f"{self.workers} x holdfast worker -q {self.served} -c {self.concurrency} --poll {self.poll:g}"
            f", killed at {self.kill_at}, stopped at {self.stop_at}, {self.pauses}\n{bursts}"
        )


def choose(seed: int) -> Setup:
    """The set-up of a seed: the same again for the same."""
    chance = random.Random(seed)
    names = QUEUES[: chance.randint(1, len(QUEUES))]
    queues = {name: chance.choice([None, None, 1, 2, 3]) for name in names}
    workers = chance.choice([1, 1, 2, 3])
    concurrency = chance.choice([1, 2, 5, 10, 12])
    limits = [limit for limit in queues.values() if limit is not None]
    setup = Setup(
        seed,
        queues,
        workers,
        max(concurrency, *limits) if limits else concurrency,
        poll=chance.choice([0.2, 1.0, 5.0]),
        bursts=(),
    )
    bursts = tuple(_burst(chance, setup) for _ in range(chance.randint(1, 6)))
    pauses: tuple[Pause, ...] = ()
    if chance.random() < 0.25:
        begin = chance.uniform(0, LOAD_SECONDS)
        pauses = (Pause(chance.choice(names), begin, begin + chance.uniform(0.3, 2)),)
    end = chance.choice(["kill", "stop", "", ""]) if workers > 1 else ""
    moment = chance.uniform(0.2, LOAD_SECONDS)
    return Setup(
        seed,
        queues,
        workers,
        setup.concurrency,
        setup.poll,
        bursts,
        pauses,
        kill_at=moment if end == "kill" else None,
        stop_at=moment if end == "stop" else None,
    )


def _burst(chance: random.Random, setup: Setup) -> Burst:
    queue = chance.choice(list(setup.queues))
    seconds = chance.choice([0, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 2.0])
    most = int(min(400, max(1, setup.slots(queue) * MOST_WORK / max(seconds, 0.001))))
    count = chance.randint(1, most)
    failures = chance.choice([1, 2]) if chance.random() < 0.15 else 0
    return Burst(
        at=chance.choice([0.0, chance.uniform(0, LOAD_SECONDS)]),
        queue=queue,
        kind=chance.choice(KINDS),
        count=max(1, count // (1 + failures)),
        seconds=seconds,
        delay=chance.choice([0.0, 0.0, chance.uniform(0.05, 1.5)]),
        spread=chance.choice([0.0, 0.0, 0.005]) if count < 50 else 0.0,
        priority=chance.choice([0, 0, 0, 5, 9]),
        failures=failures,
        suspects=min(count, 2) if seconds <= 0.1 and chance.random() < 0.15 else 0,
    )
