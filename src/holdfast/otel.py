"""OpenTelemetry: a span for each enqueue and for each attempt, in one trace from the caller to the last step.

    from holdfast import otel
    otel.trace(app)

Names and attributes are those of the semantic conventions for messaging. The context travels in the task's headers
(`traceparent`), so it crosses processes, restarts and days. Needs `opentelemetry-api`, which the extra `otel` brings.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._engine.settle.ending import plain, word
from holdfast._model.enqueue.request import Request, with_headers
from holdfast._model.json.error_json import type_name
from holdfast._model.run.outcome import Failed, Retried
from holdfast.errors import ConfigError

try:
    from opentelemetry import trace as api
    from opentelemetry.context import Context, attach, detach
    from opentelemetry.propagate import extract, inject
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer, TracerProvider
except ImportError as error:
    raise ConfigError("holdfast.otel needs OpenTelemetry. Install it: pip install opentelemetry-api") from error

if TYPE_CHECKING:
    from holdfast._engine.run.attempt import Attempt
    from holdfast.app import App

SYSTEM = "holdfast"


def trace(app: "App", *, tracer_provider: TracerProvider | None = None, links: bool = False) -> None:
    """Makes spans for what an App enqueues and executes from now on: call it before a worker starts.

    Spans of attempts are children of the span of the enqueue. With `links=True` each attempt begins a trace of its own
    that is linked to the enqueue: for tasks that wait for days, or that are enqueued by the thousand.
    """
    from holdfast.app import package_version

    app._tracing = Tracing(api.get_tracer(SYSTEM, package_version(), tracer_provider), links=links)


class Tracing:
    """What `trace` gives an App."""

    def __init__(self, tracer: Tracer, *, links: bool) -> None:
        self._tracer = tracer
        self._links = links

    @contextmanager
    def enqueuing(self, requests: Sequence[Request]) -> Iterator[Sequence[Request]]:
        """One span, however many tasks: all of them carry its context, those that bring one of their own excepted."""
        queues = {request.queue for request in requests}
        queue = queues.pop() if len(queues) == 1 else None
        attributes = _messaging("enqueue", "send", queue)
        if len(requests) == 1:
            attributes |= _of_request(requests[0])
        else:
            attributes["messaging.batch.message_count"] = len(requests)
        name = f"enqueue {queue}" if queue else "enqueue"
        with self._tracer.start_as_current_span(name, kind=SpanKind.PRODUCER, attributes=attributes) as span:
            try:
                yield _carrying(requests)
            except Exception as error:
                span.set_attribute("error.type", type_name(error))
                raise  # recorded by the span itself

    @contextmanager
    def attempting(self, attempt: "Attempt") -> Iterator[Callable[[Any], None]]:
        """A span for an attempt, current while the step runs: spans of the step's code are its children."""
        # Not from the context of here: the worker's is that of whoever started it.
        carried = extract(attempt.strings(), context=Context())
        origin = api.get_current_span(carried).get_span_context()
        linked = self._links and origin.is_valid
        token = attach(Context() if linked else carried)
        try:
            with self._tracer.start_as_current_span(
                f"process {attempt.queue}",
                kind=SpanKind.CONSUMER,
                links=[Link(origin)] if linked else [],
                attributes=_of_attempt(attempt),
            ) as span:
                context = span.get_span_context()
                if context.is_valid:
                    attempt.trace_id = f"{context.trace_id:032x}"
                yield partial(self._ended, span, attempt)
        finally:
            detach(token)

    def _ended(self, span: Span, attempt: "Attempt", outcome: Any) -> None:
        if attempt.definition.executor == "process" and attempt.children:
            # Made in another process, where this span is not known.
            attempt.children = _carrying(attempt.children)
        if not span.is_recording():
            return
        ended = plain(outcome)
        span.set_attribute("holdfast.outcome", word(ended))
        if ended is None or isinstance(ended, (Retried, Failed)):
            error = _error_of(ended)
            span.set_attribute("error.type", error["exception.type"])
            span.set_status(Status(StatusCode.ERROR, f"{error['exception.type']}: {error['exception.message']}"))
            span.add_event("exception", error)


def _messaging(operation: str, type: str, queue: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": type,
    }
    return found | ({"messaging.destination.name": queue} if queue else {})


def _of_request(request: Request) -> dict[str, Any]:
    found: dict[str, Any] = {
        "messaging.message.body.size": len(request.args),
        "holdfast.kind": request.kind,
        "holdfast.step": request.step,
    }
    # With a key it may turn out to be another task, which is there already.
    return found if request.key or request.unique else found | {"messaging.message.id": str(request.id)}


def _of_attempt(attempt: "Attempt") -> dict[str, Any]:
    return _messaging("process", "process", attempt.queue) | {
        "messaging.message.id": str(attempt.id),
        "messaging.message.body.size": len(attempt.args),
        "messaging.client.id": str(attempt.worker_id),
        "holdfast.kind": attempt.kind,
        "holdfast.step": attempt.step,
        "holdfast.attempt": attempt.number,
        "holdfast.errors": attempt.errors,
    }


def _carrying(requests: Sequence[Request]) -> list[Request]:
    """The requests with the current context in their headers."""
    carrier: dict[str, str] = {}
    inject(carrier)
    return with_headers(requests, carrier) if carrier else list(requests)


def _error_of(ended: Retried | Failed | None) -> dict[str, str]:
    """An error as it is stored, in the words of OpenTelemetry."""
    stored: dict[str, Any] = {"type": "LeaseLost", "message": "the lease is lost: the task is somebody else's now"}
    if ended is not None:
        stored = msgspec.json.decode(ended.error, type=dict[str, Any])
    return {
        "exception.type": str(stored.get("type") or "Error"),
        "exception.message": str(stored.get("message") or ""),
        "exception.stacktrace": str(stored.get("traceback") or ""),
    }
