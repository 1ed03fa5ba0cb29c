"""What a filter is in SQL: a condition on the columns of the view `tasks`, with numbered parameters."""

from collections.abc import Sequence
from datetime import timedelta
from typing import TypeVar
from uuid import UUID

from holdfast._model.read.filter import FINISHED, PHASES, UNFINISHED, Filter, Term, moment
from holdfast._sql.query import Query, for_schema

T = TypeVar("T")

_LAST = "greatest(created_at, claimed_at, finished_at)"
"""When something last happened to a task."""


def filtered(query: Query[T], filter: Filter, schema: str) -> Query[T]:
    """A query for those tasks that a filter lets through. Its statement has the slot `filter`, and perhaps
    `filter_tables` and `filter_steps`."""
    condition = Condition(len(query.parameters), filter.unseen)
    said = [(term, condition.of(term)) for term in filter.terms]
    found = {
        "filter": [text for _, text in said],
        "filter_tables": [_tables(filter), *(text for term, text in said if term.field == "id")],
        "filter_steps": [text for term, text in said if term.field in ("queue", "kind", "step")],
    }
    texts = {slot: for_schema(" AND ".join(conditions) or "true", schema) for slot, conditions in found.items()}
    statement = query.statement.filled(**{slot: texts[slot] for slot in query.statement.slots & texts.keys()})
    return Query(statement, (*query.parameters, *condition.parameters), query.read)


def states_of(filter: Filter) -> set[str]:
    """The states that a task may have which a filter lets through. Any phase of its own is one of a ready task."""
    found = {*UNFINISHED, *FINISHED}
    for term in filter.terms:
        if term.field == "state" and not term.negated:
            found &= {"ready" if value in PHASES else value for value in term.values}
    return found


def _tables(filter: Filter) -> str:
    """A condition that holds for all of a table or for nothing of it: the planner leaves the other one out."""
    states = states_of(filter)
    for all in (UNFINISHED, FINISHED):
        if states <= set(all):
            return f"state = ANY ('{{{','.join(all)}}}')"
    return "true"


class Condition:
    """Builds conditions; values become parameters, numbered behind those that are there already."""

    def __init__(self, before: int, unseen: Sequence[tuple[str, str]] = ()) -> None:
        self._before = before
        self._unseen = unseen
        self.parameters: list[object] = []

    def of(self, term: Term) -> str:
        """The condition of a term. What is not known, such as a key that is not there, counts as not so."""
        said = " OR ".join(self._said(term, value) for value in term.values)
        return f"({said}) IS NOT TRUE" if term.negated else f"({said})"

    def _said(self, term: Term, value: str) -> str:
        match term.field:
            case "state":
                # Checked words, written out: so the planner knows which tables and indexes cannot have them.
                return f"{'phase' if value in PHASES else 'state'} = '{value}'"
            case "priority":
                return f"priority = {int(value)}"
            case "id":
                first, last = id_range(value)
                return f"id BETWEEN {self._value(first, 'uuid')} AND {self._value(last, 'uuid')}"
            case "worker":
                return self._worker(value)
            case "error":
                part = self._value(f"%{_escaped(value)}%", "text")
                message = self._seen("error ->> 'message'", f"ILIKE {part}")
                return f"error ->> 'type' ILIKE {part} OR {message}"
            case "error_type" | "place" as name:
                told = f"nullif(error ->> '{name.removeprefix('error_')}', '')"
                return f"{told} IS NULL" if value == "null" else self._like(told, value)
            case "args":
                path = self._value(list(term.path), "text[]")
                return f"args #>> {path} IS NULL" if value == "null" else self._args(path, value)
            case "since":
                return f"{_LAST} >= {self._moment('since', value)}"
            case "before":
                return f"{_LAST} < {self._moment('before', value)}"
            case column:
                return self._like(column, value)

    def _like(self, column: str, value: str) -> str:
        return f"{column} {self._compared(value)}"

    def _compared(self, value: str) -> str:
        if "*" not in value:
            return f"= {self._value(value, 'text')}"
        return f"LIKE {self._value(_escaped(value).replace('*', '%'), 'text')}"

    def _args(self, path: str, value: str) -> str:
        said = self._seen(f"args #>> {path}", self._compared(value))
        # What is inside of an object may be hidden, by its name.
        return f"{said} AND jsonb_typeof(args #> {path}) NOT IN ('object', 'array')" if self._unseen else said

    def _seen(self, text: str, compared: str) -> str:
        """A comparison of a text that holds only if it holds for what is seen of the text."""
        seen = text
        for pattern, shown in self._unseen:
            seen = f"regexp_replace({seen}, {self._value(pattern, 'text')}, {self._value(shown, 'text')}, 'gi')"
        return f"({text} {compared} AND {seen} {compared})" if self._unseen else f"{text} {compared}"

    def _worker(self, value: str) -> str:
        try:
            return f"worker_id = {self._value(UUID(value), 'uuid')}"
        except ValueError:
            named = self._like("w.name", value)
            return f"worker_id = ANY (ARRAY(SELECT w.id FROM holdfast.worker w WHERE {named}))"  # noqa: S608

    def _moment(self, field: str, value: str) -> str:
        when = moment(field, value)
        if isinstance(when, float):
            return f"holdfast.now() - {self._value(timedelta(seconds=when), 'interval')}"
        return self._value(when, "timestamptz")

    def _value(self, value: object, type: str) -> str:
        self.parameters.append(value)
        return f"${self._before + len(self.parameters)}::{type}"


def id_range(prefix: str) -> tuple[UUID, UUID]:
    """The first and the last id that begin so."""
    digits = prefix.lower().replace("-", "")[:32]
    return UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
