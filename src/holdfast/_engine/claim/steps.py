"""What a worker knows: the steps of its App, or only some of them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields

from holdfast._model.declare.tasks import Tasks
from holdfast.errors import ConfigError


@dataclass(slots=True)
class KnownSteps:
    """The steps that a worker claims, as `kind.Step` with their old names.

    `crash_limits` is JSON: one number if it is the same for all, else an object by step. `crash_limits_ahead` is for
    attempts that are claimed before there is a slot for them: -1 less the limit says that the step has not begun, as
    far as the database knows, so that no crash is counted if its worker is lost. `left_out` has the steps of its App
    that it leaves to others, as kind and step. `number` counts all steps of its App: there may be more later.
    """

    steps: list[str]
    crash_limits: str
    crash_limits_ahead: str
    left_out: frozenset[tuple[str, str]] = frozenset()
    number: int = 0

    @classmethod
    def of(cls, tasks: Tasks, only: Sequence[str] = ()) -> "KnownSteps":
        """All steps of these tasks, or only those named, as `kind` or `kind.Step`."""
        if only:
            _check(tasks, only)
        chosen = {
            row: step
            for row, step in tasks._steps.items()
            if not only or step.kind in only or f"{step.kind}.{step.name}" in only
        }
        limits = {f"{kind}.{name}": step.max_crashes for (kind, name), step in chosen.items()}
        ahead = {name: -1 - limit for name, limit in limits.items()}
        left_out = frozenset(tasks._steps.keys() - chosen.keys())
        return cls(sorted(limits), _json(limits), _json(ahead), left_out, len(tasks._steps))

    def learn(self, tasks: Tasks, only: Sequence[str]) -> None:
        """Takes up what was declared since."""
        found = KnownSteps.of(tasks, only)
        for each in fields(self):
            setattr(self, each.name, getattr(found, each.name))


def _json(limits: dict[str, int]) -> str:
    different = set(limits.values())
    return json.dumps(different.pop() if len(different) == 1 else limits)


def _check(tasks: Tasks, only: Sequence[str]) -> None:
    kinds = {step.kind for step in tasks._steps.values()}
    steps = {f"{step.kind}.{step.name}" for step in tasks._steps.values()}
    for name in only:
        if name not in kinds and name not in steps:
            known = ", ".join(sorted(steps)) or "none"
            raise ConfigError(f"only={name!r}: there is no such kind or step in this App. Its steps are: {known}")
