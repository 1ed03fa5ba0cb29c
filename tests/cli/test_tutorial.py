"""The tutorial, as a user types it: `examples/greeter.py`, a worker process and the commands."""

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import holdfast

from .conftest import Cli, Process, eventually

EXAMPLE = Path(holdfast.__file__).parents[2] / "examples" / "greeter.py"


def test_a_missing_file_parks_the_greeter_and_a_retry_greets(
    cli: Cli, start: Callable[..., Process], project: Path
) -> None:
    """T9, T10, T11, T12."""
    shutil.copy(EXAMPLE, project / "greeter.py")
    worker = start("worker", "greeter.py", url=cli.url)

    id = cli.enqueue("greeter.ReadName", "filename=name.txt")
    eventually(lambda: cli.show(id)["task"]["state"] == "parked", "the greeter was not parked")

    told = cli.show(id)
    assert [each["attempt"] for each in told["attempts"]] == [1, 2, 3, 4, 5, 6]
    assert [each["outcome"] for each in told["attempts"]] == ["retried"] * 5 + ["failed"]
    message = "[Errno 2] No such file or directory: 'name.txt'"
    assert all(each["error"]["message"] == message for each in told["attempts"])
    assert told["task"]["error"]["type"] == "FileNotFoundError"
    shown = cli("show", id).stdout
    assert f"FileNotFoundError: {message}" in shown
    assert 'greeter.py", line' in shown
    assert f"holdfast retry {id}" in shown
    assert id in cli("tasks", "--state", "parked").stdout

    Path("name.txt").write_text("Ada\n")
    cli("retry", id, "--why", "the file is there")
    eventually(lambda: cli.show(id)["task"]["state"] == "done", "the greeter did not go on")

    told = cli.show(id)
    assert told["task"]["result"] == "Hello, Ada!"
    assert [(each["step"], each["outcome"]) for each in told["attempts"][6:]] == [
        ("ReadName", "advanced"),
        ("SayHello", "done"),
    ]
    assert [(each["action"], each["by"], each["why"]) for each in told["changes"]] == [
        ("retry", "tester", "the file is there")
    ]
    assert '"Hello, Ada!"' in cli("show", id).stdout
    assert "retry by tester: the file is there" in cli("show", id).stdout

    assert cli("enqueue", "greeter.ReadName", "filename=name.txt", "--wait").stdout == "Hello, Ada!\n"
    worker.signal(signal.SIGTERM)
    assert worker.ended() == 0
