"""Deadlines: not started by then means never started (Q5, M18)."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from holdfast._model.names import uuid7
from holdfast._sql.plans import drive_sync, enqueue_many
from holdfast._sql.queries import NewTask

from .support import NOW, Db
from .test_keys import asked, new

HOUR = timedelta(hours=1)
LATER = datetime(2031, 6, 1, tzinfo=UTC)


@pytest.mark.parametrize(("deadline", "stored"), [(HOUR, NOW + HOUR), (LATER, LATER), (None, None)])
def test_Q5_a_deadline_is_stored_by_the_clock_of_the_database(
    db: Db, deadline: timedelta | datetime | None, stored: datetime | None
) -> None:
    one = db.enqueue(deadline=deadline)
    (many, _) = drive_sync(enqueue_many(db.queries, [asked(new(None, deadline=deadline))]), db.run)
    assert db.task(one)["deadline"] == db.task(many[0].id)["deadline"] == stored


def test_Q5_replace_brings_its_own_deadline(db: Db) -> None:
    id: UUID = db.enqueue(key="k", deadline=HOUR)
    task = NewTask(uuid7(), "default", "greeter", "ReadName", b"{}", key="k", deadline=2 * HOUR)
    db.run(db.queries.replace_task(task))
    assert db.task(id)["deadline"] == NOW + 2 * HOUR
    db.run(db.queries.replace_task(new()))
    assert db.task(id)["deadline"] is None
