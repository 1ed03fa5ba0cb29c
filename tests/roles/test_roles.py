"""X5: parts are given and taken by one command, and kept through migrations."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result

from holdfast import App, Context, Done, Every, Tasks, named
from holdfast._db.driver.session import Link
from holdfast._db.migrate import latest, migrate, script
from holdfast._db.roles import grant, grantees, revoke
from holdfast._engine.maintain.maintenance import Maintenance
from holdfast._sql.queries import queries
from holdfast.cli import main
from holdfast.errors import ConfigError, NotPermitted, SchemaError

from .conftest import as_role, execute


def run(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["roles", *arguments], env={"HOLDFAST_URL": url})


def rights(url: str, role: str) -> list[tuple[object, ...]]:
    """Everything that a role was given, on objects and on columns."""
    return execute(
        url,
        """SELECT g.what, a.privilege_type
           FROM (SELECT 'table ' || c.relname, c.relacl FROM pg_class c
                 UNION ALL
                 SELECT concat('column ', c.relname, '.', t.attname), t.attacl
                 FROM pg_class c JOIN pg_attribute t ON t.attrelid = c.oid
                 UNION ALL
                 SELECT 'function ' || p.proname, p.proacl FROM pg_proc p
                 UNION ALL
                 SELECT 'schema ' || n.nspname, n.nspacl FROM pg_namespace n) AS g(what, acl), aclexplode(g.acl) AS a
           WHERE a.grantee = (SELECT oid FROM pg_roles WHERE rolname = $1) ORDER BY 1, 2""",
        role,
    )


# --- the command


def test_X5_grant_list_and_revoke_by_command(holdfast_url: str, new_role: Callable[..., str]) -> None:
    ann, bob = new_role("Ann's"), new_role("bob")
    assert run(holdfast_url, "list").output == "no role but the owner of the tables has a part.\n"
    assert run(holdfast_url, "grant", "operator", ann, bob).output == (
        f"role {ann} is an operator now.\nrole {bob} is an operator now.\n"
    )
    assert run(holdfast_url, "grant", "producer", bob).exit_code == 0
    before = rights(holdfast_url, bob)
    assert run(holdfast_url, "grant", "producer", bob).exit_code == 0, "as often as you like"
    assert rights(holdfast_url, bob) == before
    found = run(holdfast_url, "list").output
    assert ann in found and found.count(bob) == 2
    assert run(holdfast_url, "revoke", "operator", bob).output == f"role {bob} is no operator any more.\n"
    assert execute(as_role(holdfast_url, bob), "SELECT holdfast.enqueue('a.B')"), "it is still a producer"
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        execute(as_role(holdfast_url, bob), "SELECT holdfast.stop_workers()")
    assert run(holdfast_url, "revoke", "producer", bob).exit_code == 0
    assert rights(holdfast_url, bob) == []
    assert [(each.role, each.part) for each in grantees(holdfast_url, "holdfast")] == [(ann, "operator")]


def test_X5_the_statements_are_printed_and_do_the_same(holdfast_url: str, new_role: Callable[..., str]) -> None:
    role, same = new_role("Printed"), new_role("done")
    printed = run(holdfast_url, "grant", "worker", role, "--sql").output
    assert rights(holdfast_url, role) == [] and grantees(holdfast_url, "holdfast") == [], "nothing was changed"
    execute(holdfast_url, printed)
    grant(holdfast_url, "holdfast", "worker", [same])
    assert rights(holdfast_url, role) == rights(holdfast_url, same) != []
    assert {each.role for each in grantees(holdfast_url, "holdfast")} == {role, same}
    execute(holdfast_url, run(holdfast_url, "revoke", "worker", role, "--sql").output)
    assert rights(holdfast_url, role) == []


def test_X5_a_group_is_given_a_part_and_its_members_have_it(holdfast_url: str, new_role: Callable[..., str]) -> None:
    group, member = new_role("group", "NOLOGIN"), new_role("member")
    execute(holdfast_url, f'GRANT "{group}" TO "{member}"')
    grant(holdfast_url, "holdfast", "producer", [group])
    assert execute(as_role(holdfast_url, member), "SELECT holdfast.enqueue('a.B')")


def test_X5_a_role_that_is_not_there_is_told(holdfast_url: str) -> None:
    result = run(holdfast_url, "grant", "worker", 'no"body')
    assert result.exit_code == 2
    assert """there is no database role 'no"body'. Make it first: CREATE ROLE "no""body" LOGIN;""" in result.output
    assert run(holdfast_url, "grant", "king", "somebody").exit_code == 2


def test_X5_the_owner_needs_no_part(holdfast_url: str) -> None:
    ((owner,),) = execute(holdfast_url, "SELECT current_user::text")
    with pytest.raises(ConfigError, match="it may do everything"):
        grant(holdfast_url, "holdfast", "viewer", [str(owner)])
    with pytest.raises(ConfigError, match="it may do everything"):
        revoke(holdfast_url, "holdfast", "viewer", [str(owner)])


def test_X5_a_dropped_role_is_shown_and_can_be_forgotten(
    holdfast_url: str, holdfast_server: str, new_role: Callable[..., str]
) -> None:
    role = new_role("gone")
    grant(holdfast_url, "holdfast", "viewer", [role])
    execute(holdfast_url, f'DROP OWNED BY "{role}"')
    execute(holdfast_server, f'DROP ROLE "{role}"')
    assert "there is no such role any more" in run(holdfast_url, "list").output
    execute(holdfast_url, queries("holdfast").renew_grants)
    revoke(holdfast_url, "holdfast", "viewer", [role])
    assert grantees(holdfast_url, "holdfast") == []


def test_X5_an_older_schema_is_migrated_first(holdfast_url: str, new_role: Callable[..., str]) -> None:
    role = new_role()
    execute(holdfast_url, "DELETE FROM holdfast.migration WHERE version = $1", latest())
    with pytest.raises(SchemaError, match="Run: holdfast migrate"):
        grant(holdfast_url, "holdfast", "viewer", [role])


# --- migrations


def test_X5_functions_are_closed_to_everybody(holdfast_url: str) -> None:
    """And those that act with the rights of the owner look names up nowhere else than in pg_catalog."""
    functions: list[Any] = execute(
        holdfast_url,
        """SELECT p.proname::text, p.prosecdef, coalesce(p.proconfig, '{}'),
                  p.proacl IS NULL OR EXISTS (SELECT FROM aclexplode(p.proacl) a WHERE a.grantee = 0)
           FROM pg_proc p WHERE p.pronamespace = 'holdfast'::regnamespace""",
    )
    assert [name for name, _, _, is_open in functions if is_open] == []
    pinned = "search_path=pg_catalog, pg_temp"
    assert [name for name, definer, config, _ in functions if definer and pinned not in config] == []
    # These are inlined into the conditions of other statements.
    assert [name for name, definer, config, _ in functions if name in ("now", "is_live") and (definer or config)] == []


def test_X5_every_function_with_the_rights_of_the_owner_belongs_to_a_part(
    holdfast_url: str, new_role: Callable[..., str]
) -> None:
    """Who adds one decides who may call it, in roles.sql."""
    role = new_role()
    for part in ("producer", "worker", "operator"):
        grant(holdfast_url, "holdfast", part, [role])
    definers = "SELECT p.proname::text FROM pg_proc p WHERE p.pronamespace = 'holdfast'::regnamespace AND p.prosecdef"
    nobody = f"{definers} AND NOT has_function_privilege($1, p.oid, 'EXECUTE')"
    assert execute(holdfast_url, nobody, role) == []


async def test_X5_a_migration_renews_the_rights(holdfast_url: str, new_role: Callable[..., str]) -> None:
    """Old rows of the schema stay as they are; what was made anew is granted anew, in the same transaction."""
    roles = {part: new_role(part) for part in ("producer", "worker", "viewer", "operator")}
    for part, role in roles.items():
        grant(holdfast_url, "holdfast", part, [role])  # type: ignore[arg-type]
    before = {role: rights(holdfast_url, role) for role in roles.values()}
    await migrate(holdfast_url, to=latest() - 1)
    assert {role: rights(holdfast_url, role) for role in roles.values()} != before, (
        "functions went, and rights with them"
    )
    await migrate(holdfast_url)
    assert {role: rights(holdfast_url, role) for role in roles.values()} == before


async def test_X5_new_tables_are_seen_by_viewers_and_written_by_workers(
    holdfast_url: str, new_role: Callable[..., str]
) -> None:
    roles = {part: new_role(part) for part in ("producer", "worker", "viewer")}
    for part, role in roles.items():
        grant(holdfast_url, "holdfast", part, [role])  # type: ignore[arg-type]
    execute(holdfast_url, "CREATE TABLE holdfast.novelty (id integer)")
    execute(holdfast_url, "SET search_path = pg_catalog;" + queries("holdfast").renew_grants)
    execute(as_role(holdfast_url, roles["worker"]), "INSERT INTO holdfast.novelty VALUES (1)")
    assert execute(as_role(holdfast_url, roles["viewer"]), "TABLE holdfast.novelty") == [(1,)]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        execute(as_role(holdfast_url, roles["producer"]), "TABLE holdfast.novelty")


def test_X5_the_printed_migrations_close_functions_too(holdfast_url: str) -> None:
    execute(holdfast_url, script("printed"))
    open = """SELECT count(*) FROM pg_proc p WHERE p.pronamespace = 'printed'::regnamespace
              AND (p.proacl IS NULL OR EXISTS (SELECT FROM aclexplode(p.proacl) a WHERE a.grantee = 0))"""
    assert execute(holdfast_url, open) == [(0,)]


# --- all of them at work


def shop() -> Tasks:
    tasks = Tasks()

    @tasks.task
    async def send(ctx: Context, to: str) -> str:
        if to == "nobody":
            raise LookupError(to)
        ctx.enqueue(note.bind(to))
        return f"sent to {to}"

    @tasks.task(transactional=True)
    async def note(ctx: Context, to: str) -> Done[str]:
        await ctx.tx.execute("SELECT 1")
        return Done(to)

    return tasks


async def test_X5_enqueued_by_one_executed_by_another_repaired_by_a_third(urls: dict[str, str]) -> None:
    def app(part: str) -> App:
        return App(urls[part], include=[shop()])

    async with (
        app("producer") as producer,
        app("worker") as works,
        app("operator") as operator,
        app("viewer") as viewer,
    ):
        good = await producer.enqueue(named("send", {"to": "ann"}))
        bad = await producer.enqueue(named("send", {"to": "nobody"}))
        with pytest.raises(NotPermitted, match=r"permission denied .*holdfast roles grant"):
            await good.result(timeout="60s")
        async with works.worker(poll="100ms"):
            assert await viewer.ref(good.id).result(timeout="60s") == "sent to ann"
            with pytest.raises(Exception, match="is parked"):
                await viewer.ref(bad.id).result(timeout="60s")
            with pytest.raises(NotPermitted, match="permission denied for function retry"):
                await viewer.retry(bad.id)
            await operator.retry(bad.id, args={"to": "bob"}, why="a slip")
            assert await viewer.ref(bad.id).result(timeout="60s") == "sent to bob"
            noted = "SELECT count(*) FROM holdfast.tasks WHERE kind = 'note' AND state = 'done'"
            async with asyncio.timeout(60):
                while execute(urls["viewer"], noted) != [(2,)]:
                    await asyncio.sleep(0.05)
    ((by, role),) = execute(urls["owner"], "SELECT by, role FROM holdfast.change WHERE task_id = $1", bad.id)
    assert str(role).startswith("the_operator_"), "whoever it says it is"
    assert by == role


async def test_X5_a_worker_that_owns_nothing_follows_schedules(urls: dict[str, str]) -> None:
    app, seen = App(urls["worker"]), asyncio.Event()

    @app.task
    async def tick() -> None:
        seen.set()

    app.schedule("ticking", Every("1s"), tick.bind())
    async with app, app.worker(poll="100ms"):
        await asyncio.wait_for(seen.wait(), 60)


async def test_X5_a_worker_that_owns_nothing_makes_and_drops_history(urls: dict[str, str]) -> None:
    """A day that somebody reads is dropped later, and nobody waits longer than for a moment."""
    owner, old = urls["owner"], "archive_p20200101"
    execute(owner, "SELECT holdfast.ensure_partition('2020-01-01')")
    execute(urls["worker"], "SELECT holdfast.ensure_partition('2020-01-02')")

    async def one_pass() -> tuple[list[str], dict[str, Exception]]:
        link = Link(urls["worker"], queries("holdfast"), "test")
        done, failures = await Maintenance(link, queries("holdfast")).once()
        return done.what, failures

    with psycopg.connect(owner) as reader:
        reader.execute(f"TABLE holdfast.{old}")
        assert await one_pass() == ([], {})
        with pytest.raises(psycopg.errors.LockNotAvailable):  # also by hand: nobody waits behind it for long
            execute(urls["worker"], "SET statement_timeout = '20s'; SELECT holdfast.drop_oldest_partition()")
    done, failures = await one_pass()
    assert [each.partition(" (")[0] for each in done] == [
        "dropped the history of 2020-01-01",
        "dropped the history of 2020-01-02",
    ]
    assert failures == {}
    assert execute(owner, "SELECT count(*) FROM holdfast.history WHERE day < '2021-01-01'") == [(0,)]


async def test_X5_a_worker_that_owns_nothing_deletes_what_queues_no_longer_keep(urls: dict[str, str]) -> None:
    owner = urls["owner"]
    execute(owner, "SELECT holdfast.ensure_partition((now() - interval '4 days')::date)")
    execute(
        owner,
        """INSERT INTO holdfast.archive (id, queue, kind, step, args, state, priority, run_at, moves, attempt, errors,
                                         crashes, created_at, finished_at)
           SELECT gen_random_uuid(), 'mail', 'k', 's', '{}', 'done', 0, now(), 0, 1, 0, 0, now(),
                  now() - interval '4 days'
           FROM generate_series(1, 10)""",
    )
    execute(owner, """SELECT holdfast.set_queue('mail', '{"retention": "2 days"}')""")
    link = Link(urls["worker"], queries("holdfast"), "test")
    done, failures = await Maintenance(link, queries("holdfast"), retention=timedelta(days=8).total_seconds()).once()
    assert failures == {} and any(each.startswith("deleted 10 rows from archive_p") for each in done.what), done.what


def test_X5_nobody_can_change_what_a_name_means_to_the_functions(urls: dict[str, str]) -> None:
    """A function of the same name, put in front by the caller, is not called with the rights of the owner."""
    execute(
        urls["owner"],
        """CREATE SCHEMA trap;
           GRANT USAGE ON SCHEMA trap TO PUBLIC;
           CREATE FUNCTION trap.jsonb_typeof(jsonb) RETURNS text LANGUAGE plpgsql
           AS $$ BEGIN RAISE EXCEPTION 'caught as %', current_user; END $$""",
    )
    with psycopg.connect(urls["producer"], autocommit=True) as connection:
        connection.execute("SET search_path = trap, pg_catalog")
        with pytest.raises(psycopg.errors.RaiseException, match="caught as the_producer"):
            connection.execute("SELECT jsonb_typeof('{}'::jsonb)")
        assert connection.execute("SELECT holdfast.enqueue('a.B', '{}', '{\"key\": \"k\"}')").fetchone()


async def test_X5_own_moves_need_the_part_of_a_worker(urls: dict[str, str]) -> None:
    """`ctx.move` writes on the caller's connection, with the rights of that."""
    app, seen = App(urls["worker"]), list[Any]()
    kind = app.kind("mover", result=str)

    @kind.step
    @dataclass
    class Begin:
        def run(self) -> "Go":
            return Go()

    @kind.step
    @dataclass
    class Go:
        async def run(self, ctx: Context) -> "End":
            async with await psycopg.AsyncConnection.connect(urls["worker"]) as connection:
                seen.append(ctx.step)
                return await ctx.move(End(), conn=connection)

    @kind.step
    @dataclass
    class End:
        def run(self) -> Done[str]:
            return Done("moved")

    async with app, app.worker(poll="100ms"):
        assert await (await app.enqueue(Begin())).result(timeout="60s") == "moved"
    assert seen == ["Go"]
