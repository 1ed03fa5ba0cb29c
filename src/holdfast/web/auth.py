"""Who may look, and who may act: tokens with a login form, an app's own login, or only whoever has started it.

With tokens, programs send `Authorization: Bearer …`, and people write theirs into a form once. The form and not Basic
authentication: a browser forgets a cookie when told to, and sends a `SameSite=Strict` one with no request from
elsewhere. The cookie does not hold the token but a proof that it was known, which ends with the token or after a while.
"""

import hashlib
import hmac
import inspect
import ipaddress
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, TypeAlias, cast, get_args

from starlette.requests import HTTPConnection

from holdfast.errors import ConfigError
from holdfast.web.login_brake import Brake

Role: TypeAlias = Literal["viewer", "operator"]
"""A viewer looks; an operator acts as well."""

TRUSTED: Final = "trusted"
"""As `auth`: every program and every person on this machine may look and act."""
COOKIE = "holdfast_session"
STAYS = 7 * 86_400
"""Seconds that a login lasts."""
SHORTEST = 16
"""Characters of a token: it is all that stands between the tasks and whoever guesses."""
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who was let in. The name is kept with what they do."""

    name: str
    role: Role = "viewer"

    def __post_init__(self) -> None:
        if self.role not in get_args(Role):
            raise ConfigError(f"role {self.role!r}: give viewer or operator")


@dataclass(frozen=True, slots=True)
class Token:
    """A secret by which somebody is known."""

    name: str
    role: Role
    token: str = field(repr=False)

    def __post_init__(self) -> None:
        if not self.name or self.role not in get_args(Role):
            raise ConfigError(f"token of {self.name!r}: give a name, and a role, viewer or operator; not {self.role!r}")
        if len(self.token) < SHORTEST or not self.token.isascii():
            raise ConfigError(
                f"the token of {self.name} must have at least {SHORTEST} plain characters. Make one with: "
                'python -c "import secrets; print(secrets.token_urlsafe())"'
            )


Answer: TypeAlias = User | Role | None
Asked: TypeAlias = Callable[[HTTPConnection], Answer | Awaitable[Answer]]
Auth: TypeAlias = Sequence[Token] | str | Asked
"""Tokens, as a list or as `name:role:token` texts; or a function of the request; or "trusted": all on this machine."""


class Gate(Protocol):
    """Decides who somebody is."""

    has_login: bool

    async def user(self, request: HTTPConnection) -> User | None: ...


def gate(auth: "Auth | Starter") -> Gate:
    """The gate that `auth=` describes."""
    if auth is None:
        raise ConfigError(
            "auth=None: say who may look and who may act. Give a list of tokens, or a function that asks your own "
            f'login, or, if everybody who can use this machine may act, auth="{TRUSTED}"'
        )
    if isinstance(auth, Starter):
        return auth
    if auth == TRUSTED:
        return ThisMachine()
    if isinstance(auth, str):
        return Tokens(parse_tokens(auth))
    if callable(auth):
        return OwnLogin(auth)
    return Tokens(list(auth))


def parse_tokens(text: str) -> list[Token]:
    """`ada:operator:…`, one or several, with blanks, commas or line ends in between."""
    found: list[Token] = []
    for each in text.replace(",", " ").split():
        name, role, token = (*each.split(":", 2), "", "")[:3]
        if not token:
            raise ConfigError("a token is written as name:role:token, such as ada:operator:… (viewer or operator)")
        found.append(Token(name, cast(Role, role), token))
    return found


class ThisMachine:
    """No login: whoever uses this machine is trusted. What came from elsewhere is not let in, as far as it says so."""

    has_login = False

    async def user(self, request: HTTPConnection) -> User | None:
        forwarded = any(name in request.headers for name in ("forwarded", "x-forwarded-for", "x-real-ip"))
        if forwarded or request.client is None or not is_loopback(request.client.host):
            return None
        return User(_name_here(), "operator")


class OwnLogin:
    """What an app's own login says: a user, a role, or None."""

    has_login = False

    def __init__(self, ask: Asked) -> None:
        self._ask = ask

    async def user(self, request: HTTPConnection) -> User | None:
        answer = self._ask(request)
        found = await answer if inspect.isawaitable(answer) else answer
        return User("dashboard", found) if isinstance(found, str) else found


