"""The database of `holdfast dev`: the one that is named, else the embedded server; with its tables."""

import asyncio
from typing import TYPE_CHECKING

from holdfast.cli.servers import OwnServer
from holdfast.errors import SchemaError

if TYPE_CHECKING:
    from holdfast._db.config.resolve import Database
    from holdfast.cli.dev.talk import Talk
    from holdfast.cli.dev.worker import Loaded
    from holdfast.embedded import Server

LOOK = 2.0
"""Seconds between two looks whether the embedded server still runs."""


class DevDatabase:
    """What is started here is also stopped here, unless this process is killed: then its worker does it."""

    def __init__(self, talk: "Talk", given: str | None, *, yes: bool) -> None:
        self._talk = talk
        self._given = given
        self._yes = yes
        self._server = OwnServer()
        self._migrated: set[tuple[str, str]] = set()
        self._starting: asyncio.Future[Server] | None = None
        self._keeping: asyncio.Task[None] | None = None

    @property
    def folder(self) -> str | None:
        """The folder of the server that was started here."""
        return str(self._server.started.folder) if self._server.started else None

    async def prepare(self, loaded: "Loaded") -> "Database":
        """The database that an App is to use, ready for it."""
        from holdfast._db.config.resolve import Database, embedded_url

        url = loaded["url"]
        if url is None:
            self._talk.starting_server()
            url = await self._start()
        await self._migrate(url, loaded["schema"])
        if url == embedded_url() and self._keeping is None:
            self._keeping = asyncio.create_task(self._keep(loaded["schema"]))
        return Database(url, "--url" if self._given else loaded["source"])

    async def close(self) -> None:
        """Stops the server if it was started here."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        if self._starting is not None:
            await asyncio.gather(self._starting, return_exceptions=True)
        if await asyncio.to_thread(self._server.stop):
            self._talk.server_stopped()

    async def _start(self) -> str:
        """The URL of the embedded server, started if need be; `close` waits for a start that is under way."""
        self._starting = asyncio.ensure_future(asyncio.to_thread(self._server.start))
        return (await asyncio.shield(self._starting)).url()

    async def _migrate(self, url: str, schema: str) -> None:
        from holdfast._db.migrate import migrate

        if (url, schema) not in self._migrated:
            await self._may_make_tables(url, schema)
            applied = await migrate(url, schema)
            self._migrated.add((url, schema))
            if applied:
                self._talk.migrated(applied)

    async def _may_make_tables(self, url: str, schema: str) -> None:
        """In a database that has none, somebody else's perhaps, no tables are made unless somebody said so."""
        from holdfast._db.config.describe import described
        from holdfast._db.config.resolve import embedded_url
        from holdfast._db.errors import migrate_command
        from holdfast._db.migrate import status

        if self._yes or url == embedded_url() or (await status(url, schema)).version > 0:
            return
        raise SchemaError(
            f"there are no tables in schema {schema!r} of {described(url)} yet. If this is the database that you mean, "
            f"make them: holdfast dev --yes, or {migrate_command(schema)}"
        )

    async def _keep(self, schema: str) -> None:
        """Starts the embedded server again if somebody has ended it, perhaps another `dev` that had started it."""
        from holdfast import embedded

        while True:
            await asyncio.sleep(LOOK)
            if await asyncio.to_thread(embedded.find) is not None:
                continue
            try:
                url = await self._start()
                self._migrated.clear()
                await self._migrate(url, schema)
            except Exception as error:
                self._talk.failed(error)
                return
            self._talk.server_again()
