import csv
import io
import json

import pytest

from service.engine.commands import Expire
from service.money import micros
from service.reads import export
from service.schemas import admin, campaign
from service.store import tables
from tests.service.databases import make_holds_due
from tests.service.http_calls import good
from tests.service.http_client import key_for

RESOURCES = ("usd", "impressions")
CONFIG = {
    "id": "summer",
    "arms": [{"id": "a"}, {"id": "b", "max_cost": {"usd": 0.02}}],
    "resources": [
        {"id": "usd", "budget": 2.5, "max_cost": 0.05},
        {"id": "impressions", "budget": 100, "max_cost": 1},
    ],
    "horizon": 200,
    "context": {"features": [{"name": "hour", "type": "number", "min": 0, "max": 23}]},
    "reward": {"min": -1, "max": 3},
    "seed": 7,
}
LEDGER = "/admin/campaigns/summer/ledger"


def report(call, decision_id, **what):
    return good(call("POST", "/feedback", json={"campaign_id": "summer", "decision_id": decision_id, **what}))


@pytest.fixture
def story(call):
    """A campaign with a bit of everything: ten plays, eight of them with some end, a null, a grant, an adjustment."""
    good(call("POST", "/campaigns", json=CONFIG), 201)
    items = [{"decision_id": f"d{index}", "context": {"hour": index}} for index in range(10)]
    items.append({"decision_id": "null", "context": {"hour": 1}, "exclude": ["a", "b"]})
    good(call("POST", "/decide/batch", json={"campaign_id": "summer", "items": items}))
    for index in range(5):
        report(call, f"d{index}", reward=index % 2, costs={"usd": 0.01, "impressions": 1})
    report(call, "d5", costs={"usd": 0.0123456, "impressions": 0})
    report(call, "d6", void=True)
    report(call, "d7", reward=1)
    good(call("PATCH", "/campaigns/summer", json={"resources": [{"id": "usd", "budget": 3}]}))
    good(call("POST", "/admin/campaigns/summer/adjust", json={"resource": "usd", "amount": -0.01, "reason": "refund"}))
    return call


SPENT = {"usd": 5 * 0.01 + 0.012346 - 0.01, "impressions": 5}


def pages(call, path, limit):
    """All items of a list, fetched a few at a time."""
    items, cursor = [], None
    while True:
        query = {"limit": limit} | ({"cursor": cursor} if cursor else {})
        page = good(call("GET", path, params=query))
        assert len(page["items"]) <= limit
        items += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            return items


def budget_of(call):
    accounts = good(call("GET", "/admin/campaigns/summer/budget"))["resources"]
    return {account["id"]: account for account in accounts}


def test_the_answers_have_the_documented_form(story):
    base = "/admin/campaigns/summer"
    for path, model in {
        "/campaigns": campaign.CampaignPage,
        "/campaigns/summer": campaign.CampaignView,
        "/admin/budgets": admin.BudgetPage,
        f"{base}/budget": admin.BudgetView,
        f"{base}/ledger": admin.LedgerPage,
        f"{base}/verify": admin.Verification,
        f"{base}/timeline": admin.Timeline,
        f"{base}/arms": admin.ArmPage,
        f"{base}/decisions": admin.DecidedPage,
        f"{base}/decisions/d5": admin.DecidedDetail,
        f"{base}/decisions/null": admin.DecidedDetail,
        "/admin/keys": admin.KeyPage,
        "/admin/audit": admin.AuditPage,
    }.items():
        answer = story("GET", path)
        assert answer.status_code == 200, answer.text
        model.model_validate_json(answer.content)


def test_a_campaign_without_decisions_can_be_read_in_every_way(call):
    good(call("POST", "/campaigns", json=CONFIG), 201)
    for path in ("/campaigns/summer", *(f"/admin/campaigns/summer/{name}" for name in ("timeline", "arms", "ledger"))):
        good(call("GET", path))
    assert good(call("GET", "/admin/campaigns/summer/decisions")) == {"items": [], "next_cursor": None}
    assert call("GET", "/admin/campaigns/summer/export").content == b""
    assert budget_of(call)["usd"]["pace"] is None
    assert good(call("GET", "/admin/campaigns/summer/verify"))["ok"]


