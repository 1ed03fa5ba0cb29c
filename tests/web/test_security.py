"""What must never be possible, whoever asks (X5): each rule by itself, and all requests that could break it."""

import asyncio
import json
import time
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import HTTPConnection
from starlette.routing import Mount

from holdfast import App
from holdfast.errors import ConfigError, DatabaseUnreachable
from holdfast.web import Token, User, dashboard
from holdfast.web.auth import Starter, Tokens, parse_tokens
from holdfast.web.login_brake import TRIES
from holdfast.web.routes import Action
from holdfast.web.serving import Serving
from holdfast.web.site import Site
from holdfast.web.view.problems import problem_of
from holdfast.web.view.redaction import HIDDEN, Hiding, restored

from .conftest import HERE, Browser, client, plant_task, plant_worker, rows
from .test_schedules import HOURLY, plant_schedule

ADA, BOB = "ada-" + "a" * 20, "bob-" + "b" * 20
TOKENS = [Token("ada", "operator", ADA), Token("bob", "viewer", BOB)]


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def state_of(url: str, id: str) -> str:
    return str(rows(url, "select state from holdfast.tasks where id = $1::uuid", id)[0][0])


# --- who


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "tasks.example.com"])
def test_X5_off_this_machine_it_does_not_start_without_a_login(host: str) -> None:
    with pytest.raises(ConfigError, match="HOLDFAST_WEB_TOKENS"):
        Serving(host)
    with pytest.raises(ConfigError, match="HOLDFAST_WEB_TOKENS"):
        Serving(host, auth="trusted")
    Serving(host, auth=TOKENS)
    Serving("127.0.0.1")


@pytest.mark.parametrize(
    ("peer", "headers"),
    [
        ("10.0.0.9", {}),
        ("127.0.0.1", {"x-forwarded-for": "10.0.0.9"}),
        ("127.0.0.1", {"forwarded": "for=10.0.0.9"}),
        ("127.0.0.1", {"host": "tasks.example.com"}),
        ("127.0.0.1", {"host": "localhost.evil.com"}),
        ("127.0.0.1", {"host": "127.0.0.1.evil.com:80"}),
        ("127.0.0.1", {"host": ""}),
    ],
)
async def test_X5_trust_is_in_this_machine_alone(app: App, peer: str, headers: dict[str, str]) -> None:
    async with client(dashboard(app, auth="trusted"), peer=peer) as asking:
        for path in ("/", "/api", "/live/", "/tasks"):
            answer = await asking.get(path, headers=headers)
            assert answer.status_code in (403, 421), (path, answer.status_code)
            assert "default" not in answer.text


@pytest.mark.parametrize("host", ["localhost", "localhost:8420", "127.0.0.1:8420", "[::1]:8420"])
async def test_X5_this_machine_has_three_names(browser: Browser, host: str) -> None:
    await browser.page("/", headers={"host": host})


async def test_X5_with_hosts_no_other_name_is_answered(app: App) -> None:
    asgi = dashboard(app, auth=TOKENS, hosts=["tasks.example.com"])
    async with client(asgi, headers=bearer(ADA)) as asking:
        assert (await asking.get("/", headers={"host": "Tasks.Example.com"})).status_code == 200
        assert (await asking.get("/", headers={"host": "evil.example.com"})).status_code == 421


async def test_X5_tokens_open_and_nothing_else_does(app: App) -> None:
    for headers in ({}, bearer("x" * 24), bearer(""), {"authorization": f"Basic {ADA}"}, bearer(ADA[:-1])):
        async with client(dashboard(app, auth=TOKENS), peer="10.0.0.9") as asking:
            for path in ("/", "/tasks", "/api", "/api/openapi.json", "/live/"):
                answer = await asking.get(path, headers=headers)
                assert answer.status_code == 401, (path, headers)
                assert "Overview" not in answer.text
                is_for_programs = path.startswith(("/api", "/live"))
                assert answer.headers["content-type"].startswith("application/json" if is_for_programs else "text/html")
            for token in (ADA, BOB):
                assert (await asking.get("/api", headers=bearer(token))).status_code == 200


