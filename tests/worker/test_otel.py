"""Traces by OpenTelemetry: a span for each enqueue and each attempt, in one trace, whatever way a task takes."""

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from opentelemetry import baggage, trace
from opentelemetry.context import attach, detach
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from holdfast import App, Cancel, Context, Done, EnqueueRefused, Entry, Retry, Snooze, Tasks, otel
from holdfast.cli.output.logs import JsonFormatter, _with_task, _with_trace

from . import steps_in_a_process
from .support import sql

tasks = Tasks()
greeter = tasks.kind("greeter", result=str)
seen: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    seen.clear()


@greeter.step
@dataclass
class ReadName:
    name: str

    async def run(self) -> "SayHello":
        return SayHello(self.name)


@greeter.step
@dataclass
class SayHello:
    name: str

    def run(self, ctx: Context) -> Done[str]:
        seen.append(trace.get_current_span().get_span_context().span_id)
        return Done(f"Hello, {self.name}")


@tasks.task(queue="mail")
async def send(n: int) -> int:
    seen.append((trace.get_current_span().get_span_context().trace_id, baggage.get_baggage("tenant")))
    return n


@tasks.task(retry=Retry(1, delay=0))
async def fails() -> None:
    logging.getLogger("shop").warning("about to fail")
    raise ValueError("no such file")


@tasks.task
async def leaves(how: str) -> None:
    raise Cancel("not wanted") if how == "cancel" else Snooze("1h")


@tasks.task
async def fan_out(ctx: Context, n: int) -> None:
    for each in range(n):
        ctx.enqueue(send.bind(each))


@tasks.task(transactional=True)
async def books(ctx: Context) -> None:
    ctx.enqueue(send.bind(1))
    await ctx.tx.execute("SELECT 1")


class Traced:
    """An App with traces, and the spans that were made."""

    def __init__(self, url: str, **options: Any) -> None:
        self.url = url
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")
        self.app = App(url, include=[tasks, steps_in_a_process.tasks])
        otel.trace(self.app, tracer_provider=self.provider, **options)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return sorted((each for each in self.spans if each.name == name), key=lambda each: each.start_time or 0)

    async def work(self) -> None:
        await self.app.make_worker(queues="default,mail", poll=0.05).run(until_idle=True)

    def headers(self) -> list[Any]:
        return [json.loads(row[0]) for row in sql(self.url, "SELECT coalesce(headers, '{}') FROM holdfast.task")]


@pytest_asyncio.fixture
async def traced(holdfast_url: str) -> AsyncIterator[Traced]:
    made = Traced(holdfast_url)
    yield made
    await made.app.close()
    made.app.sync.close()


