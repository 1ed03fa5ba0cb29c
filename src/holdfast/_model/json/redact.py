"""Passwords in URLs and connection strings are shown nowhere: not in messages, nor in the values of tasks.

Python and PostgreSQL understand each pattern alike, so that a filter can be kept from finding what is not shown.
"""

import re
from collections.abc import Mapping
from typing import Any

# Up to the last @: a password may hold what should have been written as %40, blanks too. Too much is better than too
# little; but a port is no password, nor does one reach into the next URL, nor is what was removed removed again.
# Bounded, or a long text of many such beginnings takes minutes.
_PORT = r"[0-9]{1,5}(?:[^0-9A-Za-z@%._~!$*+=-]|$)"
URL = rf"(://[^:/@\s]{{0,200}}:)(?!\*\*\*@)(?:(?!{_PORT})(?:[^:\r\n]|:(?!//)){{0,200}}|[^\s]{{0,4000}})(@)"
CONNINFO = r"(password\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&]+)"

REPLACED = ((URL, r"\1***\2"), (CONNINFO, r"\1***"))
"""Patterns, and what is put in place of what they find. Capitals make no difference."""
_COMPILED = [(re.compile(pattern, re.IGNORECASE), shown) for pattern, shown in REPLACED]


def redact(text: str) -> str:
    """Text with the passwords of URLs and connection strings removed."""
    for pattern, shown in _COMPILED:
        text = pattern.sub(shown, text)
    return text


def redact_all(content: Any) -> Any:
    """The same for every text in a JSON value."""
    if isinstance(content, str):
        return redact(content)
    if isinstance(content, Mapping):
        return {name: redact_all(each) for name, each in content.items()}
    return [redact_all(each) for each in content] if isinstance(content, list | tuple) else content
