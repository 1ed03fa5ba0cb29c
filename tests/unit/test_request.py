"""Q11, T6, T7: what an enqueue refuses before anything is written."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from holdfast import Entry, Tasks, named
from holdfast._model.enqueue.request import Request, request_of, requests_of
from holdfast.errors import EnqueueRefused

tasks = Tasks()


@tasks.task(queue="mail", priority=3)
async def send(to: str) -> None: ...


@tasks.task
async def ping() -> None: ...


@dataclass
class Stranger:
    x: int

    def run(self) -> None: ...


def test_what_is_declared_counts_unless_the_enqueue_says_otherwise() -> None:
    request = request_of(send.bind("a"))
    assert (request.kind, request.step, request.queue, request.priority) == ("send", "main", "mail", 3)
    other = request_of(send.bind("a"), {"queue": "slow", "priority": 9, "delay": "1m", "key": "k"})
    assert (other.queue, other.priority, other.delay, other.key) == ("slow", 9, timedelta(minutes=1), "k")


def test_an_entry_has_options_of_its_own() -> None:
    request = request_of(Entry(send.bind("a"), priority=1), {"priority": 2, "queue": "q"})
    assert (request.priority, request.queue) == (1, "q")


def test_a_named_call_leaves_the_queue_to_the_database() -> None:
    request = request_of(named("send", {"to": "x"}))
    assert (request.complete, request.args) == (False, b'{"to":"x"}')


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"queue": "No Good"}, "queue"),
        ({"queue": "a\n"}, "queue"),
        ({"priority": 10}, "priority"),
        ({"priority": True}, "priority"),
        ({"delay": "soon"}, "delay"),
        ({"delay": -1}, "delay"),
        ({"delay": 1, "at": datetime(2031, 5, 20, tzinfo=UTC)}, "not both"),
        ({"at": "tomorrow"}, "datetime"),
        ({"at": datetime.max.replace(tzinfo=UTC)}, "out of range"),
        ({"key": ""}, "key"),
        ({"key": "a\x00b"}, "key"),
        ({"key": "x" * 513}, "key"),
        ({"headers": {"a": 1}}, "headers"),
        ({"headers": {"a": "\x00"}}, "NUL"),
        ({"on_conflict": "skip"}, "needs a key"),
        ({"on_conflict": "no", "key": "k"}, "on_conflict"),
        ({"dealy": 1}, "no enqueue option"),
        ({"deadline": "soon"}, "deadline"),
        ({"deadline": datetime.max.replace(tzinfo=UTC)}, "out of range"),
        ({"deadline": "1h", "delay": "1h"}, "never start"),
        ({"deadline": 0}, "never start"),
        ({"deadline": datetime(2030, 1, 1, tzinfo=UTC), "at": datetime(2030, 1, 1, tzinfo=UTC)}, "never start"),
        ({"unique": "yes"}, "True or False"),
        ({"unique": True, "key": "k"}, "not both"),
        ({"unique": False, "on_conflict": "skip"}, "needs a key"),
        ({"unique_for": "1h"}, "needs a key"),
        ({"unique_for": 0, "unique": True}, "longer than nothing"),
        ({"unique_for": "long", "key": "k"}, "unique_for"),
    ],
)
def test_wrong_options_are_refused_with_what_is_wrong(options: dict[str, Any], words: str) -> None:
    with pytest.raises(EnqueueRefused, match=words):
        request_of(send.bind("a"), options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"queue": "slow", "priority": 9},
        {"delay": "1m", "headers": {"a": "b"}},
        {"at": datetime(2031, 5, 20, tzinfo=UTC)},
    ],
    ids=str,
)
def test_Q12_many_are_what_each_would_be_alone(options: Any) -> None:
    what = [
        Entry(send.bind("a"), priority=1),
        send.bind("b"),
        named("other.Step", {"x": 1}),
        Entry(named("other", {}), delay=5, headers={"c": "d"}) if "at" not in options else send.bind("c"),
        send.bind("d"),
        ping.bind(),
    ]

    def without_id(request: Request) -> Request:
        return msgspec.structs.replace(request, id=None)

    many = requests_of(iter(what), options)
    assert [without_id(each) for each in many] == [without_id(request_of(each, options)) for each in what]
    in_order = sorted(many, key=lambda each: (each.queue or "", -(each.priority or 0)))
    assert [each.id for each in in_order] == sorted({each.id for each in many})


@pytest.mark.parametrize("what", [send, Stranger, Stranger(1), "send", 42, None])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_Q12_one_that_is_not_a_task_is_refused_among_many(what: object, place: int) -> None:
    many: list[Any] = [send.bind("a"), send.bind("b")]
    many.insert(place, what)
    with pytest.raises(EnqueueRefused):
        requests_of(many)


@pytest.mark.parametrize("what", [send, Stranger, Stranger(1), "send", 42, None])
def test_T6_what_is_not_a_task_is_refused(what: object) -> None:
    with pytest.raises(EnqueueRefused):
        request_of(what)


def test_Q12_ids_of_many_are_in_the_order_of_claims() -> None:
    """By queue, then the highest priority first, then as they came; each stays at its place."""
    given = [Entry(send.bind(str(n)), priority=n % 3, queue="b" if n % 2 else "a") for n in range(12)]
    made = requests_of(given)
    assert [msgspec.json.decode(request.args)["to"] for request in made] == [str(n) for n in range(12)]
    by_id = [(r.queue, r.priority, msgspec.json.decode(r.args)["to"]) for r in sorted(made, key=lambda r: r.id)]
    wanted = sorted(range(12), key=lambda n: ("b" if n % 2 else "a", -(n % 3), n))
    assert by_id == [("b" if n % 2 else "a", n % 3, str(n)) for n in wanted]


def test_Q12_ids_of_many_are_in_their_order_if_they_are_claimed_alike() -> None:
    made = requests_of([ping.bind() for _ in range(100)])
    assert [request.id for request in made] == sorted(request.id for request in made)
    assert len({request.id for request in made}) == 100
