"""How a worker works, as people say it and as it is used."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from typing_extensions import Unpack

from holdfast._db.config.settings import SETTINGS, checked
from holdfast._model.address import parse_address
from holdfast._model.declare.queues import parse_queues, spelled
from holdfast._model.time.duration import Duration, seconds
from holdfast.errors import ConfigError


class WorkerOptions(TypedDict, total=False):
    """What can be said about a worker."""

    queues: str | Sequence[str] | Mapping[str, int | None]
    """The queues it serves, `default` unless given: `"mail:5,default"` for at most 5 steps of mail at once, or
    `["mail:5", "default"]`, or `{"mail": 5, "default": None}`."""
    only: str | Sequence[str]
    """The kinds and steps it knows, `"video.Encode"`, and leaves the others of its App to other workers: all."""
    concurrency: int | None
    """How many steps it executes at once: 10, or the sum of its queues' limits if that is more or each has one."""
    lease: Duration
    """How long its right to a task lasts without a beat: 30 s, at least 1 s."""
    beat: Duration | None
    """How often leases are renewed: 10 s, at most a third of the lease."""
    poll: Duration
    """How long it sleeps at most when notifications are silent: 1 s, at least 50 ms."""
    reap: Duration
    """How often it looks for lost workers' tasks: 5 s."""
    grace: Duration
    """How long steps may go on after a stop was asked for: 30 s; 0 gives them back at once."""
    retention: Duration | None
    """How long finished tasks and their attempts are kept, unless the database has been told: 7 days."""
    name: str
    """A label for people; host and process id unless given."""
    schedules: bool
    """Whether it looks after schedules: yes, unless another worker shall."""
    http: str | None
    """Where it answers at /healthz, /readyz and /metrics, such as "127.0.0.1:8421": nowhere, unless given."""
    blocked: Duration
    """How long an `async def` step may block the event loop before a warning: 10 s."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How a worker works. Times are in seconds; checked here, whatever way they came."""

    queues: tuple[str, ...] = ("default",)
    limits: Mapping[str, int] = field(default_factory=dict)
    only: tuple[str, ...] = ()
    concurrency: int = 10
    lease: float = 30.0
    beat: float = 10.0
    poll: float = 1.0
    reap: float = 5.0
    grace: float = 30.0
    retention: float | None = None
    name: str = ""
    blocked: float = 10.0
    schedules: bool = True
    http: tuple[str, int] | None = None

    @classmethod
    def of(cls, **given: Unpack[WorkerOptions]) -> "WorkerSettings":
        """Settings as people give them, or a clear error."""
        queues = parse_queues(given.get("queues", "default"))
        limits = {name: limit for name, limit in queues.items() if limit is not None}
        only, beat, concurrency = given.get("only", ()), given.get("beat"), given.get("concurrency")
        if concurrency is None:
            together = sum(limits.values())
            concurrency = together if len(limits) == len(queues) else max(10, together)
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
            raise ConfigError(f"concurrency must be an int of at least 1, not {concurrency!r}")
        length = _as_configured(given, "lease")
        # Unless chosen, the beat follows the lease.
        every = min(10.0, length / 3) if beat is None else _as_configured(given, "beat")
        if every > length / 3 + 1e-9:
            raise ConfigError(
                f"a beat every {every:g} s is too seldom for a lease of {length:g} s: give at most {length / 3:g} s"
            )
        return cls(
            queues=tuple(queues),
            limits=limits,
            only=tuple(each.strip() for each in only.split(",")) if isinstance(only, str) else tuple(only),
            concurrency=concurrency,
            lease=length,
            beat=every,
            poll=_as_configured(given, "poll"),
            reap=_as_configured(given, "reap"),
            grace=_as_configured(given, "grace"),
            retention=None if given.get("retention") is None else _as_configured(given, "retention"),
            name=given.get("name", ""),
            blocked=seconds(given.get("blocked", 10), "blocked", least=0.1),
            schedules=given.get("schedules", True),
            http=None if (http := given.get("http")) is None else parse_address(http),
        )

    @property
    def serves(self) -> dict[str, int | None]:
        """The queues, each with its limit."""
        return {name: self.limits.get(name) for name in self.queues}

    @property
    def served(self) -> str:
        """The queues with their limits, for people: `mail:5, default`."""
        return ", ".join(spelled(self.serves))


def _as_configured(given: Mapping[str, Any], name: str) -> Any:
    """A setting with the default and the bounds that it has on the command line and in pyproject.toml."""
    about = SETTINGS[name]
    return checked(about, given.get(name, about.default))
