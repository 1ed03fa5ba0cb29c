"""The dashboard: `holdfast web`, or `dashboard(app, auth=…)`, an ASGI application to mount in another.

It needs the extra `web`: pip install 'holdfast[web]'.
"""

from collections.abc import Sequence

from starlette.types import ASGIApp

from holdfast.app import App
from holdfast.web.auth import Auth, Role, Token, User
from holdfast.web.site import Site
from holdfast.web.view.redaction import NAMES

__all__ = ["Auth", "Role", "Token", "User", "dashboard"]


def dashboard(
    app: App,
    *,
    auth: Auth,
    read_only: bool = False,
    label: str | None = None,
    hosts: Sequence[str] = (),
    hide: Sequence[str] = NAMES,
) -> ASGIApp:
    """The dashboard of an app, to mount under any path: `api.mount("/tasks", dashboard(app, auth=tokens))`.

    `auth` says who may look and act: a list of `Token`s, which gives it a login form; or a function that is given the
    request and answers with a `User`, a role ("viewer" or "operator") or None, for apps that have a login of their own.
    "trusted" means: every program and every person on this machine. With `read_only` nobody acts. `label` is what every
    page shows as the name of the database. `hosts` are the names it answers to, if not to all. What stands under a name
    that has one of `hide` in it is not shown.
    """
    return Site(app, auth=auth, read_only=read_only, label=label, hosts=hosts, hide=hide).asgi()
