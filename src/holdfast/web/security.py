"""What every request must pass before any page sees it, and what every answer carries."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.web.auth import LOOPBACK_NAMES, Gate, Starter, ThisMachine, User
from holdfast.web.paths import path_of
from holdfast.web.view.problems import Problem, Refuse

USER = "holdfast.user"
"""Where the scope of a request has who sent it."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_READING = ("GET", "HEAD")
_OPEN = ("/static/", "/login", "/logout", "/healthz", "/readyz")
"""What needs no user: nothing of it tells anything about tasks."""

NO_LINK = Problem(
    401,
    "Only for whoever has started it",
    "Open the link that the terminal shows. It lets in one browser, once; after that, holdfast web shows another.",
)


@dataclass(frozen=True)
class Guard:
    """ASGI in front of the site: host, origin, user and role, in this order. `hosts` empty means any."""

    site: ASGIApp
    gate: Gate
    hosts: Sequence[str]
    read_only: bool
    refuse: Refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.site(scope, receive, send)
            return
        problem = await self._problem(scope)
        answer: ASGIApp = self.site if problem is None else self.refuse(HTTPConnection(scope), problem)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await answer(scope, receive, with_headers)

    async def _problem(self, scope: Scope) -> Problem | None:
        request = HTTPConnection(scope)
        path = path_of(request)
        if not self._is_our_host(request):
            return Problem(
                421,
                "This is not a name of the dashboard",
                "The address that was asked for is not one that this dashboard answers to. "
                "Give it with --allow-host, or dashboard(hosts=[…]); without a login only localhost is allowed.",
            )
        writes = scope["method"] not in _READING
        if writes and not is_own(request):
            return Problem(403, "Refused", "This request came from another site, so nothing was done.")
        is_open = any(path == each or (each.endswith("/") and path.startswith(each)) for each in _OPEN)
        if is_open:
            return None
        try:
            user = await self.gate.user(request)
        except Problem as problem:
            return problem
        scope[USER] = user
        if user is None:
            return self._stranger()
        if writes and self.read_only:
            return Problem(403, "Read-only", "This dashboard only shows; it was started read-only.")
        if writes and user.role != "operator":
            return Problem(403, "Not permitted", f"{user.name} may look but not act: it takes the role operator.")
        return None

    def _is_our_host(self, request: HTTPConnection) -> bool:
        given = request.headers.get("host", "").lower()
        name = given[: given.index("]") + 1] if given.startswith("[") and "]" in given else given.partition(":")[0]
        if isinstance(self.gate, ThisMachine | Starter):
            return name in {*LOOPBACK_NAMES, *self.hosts}
        return not self.hosts or name in self.hosts or name in LOOPBACK_NAMES

    def _stranger(self) -> Problem:
        if isinstance(self.gate, Starter):
            return NO_LINK
        if self.gate.has_login:
            return Problem(401, "Log in", "")
        if isinstance(self.gate, ThisMachine):
            return Problem(
                403,
                "Only for this machine",
                "The dashboard was told to trust this machine, and answers nobody else. Give it a login instead: "
                "HOLDFAST_WEB_TOKENS=name:role:token for holdfast web, or dashboard(app, auth=…).",
            )
        return Problem(403, "Not permitted", "Your login does not let you see this.")


def is_own(request: HTTPConnection) -> bool:
    """Whether a writing request comes from a page of this site, or from a program: from no page at all.

    A browser says where a request comes from, by Sec-Fetch-Site where the connection is safe and by Origin always.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = request.headers.get("origin")
    if origin is not None:
        return bool(origin) and urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower()
    # Not a browser. It must show who it is by itself: a cookie would be sent by a browser.
    return "cookie" not in request.headers


def user_of(request: HTTPConnection) -> User:
    """Who sent a request that was let in."""
    user: User = request.scope[USER]
    return user
