"""Schedules and their occurrences: the statements of `schedules.sql`. JSON is given as bytes."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from holdfast._sql.queries.base import Base, first_list, first_set, nothing, rows_of, text, value
from holdfast._sql.query import Query, Row
from holdfast._sql.rows import DueSchedule, Watermark


class ScheduleQueries(Base):
    """Schedules and their occurrences."""

    def declare_schedule(self, name: str, definition: bytes, version: int) -> Query[None]:
        return self._query("declare_schedule", nothing, name=name, definition=text(definition), version=version)

    def schedules_due(self, declared: Sequence[str], limit: int) -> Query[list[DueSchedule]]:
        return self._query("schedules_due", rows_of(DueSchedule), declared=list(declared), limit=limit)

    def next_schedule(self, declared: Sequence[str]) -> Query[float | None]:
        return self._query("next_schedule", value, declared=list(declared))

    def lock_schedules(self, names: Sequence[str]) -> Query[list[tuple[str, int]]]:
        return self._query("lock_schedules", lambda rows: [(row[0], row[1]) for row in rows], names=list(names))

    def schedule_watermarks(self, names: Sequence[str]) -> Query[dict[str, Watermark]]:
        return self._query(
            "schedule_watermarks", lambda rows: {row[0]: Watermark(*row[1:]) for row in rows}, names=list(names)
        )

    def scope_watermarks(self, names: Sequence[str]) -> Query[dict[tuple[str, str], datetime]]:
        return self._query(
            "scope_watermarks", lambda rows: {(row[0], row[1]): row[2] for row in rows}, names=list(names)
        )

    def unfinished_occurrences(self, names: Sequence[str]) -> Query[set[tuple[str, str]]]:
        return self._query("unfinished_occurrences", lambda rows: {(row[0], row[1]) for row in rows}, names=list(names))

    def close_occurrences(self, names: Sequence[str]) -> Query[None]:
        return self._query("close_occurrences", nothing, names=list(names))

    def record_occurrences(self, occurrences: bytes, *, by_hand: bool) -> Query[set[UUID]]:
        return self._query("record_occurrences", first_set, occurrences=text(occurrences), by_hand=by_hand)

    def correct_occurrences(self, occurrences: bytes) -> Query[None]:
        return self._query("correct_occurrences", nothing, occurrences=text(occurrences))

    def advance_scopes(self, names: Sequence[str], scopes: bytes) -> Query[None]:
        return self._query("advance_scopes", nothing, names=list(names), scopes=text(scopes))

    def advance_schedules(self, schedules: bytes) -> Query[None]:
        return self._query("advance_schedules", nothing, schedules=text(schedules))

    def sweep_occurrences(self, limit: int) -> Query[int]:
        return self._query("sweep_occurrences", len, limit=limit)

    def list_schedules(self, only: str | None, above: str | None, limit: int) -> Query[list[Row]]:
        return self._query("list_schedules", list, only=only, above=above, limit=limit)

    def list_scopes(self, name: str, limit: int) -> Query[list[str]]:
        return self._query("list_scopes", first_list, name=name, limit=limit)

    def list_occurrences(self, name: str, scope: str | None, before: datetime | None, limit: int) -> Query[list[Row]]:
        return self._query("list_occurrences", list, name=name, scope=scope, before=before, limit=limit)

    def recent_occurrences(self, names: Sequence[str], limit: int) -> Query[list[Row]]:
        return self._query("recent_occurrences", list, names=list(names), limit=limit)

    def note_backfill(self, name: str, options: bytes) -> Query[None]:
        return self._query("note_backfill", nothing, name=name, options=text(options))

    def occurrences_between(self, name: str, since: datetime, until: datetime) -> Query[set[tuple[str, datetime]]]:
        return self._query(
            "occurrences_between",
            lambda rows: {(row[0], row[1]) for row in rows},
            name=name,
            since=since,
            until=until,
        )

    def set_schedule(self, name: str, definition: bytes, options: bytes) -> Query[str]:
        return self._query("set_schedule", value, name=name, definition=text(definition), options=text(options))

    def pause_schedule(self, name: str, options: bytes) -> Query[str]:
        return self._query("pause_schedule", value, name=name, options=text(options))

    def resume_schedule(self, name: str, options: bytes) -> Query[str]:
        return self._query("resume_schedule", value, name=name, options=text(options))

    def delete_schedule(self, name: str, options: bytes) -> Query[str]:
        return self._query("delete_schedule", value, name=name, options=text(options))

    def fire_schedule(self, name: str, options: bytes) -> Query[list[UUID]]:
        return self._query("fire_schedule", first_list, name=name, options=text(options))
