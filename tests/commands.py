"""Commands of `holdfast` in this process, for tests of every kind."""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from click.testing import CliRunner, Result

from holdfast.cli import main


def invoke(arguments: Sequence[object], env: Mapping[str, str | None], input: str | None = None) -> Result:
    """Runs a command. In a test on an event loop it runs in a thread, because commands block."""
    words = list(map(str, arguments))
    if asyncio._get_running_loop() is None:
        return CliRunner().invoke(main, words, env=env, input=input)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: CliRunner().invoke(main, words, env=env, input=input)).result()
