"""An enqueue as asked for, checked: what is wrong is refused here, before anything is written."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias
from uuid import UUID

import msgspec

from holdfast._model.declare.names import check_priority, check_queue
from holdfast._model.declare.options import EnqueueOptions
from holdfast._model.enqueue.call import Call, Entry, call_of, step_of_class
from holdfast._model.enqueue.ids import uuid7, uuid7s
from holdfast._model.enqueue.overrides import to_headers
from holdfast._model.garbage import no_collecting
from holdfast._model.json.codec import encode
from holdfast._model.json.text import safe_text
from holdfast._model.run.outcome import EARLIEST, LATEST
from holdfast._model.time.duration import seconds
from holdfast.errors import ConfigError, EncodeError, EnqueueRefused

LONGEST_KEY = 512
MAX_HEADERS = 64 * 1024

OnConflict: TypeAlias = Literal["skip", "raise", "replace"]


AS_DECLARED = ""
"""The queue of a request that leaves it to its kind, as workers declared it."""
PRIORITY_AS_DECLARED = -1
"""The priority of a request that leaves it to its kind, as workers declared it."""


class Request(msgspec.Struct, frozen=True, gc=False):
    """A task to be enqueued: checked and encoded by `request_of`, written by the statements of `enqueue.sql`.

    A request by name may leave its queue and priority to its kind. `plans.new_tasks` reads them from the database
    before the task is written.
    """

    id: UUID
    queue: str
    kind: str
    step: str
    args: bytes
    priority: int = 0
    delay: timedelta = timedelta(0)
    at: datetime | None = None
    deadline: timedelta | datetime | None = None
    key: str | None = None
    headers: bytes | None = None
    unique: bool = False
    unique_for: timedelta | None = None
    on_conflict: OnConflict = "skip"
    decode_result: Any = None
    durable: bool | None = None
    """Whether to wait for the disk; None: as its App is set."""

    @property
    def complete(self) -> bool:
        """Whether it says its queue and priority itself."""
        return self.queue != AS_DECLARED and self.priority != PRIORITY_AS_DECLARED

    @property
    def keyed(self) -> bool:
        """Whether it has a key, given or made from its args."""
        return self.key is not None or self.unique

    @property
    def bare(self) -> bool:
        """Whether it is due at once, and has neither deadline nor headers: as most are."""
        return not self.delay and self.at is None and self.deadline is None and self.headers is None

    @property
    def others(self) -> tuple[object, ...]:
        """All that an enqueue without a key writes, but id and args: tasks in which it is equal are alike."""
        return self.queue, self.kind, self.step, self.priority, self.delay, self.at, self.deadline, self.headers

    @property
    def expires_at(self) -> datetime | None:
        """The deadline, if it was given as a time."""
        return self.deadline if isinstance(self.deadline, datetime) else None

    @property
    def expires_in(self) -> timedelta | None:
        """The deadline, if it was given as a length of time: counted by the database's clock."""
        return self.deadline if isinstance(self.deadline, timedelta) else None


_NO_OPTIONS = Request(UUID(int=0), AS_DECLARED, "", "", b"")
"""A request without any option."""


def request_of(what: object, options: EnqueueOptions | None = None, more: tuple[object, ...] = ()) -> Request:
    """The request for `what`, a call or a step value. EnqueueRefused if an option or value is wrong."""
    given: Mapping[str, Any] = options or {}
    if more:
        name = getattr(what, "__name__", "function")
        raise EnqueueRefused(f"enqueue takes one thing to enqueue: bind arguments to it, enqueue({name}.bind(…))")
    if isinstance(what, Entry):
        given = {**given, **what.options}
        what = what.what
    if not given:
        return _like(_NO_OPTIONS, what, given, uuid7())
    try:
        call = call_of(what)
        _check_names(given)
        delay, at = _when(given)
        priority = PRIORITY_AS_DECLARED if call.priority is None else call.priority
        return Request(
            id=uuid7(),
            queue=check_queue(given["queue"]) if "queue" in given else call.queue or AS_DECLARED,
            kind=call.kind,
            step=call.step,
            args=args_of(call, unique=_unique(given)),
            priority=check_priority(given["priority"]) if "priority" in given else priority,
            delay=delay,
            at=at,
            deadline=_deadline(given, delay, at),
            key=_key(given.get("key")),
            headers=_headers(given),
            unique=_unique(given),
            unique_for=_unique_for(given),
            on_conflict=_on_conflict(given),
            decode_result=call.decode_result,
            durable=_durable(given.get("durable")),
        )
    except ConfigError as error:
        name = what.kind if isinstance(what, Call) else type(what).__name__
        raise EnqueueRefused(f"cannot enqueue {name}: {error}") from error


