"""Asks an API for an export and polls until it is ready, for hours if need be, without holding a slot meanwhile.

It shows a step that returns itself (`Later(replace(self, …))`), `Snooze` when the API says 429, a retry rule for its
other errors, and an HTTP client that is opened once per worker.

    python examples/polling_an_api.py                   # a small API to play with, on port 8031
    holdfast dev examples/polling_an_api.py             # in a second terminal
    holdfast enqueue export.Begin api=http://localhost:8031 --wait      # in a third
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import httpx

from holdfast import App, Context, Done, Fail, Later, Retry, Snooze

app = App()
export = app.kind("export", result=str, retry=Retry(8, delay="1s", max_delay="5m", on=httpx.HTTPError), timeout="30s")


@app.resource
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=20) as opened:
        yield opened


@export.step
@dataclass
class Begin:
    api: str

    async def run(self, ctx: Context) -> "Later[Poll]":
        # The key is the same in every attempt of this visit, so a retry does not begin a second export.
        reply = await ctx.resource(httpx.AsyncClient).post(
            f"{self.api}/exports", headers={"Idempotency-Key": ctx.idempotency_key}
        )
        busy_means_later(reply)
        return Later(Poll(f"{self.api}{reply.json()['path']}"), "1s")


@export.step
@dataclass
class Poll:
    url: str
    polls: int = 0

    async def run(self, ctx: Context) -> "Done[str] | Later[Poll]":
        reply = await ctx.resource(httpx.AsyncClient).get(self.url)
        busy_means_later(reply)
        if reply.status_code == 200:
            return Done(reply.text)
        if self.polls >= 1000:
            raise Fail(f"{self.url} was not ready after {self.polls} polls")
        # A move to the same step: recorded, with fresh budgets. At first soon, then every minute.
        return Later(replace(self, polls=self.polls + 1), min(60, 2**self.polls))


def busy_means_later(reply: httpx.Response) -> None:
    """Too many requests: the same visit again, when the API wants it, and no error is counted."""
    if reply.status_code == 429:
        raise Snooze(float(reply.headers.get("Retry-After", 60)))
    reply.raise_for_status()


def play_api(port: int = 8031) -> None:
    """An API whose exports are ready after a few polls, and which is busy now and then."""
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    from itertools import count

    asked = count(1)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.answer(201, '{"path": "/exports/1"}')

        def do_GET(self) -> None:
            number = next(asked)
            self.answer(429 if number % 4 == 2 else 200 if number % 4 == 0 else 202, "a,b\n1,2\n")

        def answer(self, code: int, text: str) -> None:
            self.send_response(code)
            self.send_header("Retry-After", "2")
            self.end_headers()
            self.wfile.write(text.encode())

    print(f"listening on http://localhost:{port}")
    ThreadingHTTPServer(("localhost", port), Handler).serve_forever()


if __name__ == "__main__":
    play_api()