def test_a_budget_shows_what_was_granted_held_spent_and_is_free(story):
    accounts = budget_of(story)
    for resource, granted in {"usd": 3, "impressions": 100}.items():
        account = accounts[resource]
        assert account["granted"] == granted
        assert account["spent"] == pytest.approx(SPENT[resource], abs=1e-12)
        assert micros(account["free"]) == micros(granted) - micros(account["spent"]) - micros(account["held"])
        assert account["pace"] == pytest.approx(account["spent"] / granted / (11 / 200), abs=1e-5)
    assert accounts["impressions"]["held"] == 3  # d7, d8 and d9
    assert good(story("GET", "/campaigns/summer"))["accounts"] == list(accounts.values())
    (listed,) = good(story("GET", "/admin/budgets"))["items"]
    assert (listed["campaign_id"], listed["resources"]) == ("summer", list(accounts.values()))


def test_the_movements_of_the_ledger_sum_to_the_accounts(story):
    moved = pages(story, LEDGER, limit=3)
    assert [move["sequence"] for move in moved] == sorted({move["sequence"] for move in moved}, reverse=True)
    assert moved == pages(story, LEDGER, limit=1000)
    kinds = [move["kind"] for move in moved]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "hold": 10,
        "reported": 6,
        "void": 1,
        "budget": 3,
        "adjust": 1,
    }
    accounts = budget_of(story)
    for resource in RESOURCES:
        for part in ("granted", "held", "spent"):
            total = sum(micros(move[part].get(resource, 0)) for move in moved)
            assert total == micros(accounts[resource][part])


def test_expired_and_late_decisions_are_movements_too(story, database):
    make_holds_due(database)
    story.runner.run(story.app.state.engine.submit(Expire()))
    report(story, "d8", costs={"usd": 0.001, "impressions": 1})
    accounts = budget_of(story)
    for resource in RESOURCES:
        assert accounts[resource]["held"] == 0
        moved = [micros(move["spent"].get(resource, 0)) for move in pages(story, LEDGER, limit=4)]
        assert sum(moved) == micros(accounts[resource]["spent"])
    assert {move["kind"] for move in pages(story, LEDGER, limit=1000)} >= {"expired", "late"}
    statuses = {one["decision_id"]: one["status"] for one in pages(story, "/admin/campaigns/summer/decisions", 4)}
    assert {name: statuses[name] for name in ("d0", "d5", "d6", "d7", "d8", "d9", "null")} == {
        "d0": "settled",
        "d5": "settled",
        "d6": "voided",
        "d7": "expired",
        "d8": "late",
        "d9": "expired",
        "null": "null",
    }
    assert good(story("GET", "/admin/campaigns/summer/verify"))["ok"]


def test_verify_finds_nothing_wrong_where_nothing_is(story):
    verification = good(story("GET", "/admin/campaigns/summer/verify"))
    assert verification["ok"]
    assert all(check["expected"] == check["found"] for check in verification["checks"])
    names = {check["name"] for check in verification["checks"]}
    for resource in RESOURCES:
        assert {f"{part} of {resource}" for part in ("granted", "held", "spent", "overrun", "open holds")} <= names


TAMPERED = [
    (tables.account, {"spent": 1, "held": 0}, "spent of usd"),
    (tables.account, {"granted": 10**9}, "granted of usd"),
    (tables.grant, {"amount": 7}, "granted of usd"),
    (tables.hold, {"amounts": "[1,1]"}, "open holds of usd"),
    (tables.campaign_state, {"sequence": 1000}, "rows of the log"),
    (tables.campaign_state, {"round": 3}, "rounds"),
    (tables.outcome, {"released": True}, "decisions released twice"),
]


@pytest.mark.parametrize(("table", "values", "name"), TAMPERED, ids=lambda value: getattr(value, "name", None))
def test_verify_finds_what_was_tampered_with(story, database, table, values, name):
    report(story, "d5", reward=1)
    with database.write() as connection:
        connection.execute(table.update().values(**values))
    verification = good(story("GET", "/admin/campaigns/summer/verify"))
    assert not verification["ok"]
    assert name in [check["name"] for check in verification["checks"] if not check["ok"]]


