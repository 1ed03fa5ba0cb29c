"""How a worker works, as people say it and as it is used."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypedDict

from typing_extensions import Unpack

from holdfast._model.duration import DAY, Duration, in_short, seconds
from holdfast._model.names import check_queue
from holdfast.errors import ConfigError


class WorkerOptions(TypedDict, total=False):
    """What can be said about a worker."""

    queues: str | Sequence[str]
    """The queues it serves, `default` unless given; a text may hold several, `"mail,default"`."""
    concurrency: int
    """How many steps it executes at once: 10."""
    lease: Duration
    """How long its right to a task lasts without a beat: 30 s."""
    beat: Duration | None
    """How often leases are renewed: 10 s, at most a third of the lease."""
    poll: Duration
    """How long it sleeps at most when notifications are silent: 1 s."""
    reap: Duration
    """How often it looks for lost workers' tasks: 5 s."""
    grace: Duration
    """How long steps may go on after a stop was asked for: 30 s."""
    retention: Duration | None
    """How long finished tasks and their attempts are kept, unless the database has been told: 7 days."""
    name: str
    """A label for people; host and process id unless given."""
    blocked: Duration
    """How long an `async def` step may block the event loop before a warning: 10 s."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How a worker works. Times are in seconds; checked here, whatever way they came."""

    queues: tuple[str, ...] = ("default",)
    concurrency: int = 10
    lease: float = 30.0
    beat: float = 10.0
    poll: float = 1.0
    reap: float = 5.0
    grace: float = 30.0
    retention: float | None = None
    name: str = ""
    blocked: float = 10.0

    @classmethod
    def of(cls, **given: Unpack[WorkerOptions]) -> "WorkerSettings":
        """Settings as people give them, or a clear error."""
        queues, concurrency = given.get("queues", "default"), given.get("concurrency", 10)
        beat = given.get("beat")
        names = [q.strip() for q in queues.split(",")] if isinstance(queues, str) else list(queues)
        if not names:
            raise ConfigError("a worker needs at least one queue")
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
            raise ConfigError(f"concurrency must be an int of at least 1, not {concurrency!r}")
        length = seconds(given.get("lease", 30), "lease")
        # Unless chosen, the beat follows the lease.
        every = min(10.0, length / 3) if beat is None else seconds(beat, "beat")
        if length <= 0 or every <= 0:
            raise ConfigError(f"lease ({length:g} s) and beat ({every:g} s) must be longer than nothing")
        if every > length / 3 + 1e-9:
            raise ConfigError(
                f"a beat every {every:g} s is too seldom for a lease of {length:g} s: give at most {length / 3:g} s"
            )
        times = {"poll": seconds(given.get("poll", 1), "poll"), "reap": seconds(given.get("reap", 5), "reap")}
        for what, value in times.items():
            if value <= 0:
                raise ConfigError(f"{what} must be longer than nothing")
        retention = given.get("retention")
        kept = None if retention is None else seconds(retention, "retention")
        if kept is not None and kept < DAY:
            raise ConfigError(f"retention ({in_short(timedelta(seconds=kept))}) must be a day at least")
        return cls(
            queues=tuple(dict.fromkeys(check_queue(q) for q in names)),
            concurrency=concurrency,
            lease=length,
            beat=every,
            grace=seconds(given.get("grace", 30), "grace"),
            retention=kept,
            name=given.get("name", ""),
            blocked=seconds(given.get("blocked", 10), "blocked"),
            **times,
        )
