"""Warns when `conn=` is a connection to another database than the app's: its workers would never execute the task."""

import logging
import os
from collections.abc import Callable

from psycopg.conninfo import conninfo_to_dict

from holdfast._db.config.resolve import Database
from holdfast.errors import ConfigError

log = logging.getLogger("holdfast.db")


class OtherDatabases:
    """The databases in which an app has enqueued with `conn=`. The log names each that is not its own once."""

    def __init__(self, own: Callable[[], Database]) -> None:
        self._own = own
        self._met: set[tuple[str, str]] = set()

    def notice(self, name: str) -> None:
        """Notes the name of a database, as its server gives it, and warns if it is another."""
        try:
            own = self._own()
        except ConfigError:
            return  # an app that has none, and only enqueues with conn=
        if (name, own.url) in self._met:
            return
        self._met.add((name, own.url))
        names = [_name(url) for url in (own.direct_url, own.url) if url is not None]
        if name not in names and None not in names:
            log.warning(
                "enqueued with conn= in the database %r, but the database of this App is %r (by %s): only workers of "
                "%r will execute it. Give the App the URL of that database, or a connection to its own",
                *(name, names[0], own.source, name),
            )


def _name(url: str) -> str | None:
    """The database that a URL names; None if it leaves that to the surroundings."""
    return str(conninfo_to_dict(url).get("dbname") or os.environ.get("PGDATABASE") or "") or None
