"""Inline mode: what is enqueued runs at once, in the caller's process and before its call comes back."""

from collections.abc import Awaitable, Callable
from typing import Any

from holdfast._model.run.context import current_context
from holdfast.app import App
from holdfast.testing.drain import Drained

_METHODS = ("enqueue", "enqueue_many")


class Inline:
    """While it is entered, the app's ways to enqueue drain afterwards."""

    def __init__(self, app: App, drain: Callable[[], Awaitable[Drained]], drain_sync: Callable[[], Drained]) -> None:
        self._app = app
        self._drain = drain
        self._drain_sync = drain_sync

    def __enter__(self) -> None:
        # Over the methods of this one app and of its blocking twin: functions and kinds enqueue through them.
        for method in _METHODS:
            setattr(self._app, method, self._draining(getattr(self._app, method)))
            setattr(self._app.sync, method, self._draining_sync(getattr(self._app.sync, method)))

    def __exit__(self, *exception: object) -> None:
        for method in _METHODS:
            vars(self._app).pop(method, None)
            vars(self._app.sync).pop(method, None)

    def _draining(self, enqueue: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def enqueue_and_drain(*what: Any, conn: object = None, **options: Any) -> Any:
            answer = await enqueue(*what, conn=conn, **options)
            if _is_ours(conn):
                (await self._drain()).raise_first_error()
            return answer

        return enqueue_and_drain

    def _draining_sync(self, enqueue: Callable[..., Any]) -> Callable[..., Any]:
        def enqueue_and_drain(*what: Any, conn: object = None, **options: Any) -> Any:
            answer = enqueue(*what, conn=conn, **options)
            if _is_ours(conn):
                self._drain_sync().raise_first_error()
            return answer

        return enqueue_and_drain


def _is_ours(conn: object) -> bool:
    """Not in somebody's transaction, which ends later; nor in a step, whose worker will find the task by itself."""
    return conn is None and current_context.get(None) is None
