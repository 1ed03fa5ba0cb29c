"""The claim rule: whatever asks which tasks a worker may claim gives the same answer as the claim itself."""

from datetime import timedelta
from itertools import product
from uuid import UUID

import pytest

from .support import KNOWN, Db

HOUR = timedelta(hours=1)


def tasks_of_all_sorts(db: Db) -> None:
    """A task for each combination of what the rule looks at; the names of kinds and steps say what they are."""
    db.run(db.queries.declare_kind("greeter", "default", 5, None, b"{}"))
    db.run(db.queries.declare_kind("renamed", "default", 5, None, b"{}", was=["paused"]))
    db.run(db.queries.pause("renamed", b"{}"))
    for kind, step, started, deadline, due, crashes in product(
        ("greeter", "paused"), ("ReadName", "Unknown"), (0, 1), (None, HOUR, -HOUR), (-HOUR, HOUR), (0, 1)
    ):
        db.sql(
            "INSERT INTO holdfast.task (id, kind, step, attempt, deadline, run_at, crashes)"
            " VALUES (gen_random_uuid(), $1, $2, $3, holdfast.now() + $4, holdfast.now() + $5, $6)",
            *(kind, step, started, deadline, due, crashes),
        )


def phases(db: Db) -> dict[UUID, str]:
    return dict(db.sql("SELECT id, phase FROM holdfast.tasks WHERE state = 'ready'"))


@pytest.mark.parametrize("paused", [False, True])
def test_a_task_is_claimed_exactly_if_the_view_says_due(db: Db, worker: UUID, paused: bool) -> None:
    """The fragment `claimable` decides. The view `tasks`, and `explain` with it, names what is not met."""
    known = [*KNOWN, "paused.ReadName"]
    tasks_of_all_sorts(db)
    db.run(
        db.queries.register(worker, name="w", host="h", pid=1, version="0", queues=["default"], steps=known, slots=9)
    )
    if paused:
        db.run(db.queries.pause("default", b"{}"))
    found = phases(db)
    due = {id for id, phase in found.items() if phase == "due"}
    explained = {id for id in found if str(db.one("SELECT holdfast.explain($1)", id)).startswith("It is due since")}
    assert explained == due
    assert db.run(db.queries.due("default", known)) is bool(due)
    if not paused:
        fit = {row[0] for row in db.sql("SELECT id FROM holdfast.task WHERE crashes = 0")} & due
        come = {row[0] for row in db.sql("SELECT id FROM holdfast.task WHERE run_at <= holdfast.now()")}
        assert db.run(db.queries.unclaimable("default", known))[0] == len(come - fit)
        assert len(due) == 10
    claimed = {task.id for task in db.claim(worker, 1000, known=known, suspects=1000)}
    assert claimed == due


def test_nothing_else_is_higher_than_a_moving_task(db: Db, worker: UUID) -> None:
    tasks_of_all_sorts(db)
    db.sql("UPDATE holdfast.task SET priority = 9")
    assert db.run(db.queries.obstacles("default", 3, KNOWN)).higher == 9
    db.claim(worker, 1000, suspects=1000)
    assert db.run(db.queries.obstacles("default", 3, KNOWN)).higher is None
