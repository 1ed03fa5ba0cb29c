"""The filter language of lists and bulk actions: `state:parked kind:greeter args.order_id:42 since:1h`.

Terms stand side by side and all must hold. `field:a,b` is either of two values, `-field:a` its contrary, `*` in a
name stands for anything, and quotes hold blanks together: `error:"No such file"`. The same language serves the
command line, the dashboard and Python; what it becomes in SQL is the business of `holdfast._sql.filter_sql`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches

from holdfast._model.json.text import safe_text
from holdfast._model.time.duration import seconds
from holdfast.errors import FilterError, InvalidDuration

UNFINISHED = ("ready", "running", "waiting", "parked")
FINISHED = ("done", "cancelled", "expired", "discarded")
PHASES = ("scheduled", "retrying", "due", "paused", "unserved", "unroutable")
"""What a ready task may be seen as."""

FIELDS = {
    "state": f"one of {', '.join((*UNFINISHED, *FINISHED, *PHASES))}",
    "kind": "the name of a kind; * stands for anything",
    "step": "the name of a step; * stands for anything",
    "queue": "the name of a queue; * stands for anything",
    "key": "the key of the task; * stands for anything",
    "id": "the id of the task, or at least its first 8 characters",
    "worker": "the id or the name of the worker that has or had it",
    "priority": "0 to 9",
    "error": "a part of the error's type or message",
    "error_type": "the type of the error, as parked tells it; * stands for anything, null is for none",
    "place": "where the error was raised, such as shop.mail.send:42; * stands for anything, null is for nowhere",
    "args": "a field of the args: args.order_id:42, args.customer.name:Ada",
    "since": "a time, 1h, 7d, 2030-01-31 or 2030-01-31T09:00+01:00: enqueued, begun or ended since then",
    "before": "a time, as for since: neither enqueued nor begun nor ended since then",
}
"""The fields, and what their values are."""

_TERM = re.compile(
    r"""(?P<not>-?)(?P<field>[A-Za-z_]+)(?:\.(?P<path>[^\s:"]+))?:(?P<values>(?:"(?:[^"\\]|\\.)*"|[^\s"])*)(?=\s|$)""",
    re.DOTALL,
)
_VALUE = re.compile(r'((?:"(?:[^"\\]|\\.)*"|[^",])*)(?:,|$)', re.DOTALL)
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ID = re.compile(r"[0-9a-f]{8}[0-9a-f-]{0,28}")
_FAILED = ("failed", "failing", "failure", "error", "dead")
_LONGEST = 10_000
_MOST_TERMS = 50


@dataclass(frozen=True, slots=True)
class Term:
    """One condition: the field has one of the values, or, `negated`, none of them."""

    field: str
    values: tuple[str, ...]
    negated: bool = False
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        name = ".".join((self.field, *self.path))
        return f"{'-' if self.negated else ''}{name}:{','.join(map(_quoted, self.values))}"


@dataclass(frozen=True, slots=True)
class Filter:
    """Conditions that must all hold; none at all means every task.

    `unseen`: what whoever filters may not see, as patterns and what is shown in place of it. Texts are compared without
    it, or a filter would tell it letter by letter.
    """

    terms: tuple[Term, ...] = ()
    unseen: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return " ".join(map(str, self.terms))

    def __bool__(self) -> bool:
        return bool(self.terms)

    def with_term(self, field: str, *values: str) -> "Filter":
        """The same with one more condition."""
        return Filter((*self.terms, _checked(Term(field, values))), self.unseen)

    def names(self, field: str) -> bool:
        """Whether it says anything about a field."""
        return any(term.field == field for term in self.terms)


EVERYTHING = Filter()


def parse_filter(text: str | Sequence[str]) -> Filter:
    """The filter that a text, or several, say. A FilterError tells what is not understood."""
    whole = text if isinstance(text, str) else " ".join(text)
    if len(whole) > _LONGEST:
        raise FilterError(f"the filter is too long: {len(whole)} characters, and {_LONGEST} are allowed")
    terms = tuple(_terms(whole))
    if len(terms) > _MOST_TERMS:
        raise FilterError(f"the filter has {len(terms)} terms, and {_MOST_TERMS} are allowed")
    return Filter(terms)


def _terms(text: str) -> Iterator[Term]:
    position = 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        match = _TERM.match(text, position)
        if match is None:
            raise _not_understood(text[position:].split(maxsplit=1)[0])
        values = tuple(_unquoted(each) for each in _split(match["values"]))
        path = tuple(match["path"].split(".")) if match["path"] else ()
        yield _checked(Term(match["field"].lower(), values, bool(match["not"]), path))
        position = match.end()


def _split(values: str) -> list[str]:
    # The pattern meets the empty text behind the last value as well.
    found = [match[1] for match in _VALUE.finditer(values) if match[0] or match.start() == 0]
    return [*found, ""] if values.endswith(",") else found


def _unquoted(value: str) -> str:
    return _QUOTED.sub(lambda match: re.sub(r"\\(.)", r"\1", match[1], flags=re.DOTALL), value)


def _quoted(value: str) -> str:
    if value and not re.search(r'[\s",\\]', value):
        return value
    return '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'


def _not_understood(word: str) -> FilterError:
    if word.count('"') % 2:
        return FilterError(f"{word!r}: the quotation mark has no end")
    name = word.lstrip("-").split(":")[0]
    if ":" in word and name:
        return FilterError(f"{word!r} is not understood: write field:value, with quotes around a value with blanks")
    return FilterError(
        f"{word!r} is not understood: write field:value, such as state:parked, or error:{word} to look into errors."
        f" Fields: {', '.join(FIELDS)}"
    )


def _checked(term: Term) -> Term:
    if term.field not in FIELDS:
        near = get_close_matches(term.field, FIELDS, 1)
        meant = f": did you mean {near[0]}?" if near else "."
        raise FilterError(f"there is no field {term.field!r} to filter by{meant} There are {', '.join(FIELDS)}")
    if bool(term.path) != (term.field == "args") or not all(term.path):
        how = "args.order_id:42" if term.field == "args" else f"{term.field}:…"
        raise FilterError(f"{term}: write {how}")
    if not all(term.values) or not term.values:
        raise FilterError(f"{term.field}: a value is missing. Give {FIELDS[term.field]}")
    for value in term.values:
        if safe_text(value) != value:
            raise FilterError(f"{term.field}: {value!r:.100} has characters that no task can have")
        _check_value(term.field, value)
    return term


def _check_value(field: str, value: str) -> None:
    match field:
        case "state" if value not in (*UNFINISHED, *FINISHED, *PHASES):
            near = ["parked"] if value in _FAILED else get_close_matches(value, (*UNFINISHED, *FINISHED, *PHASES), 1)
            meant = f", did you mean {near[0]}?" if near else "."
            raise FilterError(f"state:{value}: there is no such state{meant} Give {FIELDS['state']}")
        case "priority" if value not in tuple("0123456789"):
            raise FilterError(f"priority:{value}: give 0 to 9")
        case "id" if _ID.fullmatch(value.lower()) is None:
            raise FilterError(f"id:{value}: give {FIELDS['id']}")
        case "since" | "before":
            moment(field, value)
        case _:
            pass


def moment(field: str, value: str) -> float | datetime:
    """What `since:` or `before:` says: so many seconds ago, or a time. A time without a zone is local."""
    try:
        return seconds(value)
    except InvalidDuration:
        pass
    try:
        return datetime.fromisoformat(value).astimezone()
    except (ValueError, OverflowError):
        raise FilterError(f"{field}:{value}: give {FIELDS[field]}") from None
