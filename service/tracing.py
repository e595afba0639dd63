"""Traces for OpenTelemetry: a span for each request, and one for each transaction that answers requests.

Nothing imports this module unless `CBWK_TRACES` is on: its classes stand in for those without spans. FastAPI makes the
spans of what takes the long way. The usual variables `OTEL_…` say where spans go and how many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from threading import Thread
from typing import Any

from opentelemetry import propagate, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, SpanKind, StatusCode
from starlette.types import ASGIApp, Receive, Scope, Send

from service.app import Instrumentation
from service.engine import Engine
from service.engine.batch import BatchRunner
from service.engine.commands import Command, Item
from service.hot.exchange import Exchange, Head, Headers, HotPath
from service.logs import request_id
from service.problems import Unavailable

REQUEST_ID = "cbwk.request_id"
# Campaigns that the span of a transaction names.
CAMPAIGNS_MAX = 5
# For the last spans when the process stops; a collector that is away does not keep it.
STOP_SECONDS = 3.0

_tracer = trace.get_tracer("cbwk", version("cbwk"))


def start() -> Instrumentation:
    """Begin to send spans to the collector of `OTEL_EXPORTER_OTLP_ENDPOINT`; returns the parts that make them."""
    own = Resource({SERVICE_NAME: "cbwk", SERVICE_VERSION: version("cbwk")})
    # At exit the provider would wait for its collector without a bound.
    provider = TracerProvider(resource=own.merge(OTELResourceDetector().detect()), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)

    def stop() -> None:
        last = Thread(target=provider.shutdown, name="cbwk-last-spans", daemon=True)
        last.start()
        last.join(STOP_SECONDS)

    return Instrumentation(TracedEngine, TracedHotPath, (IdentifiedSpans,), stop)


class IdentifiedSpans:
    """Adds the request's id to the span that FastAPI has made."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        trace.get_current_span().set_attribute(REQUEST_ID, request_id.get() or "")
        await self._app(scope, receive, send)


class TracedExchange(Exchange):
    """An exchange that ends its span with its answer."""

    __slots__ = ("_span",)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._span = trace.get_current_span()

    def _send(self, status: int, body: bytes, lines: bytes) -> None:
        super()._send(status, body, lines)
        self._span.set_attribute("http.response.status_code", status)
        if status >= 500:
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


class TracedHotPath(HotPath):
    """The short way, with a span for each request."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.exchange = TracedExchange

    def whole(self, data: bytes) -> None:
        """No request is read by its bytes alone: the parser finds its trace."""

    def head(self, method: bytes, target: bytes, headers: Headers) -> Head | None:
        """What the headers say, with the trace of the caller."""
        head = super().head(method, target, headers)
        if head is None:
            return None
        texts = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
        return head._replace(trace=propagate.extract(texts))

    def start(self, connection: Any, head: Head, body: bytes) -> Exchange | None:
        """Begin to answer. The span of a request that takes the long way after all does not end: FastAPI makes it."""
        path = head.route.path
        attributes = {"http.request.method": "POST", "http.route": path, "url.path": path, "url.scheme": "http"}
        span = _tracer.start_span(
            f"POST {path}", head.trace, SpanKind.SERVER, attributes | {REQUEST_ID: head.request_id}
        )
        with trace.use_span(span):
            return super().start(connection, head, body)


class TracedItem(Item):
    """A command that knows the span of its request."""

    __slots__ = ("span",)

    def __init__(self, command: Command, deadline: float, together: int = 0) -> None:
        super().__init__(command, deadline, together)
        self.span = trace.get_current_span().get_span_context()


class TracedBatches(BatchRunner):
    """Makes a span for each transaction: a child of the first request whose trace is recorded, linked with the others.

    A transaction that no such request waits for has none.
    """

    def _attempt(self, items: Sequence[Item]) -> list[Sequence[Item]]:
        spans = {item.span.span_id: item.span for item in items if isinstance(item, TracedItem)}
        asked = [span for span in spans.values() if span.trace_flags.sampled]
        if not asked:
            return super()._attempt(items)
        campaigns = sorted({name for item in items if (name := getattr(item.command, "campaign_id", None))})
        with _tracer.start_as_current_span(
            "transaction",
            trace.set_span_in_context(trace.NonRecordingSpan(asked[0])),
            links=[Link(span) for span in asked[1:]],
            attributes={"cbwk.commands": len(items), "cbwk.campaigns": campaigns[:CAMPAIGNS_MAX]},
        ) as span:
            again = super()._attempt(items)
            if again or any(isinstance(item.answer, Unavailable) for item in items):
                span.set_status(StatusCode.ERROR)
        return again


class TracedEngine(Engine):
    """An engine that makes spans for its transactions."""

    item, batches = TracedItem, TracedBatches
