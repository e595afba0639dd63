"""A campaign starts at once or at a time; it ends after a number of decisions or at a time.

A change sets one end and clears the other.
"""

from __future__ import annotations

import json

import pytest
from sqlalchemy import Engine, event, insert, select, update

from service.engine.replay import replay
from service.reads.campaigns import campaigns
from service.store import tables
from service.words import error_at
from tests.service.http_calls import campaign, decide_body, good

LATER, PAST = "2100-01-01T00:00:00Z", "2020-01-01T00:00:00Z"


def create(call, name="c", **changes):
    return good(call("POST", "/campaigns", json=campaign(name, **changes)), 201)


def patch(call, name="c", **changes):
    return good(call("PATCH", f"/campaigns/{name}", json=changes))


def reasons(call, count, prefix):
    items = [{"decision_id": f"{prefix}{number}", "context": [0.3, 0.6]} for number in range(count)]
    answer = good(call("POST", "/decide/batch", json={"campaign_id": "c", "items": items}))
    return [decision["reason"] for decision in answer["decisions"]]


def ends(config):
    return config["horizon"], config["ends_at"]


def statuses(call, name="c"):
    """The status in every place that shows it."""
    listed = {item["id"]: item["status"] for item in good(call("GET", "/campaigns"))["items"]}
    budgets = {item["campaign_id"]: item["status"] for item in good(call("GET", "/admin/budgets"))["items"]}
    single = [good(call("GET", path))["status"] for path in (f"/campaigns/{name}", f"/admin/campaigns/{name}/budget")]
    return {listed[name], budgets[name], *single}


def test_setting_one_end_clears_the_other_and_the_campaign_goes_on(call, database):
    create(call, horizon=3)
    assert reasons(call, 5, "a") == ["policy"] * 3 + ["ended"] * 2
    changed = patch(call, ends_at=LATER)
    assert (ends(changed["config"]), changed["status"]) == ((None, LATER), "active")
    # More than the horizon of a campaign without traffic.
    assert [reasons(call, 900, f"b{batch}-") for batch in range(2)] == [["policy"] * 900] * 2
    changed = patch(call, horizon=2000, ends_at=None)
    assert (ends(changed["config"]), changed["status"]) == ((2000, None), "active")
    assert "estimate" not in changed["config"]
    assert reasons(call, 250, "c") == ["policy"] * 197 + ["ended"] * 53
    assert replay(database, 1, advanced=lambda done, todo: None).difference is None


def test_a_declared_horizon_is_the_first_estimate_of_a_campaign_that_gets_an_end(call):
    create(call, horizon=5000)
    reasons(call, 10, "a")
    assert patch(call, horizon=None, ends_at=LATER)["config"]["estimate"]["horizon"] == 5000


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"horizon": None}, "horizon"),
        ({"ends_at": None}, "ends_at"),
        ({"horizon": None, "ends_at": None}, "horizon"),
        ({"horizon": 5, "ends_at": LATER}, "horizon"),
    ],
)
def test_a_change_that_leaves_no_end_or_two_is_refused(call, changes, field):
    create(call)
    answer = call("PATCH", "/campaigns/c", json=changes | {"resources": [{"id": "usd", "budget": 5}]})
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]
    assert good(call("GET", "/campaigns/c"))["version"] == 1


@pytest.mark.parametrize("way", ["rounds", "time"])
def test_a_campaign_at_its_end_is_shown_as_ended_until_the_end_moves(call, way):
    create(call, "other")
    create(call, horizon=2)
    assert statuses(call) == {"active"}
    if way == "rounds":
        reasons(call, 2, "a")
    else:
        assert patch(call, ends_at=PAST)["status"] == "ended"
    assert (statuses(call), statuses(call, "other")) == ({"ended"}, {"active"})
    assert good(call("POST", "/decide", json=decide_body("z")))["reason"] == "ended"
    assert good(call("POST", "/campaigns/c/pause"))["status"] == "paused"
    assert statuses(call) == {"paused"}
    assert good(call("POST", "/campaigns/c/resume"))["status"] == "ended"
    assert patch(call, horizon=10)["status"] == "active"
    assert statuses(call) == {"active"}


