"""A context for calling a step's code directly."""

from typing import Any

from holdfast._model.enqueue.ids import uuid7
from holdfast._model.run.context import Context, Described, Offers


def context(*resources: object, attempt: int = 1, **fields: Any) -> Context:
    """A `Context` for calling a step's code directly: `await Poll("u").run(context(client))`."""
    made: dict[str, Any] = {
        "id": uuid7(), "kind": "test", "step": "main", "queue": "default", "attempt": attempt, "errors": 0,
        "crashes": 0, "moves": 0, "key": None, "headers": {}, "deadline": None, "cancelled": False, "stopping": False,
    }  # fmt: skip
    if unknown := fields.keys() - made.keys():
        raise TypeError(f"context() has no field {sorted(unknown)[0]!r}")
    made |= fields
    described = Described(step_name=made.pop("step"), number=made.pop("attempt"), **made)
    return Context(described, Offers({type(each): each for each in resources}))
