"""What others may know of a worker while it works: which of its loops succeed, whether it is ready, what it counted.

People ask over HTTP, at the address that the settings give. What the loops do is also written with each beat, for those
who ask the database.
"""

import asyncio
from collections.abc import Callable

from holdfast._engine.observe.http import HttpServer, Reply
from holdfast._engine.run.roster import Roster
from holdfast._engine.settle.ending import Ending
from holdfast._engine.shared import Shared

NO_METRICS = {"error": "metrics need prometheus-client: pip install 'holdfast[metrics]'"}


class Health:
    """One worker as others see it."""

    def __init__(self, shared: Shared) -> None:
        self._contact = shared.contact
        self._life = shared.life
        self.pulse = shared.pulse
        settings = shared.settings
        self.count: Callable[[Ending], None] | None = None
        self.probes: HttpServer | None = None
        self._answering: asyncio.Task[None] | None = None
        if settings.http is not None:
            metrics = self._counting(shared.roster)
            self.probes = HttpServer(
                settings.http, {"/healthz": self._alive, "/readyz": self.ready, "/metrics": metrics}
            )

    async def __aenter__(self) -> None:
        if self.probes is not None:
            self._answering = asyncio.create_task(self.probes.run(), name="holdfast http")

    async def __aexit__(self, *_: object) -> None:
        if self._answering is not None:
            self._answering.cancel()
            await asyncio.gather(self._answering, return_exceptions=True)

    def ready(self) -> Reply:
        """Whether the worker does its work."""
        state, late = self._life.state, self.pulse.late
        reasons = [f"it is {state}"] if state != "running" else []
        if state == "running" and self._contact.failing:
            reasons.append("the database does not accept the beat of this worker")
        reasons += late.values()
        told = {"ready": not reasons, "reasons": reasons, "loops": dict(self.pulse.loops.ages or {})}
        return Reply.of(503 if reasons else 200, told)

    def _alive(self) -> Reply:
        return Reply.of(200, {"alive": True, "state": self._life.state})

    def _counting(self, roster: Roster) -> Callable[[], Reply]:
        try:
            from holdfast._engine.observe.metrics import CONTENT_TYPE, Meters
        except ImportError:
            return lambda: Reply.of(501, NO_METRICS)
        meters = Meters(roster, self.pulse)
        self.count = meters.recorded
        return lambda: Reply(200, meters.text(), CONTENT_TYPE)
