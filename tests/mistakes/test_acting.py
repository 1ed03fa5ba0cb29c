"""Acting on tasks: ids, filters, names. More: test_task_commands, test_filters_command and test_bulk of tests/cli."""

import pytest

from .conftest import FAILED, NOT_FOUND, USAGE, Project

NO_TASK = "01890a5d-ac96-774b-bcce-b302099a8057"


def enqueued(project: Project, *options: str) -> str:
    return project.cli("enqueue", "hello", "name=Ada", *options).out.strip()


def test_28_a_task_that_has_ended(project: Project) -> None:
    id = enqueued(project)
    project.worker()
    for verb in ("retry", "cancel", "discard"):
        said = project.cli(verb, id)
        said.once(
            f"cannot {verb} task {id}: it is already done",
            f"Finished tasks are history; to enqueue the same anew: holdfast again {id}",
            code=FAILED,
        )


def test_28_a_task_that_is_not_parked(project: Project) -> None:
    said = project.cli("discard", enqueued(project))
    said.once("it is ready", "This is possible only when it is parked.", code=FAILED)


@pytest.mark.parametrize("verb", ["show", "retry", "wait"])
def test_28_ids_that_nobody_has(project: Project, verb: str) -> None:
    project.cli(verb, NO_TASK).once(f"there is no task {NO_TASK}", "the right database", code=NOT_FOUND)
    said = project.cli(verb, "123")
    said.once("'123' is not the id of a task: it should look like", "the first 8 or more characters", code=NOT_FOUND)


def test_28_an_id_that_is_not_the_only_one(project: Project) -> None:
    ids = [enqueued(project) for _ in range(2)]
    project.sql("UPDATE holdfast.task SET id = overlay(id::text PLACING '01890a5e' FROM 1 FOR 8)::uuid")
    said = project.cli("retry", "01890a5e")
    said.once("2 tasks have an id that begins with 01890a5e: give more of it.", "hello.main", code=USAGE)
    assert all(id[8:] in said.err for id in ids)


@pytest.mark.parametrize(
    ("term", "said"),
    [
        ("parked", "'parked' is not understood: write field:value, such as state:parked"),
        ("stat:parked", "there is no field 'stat' to filter by: did you mean state? There are state, kind, "),
        ("colour:red", "there is no field 'colour' to filter by. There are state, kind, "),
        ("state:park", "state:park: there is no such state, did you mean parked? Give one of ready, "),
        ("state:zzz", "state:zzz: there is no such state. Give one of ready, "),
        ("since:1x", "since:1x: give a time, 1h, 7d, 2030-01-31"),
    ],
)
def test_37_filters_that_are_not_understood(nowhere: Project, term: str, said: str) -> None:
    """Before the database is looked for."""
    nowhere.cli("tasks", term).once(said, code=USAGE)


@pytest.mark.parametrize("where", ["", "  "])
def test_38_an_empty_filter(nowhere: Project, where: str) -> None:
    said = nowhere.cli("retry", "--where", where)
    said.once("an empty filter means every task. Say state:parked if you mean all parked tasks.", code=USAGE)


def test_39_a_name_that_nobody_has(project: Project) -> None:
    for verb in ("pause", "resume"):
        said = project.cli(verb, "helo")
        said.once(
            "there is neither a queue nor a kind 'helo'",
            "for a queue that is not used yet, say --queue",
            code=NOT_FOUND,
        )
