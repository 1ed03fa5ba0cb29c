"""Completion in a shell: the real bash, and names from a real database."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast._db.driver.connection import connect_sync

from .conftest import Cli

BASH = shutil.which("bash")


@pytest.fixture
def holdfast_on_path(tmp_path: Path) -> str:
    """A PATH on which `holdfast` is this one."""
    program = tmp_path / "bin" / "holdfast"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m holdfast.cli "$@"\n')
    program.chmod(0o755)
    return f"{program.parent}:{os.environ['PATH']}"


def completed(path: str, *words: str, **environment: str) -> list[str]:
    """What bash offers for the last of these words."""
    script = """
        eval "$(holdfast completion bash)" || exit 1
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        entry=$(complete -p holdfast) || exit 1
        set -- ${entry}
        while [ "$1" != -F ]; do shift; done
        "$2" holdfast
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    answer = subprocess.run(
        [BASH or "bash", "--norc", "-c", script, "bash", "holdfast", *words],
        env={**os.environ, "PATH": path, **environment},
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stderr == ""
    return answer.stdout.split()


@pytest.mark.skipif(BASH is None, reason="there is no bash here")
def test_bash_completes_commands_options_and_choices(project: Path, holdfast_on_path: str) -> None:
    assert completed(holdfast_on_path, "enq") == ["enqueue"]
    assert completed(holdfast_on_path, "re") == ["retry", "resume"]
    assert completed(holdfast_on_path, "--js") == ["--json"]
    assert completed(holdfast_on_path, "enqueue", "--on") == ["--on-conflict"]
    assert completed(holdfast_on_path, "enqueue", "--on-conflict", "r") == ["raise", "replace"]
    assert completed(holdfast_on_path, "completion", "") == ["bash", "zsh", "fish"]
    assert completed(holdfast_on_path, "pg", "sta") == ["start", "status"]


@pytest.mark.skipif(BASH is None, reason="there is no bash here")
def test_bash_completes_kinds_steps_and_queues(cli: Cli, holdfast_on_path: str) -> None:
    with connect_sync(cli.url) as connection:
        connection.execute(
            b"""insert into holdfast.kind (name, queue, priority, first, graph) values
            ('hello', 'mail', 0, 'main', '{"main": []}'),
            ('greeter', 'default', 0, null, '{"ReadName": ["SayHello"], "SayHello": []}')"""
        )
    cli("enqueue", "hello", "--queue", "mail")
    url = {"HOLDFAST_URL": cli.url}
    assert completed(holdfast_on_path, "enqueue", "gre", **url) == ["greeter.ReadName", "greeter.SayHello"]
    assert completed(holdfast_on_path, "enqueue", "", **url) == ["greeter.ReadName", "greeter.SayHello", "hello"]
    assert completed(holdfast_on_path, "enqueue", "hello", "--queue", "m", **url) == ["mail"]
    typed = f"'{cli.url}'"
    assert completed(holdfast_on_path, "--url", typed, "enqueue", "he") == ["hello"]
    assert completed(holdfast_on_path, "enqueue", "--url", typed, "he") == ["hello"]
    assert completed(holdfast_on_path, "enqueue", "--url", typed, "--schema", "none", "he") == []


def test_trouble_is_no_completion_and_no_noise(project: Path) -> None:
    """No database, an unreachable one, a silent one, a wrong setting."""

    def offered(**environment: str) -> tuple[int, str, str]:
        asked = {"COMP_WORDS": "holdfast enqueue g", "COMP_CWORD": "2", "_HOLDFAST_COMPLETE": "bash_complete"}
        answer = subprocess.run(
            [sys.executable, "-m", "holdfast.cli"],
            env={**os.environ, **asked, **environment},
            capture_output=True,
            text=True,
        )
        return answer.returncode, answer.stdout.strip(), answer.stderr

    assert offered() == (0, "", "")
    assert offered(HOLDFAST_URL="postgresql://127.0.0.1:1/x") == (0, "", "")
    assert offered(HOLDFAST_URL="nonsense") == (0, "", "")
    assert offered(HOLDFAST_SCHEMA="Bad") == (0, "", "")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert offered(HOLDFAST_URL=f"postgresql://127.0.0.1:{silent.getsockname()[1]}/x") == (0, "", "")
    (project / "pyproject.toml").write_text("[tool.holdfast")
    assert offered() == (0, "", "")
    assert offered(COMP_CWORD="nonsense")[2] == ""


@pytest.mark.parametrize(
    ("shell", "sign"), [("bash", "complete -o"), ("zsh", "#compdef holdfast"), ("fish", "complete")]
)
def test_every_shell_has_a_script(cli: Cli, shell: str, sign: str) -> None:
    script = cli("completion", shell).stdout
    assert sign in script
    assert "_HOLDFAST_COMPLETE" in script
    assert json.loads(cli("completion", shell, "--json").stdout)["script"].strip() == script.strip()
    assert ".bashrc" in cli("completion", "--help").stdout