def test_arms_show_shares_and_means(story):
    arms = {arm["id"]: arm for arm in good(story("GET", "/admin/campaigns/summer/arms"))["items"]}
    decided = pages(story, "/admin/campaigns/summer/decisions", limit=100)
    assert sum(arm["decisions"] for arm in arms.values()) == 11
    assert sum(arm["share"] for arm in arms.values()) == pytest.approx(1)
    assert arms[None]["decisions"] == 1
    for name in ("a", "b"):
        mine = [one for one in decided if one["arm"] == name]
        rewards = [one["reward"] for one in mine if one["status"] == "settled"]
        costs = [one["costs"]["usd"] for one in mine if one["costs"] is not None]
        assert arms[name]["decisions"] == len(mine)
        assert arms[name]["rewards"] == len(rewards)
        assert arms[name]["mean_reward"] == (pytest.approx(sum(rewards) / len(rewards)) if rewards else None)
        if costs:
            assert arms[name]["mean_cost"]["usd"] == pytest.approx(sum(costs) / len(costs))
        assert arms[name]["last_played"] == (max(one["decided_at"] for one in mine) if mine else None)


@pytest.mark.parametrize("points", [2, 5, 1000])
def test_the_timeline_ends_where_the_accounts_are(story, points):
    line = good(story("GET", f"/admin/campaigns/summer/timeline?points={points}"))["items"]
    assert len(line) <= points
    assert [point["sequence"] for point in line] == sorted(point["sequence"] for point in line)
    assert sum(point["decisions"] for point in line) == 11
    assert sum(point["plays"] for point in line) == 10
    accounts, last = budget_of(story), line[-1]
    for resource in RESOURCES:
        assert last["spent"][resource] == accounts[resource]["spent"]
        assert last["granted"][resource] == accounts[resource]["granted"]
    assert last["reward"] == pytest.approx(2)  # of d1 and d3
    assert last["round"] == 11
    assert last["prices"] == good(story("GET", "/campaigns/summer"))["prices"]


def test_a_decision_is_shown_with_its_request_its_explanation_and_its_outcomes(story):
    shown = good(story("GET", "/admin/campaigns/summer/decisions/d5"))
    assert shown["context"] == {"hour": 5}
    assert (shown["status"], shown["reward"], shown["costs"]) == ("charged", None, {"usd": 0.012346, "impressions": 0})
    assert {arm["id"] for arm in shown["explanation"]["arms"]} == {"a", "b"}
    (outcome,) = shown["outcomes"]
    assert (outcome["kind"], outcome["warnings"], outcome["learned"]) == ("reported", ["rounded"], False)
    answer = story("GET", "/admin/campaigns/summer/decisions/none")
    assert answer.json()["type"] == "urn:cbwk:problem:decision-not-found"


def test_decisions_come_newest_first_in_pages(story):
    decided = pages(story, "/admin/campaigns/summer/decisions", limit=3)
    assert [one["decision_id"] for one in decided] == ["null", *(f"d{index}" for index in reversed(range(10)))]


def test_one_more_unit_is_worth_the_price_of_the_last_decision_in_the_callers_reward(call):
    body = {**CONFIG, "id": "worth", "reward": {"min": -1, "max": 3}}
    body["resources"] = [{"id": "usd", "budget": 20, "max_cost": 0.5}]
    good(call("POST", "/campaigns", json=body), 201)
    (account,) = good(call("GET", "/admin/campaigns/worth/budget"))["resources"]
    assert account["marginal_value"] is None
    for index in range(60):
        asked = {"campaign_id": "worth", "decision_id": f"d{index}", "context": {"hour": 1}}
        if good(call("POST", "/decide", json=asked))["arm"] is not None:
            report = {"campaign_id": "worth", "decision_id": f"d{index}", "reward": 2, "costs": {"usd": 0.5}}
            good(call("POST", "/feedback", json=report))
    shown = good(call("GET", "/campaigns/worth"))
    assert shown["prices"]["usd"] > 0
    assert shown["accounts"][0]["marginal_value"] == pytest.approx(4 * shown["prices"]["usd"])
    listed = good(call("GET", "/admin/budgets"))["items"]
    assert listed[0]["resources"][0]["marginal_value"] == shown["accounts"][0]["marginal_value"]


