"""The site: its pages, actions and JSON as routes of an ASGI application."""

import asyncio
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property, partial
from importlib import import_module, resources
from typing import Any
from urllib.parse import parse_qs

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from holdfast import insights
from holdfast._model.read.infos import as_json
from holdfast.app import App, package_version
from holdfast.drawing import STYLE
from holdfast.web import pages
from holdfast.web.auth import STAYS, Auth, Starter, Tokens, cookie_name, gate, is_over_tls
from holdfast.web.bulk_runs import Runs
from holdfast.web.context import PATIENCE, Act, Look
from holdfast.web.live import Streams
from holdfast.web.openapi import document
from holdfast.web.paths import path_of, root_of
from holdfast.web.routes import Action, Page, Place
from holdfast.web.security import NO_LINK, USER, Guard, user_of
from holdfast.web.view.problems import Problem, problem_of
from holdfast.web.view.redaction import NAMES, Hiding
from holdfast.web.view.templates import address, environment

Handler = Callable[[Request], Awaitable[Response]]

LARGEST = 1_000_000
"""Bytes of what may be sent here."""
FIELDS = 2000
"""Fields of a form."""
_FILE = re.compile(r"[\w.-]{1,100}(/[\w.-]{1,100})?", re.ASCII)
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".woff2": "font/woff2"}
_PLAIN_PATH = re.compile(r"/(?![/\\])[!-\[\]-~]*")