class Tokens:
    """Tokens, by header or by the cookie of the login form."""

    has_login = True

    def __init__(self, tokens: Sequence[Token]) -> None:
        if not tokens:
            raise ConfigError("auth: there is no token in it, so nobody could ever log in")
        if len({each.name for each in tokens}) < len(tokens):
            raise ConfigError("auth: two tokens have the same name; what each does is recorded by name")
        self._tokens = tokens
        self._brake = Brake()
        self._ended: dict[str, float] = {}

    async def user(self, request: HTTPConnection) -> User | None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self.enter(request, given)
        return self._of_cookie(request.cookies.get(cookie_name(request), ""))

    def enter(self, request: HTTPConnection, given: str) -> User | None:
        """Who has this token."""
        self._brake.check(request)
        found = self._holder(given.strip().encode("utf-8", "replace"))
        if found is None:
            self._brake.count(request)
            return None
        return User(found.name, found.role)

    def _holder(self, given: bytes) -> Token | None:
        # All are compared, each in constant time.
        found: Token | None = None
        for each in self._tokens:
            if hmac.compare_digest(each.token.encode(), given):
                found = each
        return found

    def cookie(self, user: User) -> str:
        """What the browser of somebody keeps."""
        until = f"{int(time.time()) + STAYS}-{secrets.token_hex(8)}"
        token = next(each for each in self._tokens if each.name == user.name)
        return f"{user.name.encode().hex()}.{until}.{_proof(token, until)}"

    def leave(self, request: HTTPConnection) -> None:
        """Ends a login: its cookie is good for nothing from now on, whoever has kept it."""
        cookie = request.cookies.get(cookie_name(request), "")
        if self._of_cookie(cookie) is not None:
            now = time.time()
            self._ended = {proof: until for proof, until in self._ended.items() if until > now}
            self._ended[cookie.rpartition(".")[2]] = now + STAYS

    def _of_cookie(self, cookie: str) -> User | None:
        name, until, proof = (*cookie.split(".", 2), "", "")[:3]
        second = until.partition("-")[0]
        for each in self._tokens:
            known = hmac.compare_digest(_proof(each, until), proof.encode("ascii", "replace").decode())
            if known and each.name.encode().hex() == name and proof not in self._ended and int(second) > time.time():
                return User(each.name, each.role)
        return None


class Starter(Tokens):
    """Only whoever has started it: they are told a link, by which one browser is let in once."""

    def __init__(self) -> None:
        super().__init__([Token(_name_here(), "operator", secrets.token_urlsafe())])
        self._key = secrets.token_urlsafe()
        self.when_used: Callable[[], None] = lambda: None

    @property
    def link(self) -> str:
        """The path that lets a browser in."""
        return f"/login?token={self._key}"

    def _holder(self, given: bytes) -> Token | None:
        if not hmac.compare_digest(self._key.encode(), given):
            return None
        self._key = secrets.token_urlsafe()
        self.when_used()
        return self._tokens[0]


def cookie_name(request: HTTPConnection) -> str:
    """One for each port: browsers do not tell ports of a host apart, and several dashboards may be on one."""
    port = request.headers.get("host", "").rpartition(":")[2]
    return f"{COOKIE}_{port}" if port.isascii() and port.isdigit() else COOKIE


def is_over_tls(request: HTTPConnection) -> bool:
    """Whether the browser speaks TLS, also if a proxy takes it off: the browser's own word, or the proxy's."""
    headers = request.headers
    told = (request.url.scheme, headers.get("origin", "").partition(":")[0], headers.get("x-forwarded-proto", ""))
    return any(each.strip().lower() == "https" for each in told)


def _proof(token: Token, until: str) -> str:
    said = f"holdfast dashboard {token.name} {token.role} {until}"
    return hmac.new(token.token.encode(), said.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def is_loopback(host: str) -> bool:
    """Whether an address, or a name, means this machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _name_here() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "somebody at this machine"
