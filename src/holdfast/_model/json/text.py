"""Text that PostgreSQL's jsonb takes, whatever it held before, and errors in a line."""

from collections.abc import Mapping
from typing import Any


def safe_text(text: str) -> str:
    r"""`text` with NUL characters and lone surrogates written out: `\x00`, `\ud800`."""
    plain = str.encode(text, "utf-8", "backslashreplace").decode("utf-8")
    return plain.replace("\0", "\\x00")


def cut_middle(text: str, limit: int) -> str:
    """At most about `limit` characters of `text`: its beginning and its end, which say the most."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"


def told(error: Mapping[str, Any]) -> str:
    """A stored error in a line: `KeyError: 'a'`; what says its type itself is not told twice: `cancelled by ann`."""
    type_, message = str(error.get("type") or ""), str(error.get("message") or "")
    return message if message.startswith(f"{type_} ") else ": ".join(filter(None, (type_, message)))
