"""Roles of the database: who may enqueue, work, look and operate, without owning the tables."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from psycopg import Connection

from holdfast._db.config.resolve import check_schema
from holdfast._db.driver.connection import connect_sync, run_sync
from holdfast._db.errors import explaining, migrate_command
from holdfast._db.migrate import NO_SEARCH_PATH, latest, migration_lock
from holdfast._sql.queries import queries
from holdfast._sql.query import Query, quote
from holdfast.errors import ConfigError, SchemaError

T = TypeVar("T")
Part: TypeAlias = Literal["producer", "worker", "viewer", "operator"]
PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True, slots=True)
class Grantee:
    """A role that was given a part. `exists` is False if the role was dropped or renamed since."""

    role: str
    part: Part
    granted_at: datetime
    granted_by: str
    exists: bool


def grant(url: str, schema: str, part: Part, roles: Sequence[str], *, only_tell: bool = False) -> list[str]:
    """Gives roles a part, or renews it, and answers the statements that do so. `only_tell` changes nothing."""
    with _RightsTransaction(url, schema) as session:
        session.check(roles)
        session.do(session.queries.give_part(list(dict.fromkeys(roles)), part))
        for role in dict.fromkeys(roles):
            session.give(role, [part])
        return session.finish(only_tell)


def revoke(url: str, schema: str, part: Part, roles: Sequence[str], *, only_tell: bool = False) -> list[str]:
    """Takes a part from roles, and answers the statements that do so; what their other parts need stays."""
    with _RightsTransaction(url, schema) as session:
        gone = {each.role for each in session.grantees() if not each.exists}
        session.check([role for role in roles if role not in gone])
        for role in dict.fromkeys(roles):
            session.do(session.queries.take_part(role, part))
            if role not in gone:
                session.take_all(role)
                session.give(role, session.parts(role))
        return session.finish(only_tell)


def grantees(url: str, schema: str) -> list[Grantee]:
    """Who was given which part."""
    with _RightsTransaction(url, schema) as session:
        return session.grantees()


class _RightsTransaction:
    """One transaction on the rights of a schema; it keeps the statements that it sends."""

    def __init__(self, url: str, schema: str) -> None:
        self._url = url
        self._schema = check_schema(schema)
        self.queries = queries(schema)
        self._sent: list[str] = []

    def __enter__(self) -> "_RightsTransaction":
        self._connection: Connection[Any] = connect_sync(self._url, "holdfast roles")
        try:
            with explaining(self._schema):
                self._send("BEGIN")
                self._send(NO_SEARCH_PATH)
                self._connection.execute(*migration_lock(self._schema))
                self._check_version()
        except BaseException:
            self._connection.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def finish(self, only_tell: bool) -> list[str]:
        self._send("ROLLBACK" if only_tell else "COMMIT")
        return self._sent

    def check(self, roles: Sequence[str]) -> None:
        """Refuses what would give nothing, or the wrong thing, to these roles."""
        there, owner, is_owner, me = self._run(self.queries.standing_of(roles))
        if not is_owner:
            raise SchemaError(
                f"role {me!r} cannot give or take rights on schema {self._schema!r}: "
                f"only its owner can. Connect as {owner!r}, or as a superuser"
            )
        if missing := [role for role in roles if role not in there]:
            make = " ".join(f"CREATE ROLE {quote(role)} LOGIN;" for role in missing)
            raise ConfigError(f"there is no database role {', '.join(map(repr, missing))}. Make it first: {make}")
        if owner in roles:
            raise ConfigError(f"role {owner!r} owns schema {self._schema!r}: it may do everything without a part")

    def give(self, role: str, parts: Iterable[str]) -> None:
        for part in parts:
            for rights in self._run(self.queries.grants(part)):
                self._say(f"GRANT {rights} TO {quote(role)}")

    def take_all(self, role: str) -> None:
        for what in ("ALL TABLES IN SCHEMA", "ALL FUNCTIONS IN SCHEMA", "SCHEMA"):
            self._say(f"REVOKE ALL ON {what} {quote(self._schema)} FROM {quote(role)}")

    def parts(self, role: str) -> list[str]:
        return self._run(self.queries.parts_of(role))

    def grantees(self) -> list[Grantee]:
        return [Grantee(*row) for row in self._run(self.queries.grantees())]

    def do(self, change: Query[None]) -> None:
        """A change of the list of grantees; listed with its values filled in."""
        text = change.statement.text
        self._run(change)
        for number, value in enumerate(change.parameters, 1):
            text = text.replace(f"${number}", _literal(value))
        self._sent.append(" ".join(text.split()) + ";")

    def _check_version(self) -> None:
        # An older schema lacks functions that a part consists of.
        at = self._run(self.queries.schema_version())
        if at != latest():
            raise SchemaError(
                f"schema {self._schema!r} is at version {at}, and this code grants the rights of version {latest()}. "
                + (f"Run: {migrate_command(self._schema)}" if at < latest() else "Upgrade the code")
            )

    def _say(self, text: str) -> None:
        self._send(text)
        self._sent.append(text + ";")

    def _send(self, text: str) -> None:
        with explaining(self._schema):
            self._connection.execute(text.encode())

    def _run(self, query: Query[T]) -> T:
        with explaining(self._schema):
            return run_sync(self._connection, query)


def _literal(value: object) -> str:
    if isinstance(value, list):
        return "ARRAY[" + ", ".join(map(_literal, value)) + "]"
    return "'" + str(value).replace("'", "''") + "'"
