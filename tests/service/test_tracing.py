"""Traces of a real server, sent to a collector of this test by OTLP."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections import defaultdict

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.service.http_calls import calls, campaign, connected, decide_body
from tests.service.http_client import ADMIN_KEY
from tests.service.listener import listener
from tests.service.server_process import free_port, running_server

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SECONDS_MAX = 60


class Collector:
    """What a collector has received."""

    def __init__(self, received):
        self._received = received

    @property
    def _groups(self):
        assert {path for path, *_ in self._received} <= {"/v1/traces"}
        sent = [ExportTraceServiceRequest.FromString(body) for *_, body in list(self._received)]
        return [group for one in sent for group in one.resource_spans]

    @property
    def spans(self):
        return [span for group in self._groups for scope in group.scope_spans for span in scope.spans]

    @property
    def resources(self):
        return [{one.key: one.value.string_value for one in group.resource.attributes} for group in self._groups]

    def named(self, name, count=1):
        """Returns the spans of this name, once there are as many."""
        deadline = time.monotonic() + SECONDS_MAX
        while len(found := [span for span in self.spans if span.name == name]) < count:
            assert time.monotonic() < deadline, (name, [span.name for span in self.spans])
            time.sleep(0.05)
        return found


@pytest.fixture
def collector(monkeypatch):
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    monkeypatch.setenv("NO_PROXY", "localhost")
    with listener() as (url, received):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        yield Collector(received)


def traced(sampled="01", **more):
    return {"traceparent": f"00-{TRACE}-{CALLER}-{sampled}", **more}


def attributes_of(span):
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


def test_a_decision_its_transaction_and_an_administrators_request_are_in_the_callers_trace(collector, monkeypatch):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "ads")
    with running_server(traces="true") as server, calls(server) as client:
        assert client.post("/campaigns", json=campaign()).status_code == 201
        body = decide_body("d1") | {"campaign_id": "c"}
        answer = client.post("/decide", json=body, headers=traced(**{"X-Request-Id": "find-me"}))
        assert answer.status_code == 200
        report = {"campaign_id": "c", "decision_id": "d1", "reward": 1, "costs": {"usd": 0.5}}
        assert client.post("/feedback", json=report, headers=traced()).status_code == 200
        assert client.post("/feedback", json=report | {"reward": 0}, headers=traced()).status_code == 409
        assert client.get("/campaigns/c", headers=traced(**{"X-Request-Id": "long-way"})).status_code == 200
        assert client.get("/livez").status_code == client.get("/metrics").status_code == 200
        (decide,) = collector.named("POST /decide")
        told, refused = collector.named("POST /feedback", 2)
        (shown,) = collector.named("GET /campaigns/{campaign_id}")
        created, *_ = collector.named("POST /campaigns")
        transactions = {span.parent_span_id: span for span in collector.named("transaction", 4)}
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(SECONDS_MAX) == 0
    for span in (decide, told, refused, shown):
        assert (span.trace_id.hex(), span.parent_span_id.hex(), span.kind) == (TRACE, CALLER, Span.SPAN_KIND_SERVER)
    found = attributes_of(decide)
    assert (found["http.route"], found["http.response.status_code"], found["cbwk.request_id"]) == (
        "/decide", 200, "find-me",
    )  # fmt: skip
    assert [attributes_of(span)["http.response.status_code"] for span in (told, refused)] == [200, 409]
    assert attributes_of(shown)["cbwk.request_id"] == "long-way"
    assert transactions.keys() == {span.span_id for span in (created, decide, told, refused)}
    made = transactions[decide.span_id]
    assert made.trace_id == decide.trace_id
    assert decide.start_time_unix_nano <= made.start_time_unix_nano <= made.end_time_unix_nano
    assert made.end_time_unix_nano <= decide.end_time_unix_nano
    assert attributes_of(made)["cbwk.commands"] == 1
    assert [one.string_value for one in attributes_of(made)["cbwk.campaigns"].values] == ["c"]
    assert {resource["service.name"] for resource in collector.resources} == {"ads"}
    assert not {span.name for span in collector.spans} & {"GET /livez", "GET /metrics"}
    assert ADMIN_KEY.encode() not in b"".join(span.SerializeToString() for span in collector.spans)


async def asked(server, decisions, connections=50):
    """Returns the replies to requests for these decisions, as many at once as there are connections."""

    async def ask(connection, names):
        return [await connection.post("/decide", decide_body(name)) for name in names]

    async with connected(server, connections) as opened:
        parts = [decisions[number::connections] for number in range(connections)]
        return [reply for replies in await asyncio.gather(*map(ask, opened, parts)) for reply in replies]


def test_a_transaction_is_linked_with_every_request_that_it_answers(collector):
    with running_server(traces="true") as server, calls(server) as client:
        assert client.post("/campaigns", json=campaign()).status_code == 201
        assert {reply.status for reply in asyncio.run(asked(server, [f"d{number}" for number in range(200)]))} == {200}
        spans = {span.span_id for span in collector.named("POST /decide", 200)}
        answered = defaultdict(int)
        deadline = time.monotonic() + SECONDS_MAX
        while sum(answered.values()) < 200:
            assert time.monotonic() < deadline
            answered.clear()
            for span in collector.spans:
                if span.name == "transaction":
                    for one in [span.parent_span_id, *(link.span_id for link in span.links)]:
                        answered[one] += one in spans
            time.sleep(0.05)
    assert {span: count for span, count in answered.items() if span in spans} == dict.fromkeys(spans, 1)
    assert any(len(span.links) > 1 for span in collector.spans)


def test_a_caller_that_does_not_record_its_trace_causes_no_spans(collector):
    with running_server(traces="true") as server, calls(server) as client:
        assert client.post("/campaigns", json=campaign(), headers=traced("00")).status_code == 201
        assert client.post("/decide", json=decide_body("quiet"), headers=traced("00")).status_code == 200
        assert client.post("/decide", json=decide_body("loud"), headers=traced()).status_code == 200
        collector.named("transaction")
    assert sorted(span.name for span in collector.spans) == ["POST /decide", "transaction"]


def test_a_refused_body_and_an_unknown_key_have_spans_with_their_status(collector):
    with running_server(traces="true") as server, calls(server) as client:
        assert client.post("/decide", content=b"{", headers=traced()).status_code == 400
        key = {"Authorization": "Bearer cbwk_nobody"}
        assert client.post("/decide", json=decide_body("x"), headers=traced() | key).status_code == 401
        spans = collector.named("POST /decide", 2)
    assert sorted(attributes_of(span)["http.response.status_code"] for span in spans) == [400, 401]
    assert {span.status.code for span in spans} == {Status.STATUS_CODE_UNSET}


def test_a_collector_that_is_away_delays_neither_answers_nor_the_stop(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    with running_server(traces="true") as server, calls(server) as client:
        assert client.post("/campaigns", json=campaign()).status_code == 201
        assert client.post("/decide", json=decide_body("d")).status_code == 200
        started = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(SECONDS_MAX) == 0
        assert time.monotonic() - started < 8  # the exporter alone would try for ten seconds


def test_without_the_setting_nothing_of_traces_is_loaded():
    """The SDK takes memory and time at the start; the hot path has its own classes, not the traced ones."""
    code = """
import sys
from service.app import PLAIN, create_app
from service.engine import Engine
from service.engine.commands import Item
from service.hot.exchange import Exchange, HotPath
app = create_app()
assert type(app.hot_path) is HotPath and app.hot_path.exchange is Exchange
assert PLAIN.engine is Engine and Engine.item is Item
assert not app._native_telemetry.enabled()
print([name for name in sys.modules if name == "service.tracing" or name.startswith("opentelemetry.sdk")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_metrics_count_traced_requests_too(collector):
    with running_server(traces="true") as server, calls(server) as client:
        assert client.post("/campaigns", json=campaign()).status_code == 201
        assert client.post("/decide", json=decide_body("d")).status_code == 200
        shown = httpx.get(f"{server.url}/metrics", headers=client.headers, trust_env=False).text
    assert 'cbwk_requests_total{method="POST",route="/decide",status="200"} 1.0' in shown
