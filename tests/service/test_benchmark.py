"""`cbwk bench`: its load generator, its ratios and its table."""

from __future__ import annotations

import json
from itertools import islice

import pytest

from service.benchmark.bench import Bench, Extent
from service.benchmark.figures import Figure, Report
from service.benchmark.load import Load, closed_loop, open_loop
from service.benchmark.measured_service import MeasuredService
from service.benchmark.peers import Peers, sides
from service.benchmark.postgres import Postgres
from service.benchmark.processes import Cores, baseline, served
from service.benchmark.replicas import ReplicaBench, ReplicaExtent
from service.benchmark.scalability import table_of
from service.benchmark.workload import Requests

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def empty_handler():
    with baseline(Cores()) as server:
        yield server


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    url = f"sqlite:///{tmp_path_factory.mktemp('bench')}/cbwk.db"
    with served(Cores(), url, request_deadline_ms=20_000) as server:
        yield MeasuredService([server], campaigns=2)


def test_a_closed_loop_sends_every_request_once_and_times_every_answer(empty_handler):
    responses = []
    calls = islice(Requests("key").decides(["c"]), 200)
    load = closed_loop(
        [empty_handler.port],
        calls,
        connections=8,
        seconds=30,
        on_response=lambda tag, body: responses.append((tag, body)),
    ).check()
    assert load.statuses == {200: 200}
    assert len(load.latencies) == len({tag for tag, _ in responses}) == 200
    assert {json.loads(body)["arm"] for _, body in responses} == {"arm-3"}
    assert 0 < load.percentile(50) <= load.percentile(99) <= load.seconds
    assert 0 < load.busy <= 1


def test_an_open_loop_keeps_its_rate_and_counts_from_when_a_request_was_due(empty_handler):
    load = open_loop([empty_handler.port], Requests("key").decides(["c"]), connections=16, seconds=1.0, rate=50).check()
    assert load.statuses == {200: 50}
    assert load.late == 0
    assert load.seconds >= 0.98  # the last is due then, whatever the answers take


def test_a_load_with_any_status_but_200_is_an_error():
    load = Load(seconds=1.0)
    load.statuses.update([200, 503])
    with pytest.raises(RuntimeError, match="503"):
        load.check()


def test_the_measured_service_decides_for_arms_and_books_outcomes(service):
    decided = service.decide(0.5, connections=4)
    assert len(service.open) > 0.8 * decided.statuses[200] > 0
    campaigns = {campaign_id for campaign_id, _ in service.open}
    assert campaigns == set(service.names)
    settled = service.feedback(60)
    assert settled.statuses[200] > 0
    assert service.open == []
    service.batches(0.3)
    service.settle()
    service.check()
    with service.server.client() as client:
        accounts = client.get("/admin/budgets").json()["items"]
    resources = [resource for account in accounts for resource in account["resources"]]
    assert [resource["held"] for resource in resources] == [0] * len(resources)
    assert min(resource["spent"] for resource in resources) > 0


def test_a_ratio_is_the_median_of_the_ratios_of_the_rounds():
    report = Report()
    for ours, theirs in ((10.0, 10.0), (40.0, 20.0), (90.0, 30.0)):
        report.note("ours", ours)
        report.note("theirs", theirs)
    assert report.ratio("ours", "theirs") == 2.0


@pytest.mark.parametrize(
    ("value", "target", "holds"), [(1.2, {"least": 1.2}, True), (2.6, {"most": 2.5}, False), (1, {}, None)]
)
def test_a_figure_knows_whether_it_meets_its_target(value, target, holds):
    assert Figure("a figure", value, **target).holds is holds


def test_a_quick_run_against_the_baseline_fills_the_table():
    report = Report()
    announcements = []
    Bench(Extent.quick(), report, Cores(), None, announcements.append).compare_with_baseline()
    names = [figure.name for figure in report.figures]
    assert "/decide, SQLite ÷ baseline" in names
    assert "p99.9 at half load, open loop" in names
    assert all(figure.value > 0 for figure in report.figures)
    assert announcements == ["against the baseline, round 1 of 1"]
    document = json.loads(json.dumps(report.document({"cores": 2})))
    assert [figure["name"] for figure in document["figures"]] == names
    assert report.table().row_count == len(names)


def test_a_quick_run_of_replicas_fills_the_table_and_finds_the_accounts_right(postgresql_server):
    report, steps, extent = Report(), [], ReplicaExtent.quick()
    laws = ReplicaBench(extent, report, Postgres(postgresql_server.url("postgres")), steps.append).run()
    assert len(steps) == extent.steps
    names = [figure.name for figure in report.figures]
    assert "3 replicas, 100 campaigns, affinity, window 1 ÷ 1 replica" in names
    assert "3 replicas, one campaign, window 1, closed loop" in names
    assert all(figure.value > 0 for figure in report.figures)
    assert [sorted(law.points) for law in laws] == [[1, 2, 3, 4]] * 4
    assert table_of(laws).row_count == 4


def test_a_campaign_of_a_thousand_arms_can_be_measured(tmp_path):
    with served(Cores(), f"sqlite:///{tmp_path}/cbwk.db", request_deadline_ms=20_000) as server:
        assert MeasuredService([server], arms=1_000).decide(0.2, connections=2).statuses[200]


def test_an_unexpected_answer_ends_a_measurement(service):
    calls = Requests("no such key").decides(service.names)
    with pytest.raises(RuntimeError, match="401"):
        service._closed(islice(calls, 3), 30, 1, service._add_all)


@pytest.mark.skipif(len(sides()) == 1, reason="redis-server is not installed")
def test_beside_a_peer_in_memory_the_service_keeps_its_budget_and_its_model_over_a_kill():
    report = Report()
    Peers(Extent.quick(), report, Cores(), lambda _: None).run()
    found = {figure.name: figure.value for figure in report.figures}
    held, left = "held before and after kill -9 ÷ budget", "learnt outcomes left after kill -9"
    overspent, lost = "overspent with 64 clients ÷ budget", "acknowledged holds lost at kill -9"
    ours, durable, in_memory = (side.name for side in sides())
    for name, share in ((ours, 0), (durable, 0), (in_memory, 1)):
        assert found[f"{name}: {overspent}"] == 0
        assert found[f"{name}: {lost}"] == share
        assert found[f"{name}: p99 of /decide"] > 0
    assert 0 < found[f"{ours}: {held}"] <= 1
    assert found[f"{ours}: {left}"] == 1
    assert found[f"{durable}: {held}"] == 1
    assert found[f"{durable}: {left}"] == 0
    assert found[f"{in_memory}: {held}"] > 1
    assert found[f"{in_memory}: {left}"] == 0
