"""`examples/greeter.py`; the same by the command line is in tests/cli/test_tutorial.py."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.testing import Harness

from .support import attempts, example

greeter = example("greeter")


@pytest.fixture
def holdfast_tasks() -> Any:
    return greeter.app


async def test_it_greets_once_the_file_is_there(holdfast: Harness, tmp_path: Path) -> None:
    ref = await greeter.greeter.enqueue(greeter.ReadName(str(tmp_path / "name.txt")))
    await holdfast.run_all()
    assert (await ref.info()).state == "parked"
    assert attempts(holdfast, ref.id) == [("ReadName", "retried")] * 5 + [("ReadName", "failed")]
    (tmp_path / "name.txt").write_text("Ada\n")
    await holdfast.app.retry(ref.id)
    await holdfast.drain()
    assert await ref.result() == "Hello, Ada!"