def requests_of(what: Iterable[Any], options: EnqueueOptions | None = None) -> list[Request]:
    """The requests for many. Among those of one queue and priority, ids are in their order."""
    if isinstance(what, (Call, Entry, str)) or step_of_class(type(what)) is not None or not isinstance(what, Iterable):
        raise EnqueueRefused(
            f"enqueue_many takes a list or another iterable, not one {type(what).__name__}: "
            "put it into a list, or use enqueue(…)"
        )
    given = list(what)
    with no_collecting():
        return _requests_of(given, options)


def _requests_of(given: list[Any], options: EnqueueOptions | None) -> list[Request]:
    made: list[Request] = []
    alike: Request | None = None
    ids = uuid7s(len(given))
    for each, id in zip(given, ids, strict=True):
        if alike is None or isinstance(each, Entry):
            request = msgspec.structs.replace(request_of(each, options), id=id)
            alike = alike if isinstance(each, Entry) else request
        else:
            request = _like(alike, each, options or {}, id)
        made.append(request)
    order = in_order_of_claims(made)
    if order is made:
        return made
    dealt = {request.id: id for request, id in zip(order, ids, strict=True)}
    return [msgspec.structs.replace(request, id=dealt[request.id]) for request in made]


def in_order_of_claims(tasks: Sequence[Request]) -> Sequence[Request]:
    """The tasks with those of one queue and priority side by side; the same sequence if all have the same.

    Tasks side by side in the table and in its key are claimed a thousand at a time from a few pages. In any other order
    each of a thousand may be in a page of its own.
    """
    if len({(task.queue, task.priority) for task in tasks}) < 2:
        return tasks
    return sorted(tasks, key=lambda task: (task.queue, -task.priority))


def _like(other: Request, what: object, options: Mapping[str, Any], id: UUID) -> Request:
    """The request for `what` with the options of another, which have been checked for that one."""
    try:
        call = what if type(what) is Call else call_of(what)
    except ConfigError as error:
        raise EnqueueRefused(f"cannot enqueue {type(what).__name__}: {error}") from error
    priority = PRIORITY_AS_DECLARED if call.priority is None else call.priority
    # Arguments by position, because by name takes twice as long.
    return Request(
        id,
        other.queue if "queue" in options else call.queue or AS_DECLARED,
        call.kind,
        call.step,
        args_of(call, unique=True) if other.unique else call.args,
        other.priority if "priority" in options else priority,
        other.delay,
        other.at,
        other.deadline,
        other.key,
        other.headers,
        other.unique,
        other.unique_for,
        other.on_conflict,
        call.decode_result,
        other.durable,
    )


def args_of(call: Call[Any], *, unique: bool) -> bytes:
    """The args to write. A unique task's key is made of complete args: a default written out is not another task."""
    return call.with_defaults(call.args) if unique and call.with_defaults is not None else call.args


def shared_durability(requests: Sequence[Request], otherwise: bool, conn: object = None) -> bool:
    """The same as `durability`, of many that share a commit."""
    asked = {request.durable for request in requests}
    if len(asked) > 1:
        raise EnqueueRefused("the tasks of one enqueue_many share a commit: give durable= to it, not to an Entry")
    return durability(next(iter(asked), None), otherwise, conn)


def durability(asked: bool | None, otherwise: bool, conn: object = None) -> bool:
    """Whether an enqueue waits until it is on disk: as asked for, else as its App is set."""
    if asked is not None and conn is not None:
        raise EnqueueRefused(
            "give durable= or conn=, not both: with conn= the commit is yours. For one that does not wait for the "
            "disk, say SET LOCAL synchronous_commit = off in your transaction"
        )
    return otherwise if asked is None else asked


def _check_names(options: Mapping[str, Any]) -> None:
    for name in options:
        if name not in EnqueueOptions.__annotations__:
            known = ", ".join(sorted(EnqueueOptions.__annotations__))
            raise EnqueueRefused(f"there is no enqueue option {name!r}{_meant(name)} There are {known}")


def _meant(name: str) -> str:
    nearest = get_close_matches(name, EnqueueOptions.__annotations__, 1)
    return f": did you mean {nearest[0]}?" if nearest else "."


