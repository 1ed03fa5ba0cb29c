"""The queues that a worker serves, each with how many of its steps may be executed at once."""

from collections.abc import Iterable, Mapping

from holdfast._model.declare.names import check_queue
from holdfast.errors import ConfigError

EXPECTED = 'names of queues, "mail:5,default" or ["mail:5", "default"]'


def parse_queues(value: object) -> dict[str, int | None]:
    """`"mail:5,default"`, `["mail:5", "default"]` or `{"mail": 5, "default": None}`: names and limits, as given."""
    if isinstance(value, str):
        value = [each.strip() for each in value.split(",")]
    if isinstance(value, Mapping):
        pairs = list(value.items())
    elif isinstance(value, Iterable):
        pairs = [_pair(each) for each in value]
    else:
        raise ConfigError(f"queues must be {EXPECTED}, not {value!r}")
    if not pairs:
        raise ConfigError(f"a worker needs at least one queue: {EXPECTED}")
    found: dict[str, int | None] = {}
    for name, limit in pairs:
        queue = check_queue(name)
        if queue in found:
            raise ConfigError(f"the queue {queue} is named twice: name it once, with one limit")
        found[queue] = _limit(queue, limit)
    return found


def spelled(queues: Mapping[str, int | None]) -> tuple[str, ...]:
    """The same as texts: `("mail:5", "default")`."""
    return tuple(name if limit is None else f"{name}:{limit}" for name, limit in queues.items())


def _pair(text: object) -> tuple[object, object]:
    if not isinstance(text, str) or ":" not in text:
        return text, None
    name, _, limit = text.partition(":")
    return name, int(limit) if limit.isascii() and limit.isdigit() else limit


def _limit(queue: str, limit: object) -> int | None:
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise ConfigError(
            f"the queue {queue} cannot have {limit!r} steps at once: write {queue}:5, with a whole number of at least "
            f"1, or {queue} alone for no limit of its own"
        )
    return limit
