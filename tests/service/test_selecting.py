"""Decisions selected by arm, status, time and number: what the interface gives is what a loop over all would pick."""

# ruff: noqa: F811 - fixtures are found by their names

import json

import pytest
from sqlalchemy import Engine, event, text

from service.reads import selection
from service.times import moment_microseconds
from tests.service.http_calls import good
from tests.service.test_reads import pages, story  # noqa: F401

DECISIONS = "/admin/campaigns/summer/decisions"


@pytest.fixture
def everything(story):
    """All decisions, newest first, as they are listed without a selection."""
    return pages(story, DECISIONS, limit=100)


def listed(story, limit=2, **query):
    return [one["decision_id"] for one in pages_of(story, limit, query)]


def pages_of(story, limit, query):
    items, cursor = [], {}
    while True:
        page = good(story("GET", DECISIONS, params={"limit": limit} | query | cursor))
        items += page["items"]
        if page["next_cursor"] is None:
            return items
        cursor = {"cursor": page["next_cursor"]}


def ids(decisions, wanted=lambda one: True):
    return [one["decision_id"] for one in decisions if wanted(one)]


@pytest.mark.parametrize("numbers", [1, 3, 1 << 14])
def test_a_list_has_the_decisions_of_the_arm_and_the_status_and_no_other(story, everything, monkeypatch, numbers):
    monkeypatch.setattr(selection, "NUMBERS_PER_STATEMENT", numbers)
    monkeypatch.setattr(selection, "NUMBERS_PER_PAGE", 2 * numbers)
    found = {one["status"] for one in everything}
    assert found == {"null", "held", "rewarded", "charged", "settled", "voided"}
    for status in sorted(found):
        assert listed(story, status=status) == ids(everything, lambda one, status=status: one["status"] == status)
    for arm in ("a", "b", "none of these"):
        assert listed(story, arm=arm) == ids(everything, lambda one, arm=arm: one["arm"] == arm)
    both = ids(everything, lambda one: (one["arm"], one["status"]) == ("a", "settled"))
    assert listed(story, arm="a", status="settled") == both


def test_a_late_decision_is_found_by_its_last_status(story):
    good(story("POST", "/feedback", json={"campaign_id": "summer", "decision_id": "d6", "costs": {"usd": 0.01}}))
    assert (listed(story, status="late"), listed(story, status="voided")) == (["d6"], [])


def test_times_select_from_the_first_up_to_before_the_second(story, everything):
    good(story("POST", "/decide", json={"campaign_id": "summer", "decision_id": "later", "context": {"hour": 1}}))
    later = good(story("GET", f"{DECISIONS}/later"))["decided_at"]
    first = everything[0]["decided_at"]
    assert moment_microseconds(first) < moment_microseconds(later)
    assert listed(story, **{"from": later}) == ["later"]
    assert listed(story, to=later) == ids(everything)
    assert listed(story, **{"from": first, "to": later}, status="null") == ["null"]
    assert listed(story, **{"from": later, "to": first}) == []
    assert listed(story, to="1970-01-02T00:00:00Z") == []


def test_after_a_number_come_the_decisions_with_larger_ones(story, everything):
    seen = everything[4]["sequence"]
    assert listed(story, after=seen) == ids(everything[:4])
    assert listed(story, after=seen, limit=100) == ids(everything[:4])
    assert listed(story, after=everything[0]["sequence"]) == []


@pytest.mark.parametrize("numbers", [2, 1 << 14])
def test_an_export_has_what_the_list_has_oldest_first(story, everything, monkeypatch, numbers):
    monkeypatch.setattr(selection, "NUMBERS_PER_STATEMENT", numbers)
    for query in ({"arm": "a"}, {"status": "settled"}, {"after": everything[4]["sequence"]}, {"status": "late"}):
        lines = story("GET", "/admin/campaigns/summer/export", params=query).content.splitlines()
        assert [json.loads(line)["decision_id"] for line in lines] == listed(story, **query)[::-1]


def test_the_arrays_for_obp_have_the_selected_rounds(story):
    np = pytest.importorskip("numpy")
    import io  # noqa: PLC0415

    body = story("GET", "/admin/campaigns/summer/export", params={"format": "obp", "arm": "a"}).content
    with np.load(io.BytesIO(body)) as arrays:
        expected = listed(story, arm="a", status="settled")
        assert len(arrays["action"]) == len(expected)


@pytest.mark.parametrize("path", [DECISIONS, "/admin/campaigns/summer/export"])
@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"staus": "held"}, "staus"),
        ({"status": "open"}, "status"),
        ({"from": "yesterday"}, "from"),
        ({"to": "2026-11-16"}, "to"),
        ({"after": -1}, "after"),
    ],
)
def test_a_parameter_that_is_unknown_or_wrong_is_422_and_named(story, path, query, field):
    answer = story("GET", path, params=query)
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
def test_every_statement_of_a_selection_searches_an_index_by_its_numbers(story, database):
    statements = []

    def note(connection, cursor, statement, parameters, context, many):
        if "decision" in statement and statement.startswith("SELECT"):
            statements.append((statement, parameters))

    event.listen(Engine, "before_cursor_execute", note)
    listed(story, arm="a", status="settled", **{"from": "2026-11-16T09:00:00Z"})
    event.remove(Engine, "before_cursor_execute", note)
    wanted = [(sql, parameters) for sql, parameters in statements if "FROM decision" in sql]
    assert len(wanted) >= 3
    with database.read() as connection:
        for sql, parameters in wanted:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", parameters).all()
            steps = [step[3] for step in plan]
            assert not any(step.startswith("SCAN") for step in steps), steps
            assert any("decision_1 (campaign=? AND sequence>" in step for step in steps), steps


@pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)
def test_postgresql_searches_the_indexes_too(story, database):
    with database.read() as connection:
        connection.execute(text("SET LOCAL enable_seqscan = off"))  # the table is too small to be worth an index
        query = """EXPLAIN SELECT sequence FROM decision WHERE campaign = 1 AND sequence >= 1 AND sequence < 9
            AND arm_id IS NOT NULL AND (SELECT last.status FROM outcome AS last WHERE last.campaign = decision.campaign
            AND last.decision = decision.sequence ORDER BY last.sequence + 0 DESC LIMIT 1) = 'settled'
            ORDER BY sequence DESC LIMIT 3"""
        plan = "\n".join(row[0] for row in connection.execute(text(query)))
    assert "Index" in plan
    assert "pk_decision" in plan
    assert "ix_outcome_campaign_decision" in plan
