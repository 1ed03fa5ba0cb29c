"""How SQL files are written: statements, the fragments they share, and the slots in them.

A file has a heading for each statement and each fragment. Below it come lines of prose, which begin with `--`, and SQL:

    -- fragment due(row) --
    -- A ready task whose time has come.
    {{row}}.queue = :queue::text AND {{row}}.state = 'ready' AND {{row}}.run_at <= holdfast.now()

    -- oldest --
    -- The tasks that have been due for longest.
    SELECT c.id FROM holdfast.task c WHERE {{> due c}} AND {{filter}} ORDER BY c.run_at LIMIT :limit::integer

There are three markers:

    {{> due c}}   includes the fragment `due`, of this or another file. The word `c` replaces the marker of its
                  parameter, here {{row}}. A fragment takes one word, or none; one fragment passes its own word on to
                  another as {{> due row}}.
    {{row}}       in a fragment: its parameter.
    {{filter}}    a slot: text that a query fills in when it is made. The slots are listed in SLOTS.

The files are checked when they are read. A marker that means nothing, a fragment that no statement includes, a wrong
number of words and a name that is used twice are errors. `holdfast.` and `:name` are the business of `_sql.query`.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

SLOTS: Mapping[str, str] = {
    "ids": ":ids::uuid[]",
    "filter": "true",
    "filter_tables": "true",
    "filter_steps": "true",
    "partition": "archive",
    "parent": "archive",
}
"""The slots, each with the text that it has until it is filled.

`ids`: the tasks that an attempt ended for; a query may pass over those that another transaction has locked.
`filter`: the condition of a filter. `filter_tables`: what it says about unfinished and archived tasks and about ids.
`filter_steps`: what it says about queue, kind and step. `partition` and `parent`: names of tables of history.
"""

_HEADING = re.compile(r"^-- (?:(fragment) )?([a-z_]+)(?:\(([a-z_]+)\))? --$", re.MULTILINE)
_MARKER = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_INCLUDE = re.compile(r"> ([a-z_]+)(?: ([:a-z_.]+))?")
_COMMENT = re.compile(r"^[ \t]*--.*$", re.MULTILINE)


class Fragment(NamedTuple):
    """A part of statements."""

    name: str
    parameter: str | None
    sql: str


def compose(files: Iterable[str]) -> list[dict[str, str]]:
    """The statements of each file by their names, with the fragments of all files included."""
    fragments: dict[str, Fragment] = {}
    found: list[dict[str, str]] = []
    names: set[str] = set()
    for text in files:
        statements: dict[str, str] = {}
        for name, fragment, body in _split(text):
            if name in names:
                raise ValueError(f"{name}: this name is used twice")
            names.add(name)
            if fragment is None:
                statements[name] = body
            else:
                fragments[name] = fragment
        found.append(statements)
    used: set[str] = set()
    composed = [
        {name: _included(body, fragments, used, f"statement {name}") for name, body in statements.items()}
        for statements in found
    ]
    if unused := fragments.keys() - used:
        raise ValueError(f"no statement includes the fragment {', '.join(sorted(unused))}")
    return composed


def without_comments(text: str) -> str:
    """SQL without its lines of prose."""
    return _COMMENT.sub("", text).strip()


def prose_of(text: str) -> str:
    """The lines of prose as one line."""
    return " ".join(line.strip(" -") for line in _COMMENT.findall(text))


def slots_of(text: str) -> set[str]:
    """The slots of a composed text."""
    return {match[1] for match in _MARKER.finditer(text)}


def filled(text: str, texts: Mapping[str, str] = SLOTS) -> str:
    """A composed text with texts in its slots; a slot that has none stays open."""
    return _MARKER.sub(lambda match: texts.get(match[1], match[0]), text)


def _split(text: str) -> Iterable[tuple[str, Fragment | None, str]]:
    parts = _HEADING.split(text)[1:]
    for is_fragment, name, parameter, body in zip(*[iter(parts)] * 4, strict=True):
        if parameter is not None and not is_fragment:
            raise ValueError(f"{name}: only a fragment has a parameter")
        yield name, Fragment(name, parameter, without_comments(body)) if is_fragment else None, body


def _included(
    text: str, fragments: Mapping[str, Fragment], used: set[str], place: str, bound: tuple[str, str] | None = None
) -> str:
    """A text with its fragments included, and theirs. `bound`: the parameter of the fragment that it is from, and the
    word for it."""
    words = {} if bound is None else {bound[0]: bound[1]}

    def put(match: re.Match[str]) -> str:
        if match[1] in SLOTS:
            return match[0]
        if match[1] in words:
            return words[match[1]]
        include = _INCLUDE.fullmatch(match[1])
        fragment = None if include is None else fragments.get(include[1])
        if include is None or fragment is None:
            raise ValueError(f"{place}: {match[0]} is neither a fragment nor a slot")
        if fragment.name in place.split(" > "):
            raise ValueError(f"{place}: the fragment {fragment.name} includes itself")
        if (include[2] is None) != (fragment.parameter is None):
            raise ValueError(f"{place}: {match[0]} must have {'no' if include[2] else 'a'} word")
        used.add(fragment.name)
        binding = None if fragment.parameter is None else (fragment.parameter, words.get(include[2], include[2]))
        return _included(fragment.sql, fragments, used, f"{place} > {fragment.name}", binding)

    return _MARKER.sub(put, text)
