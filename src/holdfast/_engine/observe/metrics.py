"""What a worker process counts for Prometheus, and how that and what is known of the database is written down.

Attempts are counted in plain numbers, by the loop that records them, and turned into metrics when a client asks. So it
costs an attempt next to nothing, and there is no registry that others could meet.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from holdfast._engine.loops import Pulse
from holdfast._engine.run.attempt import Attempt, now
from holdfast._engine.run.roster import Roster
from holdfast._engine.settle.ending import Ending
from holdfast._model.read.figures import BUCKETS
from holdfast._model.read.infos import COUNTED, Gauges, QueueInfo
from holdfast._model.run.outcome import Outcome, Released

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BOUNDS = tuple(bound for bound in BUCKETS if 0.005 <= bound <= 5000)
"""The bounds of histograms, in seconds: some of those of figures."""

MOST_QUEUES = 1000
"""Queues that become labels: any caller may make up their names."""


class _Times:
    """A histogram of times."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """As Prometheus wants it: each bucket with all before it."""
        whole, made = 0, []
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), self.counts, strict=True):
            whole += count
            made.append((bound, float(whole)))
        return made


class _Series:
    """What is counted of one step in one queue."""

    __slots__ = ("outcomes", "run", "wait")

    def __init__(self) -> None:
        self.outcomes: dict[type[Outcome], int] = {}
        self.wait = _Times()
        self.run = _Times()


class Meters:
    """What one worker process counts. Only names that its code declares become labels, so there are few."""

    def __init__(self, roster: Roster, pulse: Pulse) -> None:
        self._roster = roster
        self._pulse = pulse
        self._series: dict[tuple[str, str, str], _Series] = {}

    def recorded(self, ending: Ending) -> None:
        """The end of an attempt was recorded."""
        if isinstance(ending.outcome, Released) and ending.outcome.untouched:
            return
        attempt: Attempt = ending.attempt
        key = (attempt.definition.kind, attempt.definition.name, attempt.queue)
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = _Series()
        outcome = type(ending.outcome)
        series.outcomes[outcome] = series.outcomes.get(outcome, 0) + 1
        if outcome is not Released:
            series.wait.add(max(0.0, attempt.claimed_at - attempt.run_at))
            series.run.add(max(0.0, now() - attempt.held_since))

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return _text(self._metrics())

    def _metrics(self) -> Iterator[Metric]:
        labels = ["kind", "step", "queue"]
        attempts = CounterMetricFamily(
            "holdfast_attempts", "Attempts of this process by how they ended.", labels=[*labels, "outcome"]
        )
        run = HistogramMetricFamily(
            "holdfast_attempt_duration_seconds", "How long attempts took, from claimed to recorded.", labels=labels
        )
        wait = HistogramMetricFamily(
            "holdfast_wait_seconds", "How long tasks had waited, from due to claimed.", labels=labels
        )
        for key, series in list(self._series.items()):
            for outcome, count in series.outcomes.items():
                attempts.add_metric([*key, outcome.word], count)
            run.add_metric(key, series.run.buckets, series.run.seconds)
            wait.add_metric(key, series.wait.buckets, series.wait.seconds)
        yield from (attempts, run, wait)
        roster = self._roster
        yield CounterMetricFamily(
            "holdfast_leases_lost", "Attempts of this process whose lease somebody else had taken.", value=roster.lost
        )
        slots = GaugeMetricFamily("holdfast_slots", "The slots of this process.", labels=["state"])
        slots.add_metric(["busy"], roster.busy - roster.stuck)
        slots.add_metric(["stuck"], roster.stuck)
        slots.add_metric(["free"], roster.slots - roster.busy)
        yield slots
        loops = GaugeMetricFamily(
            "holdfast_loop_last_success_seconds", "How long ago each loop of this process succeeded.", labels=["loop"]
        )
        for name, age in self._pulse.ages.items():
            loops.add_metric([name], age)
        yield loops


def database_text(queues: Sequence[QueueInfo], gauges: Gauges, now: datetime) -> bytes:
    """What is known of a whole database, as Prometheus reads it. Counts of tasks end at one more than `COUNTED`."""

    def made() -> Iterator[Metric]:
        tasks = GaugeMetricFamily(
            "holdfast_tasks",
            f"Unfinished tasks; no more than {COUNTED + 1} are counted.",
            labels=["queue", "state"],
        )
        oldest = GaugeMetricFamily(
            "holdfast_oldest_ready_seconds", "For how long the task that is longest due has been so.", labels=["queue"]
        )
        paused = GaugeMetricFamily("holdfast_queue_paused", "1 if the queue is paused.", labels=["queue"])
        for queue in queues[:MOST_QUEUES]:
            for state in ("due", "scheduled", "running", "parked", "unroutable"):
                tasks.add_metric([queue.name, state], getattr(queue, state))
            age = 0.0 if queue.oldest_due is None else max(0.0, (now - queue.oldest_due).total_seconds())
            oldest.add_metric([queue.name], age)
            paused.add_metric([queue.name], queue.paused_at is not None)
        yield from (tasks, oldest, paused)
        workers = GaugeMetricFamily(
            "holdfast_workers", "Workers; late ones run, but one of their loops does not.", labels=["state"]
        )
        for state in ("running", "stopping", "lost", "late"):
            workers.add_metric([state], getattr(gauges, state))
        yield workers
        for name, about, value in (
            ("worker_slots", "Slots of all running workers.", gauges.slots),
            ("schedule_lag_seconds", "For how long the schedule that is longest due has been so.", gauges.schedule_lag),
            ("notification_queue_usage", "How full the queue of notifications is, 0 to 1.", gauges.notification_queue),
            ("partitions_ahead_seconds", "For how long there are partitions.", gauges.partitions_ahead),
            ("figures_behind_seconds", "How far counting figures is behind.", gauges.figures_behind),
        ):
            yield GaugeMetricFamily(f"holdfast_{name}", about, value=value)

    return _text(made())


def _text(metrics: Iterable[Metric]) -> bytes:
    class Collector:
        def collect(self) -> Iterable[Metric]:
            return metrics

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector())
    return generate_latest(registry)
