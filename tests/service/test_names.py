"""Names that people read: of campaigns, arms and units. They change nothing that is decided."""

from __future__ import annotations

import json
from urllib.parse import urljoin

import pytest

from service.commands.console import campaign_ids
from service.engine.replay import replay
from service.store import tables
from tests.service.http_calls import campaign, decide_body, good

NAMED = {
    "display_name": "Sommerschluß – 50 %",
    "metadata": {"owner": "growth", "order": ""},
    "arms": [{"id": "a", "display_name": "Blue", "metadata": {"size": "300x250"}}, {"id": "b"}],
    "resources": [{"id": "usd", "budget": 1000, "max_cost": 1, "unit": "USD"}],
}


def shown(call):
    """The names as the budget views, the lists and the arms show them."""
    one, budget = good(call("GET", "/campaigns/c")), good(call("GET", "/admin/campaigns/c/budget"))
    assert good(call("GET", "/admin/budgets"))["items"] == [budget]
    (listed,) = good(call("GET", "/campaigns"))["items"]
    names = [(view["display_name"], view["metadata"]) for view in (one, budget, listed)]
    assert names[0] == names[1] == names[2]
    arms = {
        arm["id"]: (arm["display_name"], arm["metadata"])
        for arm in good(call("GET", "/admin/campaigns/c/arms"))["items"]
    }
    return {"campaign": names[0], "arms": arms, "units": [account["unit"] for account in budget["resources"]]}


def test_every_view_shows_the_names(call):
    made = call("POST", "/campaigns", json=campaign(**NAMED))
    assert made.status_code == 201
    assert urljoin("/campaigns", made.headers["location"]) == "/campaigns/c"
    assert shown(call) == {
        "campaign": ("Sommerschluß – 50 %", {"owner": "growth", "order": ""}),
        "arms": {"a": ("Blue", {"size": "300x250"}), "b": (None, {})},
        "units": ["USD"],
    }


def test_names_are_changed_and_taken_away(call):
    good(call("POST", "/campaigns", json=campaign(**NAMED)), 201)
    changes = {
        "display_name": "Winter",
        "metadata": {"owner": "brand"},
        "arms": [{"id": "b", "display_name": "Red"}, {"id": "a", "metadata": {}}],
        "resources": [{"id": "usd", "unit": "EUR"}],
    }
    good(call("PATCH", "/campaigns/c", json=changes))
    assert shown(call) == {
        "campaign": ("Winter", {"owner": "brand"}),
        "arms": {"a": ("Blue", {}), "b": ("Red", {})},
        "units": ["EUR"],
    }
    changes = {"display_name": None, "metadata": {}, "arms": [{"id": "b", "display_name": None}]}
    good(call("PATCH", "/campaigns/c", json=changes | {"resources": [{"id": "usd", "unit": None}]}))
    assert shown(call) == {"campaign": (None, {}), "arms": {"a": ("Blue", {}), "b": (None, {})}, "units": [None]}
    clone = good(call("GET", "/campaigns/c"))["config"] | {"id": "clone"}
    good(call("POST", "/campaigns", json=clone), 201)


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("display_name", {"display_name": ""}),
        ("display_name", {"display_name": "two\nlines"}),
        ("metadata", {"metadata": {str(i): "" for i in range(21)}}),
        ("metadata.owner", {"metadata": {"owner": 7}}),
        ("arms.0.metadata", {"arms": [{"id": "a", "metadata": {str(i): "" for i in range(21)}}]}),
        ("resources.0.unit", {"resources": [{"id": "usd", "budget": 1, "max_cost": 1, "unit": "x" * 33}]}),
    ],
)
def test_names_have_limits(call, field, changes):
    answer = call("POST", "/campaigns", json=campaign(**changes))
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]


def test_names_change_no_decision_and_no_replay(call, database):
    """A campaign of a version without names is changed, and decides as one that nobody has touched."""
    for name in ("c", "other"):
        good(call("POST", "/campaigns", json=campaign(name)), 201)
    with database.write() as connection:
        old = good(call("GET", "/campaigns/c"))["config"] | {"rules": good(call("GET", "/campaigns/c"))["rules"]}
        body = {name: value for name, value in old.items() if name not in ("display_name", "metadata")}
        connection.execute(tables.config.update().where(tables.config.c.campaign == 1).values(body=json.dumps(body)))
    chosen = {"c": [], "other": []}
    for name, found in chosen.items():
        for i in range(12):
            if name == "c" and i == 6:
                good(
                    call(
                        "PATCH", "/campaigns/c", json={"display_name": "C", "arms": [{"id": "a", "display_name": "A"}]}
                    )
                )
            made = good(call("POST", "/decide", json=decide_body(f"d{i}", name, (i / 12, 0.5))))
            found.append((made["arm"], made["probability"], made["round"]))
            outcome = {"campaign_id": name, "decision_id": f"d{i}", "reward": i % 2, "costs": {"usd": 0.25}}
            good(call("POST", "/feedback", json=outcome))
    assert chosen["c"] == chosen["other"]
    assert shown_name(call) == "C"
    for number in campaign_ids(database, None):
        report = replay(database, number, advanced=lambda done, total: None)
        assert report.decisions == 12
        assert report.difference is None


def shown_name(call):
    return good(call("GET", "/campaigns/c"))["display_name"]
