"""Parameters as libpq sends them: every value as a text, which the server casts, and ids of many tasks binary."""

from collections.abc import Sequence

from psycopg import DataError

from holdfast._db.driver.foreign import as_text
from holdfast._sql.queries.base import Ids, Utf8, texts


def sent(parameters: Sequence[object], encoding: str) -> tuple[list[bytes | None], list[int] | None]:
    """The values, for a connection with that encoding, and the format of each: 1 is binary, None that all are texts."""
    if type(parameters) is Utf8:
        _refuse_nul(b"".join(parameters))
        return (list(parameters) if encoding == "utf-8" else [v.decode().encode(encoding) for v in parameters]), None
    formats = [int(type(value) is Ids) for value in parameters] if Ids in map(type, parameters) else None
    return [_bytes(value, encoding) for value in parameters], formats


def _bytes(value: object, encoding: str) -> bytes | None:
    if type(value) is Ids:
        return value.binary
    text = value if type(value) is str else _text(value)  # as a rule it is
    if text is None:
        return None
    encoded = text.encode(encoding)
    _refuse_nul(encoded)
    return encoded


def _refuse_nul(encoded: bytes) -> None:
    if b"\0" in encoded:  # for libpq the value would end there
        raise DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")


def _text(value: object) -> str | None:
    return texts(map(as_text, value)) if isinstance(value, (list, tuple)) else as_text(value)
