"""What an operator sees of a server that runs: its log lines and its metrics."""

from __future__ import annotations

import json
import re
import time

import pytest

from service.gauges import DatabaseGauges
from service.metrics import Metrics
from tests.service.http_calls import calls, campaign, create, decide_body
from tests.service.http_client import ADMIN_KEY, served
from tests.service.server_process import running_server


def stopped(server):
    """Stop a server; return the lines of its log."""
    server.process.terminate()
    _, errors = server.process.communicate(timeout=60)
    assert ADMIN_KEY not in errors
    return [json.loads(line) for line in errors.splitlines() if line.startswith("{")]


def samples(text, name):
    """The samples of a metric by their labels, in the order of the names of these."""
    found = re.findall(rf"^{name}{{(.*)}} (\S+)$", text, re.MULTILINE)
    return {tuple(re.findall(r'"([^"]*)"', labels)): float(value) for labels, value in found}


@pytest.fixture(scope="module")
def log():
    """The log of a server that was asked for a bit of everything, and what it was asked."""
    with running_server(log_level="info", access_log="true", slow_transaction_ms=1) as server, calls(server) as client:
        create(client, campaign(feedback={"ttl_seconds": 1}))
        named = {"X-Request-Id": "look-for-me"}
        decided = client.post("/decide", json=decide_body("d"), headers=named)
        client.post("/campaigns/c/pause", headers={"X-Request-Id": "pausing"})
        client.post("/campaigns/none/pause", headers={"X-Request-Id": "mistaken"})
        wrong = {"Authorization": "Bearer cbwk_" + "x" * 43}
        for _ in range(3):
            client.get("/campaigns", headers=wrong | {"X-Request-Id": "guessing"})
            client.post("/decide", json=decide_body("e"), headers=wrong | {"X-Request-Id": "guessing"})
        evaluation = client.post("/admin/campaigns/c/evaluations", json={"candidates": [{"type": "uniform"}]})
        where = f"/admin/campaigns/c/evaluations/{evaluation.json()['id']}"
        deadline = time.monotonic() + 60
        while client.get(where).json()["status"] in ("queued", "running") and time.monotonic() < deadline:
            time.sleep(0.2)
        while client.get("/admin/campaigns/c/feedback").json()["open_holds"]["count"] and time.monotonic() < deadline:
            time.sleep(0.2)
        time.sleep(0.5)
        return stopped(server), decided, evaluation.json()["id"]


def lines_of(log, event):
    return [line for line in log[0] if line["event"] == event]


def test_start_and_stop_are_lines_with_version_and_settings_but_no_secret(log):
    (line,) = lines_of(log, "the service has started")
    assert line["version"]
    assert line["database"].startswith("sqlite:///")
    assert line["settings"]["slow_transaction_ms"] == 1
    assert not {"admin_key", "database_url"} & line["settings"].keys()
    stop = [line["event"] for line in log[0] if line["event"].startswith("the service ")]
    assert stop == ["the service has started", "the service stops", "the service has stopped"]


def test_a_request_id_finds_its_lines(log):
    by_id = {name: [line for line in log[0] if line.get("request_id") == name] for name in ("pausing", "mistaken")}
    (changed, request) = sorted(by_id["pausing"], key=lambda line: line["event"])
    assert (changed["event"], changed["command"]) == ("changed", "SetStatus")
    assert (changed["campaign"], changed["actor"]) == ("c", "environment")
    assert (request["event"], request["route"], request["status"]) == ("request", "/campaigns/{campaign_id}/pause", 200)
    (refused, request) = sorted(by_id["mistaken"], key=lambda line: line["event"])
    assert (refused["event"], refused["problem"]) == ("a change was refused", "campaign-not-found")
    assert request["status"] == 404


def test_hot_requests_are_in_the_access_log(log):
    (line,) = [line for line in log[0] if line.get("request_id") == "look-for-me"]
    assert log[1].headers["x-request-id"] == "look-for-me"
    assert (line["route"], line["method"], line["status"]) == ("/decide", "POST", 200)
    assert 0 < line["seconds"] < 60
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["at"])


def test_refused_keys_are_one_line_in_ten_seconds(log):
    (line,) = lines_of(log, "a key was refused")
    assert line["request_id"] == "guessing"
    assert len([line for line in lines_of(log, "request") if line["status"] == 401]) == 6


def test_slow_transactions_expiry_and_evaluations_are_lines(log):
    slow = lines_of(log, "slow transaction")
    assert any(line["campaigns"] == ["c"] and line["seconds"] > 0.001 for line in slow)
    assert [line["count"] for line in lines_of(log, "holds have expired")] == [1]
    events = [line["event"] for line in log[0] if line.get("evaluation") == log[2]]
    assert events == ["an evaluation was queued", "an evaluation starts", "an evaluation ended"]


def test_a_variable_that_is_no_setting_is_said_at_the_start():
    with running_server(log_levle="debug") as server:
        server.process.terminate()
        _, errors = server.process.communicate(timeout=60)
    assert "cbwk: CBWK_LOG_LEVLE is no setting; did you mean CBWK_LOG_LEVEL?\n" in errors


