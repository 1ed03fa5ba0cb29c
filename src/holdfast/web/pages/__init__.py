"""The pages, one module and one template each. A new one is added here; its place here is its place in the menu."""

from holdfast._db.driver.connection import where
from holdfast.app import App
from holdfast.web.auth import is_loopback

MODULES = ("overview", "tasks", "task", "parked", "bulk", "queues", "kinds", "schedules", "workers", "health")
"""The modules of this package that have pages and actions, in the order of the menu."""


def described(app: App) -> str:
    """The database of an app in a few words: `db.example.com / shop`."""
    host, name = where(app.database.url)
    schema = "" if app.schema == "holdfast" else f" ({app.schema})"
    return f"{'this machine' if is_local(app) else host} / {name}{schema}"


def is_local(app: App) -> bool:
    """Whether it is on this machine."""
    host, _ = where(app.database.url)
    return not host or is_loopback(host)
