"""What the migrations themselves need: the statements of `migrate.sql`."""

from collections.abc import Sequence

from holdfast._sql.queries.base import Base, first_list, maybe_value, nothing, value
from holdfast._sql.query import Query, quote


class MigrateQueries(Base):
    """What the migrations themselves need."""

    @property
    def migration_table(self) -> str:
        """A script: several statements without parameters."""
        return self._statements["migration_table"].text

    def schema_version(self) -> Query[int]:
        return self._query("schema_version", value)

    def has_migrations(self) -> Query[bool]:
        return self._query("has_migrations", value, name=f"{quote(self.schema)}.migration")

    def record_migration(self, version: int, name: str, objects: Sequence[str]) -> Query[None]:
        return self._query("record_migration", nothing, version=version, name=name, objects=list(objects))

    def forget_migration(self, version: int) -> Query[None]:
        return self._query("forget_migration", nothing, version=version)

    def expected_objects(self) -> Query[list[str] | None]:
        return self._query("expected_objects", maybe_value)

    def objects(self) -> Query[list[str]]:
        return self._query("objects", first_list, namespace=quote(self.schema))
