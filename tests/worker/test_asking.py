"""What a worker says to the server and hears from it, without the driver's cursors in between."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from holdfast._db.driver import notifications as listen
from holdfast._db.driver.connection import connect_sync
from holdfast._db.driver.notifications import Listener
from holdfast._db.driver.parameters import Portable
from holdfast._db.driver.session import Link
from holdfast._model.enqueue.ids import uuid7
from holdfast._sql.queries import Queries
from holdfast._sql.queries.base import Ids
from holdfast._sql.query import Query, statement
from holdfast.errors import HoldfastError
from holdfast.testing import Harness

from .support import sql, until

TEXTS = ["", "a,b", 'say "x"', "back\\slash", "{}", "NULL", None, " ", "é€"]

NAME = "holdfast asks"


@asynccontextmanager
async def link_to(url: str, **options: Any) -> AsyncIterator[Link]:
    link = Link(url, Queries(), NAME, **options)
    try:
        yield link
    finally:
        await link.close()


def asking(text: str, **values: object) -> Query[Any]:
    made = statement("asked", text, "holdfast")
    return Query(made, tuple(values[name] for name in made.parameters), list)


async def test_values_arrive_as_they_were_sent(holdfast: Harness) -> None:
    values = {
        "id": UUID(int=7),
        "at": datetime(2026, 2, 28, 23, 59, 59, 999999, UTC),
        "span": timedelta(days=-3, seconds=1, microseconds=5),
        "texts": TEXTS,
        "number": -(2**31),
        "yes": True,
        "ratio": 0.1,
        "json": '{"a": [1, "\\u00e9"]}',
        "nothing": None,
        "ids": [UUID(int=1), UUID(int=2)],
        "empty": [],
    }
    many = {"many": Ids([bytes(15) + b"\1", b"\xff" * 16]), "none": Ids([])}
    text = """SELECT :id::uuid, :at::timestamptz, :span::interval, :texts::text[], :number::integer, :yes::boolean,
                     :ratio::float8, :json::jsonb, :nothing::text, :ids::uuid[], :empty::uuid[],
                     :many::uuid[], :none::uuid[]"""
    async with link_to(holdfast.url) as link:
        for _ in range(9):  # sent as it is, prepared, and planned once for all
            (row,) = await link.run(asking(text, **values, **many))
            first, last = list(values.values())[:7], list(values.values())[8:]
            assert row == (*first, '{"a": [1, "é"]}'.encode(), *last, [UUID(int=1), UUID(int=2**128 - 1)], [])


async def test_ids_of_many_tasks_arrive_by_every_way_there_is(holdfast: Harness) -> None:
    ids = [UUID(int=1), uuid7(), UUID(int=2**128 - 1)]
    query = asking("SELECT :ids::uuid[]", ids=Ids([id.bytes for id in ids]))
    async with link_to(holdfast.url) as link:
        assert await link.run(query) == [(ids,)]
        for answer in await link.transact([query, query]):  # by the driver's cursors
            assert await answer.read() == [(ids,)]
    with psycopg.connect(holdfast.url, cursor_factory=psycopg.RawCursor) as theirs:
        portable = Portable(query)
        assert theirs.execute(portable.numbered.encode(), portable.values).fetchall() == [(ids,)]


async def test_a_text_that_would_be_cut_off_is_refused(holdfast: Harness) -> None:
    async with link_to(holdfast.url) as link:
        for value in ("a\0b", ["a\0b"]):
            with pytest.raises(psycopg.DataError, match="NUL"):
                await link.run(asking("SELECT :value::text", value=value))
        assert await link.run(asking("SELECT :value::text", value="ab")) == [("ab",)]


@pytest.mark.direct("through a pooler nothing is prepared")
async def test_what_is_asked_again_is_prepared(holdfast: Harness) -> None:
    async with link_to(holdfast.url) as link:
        prepared = asking("SELECT statement FROM pg_prepared_statements WHERE statement LIKE 'SELECT $1%'")
        assert await link.run(asking("SELECT :n::integer", n=1)) == [(1,)]
        assert await link.run(prepared) == []
        for n in range(3):
            assert await link.run(asking("SELECT :n::integer", n=n)) == [(n,)]
        assert await link.run(prepared) == [("SELECT $1::integer",)]


async def test_what_comes_and_goes_in_many_pieces_is_whole(holdfast: Harness) -> None:
    async with link_to(holdfast.url) as link:
        assert await link.run(asking("SELECT n FROM generate_series(1, 30000) AS n")) == [(n,) for n in range(1, 30001)]
        large = "é" * 4_000_000
        assert await link.run(asking("SELECT :large::text", large=large)) == [(large,)]
        assert await link.run(asking("SELECT 1")) == [(1,)]


async def test_M20_who_is_cancelled_has_the_server_give_up_the_statement(holdfast: Harness) -> None:
    async with link_to(holdfast.url) as link:
        await link.run(asking("SELECT 1"))
        sleeping = asyncio.create_task(link.run(asking("SELECT pg_sleep(600)")))
        active = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%sleep(600)%'"
        )
        active += " AND state = 'active' AND pid <> pg_backend_pid()"
        await until(lambda: sql(holdfast.url, active) == [(1,)], "for the statement")
        sleeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sleeping
        await until(lambda: sql(holdfast.url, active) == [(0,)], "for its end")
        assert await link.run(asking("SELECT 1")) == [(1,)]


async def test_a_connection_that_breaks_in_a_statement_is_an_error(holdfast: Harness) -> None:
    async with link_to(holdfast.url) as link:
        await link.run(asking("SELECT 1"))
        with pytest.raises(psycopg.OperationalError):
            await link.run(asking("SELECT pg_terminate_backend(pg_backend_pid()), pg_sleep(600)"))
        assert await link.run(asking("SELECT 1")) == [(1,)]


@pytest.mark.direct("nothing is prepared behind a pooler")
async def test_what_a_worker_asks_is_planned_once_for_all_values(holdfast: Harness) -> None:
    """When the next task is due was planned anew at each wake-up, which took six times as long as to look."""
    async with link_to(holdfast.url, by_index=True) as link:
        for n in range(9):
            await link.run(Queries().next_due([f"queue_{n}"]))
        made = asking("SELECT generic_plans > 0, custom_plans FROM pg_prepared_statements WHERE statement ~ 'soon'")
        assert await link.run(made) == [(True, 0)]


@pytest.mark.direct("the processes of the server are compared")
async def test_what_is_sent_ahead_is_answered_for_later(holdfast: Harness) -> None:
    async with link_to(holdfast.url) as link:
        query = asking("SELECT :n::integer", n=7)
        assert await link.sender(query, _nothing) is None  # there is no connection yet
        await link.run(asking("SELECT 1"))
        for _ in range(2):
            send = await link.sender(query, _nothing)
            assert send is not None
            send(b"")
            assert await link.answer(query) == [(7,)]
        assert await link.run(query) == [(7,)]


@pytest.mark.direct("nothing is sent ahead through a pooler")
async def test_who_sends_ahead_is_told_when_the_answer_is_there(holdfast: Harness) -> None:
    async with link_to(holdfast.url) as link:
        query = asking("SELECT :id::uuid, :n::integer", id=UUID(int=0), n=7)
        told: list[Any] = []
        await link.run(asking("SELECT 1"))
        send = await link.sender(query, lambda: told.append(link.answer_now(query)), "id")
        assert send is not None
        for id in (UUID(int=1), UUID(int=2)):
            send(id.bytes)
            await until(lambda: bool(told), "for the answer")
            assert told.pop() == [(id, 7)]
        refused = asking("SELECT 1 / :n::integer", n=0)
        send = await link.sender(refused, lambda: told.append("told"))
        assert send is not None
        send(b"")
        await until(lambda: bool(told), "for the answer")
        for _ in range(2):
            with pytest.raises(psycopg.errors.DivisionByZero):
                link.answer_now(refused)
        with pytest.raises(psycopg.errors.DivisionByZero):
            await link.answer(refused)
        assert await link.run(asking("SELECT 1")) == [(1,)]


@pytest.mark.direct("nothing is sent ahead through a pooler")
async def test_what_is_too_large_to_be_sent_at_once_is_sent_by_who_asks_for_the_answer(holdfast: Harness) -> None:
    large, told = "x" * 8_000_000, []
    async with link_to(holdfast.url) as link:
        await link.run(asking("SELECT 1"))
        query = asking("SELECT length(:large::text)", large=large)
        send = await link.sender(query, lambda: told.append("arrived"))
        assert send is not None
        send(b"")
        assert told == ["arrived"]
        with pytest.raises(psycopg.OperationalError):
            link.answer_now(query)
        assert await link.answer(query) == [(len(large),)]


@pytest.mark.direct("nothing is sent ahead through a pooler")
async def test_nothing_is_read_from_a_connection_that_was_closed(holdfast: Harness) -> None:
    """The number of its socket may be that of another connection soon, which would never be read."""
    loop = asyncio.get_running_loop()
    async with link_to(holdfast.url) as link:
        await link.run(asking("SELECT 1"))
        send = await link.sender(asking("SELECT pg_sleep(600)"), _nothing)
        assert send is not None and link._connection is not None
        socket = link._connection.pgconn.socket
        send(b"")
        assert link._direct._ahead is not None
        await link.close()
        assert not loop.remove_reader(socket)
        assert await link.run(asking("SELECT 1")) == [(1,)]


@pytest.mark.direct("nothing is sent ahead through a pooler")
async def test_an_answer_that_arrives_as_its_asker_is_cancelled_is_passed_over(holdfast: Harness) -> None:
    """In one turn of the loop: the one who waited has not gone on yet."""
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: faults.append(told))
    async with link_to(holdfast.url) as link:
        await link.run(asking("SELECT 1"))
        send = await link.sender(asking("SELECT 2"), lambda: faults.append("told"))
        assert send is not None
        send(b"")
        arrival = link._direct._ahead
        assert arrival is not None
        arrival._complete.cancel()
        await until(lambda: not arrival._reads, "for the answer")
    assert arrival.results and faults == []


def _nothing() -> None: ...


async def test_what_could_not_be_sent_ahead_is_an_error_of_its_answer(holdfast: Harness) -> None:
    async with link_to(holdfast.url) as link:
        query = asking("SELECT :n::integer", n=7)
        await link.run(query)
        told: list[str] = []
        send = await link.sender(query, lambda: told.append("arrived"))
        assert send is not None
        sql(
            holdfast.url,
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = $1",
            NAME,
        )
        send(b"")
        send(b"")  # by now the connection is known to be broken
        assert told == ["arrived"], "nobody must wait for it in vain"
        with pytest.raises(psycopg.OperationalError):
            link.answer_now(query)
        with pytest.raises(psycopg.OperationalError):
            await link.answer(query)
        assert await link.run(query) == [(7,)]


async def test_M19_a_forked_child_sends_nothing_on_its_parents_connection(holdfast: Harness) -> None:
    async with link_to(holdfast.url) as link:
        query = asking("SELECT :n::integer", n=7)
        await link.run(query)
        send, connection = await link.sender(query, _nothing), link._connection
        assert send is not None and connection is not None
        link._pid = -1  # as if this were another process
        send(b"")
        assert connection.pgconn.transaction_status == TransactionStatus.IDLE
        with pytest.raises(HoldfastError, match="parent process"):
            await link.answer(query)
        await connection.close()


async def test_a_transaction_of_one_statement_waits_for_a_lock_no_longer_than_others(holdfast: Harness) -> None:
    """With or without a pooler, and also if the time is set once for all."""
    write = asking("UPDATE holdfast.migration SET version = version RETURNING version")
    limits = asking("SELECT current_setting('lock_timeout')")
    async with link_to(holdfast.url, lock_timeout="30ms") as link, link_to(holdfast.url) as other:
        for each, limit in ((link, "30ms"), (other, "31ms")):
            for _ in range(3):
                (answer,) = await each.transact([write], lock_timeout=limit)
                assert answer.count == len(await answer.read()) > 0
                (answer,) = await each.transact([limits], lock_timeout=limit)
                assert (answer.count, await answer.read()) == (1, [(limit,)])
            with connect_sync(holdfast.url) as holder:
                holder.execute(b"BEGIN")
                holder.execute(b"LOCK TABLE holdfast.migration IN EXCLUSIVE MODE")
                with pytest.raises(psycopg.errors.LockNotAvailable):
                    await each.transact([write], lock_timeout=limit)
                holder.execute(b"ROLLBACK")
            (answer,) = await each.transact([write], lock_timeout=limit)
            assert answer.count > 0
        (answer,) = await link.transact([asking("SELECT WHERE false")], lock_timeout="30ms")
        assert (answer.count, await answer.read()) == (0, [])


async def test_a_transaction_of_one_statement_reads_what_is_committed_whatever_the_default(holdfast: Harness) -> None:
    level = asking("SELECT current_setting('transaction_isolation')")
    name = sql(holdfast.url, "SELECT current_database()")[0][0]
    sql(holdfast.url, f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
    async with link_to(holdfast.url, lock_timeout="30ms") as link:
        (answer,) = await link.transact([level], lock_timeout="30ms")
        assert await answer.read() == [("read committed",)]


async def test_a_refused_statement_leaves_the_connection_in_use(holdfast: Harness) -> None:
    async with link_to(holdfast.url) as link:
        (before,) = await link.run(asking("SELECT pg_backend_pid()"))
        for _ in range(3):
            with pytest.raises(psycopg.errors.DivisionByZero):
                await link.run(asking("SELECT 1 / :n::integer", n=0))
        assert await link.run(asking("SELECT 1 / :n::integer", n=1)) == [(1,)]
        assert await link.run(asking("SELECT pg_backend_pid()")) == [before]


@asynccontextmanager
async def listening(listener: Listener) -> AsyncIterator[None]:
    task = asyncio.create_task(listener.run())
    try:
        await until(listener.listening.is_set, "to listen")
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.direct("it needs notifications")
async def test_W3_a_broken_connection_is_noticed_without_a_ping(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen, "PING_EVERY", 3600.0)
    heard: list[str] = []
    async with listening(Listener(holdfast.url, "holdfast", heard.append)):
        sql(
            holdfast.url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = 'holdfast listen'",
        )
        await until(lambda: heard.count("queue *") == 2, "for another connection")
        sql(holdfast.url, "SELECT pg_notify('holdfast', 'queue there')")
        await until(lambda: "queue there" in heard, "for a notification")


@pytest.mark.direct("it needs notifications")
async def test_W3_what_comes_while_a_connection_is_pinged_is_heard_once(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen, "PING_EVERY", 0.0)
    heard: list[str] = []
    signs = told = 0

    def live() -> None:
        nonlocal signs
        signs += 1

    listener = Listener(holdfast.url, "holdfast", heard.append, well=live)
    async with (
        listening(listener),
        await psycopg.AsyncConnection.connect(holdfast.url, autocommit=True) as telling,
    ):
        while signs - len(heard) < 50 and told < 20_000:  # the answers to pings are among the signs of life
            await telling.execute("SELECT pg_notify('holdfast', %s)", [f"said {told}"])
            told += 1
        await until(lambda: len(heard) > told, "for all")
    assert heard == ["queue *", *(f"said {n}" for n in range(told))]
    assert signs - len(heard) >= 50


@pytest.mark.parametrize("before", [0, 2], ids=["plain", "prepared"])
async def test_M2_rows_that_could_not_be_committed_are_an_error(holdfast: Harness, before: int) -> None:
    """The server sends the rows first, and commits then: a claim that is not committed is none."""
    sql(holdfast.url, "CREATE TABLE late (n integer UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    insert = "INSERT INTO late VALUES (:n::integer) RETURNING n"
    async with link_to(holdfast.url) as link:
        for n in range(before + 1):
            assert await link.run(asking(insert, n=n)) == [(n,)]
        with pytest.raises(psycopg.errors.UniqueViolation):
            await link.run(asking(insert, n=0))
        assert await link.run(asking("SELECT count(*) FROM late")) == [(before + 1,)]
