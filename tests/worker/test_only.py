"""A worker that knows only some steps of its App (W7): the others stay for other workers."""

from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from holdfast import Context, Done, Tasks, named
from holdfast.errors import ConfigError
from holdfast.testing import Harness

from .support import attempts, running, sql, until

tasks = Tasks()
video = tasks.kind("video", result=str, was=["film"])


@pytest.fixture
def holdfast_tasks() -> Tasks:
    return tasks


@tasks.task
async def plain() -> str:
    return "plain"


@video.step
@dataclass
class Fetch:
    async def run(self) -> "Encode":
        return Encode()


@video.step(transactional=True)
@dataclass
class FetchInTransaction:
    async def run(self, ctx: Context) -> "Encode":
        return Encode()


@video.step
@dataclass
class FetchAndMove:
    url: str

    async def run(self, ctx: Context) -> "Encode":
        async with await psycopg.AsyncConnection.connect(self.url) as connection:
            return await ctx.move(Encode(), conn=connection)


@video.step(was=["Squeeze"])
@dataclass
class Encode:
    async def run(self) -> Done[str]:
        return Done("encoded")


async def test_W7_only_some_steps_are_claimed_also_under_old_names(holdfast: Harness) -> None:
    ours = [
        await holdfast.app.enqueue(named(name, {}))
        for name in ("video.Encode", "video.Squeeze", "film.Encode", "film.Squeeze")
    ]
    others = [await plain.enqueue(), await video.enqueue(Fetch())]
    worker = holdfast.worker(only="video.Encode")
    await worker.run(until_idle=True)
    assert [(await ref.info()).state for ref in ours] == ["done"] * 4
    assert [((await ref.info()).state, (await ref.info()).attempt) for ref in others] == [("ready", 0)] * 2
    told = sql(holdfast.url, "SELECT only_steps, steps FROM holdfast.worker")
    assert told == [(["video.Encode"], ["film.Encode", "film.Squeeze", "video.Encode", "video.Squeeze"])]
    assert sql(holdfast.url, "SELECT name FROM holdfast.kind ORDER BY name") == [("plain",), ("video",)]


@pytest.mark.parametrize("first", ["Fetch", "FetchInTransaction", "FetchAndMove"])
async def test_W7_M20_a_move_to_a_step_of_others_is_let_go(holdfast: Harness, first: str) -> None:
    args = {"url": holdfast.url} if first == "FetchAndMove" else {}
    ref = await holdfast.app.enqueue(named(f"video.{first}", args))
    await holdfast.worker(only=[f"video.{first}", "plain"]).run(until_idle=True)
    info = await ref.info()
    assert (info.state, info.step, info.moves) == ("ready", "Encode", 1)
    assert attempts(holdfast.url, ref.id) == [(1, first, "advanced")]
    async with running(holdfast.worker(only=["video"])):
        assert await ref.result(timeout=60) == "encoded"


async def test_W7_a_whole_kind(holdfast: Harness) -> None:
    ref, other = await video.enqueue(Fetch()), await plain.enqueue()
    worker = holdfast.worker(only=["video"])
    async with running(worker):
        assert await ref.result(timeout=60) == "encoded"
        await until(lambda: worker.claimer.empty, "for the worker to rest")
    assert (await other.info()).attempt == 0


@pytest.mark.parametrize("wrong", ["vide", "video.Nothing", "film", "main"])
async def test_W7_unknown_names_are_refused_with_those_that_are_known(holdfast: Harness, wrong: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        holdfast.worker(only=["plain", wrong])
    assert repr(wrong) in str(caught.value)
    assert "plain.main, video.Encode, video.Fetch" in str(caught.value)
