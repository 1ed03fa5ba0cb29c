"""Putting an app on a test's database, and taking it back: for the fixture, and for tests without fixtures."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType

from holdfast._db.migrate import migrate
from holdfast._model.declare.tasks import Tasks
from holdfast._sql.query import quote
from holdfast.app import App
from holdfast.errors import ConfigError
from holdfast.testing.blocking import blocking
from holdfast.testing.harnesses import Harness
from holdfast.testing.server import database, of_this_process

_SETTINGS = ("migration", "grantee", "kind", "queue", "schedule")
"""Tables that are left alone when a given database is emptied."""


class harness:  # noqa: N801 - reads as a word: with harness(app) as holdfast
    """A `Harness` for tests without fixtures: `with harness(app) as holdfast:`, or `async with`.

    The database is a fresh one on a server that lives as long as the process. With `url`, it is that one, migrated
    and emptied first: for tests of code that enqueues in transactions of its own database, as with Django. Its name
    must have "test" in it.
    """

    def __init__(self, tasks: Tasks | None = None, *, url: str | None = None) -> None:
        self._tasks = Tasks() if tasks is None else tasks
        self._url = url
        self._stack = ExitStack()
        self._made: Harness | None = None

    def __enter__(self) -> Harness:
        with ExitStack() as stack:
            url = self._url or stack.enter_context(database(*of_this_process()))
            self._made = made = stack.enter_context(attached(self._tasks, url, is_given=self._url is not None))
            self._stack = stack.pop_all()
        return made

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, traceback)

    async def __aenter__(self) -> Harness:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._made is not None:
            await self._made.close()
        self.__exit__(kind, error, traceback)


@contextmanager
def attached(tasks: Tasks, url: str, *, is_given: bool = False) -> Iterator[Harness]:
    """Lets an app use a test's database for a while, with connections of its own."""
    app = tasks if isinstance(tasks, App) else App(include=[tasks])
    with app._elsewhere(url):
        made = Harness(app, url)
        try:
            if is_given:
                _check_name(made)
            _migrate(made)
            if is_given:
                _empty(made)
            yield made
        finally:
            if is_given and made.clock.moved:
                made.clock.resume()
            _close(made)


def _check_name(made: Harness) -> None:
    name = made.sql("SELECT current_database()")[0][0]
    if "test" not in name:
        raise ConfigError(
            f'harness(url=…): the database {name!r} has no "test" in its name. Its tasks would be deleted and its '
            "clock moved, so it must be one for tests: give it such a name, or leave url= out to get a fresh one"
        )


def _migrate(made: Harness) -> None:
    """Only where the template has not done it: a database that was given, or a schema of another name."""
    if made.sql("SELECT to_regclass($1)::text", f"{quote(made.app.schema)}.task") == [(None,)]:
        blocking(migrate(made.url, made.app.schema))


def _empty(made: Harness) -> None:
    schema = made.app.schema
    tables = made.sql(
        "SELECT relname::text FROM pg_class WHERE relnamespace = $1::regnamespace AND relkind IN ('r', 'p')"
        " AND NOT relispartition AND NOT relname::text = ANY ($2::text[])",
        quote(schema), list(_SETTINGS),
    )  # fmt: skip
    made.sql("TRUNCATE " + ", ".join(f"{quote(schema)}.{quote(name)}" for (name,) in tables))


def _close(made: Harness) -> None:
    """Closes what the test left open; on a loop that runs, nobody else can."""
    app = made.app
    app.sync.close()
    for loop in {*app._pools.loops, *app._watches.loops}:
        if not (loop.is_running() or loop.is_closed()):
            loop.run_until_complete(app.close())
    app._watches.abandon_ended()
    app._pools.abandon_ended()
    made._session.close()
