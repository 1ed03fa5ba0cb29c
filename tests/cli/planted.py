"""Rows as workers leave them, put straight into the database: many, or in states that take long to come about."""

import json
from collections.abc import Sequence
from typing import Any

from holdfast._db.driver.connection import connect_sync

from .conftest import Cli

HARMFUL = "\x1b]0;title\x07\x1b[31mred\x1b[0m \x9b2J \u202e turned\nsecond line \x08"
"""What must not reach a terminal as it is."""


def rows(cli: Cli, text: str, *values: object) -> list[tuple[Any, ...]]:
    with connect_sync(cli.url) as connection:
        cursor = connection.execute(text.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


def park(cli: Cli, id: str, message: str = "no such file", type: str = "FileNotFoundError") -> None:
    """As a worker leaves it after an error."""
    error = {
        "type": type,
        "message": message,
        "traceback": f"Traceback (most recent call last):\n  in run\n{type}: {message}",
        "causes": [{"type": "OSError", "message": "the disk is gone", "traceback": ""}],
    }
    text = "update holdfast.task set state = 'parked', attempt = 6, errors = 6, error = $1::jsonb where id = $2::uuid"
    rows(cli, text, json.dumps(error), id)


def parked(cli: Cli, name: str = "greeter.ReadName", message: str = "no such file", **error: str) -> str:
    """A parked task."""
    id = cli.enqueue(name)
    park(cli, id, message, **error)
    return id


def plant(cli: Cli, number: int, *, state: str = "parked", kind: str = "greeter", step: str = "ReadName") -> list[str]:
    """Many tasks at once; their ids, the oldest first."""
    found = rows(
        cli,
        """
        insert into holdfast.task (id, queue, kind, step, args, state, errors, error, run_at, created_at)
        select holdfast.new_id(), 'default', $2, $3, jsonb_build_object('n', n), $4, 1, '{"type": "OSError"}',
               holdfast.now(), holdfast.now()
        from generate_series(1, $1::int) as n returning id::text
        """,
        number,
        kind,
        step,
        state,
    )
    return sorted(row[0] for row in found)


def states(cli: Cli, ids: Sequence[str]) -> list[str]:
    found = dict(rows(cli, "select id::text, state from holdfast.tasks where id = any ($1::uuid[])", list(ids)))
    return [found[id] for id in ids]


def plant_worker(
    cli: Cli,
    name: str = "w1",
    *,
    queues: Sequence[str] = ("default",),
    steps: Sequence[str] = ("greeter.ReadName",),
    silent: str = "0s",
    stopped: bool = False,
) -> str:
    """A worker that reported once, so long ago."""
    found = rows(
        cli,
        """
        insert into holdfast.worker
            (id, name, host, pid, version, queues, steps, slots, seen_at, stopping_at, stopped_at)
        values (holdfast.new_id(), $1, 'box', 42, '1.2.3', $2::text[], $3::text[], 10,
                holdfast.now() - $4::text::interval, case when $5::bool then holdfast.now() end,
                case when $5::bool then holdfast.now() end)
        returning id::text
        """,
        name,
        list(queues),
        list(steps),
        silent,
        stopped,
    )
    return str(found[0][0])


def plant_kind(cli: Cli, name: str = "greeter", queue: str = "default", graph: Any = None) -> None:
    """A kind as a worker declares it."""
    steps = {"ReadName": ["SayHello"], "SayHello": []} if graph is None else graph
    text = "insert into holdfast.kind (name, queue, priority, graph) values ($1, $2, 0, $3::jsonb)"
    rows(cli, text, name, queue, json.dumps(steps))


def is_harmless(text: str) -> bool:
    return not {"\x1b", "\x9b", "\x07", "\x08", "\u202e"} & set(text)
