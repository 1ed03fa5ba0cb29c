"""Who may do what: the statements of `roles.sql`."""

from collections.abc import Sequence

from holdfast._sql.queries.base import Base, first_list, nothing
from holdfast._sql.query import Query, Row


class RoleQueries(Base):
    """Who may do what."""

    @property
    def renew_grants(self) -> str:
        """A script: what follows every migration."""
        return self._statements["renew_grants"].text

    def grants(self, part: str) -> Query[list[str]]:
        return self._query("grants", first_list, part=part)

    def standing_of(self, roles: Sequence[str]) -> Query[tuple[list[str], str, bool, str]]:
        """The roles that exist, the owner of the schema, whether the current role is that one, and the current role."""
        return self._query(
            "standing_of", lambda rows: (rows[0][0], rows[0][1], rows[0][2], rows[0][3]), roles=list(roles)
        )

    def give_part(self, roles: Sequence[str], part: str) -> Query[None]:
        return self._query("give_part", nothing, roles=list(roles), part=part)

    def take_part(self, role: str, part: str) -> Query[None]:
        return self._query("take_part", nothing, role=role, part=part)

    def parts_of(self, role: str) -> Query[list[str]]:
        return self._query("parts_of", first_list, role=role)

    def grantees(self) -> Query[list[Row]]:
        return self._query("grantees", list)
