"""What pages and actions are given: a way to ask the database, and a way to change something in somebody's name."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast._sql.plans import Plan, drive
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query
from holdfast.app import App
from holdfast.web.auth import User
from holdfast.web.view.redaction import Hiding

if TYPE_CHECKING:
    from holdfast.web.bulk_runs import Runs

T = TypeVar("T")

PATIENCE = timedelta(seconds=5)
"""How long one statement of a page may take."""


@dataclass(frozen=True)
class Look:
    """How a page asks: `await look(insights.queues(look.queries))`. All in one transaction that cannot write."""

    run: Callable[[Query[Any]], Awaitable[Any]]
    queries: Queries
    user: User
    runs: "Runs"
    hiding: Hiding

    async def __call__(self, query: Query[T]) -> T:
        answer: T = await self.run(query)
        return answer

    async def plan(self, plan: Plan[T]) -> T:
        return await drive(plan, self.run)


@dataclass(frozen=True)
class Act:
    """How an action acts: `await act.app.retry(id, by=act.by, why=why)`."""

    app: App
    user: User
    runs: "Runs"
    hiding: Hiding

    @property
    def by(self) -> str:
        """Who does it, for the log of changes."""
        return self.user.name
