"""Secrets are not shown: what stands under a name such as `password` is replaced, wherever it is.

One place for pages and JSON alike: whatever a page is about to tell passes through `Hiding.of`.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast._model.json.redact import REPLACED, redact
from holdfast._model.read.filter import EVERYTHING, Filter, parse_filter
from holdfast.web.view.problems import Problem

HIDDEN = "[hidden]"
"""What is shown in place of a secret. Left so in edited args, the secret stays as it was."""

NAMES = (
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "authorization",
    "api_key",
    "apikey",
    "access_key",
    "private_key",
    "credential",
    "cookie",
    "session_id",
    "card_number",
    "cvv",
)
"""Parts of names whose values are secrets."""

_DATA = ("args", "result", "headers", "report", "old", "new", "definition")
"""What users' code and people have stored: here names are theirs, and any may be that of a secret."""
_TEXTS = ("message", "traceback", "explain")
"""Free text, in which secrets may be told."""


class Hiding:
    """Hides what stands under some names; `-`, `_` and capitals make no difference."""

    def __init__(self, names: Sequence[str] = NAMES) -> None:
        self._names = tuple(_plain(name) for name in names)
        words = "|".join(re.escape(name).replace("_", "[_-]?") for name in names)
        # No part of it may look far ahead from every character: texts are long, and everybody waits for them.
        pattern = (
            rf"""((?:{words})[\w-]{{0,200}}["']?\s{{0,20}}[=:]\s{{0,20}})"""
            r"""(?:(?:bearer|basic)\s+)?(?:"[^"\n]*"|'[^'\n]*'|[^\s"',;&)}\]]+)"""
        )
        self._told = re.compile(pattern, re.IGNORECASE) if names else None
        self._unseen = (*REPLACED, (pattern, rf"\1{HIDDEN}")) if names else REPLACED

    def of(self, found: Any) -> Any:
        """The same without secrets: dataclasses, mappings and lists all the way down."""
        if dataclasses.is_dataclass(found) and not isinstance(found, type):
            changed = {}
            for each in dataclasses.fields(found):
                old = getattr(found, each.name)
                new = self._field(each.name, old)
                if new is not old:
                    changed[each.name] = new
            return dataclasses.replace(found, **changed) if changed else found
        if isinstance(found, Mapping):
            return {name: self.of(value) for name, value in found.items()}
        if isinstance(found, list | tuple):
            return [self.of(each) for each in found]
        return found

    def _field(self, name: str, value: Any) -> Any:
        if name in _DATA:
            return self._data(value)
        if name == "error":
            return self._error(value)
        return self.text(value) if name in _TEXTS and isinstance(value, str) else self.of(value)

    def text(self, text: str) -> str:
        """Free text without what stands behind such a name, and without the passwords of URLs."""
        shown = redact(text)
        return shown if self._told is None else self._told.sub(lambda match: f"{match[1]}{HIDDEN}", shown)

    def filter(self, text: str) -> Filter:
        """The filter that is in an address. What is hidden cannot be filtered by: a filter would tell it bit by bit."""
        found = parse_filter(text) if text.strip() else EVERYTHING
        for term in found.terms:
            if secret := next((name for name in term.path if self.is_secret(name)), None):
                raise Problem(
                    403,
                    "Hidden here",
                    f"{term}: what stands under {secret} is not shown here, so nobody can filter by it here. "
                    "Whoever may read the database finds it on the command line: holdfast tasks.",
                )
        return Filter(found.terms, tuple((_unbounded(pattern), shown) for pattern, shown in self._unseen))

    def is_secret(self, name: str) -> bool:
        plain = _plain(name)
        return any(each in plain for each in self._names)

    def _data(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: self._named(str(name), each) for name, each in value.items()}
        if isinstance(value, str):
            return redact(value)
        return [self._data(each) for each in value] if isinstance(value, list | tuple) else value

    def _named(self, name: str, value: Any) -> Any:
        if value is not None and not isinstance(value, bool) and self.is_secret(name):
            return HIDDEN
        return self._error(value) if name == "error" else self._data(value)

    def _error(self, error: Any) -> Any:
        if not isinstance(error, Mapping):
            return self.text(error) if isinstance(error, str) else self._data(error)
        found: dict[str, Any] = self._data(error)
        for name in _TEXTS:
            if isinstance(found.get(name), str):
                found[name] = self.text(found[name])
        if "attributes" in found:
            found["attributes"] = self._texts(found["attributes"])
        if isinstance(found.get("causes"), list):
            found["causes"] = [self._error(each) for each in found["causes"]]
        return found

    def _texts(self, value: Any) -> Any:
        """The same with every text in it read as free text."""
        if isinstance(value, Mapping):
            return {name: self._texts(each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [self._texts(each) for each in value]
        return self.text(value) if isinstance(value, str) else value


def restored(edited: Any, original: Any) -> Any:
    """Edited args with the secrets that were hidden put back from where they were; KeyError if there was none."""
    if edited == HIDDEN:
        if original is None:
            raise KeyError(HIDDEN)
        return original
    if isinstance(edited, str) and redact(edited) == edited and "***" in edited:
        # The password of a URL was not shown. It is put back if all else is as it was.
        if isinstance(original, str) and redact(original) == edited:
            return original
        if isinstance(original, str) and redact(original) != original:
            raise KeyError(edited)
    if isinstance(edited, dict):
        old = original if isinstance(original, dict) else {}
        return {name: restored(value, old.get(name)) for name, value in edited.items()}
    if isinstance(edited, list):
        kept = original if isinstance(original, list) else []
        return [restored(each, kept[i] if i < len(kept) else None) for i, each in enumerate(edited)]
    return edited


def _unbounded(pattern: str) -> str:
    """A pattern for PostgreSQL, which has no bounds above 255, and needs none: it looks at each character once."""
    return pattern.replace("{0,4000}", "*")


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
