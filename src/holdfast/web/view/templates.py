"""Templates, and how values look in them. Everything is escaped; what is HTML already says so."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from holdfast._model.json.text import told
from holdfast._model.read.formats import amount, duration, number, percent, size
from holdfast.web.view import charts, pictures, tracebacks
from holdfast.web.view.tones import tone

LONGEST = 20_000
"""Characters of a value that are shown; the rest is in the JSON."""

_COMMANDS = re.compile(r" \(holdfast (?:retry|discard) [0-9a-f-]{36}, or select [^()]*\([^()]*\)\)")


def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("holdfast.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        pretty=pretty,
        brief=brief,
        when=when,
        duration=duration,
        amount=amount,
        number=number,
        percent=percent,
        tone=tone,
        said=said,
        without_commands=without_commands,
        size=size,
    )
    made.filters.update(
        way_picture=pictures.way, kind_picture=pictures.kind, bar=pictures.bar, charts=charts.charts, own=tracebacks.own
    )
    return made


def address(root: str, path: str, query: Mapping[str, Any]) -> str:
    """A link: the prefix, a path, and what is asked; without a double slash."""
    given = [
        (name, str(each))
        for name, value in query.items()
        for each in (value if isinstance(value, list | tuple) else [value])
        if each not in (None, "")
    ]
    asked = f"?{urlencode(given, quote_via=quote)}" if given else ""
    return f"{root.rstrip('/')}{quote(path, safe='/%')}{asked}"


def pretty(value: Any, limit: int = LONGEST) -> str:
    """JSON over several lines, whole numbers exact, cut where it becomes long."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return text if len(text) <= limit else f"{text[:limit]}\n… ({len(text) - limit:,} more characters)"


def brief(value: Any, limit: int = 160) -> str:
    """JSON in a line."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def when(at: datetime | None) -> Markup:
    """A time; the page's script tells how far away it is."""
    if at is None:
        return Markup('<span class="none">-</span>')
    told = at.astimezone(UTC)
    return Markup('<time datetime="{}">{}</time>').format(
        escape(told.isoformat()), escape(f"{told:%Y-%m-%d %H:%M:%S} UTC")
    )


def without_commands(explained: str) -> str:
    """Why a task stands where it does, without what to write on a command line: the page has buttons for that."""
    return _COMMANDS.sub("", explained)


def said(error: Any, limit: int = 300) -> str:
    """A stored error in a line."""
    if not isinstance(error, Mapping):
        return "" if error is None else brief(error, limit)
    text = told(error) or brief(error)
    return " ".join(text.split())[:limit]