def test_a_log_that_nobody_reads_stops_no_request():
    """A pipe takes 64 KiB; the lines of 450 requests are 90 KB."""
    with running_server(log_level="info", access_log="true") as server, calls(server) as client:
        create(client, campaign())
        for i in range(450):
            assert client.post("/decide", json=decide_body(f"d{i}")).status_code == 200
        assert server.process.stderr.readline().startswith("cbwk serves on")


def test_decisions_are_counted_by_campaign_and_reason_in_batches_too(database):
    with served(database) as call:
        for name, more in (("c", {}), ("short", {"budget": 1})):
            assert call("POST", "/campaigns", json=campaign(name, **more)).status_code == 201
        for i in range(3):
            call("POST", "/decide", json=decide_body(f"d{i}"))
        call("POST", "/decide", json=decide_body("d0"))  # a repeat
        items = [{"context": [0.1, 0.2]} for _ in range(200)] + [{"context": [0, 0], "exclude": ["a", "b"]}]
        batch = call("POST", "/decide/batch", json={"campaign_id": "c", "items": items}).json()["decisions"]
        few = call("POST", "/decide/batch", json={"campaign_id": "short", "items": items[:5]}).json()["decisions"]
        call("POST", "/campaigns/c/pause")
        call("POST", "/decide/batch", json={"campaign_id": "c", "items": items[:7]})
        text = call("GET", "/metrics").text
    found = samples(text, "cbwk_decisions_total")
    reasons = [made["reason"] for made in batch]
    assert found[("c", "policy")] == 3 + reasons.count("policy") == 203
    assert found[("c", "all_excluded")] == 1
    assert found[("c", "paused")] == 7
    exhausted = [made["reason"] for made in few].count("budget_exhausted")
    assert exhausted >= 4
    assert found[("short", "budget_exhausted")] == exhausted
    ((python, rules, version),) = samples(text, "cbwk_build_info")
    assert (version.count("."), python.count("."), rules.isdigit()) == (2, 2, True)


def test_campaigns_beyond_the_limit_share_one_label(database):
    windows = [{"period": "day", "limit": 40}]
    resources = [{"id": "usd", "budget": 100, "max_cost": 1, "windows": windows}]
    with served(database) as call:
        for i in range(4):
            call("POST", "/campaigns", json=campaign(f"c{i}", resources=resources))
            call("POST", "/decide", json=decide_body("d", f"c{i}"))
    metrics = Metrics(campaigns_max=2)
    metrics.registry.register(DatabaseGauges(lambda: database, metrics.campaigns_max))
    for i in (3, 1, 0, 2, 1):
        metrics.count_decisions(f"c{i}", "policy", 10)
    text = metrics.text().decode()
    assert samples(text, "cbwk_decisions_total") == {
        ("c3", "policy"): 10,
        ("c1", "policy"): 20,
        ("other", "policy"): 20,
    }
    granted = {("c0", "usd"): 100, ("c1", "usd"): 100, ("other", "usd"): 200}
    assert samples(text, "cbwk_budget_granted_units") == granted
    limits = {("c0", "day", "usd"): 40, ("c1", "day", "usd"): 40, ("other", "day", "usd"): 80}
    assert samples(text, "cbwk_window_limit_units") == limits
    assert samples(text, "cbwk_window_held_units") == {labels: limit / 40 for labels, limit in limits.items()}
    assert samples(text, "cbwk_open_holds") == {("c0",): 1, ("c1",): 1, ("other",): 2}
    assert {campaign for campaign, _ in samples(text, "cbwk_price")} == {"c0", "c1"}


def test_portfolios_have_gauges_of_their_accounts_and_windows(database):
    shared = [{"id": "usd", "budget": 100, "windows": [{"period": "day", "limit": 40}]}]
    with served(database) as call:
        for i in range(3):
            assert call("POST", "/portfolios", json={"id": f"p{i}", "resources": shared}).status_code == 201
        for name in ("c", "d"):
            assert call("POST", "/campaigns", json=campaign(name, portfolio="p1")).status_code == 201
            call("POST", "/decide", json=decide_body("d1", name))
        call("POST", "/feedback", json={"campaign_id": "c", "decision_id": "d1", "reward": 1, "costs": {"usd": 0.25}})
    metrics = Metrics(campaigns_max=2)
    metrics.registry.register(DatabaseGauges(lambda: database, metrics.campaigns_max))
    text = metrics.text().decode()
    owners = ("p0", "p1", "other")

    def expected(*values, labels=("usd",)):
        return {tuple(sorted((owner, *labels))): value for owner, value in zip(owners, values, strict=True)}

    accounts = {"granted": (100, 100, 100), "held": (0, 1, 0), "spent": (0, 0.25, 0), "overrun": (0, 0, 0)}
    for part, values in accounts.items():
        found = samples(text, f"cbwk_portfolio_{part}_units")
        assert {tuple(sorted(key)): value for key, value in found.items()} == expected(*values)
    for part, values in (("limit", (40, 40, 40)), ("held", (0, 1, 0)), ("spent", (0, 0.25, 0))):
        found = samples(text, f"cbwk_portfolio_window_{part}_units")
        assert {tuple(sorted(key)): value for key, value in found.items()} == expected(*values, labels=("day", "usd"))
