"""Settings: of workers, of pyproject.toml, of the environment. More: tests/unit/test_config.py."""

import pytest

from .conftest import USAGE, Project


def test_30_numbers_that_cannot_work(nowhere: Project) -> None:
    worker = "worker", "hello.py"
    said = nowhere.cli(*worker, "--lease", "10s", "--beat", "5s")
    said.once("a beat every 5 s is too seldom for a lease of 10 s: give at most 3.33333 s", code=USAGE)
    nowhere.cli(*worker, "-c", "0").once("'-c' / '--concurrency'", "a whole number of at least 1, not '0'", code=USAGE)
    for flag, short, least in (("--lease", "10ms", "1s"), ("--poll", "1ms", "50ms"), ("--reap", "0", "50ms")):
        said = nowhere.cli(*worker, flag, short)
        said.once(f"'{flag}'", f"must be a duration of at least {least}, such as", f", not '{short}'", code=USAGE)
    nowhere.cli(*worker, HOLDFAST_LEASE="10ms").once("HOLDFAST_LEASE must be a duration of at least 1s", code=USAGE)
    nowhere.cli(*worker, "--grace", "-1s").once("must be a duration such as", code=USAGE)
    said = nowhere.cli(*worker, "--lease", "5min")
    said.once("must be a duration of at least 1s, such as \"30s\", or a number of seconds, not '5min'", code=USAGE)
    nowhere.cli("top", "--once", "--every", "1ms").once("--every 0.001 is too often: 0.2 seconds", code=USAGE)
    said = nowhere.cli(*worker, HOLDFAST_CONCURRENCY="0")
    said.once("HOLDFAST_CONCURRENCY must be a whole number of at least 1, not '0'", code=USAGE)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("concurency = 5", "has 'concurency' under [tool.holdfast]: did you mean concurrency? There are url, "),
        ("log-level = 'info'", "did you mean log_level?"),
        ("concurrency = 'five'", "must be a whole number of at least 1, not 'five'"),
        (
            "lease = '5 minutes'",
            "must be a duration of at least 1s, such as \"30s\", or a number of seconds, not '5 minutes'",
        ),
        ("lease = 0.01", 'must be a duration of at least 1s, such as "30s", or a number of seconds, not 0.01'),
    ],
)
def test_33_wrong_keys_and_types(nowhere: Project, line: str, said: str) -> None:
    nowhere.write("pyproject.toml", f"[tool.holdfast]\n{line}\n")
    nowhere.cli("worker", "hello.py").once("pyproject.toml", said, code=USAGE)


def test_33_the_table_under_another_name(nowhere: Project) -> None:
    nowhere.write("pyproject.toml", "[holdfast]\nurl = 'postgresql:///shop'\n")
    said = nowhere.cli("tasks")
    said.once("pyproject.toml has a table [holdfast], which nobody reads: write [tool.holdfast]", code=USAGE)


def test_33_a_misspelt_variable_is_told_by_the_worker(project: Project) -> None:
    """Not an error: it may belong to something else."""
    said = project.worker(HOLDFAST_CONCURENCY="5")
    said.telling(
        "HOLDFAST_CONCURENCY is no setting: did you mean HOLDFAST_CONCURRENCY?", "serves default with 10 slots"
    )
    assert said.code == 0


@pytest.mark.parametrize("command", [["tasks"], ["worker", "hello.py"], ["migrate"]])
def test_40_a_pyproject_that_is_no_toml(nowhere: Project, command: list[str]) -> None:
    nowhere.write("pyproject.toml", "[tool.holdfast\nurl =\n")
    said = nowhere.cli(*command)
    said.once(f"{nowhere.folder / 'pyproject.toml'} is not valid TOML: ", "line 1", code=USAGE)