class Site:
    """A dashboard for one app."""

    def __init__(
        self,
        app: App,
        *,
        auth: Auth | Starter,
        read_only: bool = False,
        label: str | None = None,
        hosts: Sequence[str] = (),
        hide: Sequence[str] = NAMES,
    ) -> None:
        self.app = app
        self.runs = Runs()
        self.hiding = Hiding(hide)
        self._gate = gate(auth)
        self._read_only = read_only
        self._label = label
        self._hosts = [host.lower() for host in hosts]
        self.streams = Streams()
        self._templates = environment()
        self.places: list[Place] = [
            each
            for name in pages.MODULES
            for each in vars(import_module(f"holdfast.web.pages.{name}")).values()
            if isinstance(each, Place)
        ]

    def asgi(self) -> ASGIApp:
        """The whole as one ASGI application."""
        inner = Starlette(
            routes=self._routes(), exception_handlers={Exception: self._failed, HTTPException: self._not_there}
        )
        return Guard(inner, self._gate, self._hosts, self._read_only, self._refusal)

    def _routes(self) -> list[BaseRoute]:
        made: list[BaseRoute] = [
            Route("/static/{file:path}", self._static),
            Route("/login", self._told(self._login), methods=["POST"]),
            Route("/login", self._told(self._open_link)),
            Route("/logout", self._logout, methods=["POST"]),
            Route("/healthz", self._alive),
            Route("/readyz", self._ready),
            Route("/metrics", self._told(self._metrics)),
            Route("/api/openapi.json", self._openapi),
        ]
        for place in self.places:
            api = f"/api{place.path.rstrip('/')}"
            if isinstance(place, Page):
                made.append(Route(api, self._told(partial(self._as_json, place))))
                made.append(Route(place.path, self._told(partial(self._as_page, place))))
                if place.live:
                    made.append(Route(f"/live{place.path}", self._told(partial(self._as_stream, place))))
            elif isinstance(place, Action):
                made.append(Route(api, self._told(partial(self._do_json, place)), methods=["POST"]))
                made.append(Route(place.path, self._told(partial(self._do_form, place)), methods=["POST"]))
        return made

    # --- pages

    async def read(self, place: Page, request: Request) -> Any:
        """What a page tells, without secrets."""
        asked = {name: request.query_params.getlist(name) for name in request.query_params}
        given = place.given(asked | {name: [text] for name, text in request.path_params.items()})
        async with self.app._pool.reading(PATIENCE) as run:
            look = Look(run, self.app._queries, user_of(request), self.runs, self.hiding)
            return self.hiding.of(await place.function(look, **given))

    async def _as_page(self, place: Page, request: Request) -> Response:
        found = await self.read(place, request)
        return self._page(request, place.template, place=place, found=found, layout="layout.html")

    async def _as_stream(self, place: Page, request: Request) -> Response:
        async def look() -> str:
            found = await self.read(place, request)
            return self._render(request, place.template, place=place, found=found, layout="part.html")

        return self.streams.response(request, look)

    async def _as_json(self, place: Page, request: Request) -> Response:
        return _json(await self.read(place, request))

    # --- actions

    async def _do_form(self, place: Action, request: Request) -> Response:
        form = await _form(request)
        answer = await self._do(place, request, place.given(form | {n: [v] for n, v in request.path_params.items()}))
        return RedirectResponse(address(root_of(request), place.then(answer), {}), status_code=303)

    async def _do_json(self, place: Action, request: Request) -> Response:
        body = await _body(request)
        try:
            said = json.loads(body) if body else {}
        except (ValueError, RecursionError):
            raise Problem(400, "Not understood", "the body is not JSON") from None
        return _json(self.hiding.of(await self._do(place, request, place.given_json(request.path_params, said))))

    async def _do(self, place: Action, request: Request, given: Mapping[str, Any]) -> Any:
        return await place.function(Act(self.app, user_of(request), self.runs, self.hiding), **given)

    # --- the rest

    async def _static(self, request: Request) -> Response:
        name = request.path_params["file"]
        if name == "graph.css":
            content = STYLE.encode()
        else:
            if not _FILE.fullmatch(name) or ".." in name:
                raise HTTPException(404)
            file = resources.files("holdfast.web").joinpath("static", *name.split("/"))
            if not file.is_file():
                raise HTTPException(404)
            content = file.read_bytes()
        kind = _TYPES.get(name[name.rfind(".") :], "text/plain")
        kept = {"cache-control": "max-age=31536000, immutable" if "v" in request.query_params else "no-cache"}
        return Response(content, media_type=kind, headers=kept)

    async def _login(self, request: Request) -> Response:
        form = await _form(request)
        to = form.get("to", ["/"])[-1]
        path = to if _PLAIN_PATH.fullmatch(to) else "/"
        answer = RedirectResponse(f"{root_of(request)}{path}", status_code=303)
        if self._let_in(request, form.get("token", [""])[-1], answer):
            return answer
        return self._refusal(request, Problem(401, "Log in", "Nobody has this token."), to=to)

    async def _open_link(self, request: Request) -> Response:
        """The link of whoever has started the dashboard. Other tokens do not belong into addresses, which are kept."""
        if not isinstance(self._gate, Starter):
            raise Problem(405, "Not in this way", "")
        # A page that goes on by itself: after a redirect from elsewhere, the browser would not send the new cookie.
        answer = self._page(
            request, "entered.html", place=None, layout="layout.html", problem=Problem(200, "Welcome", "")
        )
        answer.headers["refresh"] = f"0; url={root_of(request)}/"
        return (
            answer
            if self._let_in(request, request.query_params.get("token", ""), answer)
            else self._refusal(request, NO_LINK)
        )

    def _let_in(self, request: Request, token: str, answer: Response) -> bool:
        """Gives the browser of whoever has the token a cookie."""
        user = self._gate.enter(request, token) if isinstance(self._gate, Tokens) else None
        if user is None or not isinstance(self._gate, Tokens):
            return False
        answer.set_cookie(
            cookie_name(request),
            self._gate.cookie(user),
            max_age=STAYS,
            path=root_of(request) or "/",
            secure=is_over_tls(request),
            httponly=True,
            samesite="strict",
        )
        return True

    async def _logout(self, request: Request) -> Response:
        if isinstance(self._gate, Tokens):
            self._gate.leave(request)
        answer = RedirectResponse(f"{root_of(request)}/", status_code=303)
        answer.delete_cookie(cookie_name(request), path=root_of(request) or "/")
        return answer

    async def _alive(self, request: Request) -> Response:
        return JSONResponse({"alive": True})

    async def _ready(self, request: Request) -> Response:
        try:
            async with asyncio.timeout(PATIENCE.total_seconds()), self.app._pool.reading(PATIENCE) as run:
                await run(self.app._queries.schema_version())
        except Exception:
            # Anybody may ask, so no more is told than that.
            return JSONResponse({"ready": False, "reasons": ["the database does not answer"]}, status_code=503)
        return JSONResponse({"ready": True, "reasons": []})

    async def _metrics(self, request: Request) -> Response:
        """What is known of the whole database, for Prometheus."""
        try:
            from holdfast._engine.observe.metrics import CONTENT_TYPE, database_text
        except ImportError:
            raise Problem(501, "No metrics", "They need prometheus-client: pip install 'holdfast[metrics]'.") from None
        queries = self.app._queries
        async with self.app._pool.reading(PATIENCE) as run:
            found, now = await run(insights.queues(queries)), await run(queries.clock())
            text = database_text(found, await run(insights.gauges(queries)), now)
        return Response(text, headers={"content-type": CONTENT_TYPE})

    async def _openapi(self, request: Request) -> Response:
        return _json(document(self.places, root=root_of(request), version=package_version()))

    # --- problems

    def _told(self, handler: Handler) -> Handler:
        """A handler whose errors are told to people, or to programs."""

        async def guarded(request: Request) -> Response:
            try:
                return await handler(request)
            except Exception as error:
                return self._refusal(request, problem_of(error))

        return guarded

    async def _failed(self, request: Request, error: Exception) -> Response:
        return self._refusal(request, problem_of(error))

    async def _not_there(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        title = {404: "There is no such page", 405: "Not in this way"}.get(status, "Not possible")
        return self._refusal(request, Problem(status, title, ""))

    def _refusal(self, request: HTTPConnection, problem: Problem, *, to: str | None = None) -> Response:
        """Why something was not done, as a page, or as JSON to whoever asked for that."""
        headers = {"www-authenticate": "Bearer"} if problem.status == 401 else {}
        path = path_of(request)
        if path.startswith(("/api/", "/live/")) or path in ("/api", "/metrics", "/readyz"):
            told = {"error": problem.title, "message": problem.message}
            return JSONResponse(told, problem.status, headers=headers)
        if problem.status == 401 and not isinstance(self._gate, Starter):
            query = request.url.query
            back = to if to is not None else path + (f"?{query}" if query else "")
            page = self._page(request, "login.html", place=None, layout="layout.html", problem=problem, to=back)
        else:
            page = self._page(request, "problem.html", place=None, layout="layout.html", problem=problem)
        page.status_code = problem.status
        page.headers.update(headers)
        return page

    # --- templates

    def _page(self, request: HTTPConnection, template: str, **context: Any) -> Response:
        return Response(self._render(request, template, **context), media_type="text/html")

    def _render(self, request: HTTPConnection, template: str, **context: Any) -> str:
        root, user = root_of(request), request.scope.get(USER)
        path = path_of(request)
        return self._templates.get_template(template).render(
            {
                "url": lambda path, **query: address(root, path, query),
                "static": lambda file: address(root, f"/static/{file}", {"v": self._version}),
                "user": user,
                "can_act": user is not None and user.role == "operator" and not self._read_only,
                "has_login": self._gate.has_login,
                "menu": [each for each in self.places if isinstance(each, Page) and each.menu] if user else [],
                "label": self.label if user else "",
                "is_local": self.is_local,
                "here": path + (f"?{request.url.query}" if request.url.query else ""),
                "live": f"/live{path}",
                "query": dict(request.query_params),
                **context,
            }
        )

    @cached_property
    def label(self) -> str:
        """Which database this is, so that nobody takes one for another."""
        return self._label or pages.described(self.app)

    @cached_property
    def is_local(self) -> bool:
        return pages.is_local(self.app)

    @cached_property
    def _version(self) -> str:
        """Changes whenever a file does, so that browsers keep none that is old."""
        files = resources.files("holdfast.web").joinpath("static")
        content = STYLE.encode() + b"".join(sorted(f.read_bytes() for f in files.iterdir() if f.is_file()))
        return hashlib.blake2b(content, digest_size=6).hexdigest()


async def _body(request: Request) -> bytes:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > LARGEST:
            raise Problem(413, "Too large", f"At most {LARGEST:,} bytes can be sent here.")
    return body


async def _form(request: Request) -> dict[str, list[str]]:
    try:
        return parse_qs((await _body(request)).decode("utf-8", "replace"), max_num_fields=FIELDS)
    except ValueError:
        raise Problem(413, "Too many fields", f"At most {FIELDS:,} fields can be sent here.") from None


def _json(found: Any) -> Response:
    text = json.dumps(msgspec.to_builtins(found, enc_hook=as_json), ensure_ascii=False, default=str)
    return Response(text.encode("utf-8", "replace"), media_type="application/json")