def test_an_export_has_every_decision_once_whatever_the_size_of_its_pages(story, monkeypatch):
    whole = story("GET", "/admin/campaigns/summer/export").content
    monkeypatch.setattr(export, "EXPORT_ROWS_MAX", 3)
    answer = story("GET", "/admin/campaigns/summer/export?format=jsonl")
    assert answer.content == whole
    assert answer.headers["content-disposition"] == 'attachment; filename="summer.jsonl"'
    lines = [json.loads(line) for line in whole.splitlines()]
    assert [line["decision_id"] for line in lines] == [*(f"d{index}" for index in range(10)), "null"]
    assert [line["learned"] for line in lines] == [True] * 5 + [False] * 6


def test_an_export_as_csv_has_one_header_and_the_same_rows(story, monkeypatch):
    lines = [json.loads(line) for line in story("GET", "/admin/campaigns/summer/export").content.splitlines()]
    monkeypatch.setattr(export, "EXPORT_ROWS_MAX", 3)
    answer = story("GET", "/admin/campaigns/summer/export?format=csv")
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    assert len(rows) == len(lines) == 11
    for row, line in zip(rows, lines, strict=True):
        assert (row["decision_id"], row["arm"], row["status"]) == (
            line["decision_id"],
            line["arm"] or "",
            line["status"],
        )
        assert json.loads(row["context"]) == line["context"]
        assert row["cost.usd"] == ("" if line["costs"] is None else str(line["costs"]["usd"]))


def test_an_export_has_nothing_that_came_while_it_ran(story, database):
    with database.read() as connection:
        start = export.export_start(connection, "summer", "jsonl")
    good(story("POST", "/decide", json={"campaign_id": "summer", "decision_id": "later", "context": {"hour": 1}}))
    with database.read() as connection:
        page, after = export.export_page(connection, start, 0)
    assert after is None
    assert b"later" not in page


def test_campaigns_are_listed_in_pages_and_by_status_and_as_far_as_a_key_may_see(call, database):
    for index in range(5):
        good(call("POST", "/campaigns", json={**CONFIG, "id": f"c{index}"}), 201)
    good(call("POST", "/campaigns/c3/pause"))
    assert [one["id"] for one in pages(call, "/campaigns", limit=2)] == [f"c{index}" for index in range(5)]
    assert [one["campaign_id"] for one in pages(call, "/admin/budgets", limit=2)] == [f"c{index}" for index in range(5)]
    assert [one["id"] for one in good(call("GET", "/campaigns?status=paused"))["items"]] == ["c3"]
    key = key_for(database, "reader", ("c1", "c4", "c9"))
    assert [one["id"] for one in good(call("GET", "/campaigns", key=key))["items"]] == ["c1", "c4"]
    assert [one["campaign_id"] for one in good(call("GET", "/admin/budgets", key=key))["items"]] == ["c1", "c4"]


def test_keys_and_the_audit_are_listed_in_pages_and_without_secrets(call):
    made = [good(call("POST", "/admin/keys", json={"name": f"n{i}", "role": "reader"}), 201) for i in range(5)]
    listed = pages(call, "/admin/keys", limit=2)
    assert {key["id"] for key in listed} == {key["id"] for key in made}
    good(call("DELETE", f"/admin/keys/{made[0]['id']}"))
    assert call("GET", "/campaigns", key=made[0]["key"]).status_code == 401
    (revoked,) = [key for key in pages(call, "/admin/keys", limit=2) if key["revoked_at"] is not None]
    assert revoked["id"] == made[0]["id"]
    entries = pages(call, "/admin/audit", limit=4)
    assert [entry["action"] for entry in entries] == ["key.revoke"] + ["key.create"] * 5
    for key in made:
        assert key["key"] not in json.dumps(entries) + json.dumps(listed)


def test_a_scrape_shows_the_accounts(story):
    text = story("GET", "/metrics").text
    labels = 'campaign="summer",resource="usd"'
    assert f"cbwk_budget_granted_units{{{labels}}} 3.0" in text
    assert f"cbwk_budget_spent_units{{{labels}}} 0.052346" in text
    assert 'cbwk_open_holds{campaign="summer"} 4.0' in text  # d5 waits for its reward
    assert f"cbwk_price{{{labels}}}" in text
    assert "cbwk_database_up 1.0" in text
    assert "cbwk_queue_depth 0.0" in text