def about(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def context(span: ReadableSpan) -> Any:
    assert span.context is not None
    return span.context


def parent(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


async def test_a_trace_goes_from_the_caller_through_all_steps(traced: Traced) -> None:
    with traced.tracer.start_as_current_span("request") as request:
        ref = await traced.app.enqueue(ReadName("Ada"))
    await traced.work()
    (sent,) = traced.named("enqueue default")
    first, second = traced.named("process default")
    assert {context(each).trace_id for each in (sent, first, second)} == {request.get_span_context().trace_id}
    assert parent(sent) == request.get_span_context().span_id
    assert parent(first) == parent(second) == context(sent).span_id
    assert (sent.kind, first.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert about(sent) == {
        "messaging.system": "holdfast",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "messaging.destination.name": "default",
        "messaging.message.id": str(ref.id),
        "messaging.message.body.size": len('{"name":"Ada"}'),
        "holdfast.kind": "greeter",
        "holdfast.step": "ReadName",
    }
    assert about(second)["messaging.operation.type"] == "process"
    assert [(about(each)["holdfast.step"], about(each)["holdfast.attempt"]) for each in (first, second)] == [
        ("ReadName", 1),
        ("SayHello", 2),
    ]
    assert [about(each)["holdfast.outcome"] for each in (first, second)] == ["advanced", "done"]
    assert first.status.status_code is StatusCode.UNSET
    assert seen == [context(second).span_id], "the span is current in the thread of the step, too"


async def test_errors_are_recorded_and_other_ends_are_none(traced: Traced) -> None:
    await traced.app.enqueue(fails.bind())
    await traced.work()
    retried, failed = traced.named("process default")
    assert [about(each)["holdfast.outcome"] for each in (retried, failed)] == ["retried", "failed"]
    for each in (retried, failed):
        assert each.status.status_code is StatusCode.ERROR and about(each)["error.type"] == "ValueError"
        (event,) = each.events
        assert event.name == "exception" and dict(event.attributes or {})["exception.message"] == "no such file"
    traced.exporter.clear()
    for how in ("cancel", "snooze"):
        await traced.app.enqueue(leaves.bind(how))
    await traced.work()
    ended = traced.named("process default")
    assert sorted(about(each)["holdfast.outcome"] for each in ended) == ["cancelled", "snoozed"]
    assert {each.status.status_code for each in ended} == {StatusCode.UNSET}


async def test_args_that_do_not_decode_are_an_error_of_the_attempt(traced: Traced) -> None:
    sql(traced.url, 'SELECT holdfast.enqueue(\'send\', \'{"n": "one"}\', \'{"queue": "mail"}\')')
    await traced.work()
    (attempt,) = traced.named("process mail")
    assert attempt.parent is None and about(attempt)["error.type"] == "holdfast.errors.DecodeError"


@pytest.mark.parametrize("kind", [fan_out.bind(2), books.bind()], ids=["at the end", "in its transaction"])
async def test_T18_what_a_step_enqueues_follows_from_it(traced: Traced, kind: Any) -> None:
    await traced.app.enqueue(kind)
    await traced.work()
    (attempt,) = traced.named("process default")
    sent, received = traced.named("enqueue mail"), traced.named("process mail")
    assert sent and {parent(each) for each in sent} == {context(attempt).span_id}
    assert {parent(each) for each in received} == {context(each).span_id for each in sent}
    assert len({context(each).trace_id for each in traced.spans}) == 1


async def test_T16_what_a_step_in_a_process_enqueues_follows_from_it(traced: Traced) -> None:
    await traced.app.enqueue(steps_in_a_process.enqueues.bind(3))
    await traced.work()
    first, second = traced.named("process default")
    assert parent(second) == context(first).span_id


async def test_every_way_to_enqueue_carries_the_context(traced: Traced) -> None:
    app = traced.app
    with traced.tracer.start_as_current_span("request") as request:
        await asyncio.gather(*[app.enqueue(send.bind(n)) for n in range(20)])
        await app.enqueue(send.bind(1), key="one")
        await asyncio.to_thread(app.sync.enqueue, send.bind(2))
        await asyncio.to_thread(app.sync.enqueue_many, [Entry(send.bind(3), key="three"), Entry(send.bind(4))])
        async with await psycopg.AsyncConnection.connect(traced.url) as connection:
            await app.enqueue(send.bind(5), conn=connection)
            await app.enqueue_many([send.bind(6), send.bind(7)], conn=connection)
        with psycopg.connect(traced.url) as blocking:
            app.sync.enqueue(send.bind(8), conn=blocking)
    trace_id = f"{request.get_span_context().trace_id:032x}"
    found = traced.headers()
    assert len(found) == 20 + 8 and {each["traceparent"].split("-")[1] for each in found} == {trace_id}
    parents = {each["traceparent"].split("-")[2] for each in found}
    assert parents == {f"{context(each).span_id:016x}" for each in traced.named("enqueue mail")}
    await traced.work()
    assert len(traced.named("process mail")) == 28


async def test_Q12_a_bulk_enqueue_is_one_span(traced: Traced) -> None:
    await traced.app.enqueue_many([send.bind(n) for n in range(500)])
    different: list[Any] = [send.bind(1), ReadName("Ada")]
    await traced.app.enqueue_many(different)
    (alike,), (mixed,) = traced.named("enqueue mail"), traced.named("enqueue")
    assert about(alike)["messaging.batch.message_count"] == 500
    assert "messaging.destination.name" not in about(mixed)
    assert {each["traceparent"].split("-")[2] for each in traced.headers()} == {
        f"{context(each).span_id:016x}" for each in (alike, mixed)
    }


async def test_headers_of_the_caller_stay(traced: Traced) -> None:
    given = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    await traced.app.enqueue(send.bind(1), headers={"by": "billing"})
    await traced.app.enqueue(send.bind(2), headers={"traceparent": given})
    full = {"by": "x" * (64 * 1024 - 20)}
    await traced.app.enqueue(send.bind(3), headers=full)
    found = sorted(traced.headers(), key=lambda each: len(str(each)))
    assert found[0] == {"traceparent": given}
    assert found[1].keys() == {"by", "traceparent"} and found[1]["by"] == "billing"
    assert found[2] == full, "there was no room"
    await traced.work()
    assert f"{context(traced.named('process mail')[1]).trace_id:032x}" == "a" * 32


async def test_an_enqueue_that_fails_says_so(traced: Traced) -> None:
    sql(traced.url, "DROP SCHEMA holdfast CASCADE")
    with pytest.raises(Exception, match="schema"):
        await traced.app.enqueue(send.bind(1))
    (sent,) = traced.spans
    assert sent.status.status_code is StatusCode.ERROR and about(sent)["error.type"] == "holdfast.errors.SchemaError"
    with pytest.raises(EnqueueRefused):
        await traced.app.enqueue(send.bind(1), delay="nonsense")
    assert len(traced.spans) == 1, "what is refused at the door was never an enqueue"


async def test_attempts_may_be_linked_instead(holdfast_url: str) -> None:
    traced = Traced(holdfast_url, links=True)
    await traced.app.enqueue(send.bind(1))
    await traced.work()
    (sent,), (attempt,) = traced.named("enqueue mail"), traced.named("process mail")
    assert attempt.parent is None and context(attempt).trace_id != context(sent).trace_id
    assert [each.context.span_id for each in attempt.links] == [context(sent).span_id]
    await traced.app.close()


async def test_a_worker_does_not_inherit_the_span_of_who_started_it(traced: Traced) -> None:
    sql(traced.url, "SELECT holdfast.enqueue('send', '{\"n\": 1}', '{\"queue\": \"mail\"}')")
    token = attach(baggage.set_baggage("tenant", "of the caller"))
    try:
        await traced.app.enqueue(send.bind(2))
        with traced.tracer.start_as_current_span("the start of the service") as start:
            await traced.work()
    finally:
        detach(token)
    trace_ids = {context(each).trace_id for each in traced.named("process mail")}
    assert len(trace_ids) == 2 and start.get_span_context().trace_id not in trace_ids
    assert sorted(each[1] or "" for each in seen) == ["", "of the caller"], "baggage travels too"


async def test_without_an_sdk_or_without_being_asked_nothing_is_carried(holdfast_url: str) -> None:
    for asked in (False, True):
        app = App(holdfast_url, include=[tasks])
        if asked:
            otel.trace(app, tracer_provider=trace.NoOpTracerProvider())
        await app.enqueue(send.bind(1))
        await app.enqueue_many([send.bind(2)])
        await app.make_worker(queues="mail").run(until_idle=True)
        await app.close()
    assert sql(holdfast_url, "SELECT count(*), count(headers) FROM holdfast.archive") == [(4, 0)]


async def test_records_carry_the_id_of_the_trace(traced: Traced, caplog: pytest.LogCaptureFixture) -> None:
    caplog.handler.addFilter(_with_task)
    caplog.handler.addFilter(_with_trace)
    await traced.app.enqueue(fails.bind())
    await traced.work()
    trace_id = f"{context(traced.named('process default')[0]).trace_id:032x}"
    told = {each.name: json.loads(JsonFormatter().format(each)) for each in caplog.records}
    assert told["shop"]["trace_id"] == told["holdfast.task"]["trace_id"] == trace_id
    assert "trace_id" not in told["holdfast.worker"] if "holdfast.worker" in told else True


def test_only_who_asks_for_traces_needs_opentelemetry() -> None:
    program = """
import sys
sys.modules["opentelemetry"] = None
from holdfast import App, ConfigError
App()
try:
    import holdfast.otel
except ConfigError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "pip install opentelemetry-api" in done.stdout, done.stderr
