"""`examples/fan_out.py`: all children, each once, whatever happens on the way."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing import Harness

from .support import attempts, example

fan_out = example("fan_out")


@pytest.fixture
def holdfast_tasks() -> Any:
    return fan_out.app


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(8):
        (tmp_path / f"{number}.txt").write_text(f"file {number}")
    (tmp_path / "a folder").mkdir()
    return tmp_path


def checksums(holdfast: Harness) -> list[tuple[str, str]]:
    text = "SELECT args ->> 'path', result #>> '{}' FROM holdfast.archive WHERE kind = 'checksum' ORDER BY 1"
    return [(path, result) for path, result in holdfast.sql(text)]


def expected(folder: Path) -> list[tuple[str, str]]:
    return [(str(folder / f"{n}.txt"), hashlib.sha256(f"file {n}".encode()).hexdigest()) for n in range(8)]


async def test_every_file_gets_its_task(holdfast: Harness, folder: Path) -> None:
    ref = await fan_out.scan.enqueue(fan_out.Scan(str(folder)))
    await holdfast.drain()
    assert await ref.result() == 8
    assert checksums(holdfast) == expected(folder)


async def test_large_folders_go_in_parts_and_a_crash_loses_and_doubles_nothing(
    holdfast: Harness, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fan_out, "AT_ONCE", 3)
    ref = await fan_out.scan.enqueue(fan_out.Scan(str(folder)))
    with holdfast.crash_after(fan_out.scan):
        await holdfast.drain()
    assert holdfast.enqueued(fan_out.checksum) == 0  # the step ran, its outcome was never recorded
    holdfast.clock.advance("1m")
    await holdfast.drain()
    assert await ref.result() == 8
    assert attempts(holdfast, ref.id) == [
        ("Scan", "lost"),
        ("Scan", "advanced"),
        ("Scan", "advanced"),
        ("Scan", "done"),
    ]
    assert checksums(holdfast) == expected(folder)