def _when(options: Mapping[str, Any]) -> tuple[timedelta, datetime | None]:
    at = options.get("at")
    if at is None:
        return timedelta(seconds=seconds(options.get("delay") or 0, "delay")), None
    if options.get("delay") is not None:
        raise EnqueueRefused("give delay= or at=, not both")
    if not isinstance(at, datetime):
        raise EnqueueRefused(f"at= must be a datetime, not {type(at).__name__}; for a length of time give delay=")
    return timedelta(0), _time("at", at)


def _time(name: str, time: datetime) -> datetime:
    time = time.astimezone() if time.tzinfo is None else time
    if not EARLIEST <= time <= LATEST:
        raise EnqueueRefused(f"{name}={time.isoformat()} is out of range")
    # In UTC: two times of one zone count as equal even if the clock was set back between them.
    return time.astimezone(UTC)


def _deadline(options: Mapping[str, Any], delay: timedelta, at: datetime | None) -> timedelta | datetime | None:
    given = options.get("deadline")
    if given is None:
        return None
    deadline: timedelta | datetime
    # Two lengths or two times can be compared here; a mixture only by the database's clock.
    if isinstance(given, datetime):
        time = deadline = _time("deadline", given)
        too_early = at is not None and time <= at
    else:
        deadline = length = timedelta(seconds=seconds(given, "deadline"))
        too_early = at is None and length <= delay
    if too_early:
        raise EnqueueRefused(f"deadline={given!s} is over before the task is due: it could never start")
    return deadline


def _key(key: Any) -> str | None:
    if key is None:
        return None
    if not isinstance(key, str) or not key or len(key) > LONGEST_KEY or safe_text(key) != key:
        raise EnqueueRefused(f"key= must be a text of 1 to {LONGEST_KEY} characters without NUL, not {key!r:.100}")
    return key


def _headers(options: Mapping[str, Any]) -> bytes | None:
    headers = options.get("headers")
    if headers is None and options.get("retry") is None and options.get("timeout") is None:
        return None
    if headers is not None and (
        not isinstance(headers, Mapping) or not all(isinstance(x, str) for pair in headers.items() for x in pair)
    ):
        raise EnqueueRefused("headers= must map texts to texts")
    try:
        return encode(to_headers(options), limit=MAX_HEADERS)
    except EncodeError as error:
        raise EnqueueRefused(f"headers{str(error).removeprefix('value').removeprefix('dict')}") from error


def with_headers(requests: Sequence[Request], more: Mapping[str, str]) -> list[Request]:
    """The same requests with more headers. Those that have one of them, or no room, stay as they are."""
    alone = encode(dict(more), limit=MAX_HEADERS)
    return [msgspec.structs.replace(each, headers=_added(each.headers, more, alone)) for each in requests]


def _added(own: bytes | None, more: Mapping[str, str], alone: bytes) -> bytes:
    if own is None:
        return alone
    given = msgspec.json.decode(own, type=dict[str, str])
    try:
        return own if given.keys() & more.keys() else encode({**given, **more}, limit=MAX_HEADERS)
    except EncodeError:
        return own


def _durable(durable: Any) -> bool | None:
    if durable is not None and not isinstance(durable, bool):
        raise EnqueueRefused(f"durable= must be True or False, not {durable!r:.100}")
    return durable


def _unique(options: Mapping[str, Any]) -> bool:
    unique = options.get("unique", False)
    if not isinstance(unique, bool):
        raise EnqueueRefused(f"unique= must be True or False, not {unique!r:.100}; for a key of your own give key=")
    if unique and options.get("key") is not None:
        raise EnqueueRefused("give key= or unique=True, not both: unique=True makes a key from kind, step and args")
    return unique


def _unique_for(options: Mapping[str, Any]) -> timedelta | None:
    if options.get("unique_for") is None:
        return None
    length = seconds(options["unique_for"], "unique_for")
    if not length:
        raise EnqueueRefused("unique_for= must be longer than nothing")
    if not _has_key(options):
        raise EnqueueRefused("unique_for= needs a key: give key=, or unique=True for one made from kind, step and args")
    return timedelta(seconds=length)


def _on_conflict(options: Mapping[str, Any]) -> OnConflict:
    chosen = options.get("on_conflict", "skip")
    if chosen not in ("skip", "raise", "replace"):
        raise EnqueueRefused(f"on_conflict= must be 'skip', 'raise' or 'replace', not {chosen!r}")
    if "on_conflict" in options and not _has_key(options):
        raise EnqueueRefused(
            "on_conflict= needs a key= or unique=True: without one there is nothing to be in conflict with"
        )
    return chosen  # type: ignore[no-any-return]


def _has_key(options: Mapping[str, Any]) -> bool:
    return options.get("key") is not None or options.get("unique") is True