def test_a_campaign_is_shown_as_scheduled_until_it_starts(call):
    create(call, "other")
    assert create(call, starts_at=LATER)["status"] == "scheduled"
    assert (statuses(call), statuses(call, "other")) == ({"scheduled"}, {"active"})
    decision = good(call("POST", "/decide", json=decide_body("z")))
    assert (decision["arm"], decision["reason"], decision["hold"], decision["round"]) == (None, "not_started", {}, 0)
    assert call("GET", "/admin/campaigns/c/decisions/z").status_code == 404
    assert good(call("POST", "/campaigns/c/pause"))["status"] == "paused"
    assert good(call("POST", "/campaigns/c/resume"))["status"] == "scheduled"
    assert patch(call, starts_at=None)["status"] == "active"
    assert statuses(call) == {"active"}
    assert reasons(call, 2, "z") == ["policy"] * 2


def test_a_flight_that_has_not_begun_has_no_share_and_no_pace(call):
    create(call, starts_at="2099-01-01T00:00:00Z", ends_at=LATER, horizon=None)
    budget = good(call("GET", "/admin/campaigns/c/budget"))
    assert (budget["flight"], budget["resources"][0]["pace"]) == (0, None)


@pytest.mark.parametrize("starts_at", [LATER, "2100-01-01T00:00:00.000001Z"])
def test_a_start_that_is_not_before_the_end_is_refused(call, starts_at):
    answer = call("POST", "/campaigns", json=campaign(starts_at=starts_at, ends_at=LATER, horizon=None))
    assert answer.status_code == 422
    assert answer.json()["errors"] == [error_at("starts_at", "must be before ends_at")]


def test_a_list_by_status_finds_the_ended_and_pages_past_the_others(call):
    for number in range(7):
        create(call, f"c{number}", horizon=1)
    for number in range(3):
        create(call, f"s{number}", starts_at=LATER)
    for number in (1, 4, 6):
        patch(call, f"c{number}", ends_at=PAST)

    def listed(status):
        names, cursor = [], {}
        while True:
            page = good(call("GET", "/campaigns", params={"status": status, "limit": 2} | cursor))
            names.append([item["id"] for item in page["items"]])
            assert {item["status"] for item in page["items"]} == {status}
            if page["next_cursor"] is None:
                return names
            cursor = {"cursor": page["next_cursor"]}

    assert listed("ended") == [["c1", "c4"], ["c6"]]
    assert listed("active") == [["c0", "c2"], ["c3", "c5"]]
    assert listed("scheduled") == [["s0", "s1"], ["s2"]]


def test_a_list_by_status_passes_many_campaigns_of_another_status_in_few_queries(call, database):
    for number in range(24):
        create(call, f"c{number}", horizon=1)
    for number in (21, 23):
        patch(call, f"c{number}", ends_at=PAST)
    queries = []

    def count(_connection, _cursor, statement, *_):
        queries.append(statement)

    pages, cursor = [], None
    event.listen(Engine, "before_cursor_execute", count)
    try:
        with database.read() as connection:
            while not pages or cursor is not None:
                queries.clear()
                page = campaigns(connection, status="ended", limit=1, cursor=cursor)
                pages.append([item["id"] for item in page["items"]])
                cursor = page["next_cursor"]
                assert sum("campaign_state" in query for query in queries) <= 2
    finally:
        event.remove(Engine, "before_cursor_execute", count)
    assert pages == [["c21"], ["c23"]]


def test_a_campaign_that_version_0_1_left_with_two_ends_is_shown_as_ended_and_can_be_revived(call, database):
    create(call)
    config = tables.config
    with database.write() as connection:
        body = json.loads(connection.execute(select(config.c.body)).scalar_one())
        row = {"campaign": 1, "version": 2, "body": json.dumps(body | {"ends_at": PAST}), "at": 1}
        connection.execute(insert(config).values(row))
        connection.execute(update(tables.campaign_state).values(config_version=2))
    assert statuses(call) == {"ended"}
    patch(call, horizon=10)
    assert statuses(call) == {"active"}
    assert reasons(call, 1, "a") == ["policy"]