async def test_X5_a_login_gives_a_cookie_that_holds_no_token(app: App) -> None:
    async with client(dashboard(app, auth=TOKENS)) as asking:
        assert 'name="token"' in (await asking.get("/tasks?q=state:parked")).text
        wrong = await asking.post("/login", data={"token": "x" * 24}, headers=HERE)
        assert wrong.status_code == 401 and "Nobody has this token" in wrong.text
        answer = await asking.post("/login", data={"token": BOB, "to": "/tasks?q=state:parked"}, headers=HERE)
        assert answer.status_code == 303 and answer.headers["location"] == "/tasks?q=state:parked"
        cookie = answer.headers["set-cookie"]
        assert BOB not in cookie and "HttpOnly" in cookie and "SameSite=strict" in cookie and "Path=/" in cookie
        assert "bob" in (await asking.get("/")).text
        copied = {"cookie": cookie.partition(";")[0]}
        await asking.post("/logout", headers=HERE)
        assert (await asking.get("/")).status_code == 401
        assert (await asking.get("/", headers=copied)).status_code == 401, "a copy of the cookie outlives the logout"
        await asking.post("/login", data={"token": BOB}, headers=HERE)
        assert (await asking.get("/")).status_code == 200


@pytest.mark.parametrize(
    ("base", "headers", "is_secure"),
    [
        ("http://localhost", {}, False),
        ("https://tasks.example.com", {}, True),
        ("http://tasks.example.com", {"origin": "https://tasks.example.com"}, True),
        ("http://tasks.example.com", {"x-forwarded-proto": "https"}, True),
    ],
)
async def test_X5_behind_tls_the_cookie_is_only_sent_over_tls(
    app: App, base: str, headers: dict[str, str], is_secure: bool
) -> None:
    async with client(dashboard(app, auth=TOKENS), base=base) as asking:
        answer = await asking.post("/login", data={"token": BOB}, headers=headers)
        assert answer.status_code == 303 and ("; Secure" in answer.headers["set-cookie"]) is is_secure


async def test_X5_dashboards_on_several_ports_do_not_end_each_others_logins(app: App) -> None:
    names = set()
    for base in ("http://localhost:8420", "http://localhost:8421", "http://[::1]", "http://localhost"):
        async with client(dashboard(app, auth=TOKENS), base=base) as asking:
            answer = await asking.post("/login", data={"token": BOB})
            names.add(answer.headers["set-cookie"].partition("=")[0])
            assert (await asking.get("/")).status_code == 200, base
    assert names == {"holdfast_session", "holdfast_session_8420", "holdfast_session_8421"}


