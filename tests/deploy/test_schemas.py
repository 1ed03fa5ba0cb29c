"""X4: several schemas in one database and in one process; kinds of one name in several versions."""

import asyncio
import json
from dataclasses import make_dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from commands import invoke
from holdfast import App, Context, Function, KeyTaken, TaskNotFound, Tasks
from holdfast._db.driver.connection import connect_sync
from holdfast._db.migrate import latest, migrate, status
from holdfast._engine.lease.registration import _declarations

PATIENCE = 60.0


def execute(url: str, text: str, *values: object) -> list[tuple[Any, ...]]:
    with connect_sync(url) as connection:
        cursor = connection.execute(text.encode(), values or None)
        return cursor.fetchall() if cursor.description is not None else []


def app_of(url: str, schema: str, ran: list[str]) -> tuple[App, Function[[str], str]]:
    """An app whose kind has the same name in every schema."""
    app = App(url, schema=schema)

    @app.task
    async def greet(ctx: Context, name: str) -> str:
        ran.append(schema)
        return f"{schema}: {name}"

    return app, greet


@pytest.fixture
def two(holdfast_url: str) -> str:
    """A database with the schemas holdfast and billing."""
    asyncio.run(migrate(holdfast_url, "billing"))
    return holdfast_url


async def test_X4_two_apps_and_two_workers_in_one_process_share_nothing(two: str) -> None:
    ran: list[str] = []
    (ours, greet), (theirs, greet_theirs) = app_of(two, "holdfast", ran), app_of(two, "billing", ran)
    async with ours, theirs:
        kept = await ours.enqueue(greet.bind("Ann"), key="k")
        async with theirs.worker(poll="100ms"):
            made = await theirs.enqueue(greet_theirs.bind("Bob"), key="k")
            assert await made.result(timeout=PATIENCE) == "billing: Bob"
            with pytest.raises(TaskNotFound):
                await theirs.info(kept.id)
            assert (await kept.info()).phase == "unroutable", "their worker is none of ours"
            with pytest.raises(KeyTaken):
                await ours.enqueue(greet.bind("Eve"), key="k", on_conflict="raise")
        assert ran == ["billing"]
        async with ours.worker(poll="100ms"), theirs.worker(poll="100ms"):
            assert await kept.result(timeout=PATIENCE) == "holdfast: Ann"
    assert ran == ["billing", "holdfast"]


@pytest.mark.direct("it needs notifications")
async def test_X4_notifications_do_not_cross(two: str) -> None:
    """Whoever listens to one schema hears nothing of the other."""
    with psycopg.connect(two, autocommit=True) as listener:
        (channel,) = listener.execute("SELECT billing.channel()").fetchone() or ("",)
        listener.execute(f'LISTEN "{channel}"'.encode())
        for schema in ("holdfast", "billing"):  # they are heard in this order
            execute(two, f"""SELECT {schema}.enqueue('greet', '{{}}', '{{"queue": "{schema}"}}')""")
        heard = next(iter(listener.notifies(timeout=PATIENCE, stop_after=1)))
        assert heard.payload == "queue billing"


async def test_X4_migrating_one_schema_leaves_the_other(two: str) -> None:
    execute(two, "SELECT holdfast.enqueue('greet')")
    await migrate(two, "billing", to=0)
    assert (await status(two, "billing")).version == 0
    found = await status(two)
    assert (found.version, found.drift) == (latest(), ())
    assert execute(two, "SELECT count(*) FROM holdfast.task") == [(1,)]
    await migrate(two, "billing")
    assert (await status(two, "billing")).drift == ()


# --- versions


def version(url: str, number: int) -> App:
    app = App(url)

    if number == 1:

        @app.task(name="greet")
        async def greet(name: str) -> str:
            return name

    else:

        @app.task(name="greet", queue="greetings")
        async def greet_loudly(name: str, loud: bool = True) -> str:
            return name

    @app.task
    async def alike() -> None: ...

    return app


async def test_X4_live_workers_that_declare_a_kind_differently_are_told(
    holdfast_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def cli(*arguments: str, code: int = 0) -> str:
        result = invoke(arguments, {"HOLDFAST_URL": holdfast_url})
        assert result.exit_code == code, result.output
        return result.output

    async def seen(*names: str) -> None:
        live = "SELECT array_agg(name ORDER BY name) FROM holdfast.worker w WHERE holdfast.is_live(w)"
        async with asyncio.timeout(PATIENCE):
            while execute(holdfast_url, live) != [(list(names),)]:
                await asyncio.sleep(0.05)

    old, same, new = version(holdfast_url, 1), version(holdfast_url, 1), version(holdfast_url, 2)
    async with old, same, new, old.worker(name="old-1"), same.worker(name="old-2"):
        await seen("old-1", "old-2")
        assert "declare it in" not in cli("kinds") + cli("workers")
        async with new.worker(name="new-1"):
            await seen("new-1", "old-1", "old-2")
            told = "kind greet: live workers declare it in 2 ways (new-1; old-1, old-2): as in the middle of a deploy"
            assert told in cli("kinds") and told in cli("workers")
            assert "kind alike" not in cli("kinds") + cli("workers")
            by_name = {each["name"]: each["declared"]["declared_by"] for each in json.loads(cli("kinds", "--json"))}
            assert sorted(by_name["greet"].values()) == [["new-1"], ["old-1", "old-2"]]
            assert list(by_name["alike"].values()) == [["new-1", "old-1", "old-2"]]
            (tmp_path / "shop.py").write_text(
                "from holdfast import App\napp = App()\n@app.task\nasync def greet(name: str) -> None: ...\n"
            )
            checked = cli("check", "shop.py")  # a note, not an error
            assert "greet: live workers declare it in 2 ways" in checked
        assert "declare it in" not in cli("kinds") + cli("workers"), "the new one has stopped"


def test_X4_the_order_of_declarations_makes_no_difference() -> None:
    def fingerprints(*names: str) -> dict[str, str]:
        tasks = Tasks()
        kind = tasks.kind("ordered", result=str)
        for name in names:
            kind.step(make_dataclass(name, ["field"], namespace={"run": _run}))
        return {name: each.fingerprint for name, each in _declarations(tasks).items()}

    assert fingerprints("A", "B") == fingerprints("B", "A") != fingerprints("A", "C")


def _run(self: object) -> None:
    return None
