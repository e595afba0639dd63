"""`cbwk bench` measures what it says: the load it makes, the ratios it takes, the table it prints."""

from __future__ import annotations

import json
from itertools import islice

import pytest

from service.benchmark.bench import Bench, Extent
from service.benchmark.figures import Figure, Report
from service.benchmark.load import Load, closed_loop, open_loop
from service.benchmark.processes import Cores, baseline, served
from service.benchmark.subject import Subject
from service.benchmark.work import Requests

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def empty_handler():
    with baseline(Cores()) as server:
        yield server


@pytest.fixture(scope="module")
def subject(tmp_path_factory):
    url = f"sqlite:///{tmp_path_factory.mktemp('bench')}/cbwk.db"
    with served(Cores(), url, request_deadline_ms=20_000) as server:
        yield Subject([server], campaigns=2)


def test_a_closed_loop_sends_every_request_once_and_times_every_answer(empty_handler):
    told = []
    calls = islice(Requests("key").decides(["c"]), 200)
    load = closed_loop(
        [empty_handler.port], calls, connections=8, seconds=30, answered=lambda tag, body: told.append((tag, body))
    ).check()
    assert load.statuses == {200: 200}
    assert len(load.latencies) == len({tag for tag, _ in told}) == 200
    assert {json.loads(body)["arm"] for _, body in told} == {"arm-3"}
    assert 0 < load.percentile(50) <= load.percentile(99) <= load.seconds
    assert 0 < load.busy <= 1


def test_an_open_loop_keeps_its_rate_and_counts_from_when_a_request_was_due(empty_handler):
    load = open_loop([empty_handler.port], Requests("key").decides(["c"]), connections=16, seconds=1.0, rate=50).check()
    assert load.statuses == {200: 50}
    assert load.late == 0
    assert load.seconds >= 0.98  # the last is due then, whatever the answers take


def test_a_load_with_anything_but_200_is_no_measurement():
    load = Load(seconds=1.0)
    load.statuses.update([200, 503])
    with pytest.raises(RuntimeError, match="503"):
        load.check()


def test_what_is_measured_is_real_decisions_for_arms_with_real_outcomes(subject):
    decided = subject.decide(0.5, connections=4)
    assert len(subject.open) > 0.8 * decided.statuses[200] > 0
    campaigns = {campaign_id for campaign_id, _ in subject.open}
    assert campaigns == set(subject.names)
    told = subject.feedback(60)
    assert told.statuses[200] > 0
    assert subject.open == []
    subject.batches(0.3)
    subject.settle()
    subject.check()
    with subject.server.client() as client:
        accounts = client.get("/admin/budgets").json()["items"]
    resources = [resource for one in accounts for resource in one["resources"]]
    assert [resource["held"] for resource in resources] == [0] * len(resources)
    assert min(resource["spent"] for resource in resources) > 0


def test_a_ratio_is_the_median_of_the_ratios_of_the_rounds():
    report = Report()
    for ours, theirs in ((10.0, 10.0), (40.0, 20.0), (90.0, 30.0)):
        report.note("ours", ours)
        report.note("theirs", theirs)
    assert report.ratio("ours", "theirs") == 2.0


@pytest.mark.parametrize(
    ("value", "bar", "holds"), [(1.2, {"least": 1.2}, True), (2.6, {"most": 2.5}, False), (1, {}, None)]
)
def test_a_figure_says_whether_it_is_where_it_must_be(value, bar, holds):
    assert Figure("a figure", value, **bar).holds is holds


def test_a_quick_run_against_the_baseline_fills_the_table():
    report = Report()
    said = []
    Bench(Extent.quick(), report, Cores(), None, said.append).against_the_baseline()
    names = [figure.name for figure in report.figures]
    assert "/decide, SQLite ÷ baseline" in names
    assert "p99.9 at half load, open loop" in names
    assert all(figure.value > 0 for figure in report.figures)
    assert said == ["against the baseline, round 1 of 1"]
    document = json.loads(json.dumps(report.document({"cores": 2})))
    assert [figure["name"] for figure in document["figures"]] == names
    assert report.table().row_count == len(names)