@pytest.mark.parametrize("by", ["form", "header"])
async def test_X5_guessing_is_braked(app: App, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    asgi = dashboard(app, auth=TOKENS)

    async def give(token: str, peer: str) -> int:
        async with client(asgi, peer=peer) as asking:
            if by == "form":
                return (await asking.post("/login", data={"token": token}, headers=HERE)).status_code
            return (await asking.get("/api", headers=bearer(token))).status_code

    entered = 303 if by == "form" else 200
    assert await give(BOB, "10.0.0.9") == entered
    for _ in range(TRIES):
        assert await give("x" * 24, "10.0.0.9") == 401
    assert await give("x" * 24, "10.0.0.9") == 429
    assert await give(BOB, "10.0.0.9") == 429, "a right token would tell a wrong one"
    assert await give(BOB, "10.0.0.8") == entered
    for i in range(TRIES):
        assert await give("x" * 24, f"2001:db8::{i}") == 401
    assert await give("x" * 24, "2001:db8::ffff") == 429
    monkeypatch.setattr("holdfast.web.login_brake.WAIT", 0.0)
    assert await give(BOB, "10.0.0.9") == entered


async def test_X5_only_whoever_has_started_it_is_let_in(app: App) -> None:
    told: list[str] = []
    starter = Starter()
    starter.when_used = lambda: told.append(starter.link)
    asgi, link = Site(app, auth=starter).asgi(), starter.link
    plain_proxy = {"host": "localhost"}
    async with client(asgi) as other:
        for path in ("/", "/tasks", "/api", "/live/", "/login", "/login?token=", f"{link}x"):
            answer = await other.get(path, headers=plain_proxy)
            assert answer.status_code == 401 and "default" not in answer.text, path
        assert "Open the link that the terminal shows" in (await other.get("/")).text
        assert (await other.get(link, headers={"host": "tasks.example.com"})).status_code == 421
    async with client(asgi) as starting, client(asgi) as other:
        answer = await starting.get(link)
        assert answer.status_code == 200 and answer.headers["refresh"] == "0; url=/"
        assert link.partition("=")[2] not in answer.headers["set-cookie"] + answer.text
        assert (await starting.get("/")).status_code == 200
        assert (await other.get(link)).status_code == 401, "the link was used"
        assert told == [starter.link] and starter.link != link
        assert (await other.get(starter.link)).status_code == 200
        assert (await other.get("/")).status_code == 200


async def test_X5_tokens_do_not_belong_into_addresses(app: App) -> None:
    async with client(dashboard(app, auth=TOKENS)) as asking:
        assert (await asking.get("/login", params={"token": ADA})).status_code == 405
        assert (await asking.get("/")).status_code == 401


def test_X5_trust_must_be_said(app: App) -> None:
    with pytest.raises(ConfigError, match='auth="trusted"'):
        dashboard(app, auth=None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert isinstance(Serving().auth, Starter)
    assert Serving().address(1).startswith("http://localhost:1/login?token=")
    assert Serving(auth="trusted").address(1) == "http://localhost:1/"


def test_X5_a_cookie_cannot_be_made_changed_or_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Tokens(TOKENS)
    good = gate.cookie(User("bob", "viewer"))
    assert gate._of_cookie(good) == User("bob", "viewer")
    name, until, proof = good.split(".")
    ada = b"ada".hex()
    later = str(int(until.partition("-")[0]) + 1)
    for forged in (f"{ada}.{until}.{proof}", f"{name}.{later}.{proof}", f"{name}.{until}.", "", "..", "a.b.c"):
        assert gate._of_cookie(forged) is None, forged
    assert Tokens([Token("bob", "viewer", "c" * 24)])._of_cookie(good) is None
    assert Tokens([Token("bob", "operator", BOB)])._of_cookie(good) is None
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now + 8 * 86_400)
    assert gate._of_cookie(good) is None


ELSEWHERE = ("//evil.com", "https://evil.com", "/\\evil.com", "\\\\evil.com", "javascript:alert(1)", "/a\nb", "")


@pytest.mark.parametrize("prefix", ["", "/a/b"])
async def test_X5_a_login_leads_nowhere_else(app: App, prefix: str) -> None:
    asgi: Any = dashboard(app, auth=TOKENS)
    async with client(Starlette(routes=[Mount(prefix, asgi)]) if prefix else asgi) as asking:
        for to in ELSEWHERE:
            answer = await asking.post(f"{prefix}/login", data={"token": ADA, "to": to}, headers=HERE)
            assert answer.headers["location"] == f"{prefix}/", to
            assert f"Path={prefix or '/'};" in answer.headers["set-cookie"] + ";"


def test_X5_tokens_are_long_and_named() -> None:
    assert [each.name for each in parse_tokens(f"ada:operator:{ADA}, bob:viewer:{BOB}\n")] == ["ada", "bob"]
    for wrong in ("ada", "ada:operator", "ada:operator:short", f"ada:admin:{ADA}", f":viewer:{ADA}"):
        with pytest.raises(ConfigError):
            parse_tokens(wrong)
    with pytest.raises(ConfigError, match="same name"):
        Tokens([TOKENS[0], TOKENS[0]])
    with pytest.raises(ConfigError, match="no token"):
        Tokens([])
    assert ADA not in repr(TOKENS[0])


async def test_X5_an_app_may_ask_its_own_login(app: App, holdfast_url: str) -> None:
    id = plant_task(holdfast_url)

    async def own(request: HTTPConnection) -> Any:
        who = request.headers.get("x-who")
        return {"grace": User("grace", "operator"), "eve": None, "max": "viewer"}.get(who or "")

    async with client(dashboard(app, auth=own), peer="10.0.0.9") as asking:
        assert (await asking.get("/", headers={"x-who": "eve"})).status_code == 403
        assert (await asking.get("/")).status_code == 403
        assert (await asking.get("/", headers={"x-who": "max"})).status_code == 200
        path = f"/tasks/{id}/discard"
        assert (await asking.post(path, headers={**HERE, "x-who": "max"})).status_code == 403
        assert (await asking.post(path, headers={**HERE, "x-who": "grace"})).status_code == 303
    assert rows(holdfast_url, "select action, by from holdfast.change where task_id = $1::uuid", id) == [
        ("discard", "grace")
    ]


# --- what


def writes(app: App, id: str) -> list[str]:
    """Every path that something can be done at, on things that are there."""
    given = {"id": id, "name": "default", "run": "1"}
    found = [each.path.format(**given) for each in Site(app, auth="trusted").places if isinstance(each, Action)]
    assert {f"/tasks/{id}/retry", "/bulk", "/queues/default/pause", "/schedules/default/fire"} <= {*found}
    return found


def leads(page: str, path: str) -> bool:
    """Whether a page offers to act there."""
    return f'href="{path}"' in page or f'method="post" action="{path}"' in page


def plant_everything(url: str) -> str:
    """A task, and a worker, that have the same id, and a queue, a kind and a schedule that are called default."""
    id = plant_task(url)
    rows(url, "update holdfast.worker set id = $1::uuid where id = $2::uuid", id, plant_worker(url))
    rows(url, "insert into holdfast.kind (name, queue, priority, graph) values ('default', 'default', 0, '{}')")
    rows(url, "insert into holdfast.schedule (name, definition) values ('default', $1::jsonb)", json.dumps(HOURLY))
    return id


PLACES = ("/tasks/{id}", "/tasks", "/parked", "/queues", "/kinds", "/kinds/default", "/workers")
MORE_PLACES = ("/schedules", "/schedules/default", "/schedules/default/backfill", "/database")


@pytest.mark.parametrize("role", ["viewer", "read-only"])
async def test_X5_who_may_only_look_changes_nothing(app: App, holdfast_url: str, role: str) -> None:
    id = plant_everything(holdfast_url)
    asgi = dashboard(app, auth=TOKENS, read_only=role == "read-only")
    async with client(asgi, headers={**bearer(BOB if role == "viewer" else ADA), **HERE}) as asking:
        for path in writes(app, id):
            for prefix in ("", "/api"):
                answer = await asking.post(prefix + path, json={"verb": "retry", "q": "state:parked"})
                assert answer.status_code == 403, (prefix + path, answer.text)
            assert not leads((await asking.get(path)).text, path), path
        for path in (*PLACES, *MORE_PLACES):
            page = (await asking.get(path.format(id=id))).text
            assert not [each for each in writes(app, id) if leads(page, each)], path
        assert "/bulk" not in (await asking.get(f"/tasks/{id}")).text
    assert state_of(holdfast_url, id) == "parked"
    assert rows(holdfast_url, "select 1 from holdfast.change") == []


async def test_X5_a_look_cannot_write_and_does_not_take_long(app: App) -> None:
    from datetime import timedelta

    from holdfast._db.driver.connection import DriverError
    from holdfast._sql.query import Query, statement

    def query(text: str) -> Query[Any]:
        return Query(statement("x", text, "holdfast"), (), list)

    with pytest.raises(DriverError, match="read-only transaction"):
        async with app._pool.reading(timedelta(seconds=5)) as run:
            await run(query("delete from holdfast.task"))
    with pytest.raises(DatabaseUnreachable, match="statement timeout") as late:
        async with app._pool.reading(timedelta(milliseconds=50)) as run:
            await run(query("select pg_sleep(60)"))
    assert problem_of(late.value).title == "This took too long"
    await app._run(query("update holdfast.task set priority = 0"))  # the connection is as it was


SITES: list[tuple[dict[str, str], bool]] = [
    ({"sec-fetch-site": "same-origin"}, True),
    ({"sec-fetch-site": "none"}, True),
    ({"sec-fetch-site": "cross-site"}, False),
    ({"sec-fetch-site": "same-site"}, False),
    ({"sec-fetch-site": "cross-site", "origin": "http://localhost"}, False),
    ({"sec-fetch-site": ""}, False),
    ({"origin": "http://localhost"}, True),
    ({"origin": "https://localhost"}, True),
    ({"origin": "http://localhost:1"}, False),
    ({"origin": "http://evil.com"}, False),
    ({"origin": "http://localhost.evil.com"}, False),
    ({"origin": "http://evil.com?localhost"}, False),
    ({"origin": "null"}, False),
    ({"origin": ""}, False),
    ({}, True),
    ({"cookie": "holdfast_session=x"}, False),
]


async def test_X5_no_other_site_can_act(app: App, holdfast_url: str) -> None:
    async with client(dashboard(app, auth="trusted")) as asking:
        for headers, is_let_in in SITES:
            for prefix in ("", "/api"):
                id = plant_task(holdfast_url)
                answer = await asking.post(f"{prefix}/tasks/{id}/discard", headers=headers)
                expected = (200 if prefix else 303) if is_let_in else 403
                assert answer.status_code == expected, (headers, prefix, answer.text)
                assert state_of(holdfast_url, id) == ("discarded" if is_let_in else "parked"), (headers, prefix)


async def test_X5_no_action_is_open_to_other_sites(app: App, holdfast_url: str) -> None:
    id = plant_everything(holdfast_url)
    async with client(dashboard(app, auth="trusted")) as asking:
        for path in writes(app, id):
            for prefix in ("", "/api"):
                for headers, is_let_in in SITES:
                    if not is_let_in:
                        answer = await asking.post(prefix + path, headers=headers)
                        assert answer.status_code == 403 and "another site" in answer.text, (prefix + path, headers)
    assert state_of(holdfast_url, id) == "parked"
    assert rows(holdfast_url, "select 1 from holdfast.change") == []


async def test_X5_nothing_is_changed_by_looking(browser: Browser, app: App, holdfast_url: str) -> None:
    id = plant_everything(holdfast_url)
    for path in writes(app, id):
        for method in ("GET", "HEAD", "PUT", "DELETE", "PATCH"):
            answer = await browser.client.request(method, path, headers=HERE)
            assert answer.status_code in (200, 400, 404, 405), (method, path)
    assert state_of(holdfast_url, id) == "parked"
    assert rows(holdfast_url, "select 1 from holdfast.change") == []


async def test_X5_every_answer_has_a_strict_policy(browser: Browser, holdfast_url: str) -> None:
    id = plant_everything(holdfast_url)
    for path in (
        "/",
        *(each.format(id=id) for each in (*PLACES, *MORE_PLACES)),
        "/queues/default/pause",
        "/bulk",
        "/nowhere",
        "/api",
        "/static/page.js",
        "/tasks?q=x",
    ):
        answer = await browser.client.get(path)
        policy = answer.headers["content-security-policy"]
        assert "unsafe" not in policy and "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        if "html" in answer.headers["content-type"]:
            assert " style=" not in answer.text and "<style" not in answer.text
            assert "javascript:" not in answer.text and " onclick" not in answer.text
            assert all(part.startswith(" src=") for part in answer.text.split("<script")[1:])


async def test_X5_what_is_sent_is_bounded(browser: Browser, holdfast_url: str) -> None:
    id = plant_task(holdfast_url)
    answer = await browser.client.post(f"/tasks/{id}/retry", content=b"x" * 1_100_000, headers=HERE)
    assert answer.status_code == 413
    assert (await browser.client.get("/tasks", params={"limit": "100000"})).status_code == 400
    assert (await browser.client.get("/tasks", params={"q": "x" * 20_000})).status_code == 400
    assert (await browser.client.get("/tasks", params={"below": "nonsense"})).status_code == 400
    assert (await browser.client.post(f"/api/tasks/{id}/retry", content=b"{", headers=HERE)).status_code == 400
    answer = await browser.client.post(f"/api/tasks/{id}/retry", json={"nonsense": 1}, headers=HERE)
    assert answer.status_code == 400 and "there is no 'nonsense' here" in answer.text


async def test_X5_wrong_input_is_no_mistake_of_the_dashboard(browser: Browser, holdfast_url: str) -> None:
    id = plant_task(holdfast_url)
    for path in (
        "/kinds/%00",
        "/queues/%00/pause",
        "/schedules/%00",
        "/tasks?q=kind:a%00",
        "/tasks?q=args.a%00:b",
        "/tasks/%00",
        "/workers/%00",
        "/bulk/%00",
    ):
        for prefix in ("", "/api"):
            answer = await browser.client.get(prefix + path)
            assert 400 <= answer.status_code < 500, (prefix + path, answer.text)
    for name in ("a" * 5000, "a" * 300, "%00", "a/" * 50, "vendor/" + "a" * 300, "vendor"):
        assert (await browser.client.get(f"/static/{name}")).status_code == 404, name
    for why in ("\ud800", "a\0b"):
        body = json.dumps({"why": why})
        answer = await browser.client.post(f"/api/tasks/{id}/discard", content=body, headers=HERE)
        assert answer.status_code == 400, answer.text
    answer = await browser.client.post(f"/tasks/{id}/discard", data={"why": "a\0b"}, headers=HERE)
    assert answer.status_code == 400, answer.text
    for path in ("/bulk", f"/tasks/{id}/discard", "/login"):
        answer = await browser.client.post(path, content=b"id=1&" * 2001, headers=HERE)
        assert answer.status_code == 413 and "fields" in answer.text, answer.text
    answer = await browser.client.post("/login", content=b"x" * 1_100_000, headers=HERE)
    assert answer.status_code == 413
    assert state_of(holdfast_url, id) == "parked"


# --- secrets


SECRET = "sesame-open-7"
SECRETS = {
    "password": SECRET,
    "API-Key": SECRET,
    "apiKey": SECRET,
    "x_auth_token": [SECRET],
    "nested": {"client_secret": {"a": SECRET}},
    "list": [{"Authorization": f"Bearer {SECRET}"}],
}


async def test_X5_secrets_are_shown_nowhere(browser: Browser, holdfast_url: str) -> None:
    trouble = {
        "type": "ValueError",
        "message": f"password={SECRET} is wrong",
        "traceback": f"token: '{SECRET}' postgresql://ada:{SECRET}@db/x",
        "causes": [{"type": "E", "message": f'"api_key": "{SECRET}"', "traceback": f"Authorization: Bearer {SECRET}"}],
        "password": SECRET,
        "attributes": {"code": "kept-code", "token": SECRET, "details": [f"password={SECRET}"]},
    }
    id = plant_task(holdfast_url, args=SECRETS, error=trouble, headers={"authorization": SECRET, "trace": "kept-trace"})
    rows(
        holdfast_url,
        """insert into holdfast.change (task_id, action, by, old, new)
           values ($1::uuid, 'retry', 'me', $2::jsonb, $3::jsonb)""",
        id,
        json.dumps({"args": SECRETS, "error": trouble}),
        json.dumps({"args": SECRETS}),
    )
    plant_schedule(holdfast_url, "nightly", HOURLY | {"args": SECRETS, "options": {"headers": {"api-key": SECRET}}})
    schedule = ("/schedules", "/schedules/nightly")
    for path in ("/", "/tasks", f"/tasks/{id}", "/parked", "/bulk/new?verb=retry&q=state:parked", *schedule):
        for prefix in ("", "/api"):
            answer = await browser.client.get((prefix + path).rstrip("/") or "/")
            assert answer.status_code == 200, answer.text
            assert SECRET not in answer.text, prefix + path
    page = await browser.page(f"/tasks/{id}")
    assert HIDDEN in page and "kept-trace" in page and "kept-code" in page and "is wrong" in page


def test_X5_names_of_the_app_are_no_secrets() -> None:
    from holdfast.web.bulk_runs import RunInfo

    found = Hiding().of({"queue_tokens": [1], "steps": {"SendToken": ["end"]}})
    assert found == {"queue_tokens": [1], "steps": {"SendToken": ["end"]}}
    assert RunInfo.__dataclass_fields__.keys().isdisjoint({"args", "result"})
    assert Hiding(["ssn"])._data({"ssn": 1, "password": 2}) == {"ssn": HIDDEN, "password": 2}


def test_X5_what_was_hidden_is_put_back() -> None:
    before = {"a": 1, "password": "p", "list": [{"token": "t"}, 2]}
    shown = Hiding()._data(before)
    assert restored(shown, before) == before
    assert restored({**shown, "a": 2}, before) == {**before, "a": 2}
    with pytest.raises(KeyError):
        restored({"other": HIDDEN}, before)


async def test_X5_a_program_asks_with_its_token(app: App, holdfast_url: str) -> None:
    """A program without a browser's headers, with a token."""
    id = plant_task(holdfast_url)
    async with client(dashboard(app, auth=TOKENS), peer="10.0.0.9") as asking:
        answer: httpx.Response = await asking.post(f"/api/tasks/{id}/retry", json={"why": "x"}, headers=bearer(ADA))
    assert answer.json() == {"id": id, "state": "ready"}
    assert rows(holdfast_url, "select by, why from holdfast.change") == [("ada", "x")]


@pytest.mark.parametrize("text", ["m" * 300_000, "token" * 20_000, "token= " * 20_000, "a://a:" * 5_000])
def test_long_texts_are_searched_for_secrets_at_once(text: str) -> None:
    # Hours, if every character looked ahead to the end; and nobody else would be answered meanwhile.
    assert Hiding().text(f"{text} password=sesame").endswith(f"password={HIDDEN}")


# --- what is hidden cannot be guessed through a filter


DSN = f"postgresql://ada:{SECRET}@db/shop"
GUESSES = [
    f"args.password:{SECRET}",
    f"args.password:{SECRET[:3]}*",
    f"-args.Password:{SECRET[:3]}*",
    f"args.nested.client_secret.a:{SECRET}",
    f"args.list.0.Authorization:*{SECRET}",
    "args.x_auth_token.0:null",
]
BLIND_GUESSES = [
    f"args.nested:*{SECRET[:3]}*",
    f"args.list:*{SECRET[:3]}*",
    f"args.dsn:{DSN[:-11]}*",
    f"args.dsn:{DSN}",
    f"args.conninfo:*password={SECRET[:3]}*",
    f"error:{SECRET[:3]}",
    f'error:"api_key={SECRET[:3]}"',
    f"error:ada:{SECRET[:3]}",
]
ASKED = ("/tasks", "/api/tasks", "/api/parked", "/api/bulk/new?verb=retry", "/live/tasks", "/live/parked")


async def test_X5_nobody_can_filter_by_what_is_hidden(app: App, holdfast_url: str) -> None:
    """A count of 0 or 1 for each letter would tell the secret: as many as 13 letters in 367 requests."""
    id = plant_secretive(holdfast_url)
    for token in (ADA, BOB):
        async with client(dashboard(app, auth=TOKENS), headers={**bearer(token), **HERE}) as asking:
            for guess in GUESSES:
                for path in ASKED[:4]:
                    answer = await asking.get(path, params=query_of(path, guess))
                    assert answer.status_code == 403 and "is not shown here" in answer.text, (path, guess)
            for guess in BLIND_GUESSES:
                found = (await asking.get("/api/tasks", params={"q": guess})).json()
                assert (found["count"], found["tasks"]) == (0, []), guess
                assert (await asking.get("/api/parked", params={"q": guess})).json()["count"] == 0, guess
                params = {"verb": "retry", "q": guess}
                assert (await asking.get("/api/bulk/new", params=params)).json()["count"] == 0, guess
                assert (await asking.get("/api/tasks", params={"q": f"-{guess}"})).json()["count"] == 1, guess
    async with client(dashboard(app, auth=TOKENS), headers={**bearer(ADA), **HERE}) as asking:
        for guess in GUESSES:
            answer = await asking.post("/api/bulk", json={"verb": "discard", "q": guess})
            assert answer.status_code == 403, guess
        for guess in BLIND_GUESSES:
            run = (await asking.post("/api/bulk", json={"verb": "discard", "q": guess})).json()
            while (found := (await asking.get(f"/api/bulk/{run['id']}")).json())["ended"] is None:
                await asyncio.sleep(0.01)
            assert (run["expected"], found["done"]) == (0, {}), guess
    assert state_of(holdfast_url, id) == "parked"


async def test_X5_what_is_shown_can_be_filtered_by(browser: Browser, holdfast_url: str) -> None:
    id = plant_secretive(holdfast_url)
    for filter in (
        "args.order_id:42",
        "args.dsn:postgresql*",
        "args.nested.open:yes",
        "args.name:null",
        'error:"is wrong"',
        "error:ValueError",
        "-error:other",
    ):
        found = await browser.json("/api/tasks", params={"q": filter})
        assert [each["id"] for each in found["tasks"]] == [id], filter


def query_of(path: str, guess: str) -> dict[str, str]:
    return {"q": guess, "verb": "retry"} if "verb" in path else {"q": guess}


def plant_secretive(url: str) -> str:
    args = SECRETS | {"dsn": DSN, "conninfo": f"host=db password={SECRET}", "order_id": 42}
    args["nested"] = {"client_secret": {"a": SECRET}, "open": "yes"}
    message = f"api_key={SECRET} is wrong, also {DSN}"
    return plant_task(url, args=args, error={"type": "ValueError", "message": message})


async def test_X5_passwords_of_urls_are_shown_nowhere_and_kept_when_args_are_edited(
    browser: Browser, holdfast_url: str
) -> None:
    args = {"dsn": DSN, "many": [{"broker": f"amqp://ada:{SECRET}@mq"}], "said": f"host=db password={SECRET}", "n": 1}
    id = plant_task(holdfast_url, args=args)
    for path in ("/tasks", f"/tasks/{id}", f"/api/tasks/{id}"):
        assert SECRET not in await browser.page(path), path
    shown = (await browser.json(f"/api/tasks/{id}"))["task"]["args"]
    assert shown["dsn"] == "postgresql://ada:***@db/shop" and shown["said"] == "host=db password=***"
    other = shown | {"dsn": "postgresql://ada:***@other/shop"}
    answer = await browser.client.post(f"/api/tasks/{id}/retry", json={"args": other}, headers=HERE)
    assert answer.status_code == 400 and "write what is meant" in answer.text
    answer = await browser.client.post(f"/api/tasks/{id}/retry", json={"args": shown | {"n": 2}}, headers=HERE)
    assert answer.status_code == 200, answer.text
    assert json.loads(rows(holdfast_url, "select args::text from holdfast.task")[0][0]) == args | {"n": 2}
