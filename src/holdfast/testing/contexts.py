"""A context for calling a step's code directly."""

from typing import Any

from holdfast._model.context import Context, Offers
from holdfast._model.ids import uuid7


def context(*resources: object, attempt: int = 1, **fields: Any) -> Context:
    """A `Context` for calling a step's code directly: `await Poll("u").run(context(client))`."""
    made: dict[str, Any] = {
        "id": uuid7(), "kind": "test", "step": "main", "queue": "default", "attempt": attempt, "errors": 0,
        "crashes": 0, "moves": 0, "key": None, "headers": {}, "deadline": None, "signals": _Signals(),
        "offers": Offers({type(each): each for each in resources}),
    }  # fmt: skip
    unknown = fields.keys() - (made.keys() - {"offers", "signals"}) - {"cancelled", "stopping"}
    if unknown:
        raise TypeError(f"context() has no field {sorted(unknown)[0]!r}")
    signals = _Signals(fields.pop("cancelled", False), fields.pop("stopping", False))
    return Context(**{**made, "signals": signals, **fields})


class _Signals:
    transaction = None
    moved = None
    told = None

    def __init__(self, cancelled: bool = False, stopping: bool = False) -> None:
        self.cancelled = cancelled
        self.stopping = stopping
