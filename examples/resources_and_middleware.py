"""What surrounds steps: things opened once per worker, and code around every attempt.

A resource is what is dear to open and can be shared; middleware is what belongs around every step.

    holdfast dev examples/resources_and_middleware.py
    holdfast enqueue convert amount:=100 to=USD --header tenant=acme --wait       # 108.0
    holdfast enqueue convert amount:=100 to=USD                                   # parked: no tenant
"""

import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from holdfast import App, Context, Fail, current_context

log = logging.getLogger("rates")
app = App()
tenant: ContextVar[str] = ContextVar("tenant")


@dataclass
class Rates:
    """What is expensive to open and can be shared: a client, a model, a table of rates."""

    of_one_euro: dict[str, float]
    asked: int = 0
    by_tenant: dict[str, int] = field(default_factory=dict)


@app.resource
def rates() -> Iterator[Rates]:
    """Opened before the first step, closed after the last; it may be async. The annotation says what it provides."""
    opened = Rates({"USD": 1.08, "GBP": 0.84})
    log.info("rates are loaded")
    yield opened
    log.info("rates were asked for %d times", opened.asked)


@app.middleware
async def measure(ctx: Context, proceed: Callable[[], Awaitable[Any]]) -> Any:
    """Around every attempt, and around the middleware below: the first one declared is the outermost."""
    begun = time.perf_counter()
    try:
        return await proceed()
    finally:
        log.info("%s.%s, attempt %d: %.0f ms", ctx.kind, ctx.step, ctx.attempt, 1000 * (time.perf_counter() - begun))


@app.middleware
async def know_the_tenant(ctx: Context, proceed: Callable[[], Awaitable[Any]]) -> Any:
    """Headers travel with the task: from the request that enqueued it to the step that does the work."""
    if "tenant" not in ctx.headers:
        raise Fail("this task has no tenant: enqueue it with headers={'tenant': …}")
    token = tenant.set(ctx.headers["tenant"])
    try:
        return await proceed()
    finally:
        tenant.reset(token)


@app.task
async def convert(ctx: Context, amount: float, to: str) -> float:
    table = ctx.resource(Rates)
    if to not in table.of_one_euro:
        raise Fail(f"there is no rate for {to}")
    note_use(table)
    return round(amount * table.of_one_euro[to], 2)


def note_use(table: Rates) -> None:
    """Deep inside, where nobody handed a context down."""
    table.asked += 1
    table.by_tenant[tenant.get()] = table.by_tenant.get(tenant.get(), 0) + 1
    log.info("asked by %s in task %s", tenant.get(), current_context.get().id)
