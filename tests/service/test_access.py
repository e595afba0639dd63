"""Permissions: the status of every endpoint for every kind of key."""

import shutil

import pytest

from service.app import create_app
from service.domain.campaign import Campaign
from service.store import tables
from service.store.database import Database
from service.store.keys import create_key, revoke_key
from tests.documents import ROOT, table
from tests.service.engine.campaigns import config
from tests.service.http_client import ADMIN_KEY, key_for, served

DECIDE = {"campaign_id": "c", "decision_id": "d", "context": [0.1, 0.2]}
FEEDBACK = {"campaign_id": "c", "decision_id": "d", "reward": 1, "costs": {"usd": 0.5}}

_POLICY = Campaign(0, "c", 1, config()).policy
UNTAUGHT = _POLICY.encode_model(_POLICY.init())

ROLES = ("decider", "reader", "admin")


def guard(of_all, here, elsewhere):
    """Return the status by kind of key: keys of every role for all campaigns, for the requested one and for another.
    200 stands for the success status of the endpoint."""
    statuses = {"none": 401, "wrong": 401, "revoked": 401, "environment": 200}
    for place, found in (("", of_all), (" here", here), (" elsewhere", elsewhere)):
        statuses |= {role + place: status for role, status in zip(ROLES, found, strict=True)}
    return statuses


DECIDER = guard((200, 403, 200), (200, 403, 200), (404, 403, 404))
# Each item has its own result: the response is 200.
DECIDER_BY_ITEM = guard((200, 403, 200), (200, 403, 200), (200, 403, 200))
READER = guard((403, 200, 200), (403, 200, 200), (403, 404, 404))
READER_OF_A_LIST = guard((403, 200, 200), (403, 200, 200), (403, 200, 200))
ADMIN = guard((403, 403, 200), (403, 403, 200), (403, 403, 404))
ADMIN_OF_ALL = guard((403, 403, 200), (403, 403, 403), (403, 403, 403))
READER_OF_ALL = guard((403, 200, 200), (403, 403, 403), (403, 403, 403))
ANYBODY = dict.fromkeys(READER, 200)

# By operation: its guard, its success status (the first and the later ones if they differ), its body.
CAMPAIGN, BEHIND = "/campaigns/{campaign_id}", "/admin/campaigns/{campaign_id}"
PORTFOLIO = "/portfolios/{portfolio_id}"
ENDPOINTS = {
    "POST /decide": (DECIDER, 200, DECIDE),
    "POST /decide/batch": (DECIDER, 200, {"campaign_id": "c", "items": [{"context": [0, 0]}]}),
    "POST /feedback": (DECIDER, 200, FEEDBACK),
    "POST /feedback/batch": (DECIDER_BY_ITEM, 200, {"items": [FEEDBACK]}),
    "POST /campaigns": (ADMIN_OF_ALL, (201, 409), config("new")),
    f"PUT {CAMPAIGN}": (ADMIN_OF_ALL, 200, config("c")),
    "GET /campaigns": (READER_OF_A_LIST, 200, None),
    f"GET {CAMPAIGN}": (READER, 200, None),
    f"PATCH {CAMPAIGN}": (ADMIN, 200, {"horizon": 2000}),
    f"POST {CAMPAIGN}/pause": (ADMIN, 200, None),
    f"POST {CAMPAIGN}/resume": (ADMIN, 200, None),
    f"POST {CAMPAIGN}/archive": (ADMIN, 200, None),
    "GET /admin/budgets": (READER_OF_A_LIST, 200, None),
    f"GET {BEHIND}/budget": (READER, 200, None),
    f"GET {BEHIND}/ledger": (READER, 200, None),
    f"POST {BEHIND}/adjust": (ADMIN, 200, {"resource": "usd", "amount": 0.5, "reason": "billed twice"}),
    f"GET {BEHIND}/verify": (READER, 200, None),
    f"GET {BEHIND}/timeline": (READER, 200, None),
    f"GET {BEHIND}/feedback": (READER, 200, None),
    f"GET {BEHIND}/arms": (READER, 200, None),
    f"GET {BEHIND}/decisions": (READER, 200, None),
    f"GET {BEHIND}/decisions/{{decision_id}}": (READER, 200, None),
    f"GET {BEHIND}/export": (READER, 200, None),
    f"GET {BEHIND}/model": (READER, 200, None),
    f"PUT {BEHIND}/model": (ADMIN, 200, UNTAUGHT),
    f"GET {BEHIND}/uplift": (READER, 200, None),
    f"POST {BEHIND}/evaluations": (ADMIN, 202, {"candidates": [{"type": "uniform"}]}),
    f"GET {BEHIND}/evaluations": (READER, 200, None),
    f"GET {BEHIND}/evaluations/{{evaluation_id}}": (READER, 200, None),
    "POST /portfolios": (ADMIN_OF_ALL, (201, 409), {"id": "new", "resources": [{"id": "usd", "budget": 5}]}),
    "GET /portfolios": (READER_OF_ALL, 200, None),
    f"GET {PORTFOLIO}": (READER_OF_ALL, 200, None),
    f"PATCH {PORTFOLIO}": (ADMIN_OF_ALL, 200, {"resources": [{"id": "usd", "budget": 7}]}),
    f"GET /admin{PORTFOLIO}/budget": (READER_OF_ALL, 200, None),
    f"GET /admin{PORTFOLIO}/ledger": (READER_OF_ALL, 200, None),
    f"GET /admin{PORTFOLIO}/verify": (READER_OF_ALL, 200, None),
    "POST /admin/keys": (ADMIN_OF_ALL, 201, {"name": "n", "role": "reader"}),
    "GET /admin/keys": (ADMIN_OF_ALL, 200, None),
    "GET /admin/key": (READER_OF_A_LIST, 200, None),
    "DELETE /admin/keys/{key_id}": (ADMIN_OF_ALL, 200, None),
    "POST /admin/webhooks": (ADMIN_OF_ALL, 201, {"url": "https://1.1.1.1/", "events": ["campaign.ended"]}),
    "GET /admin/webhooks": (ADMIN_OF_ALL, 200, None),
    "DELETE /admin/webhooks/{webhook_id}": (ADMIN_OF_ALL, (200, 404), None),
    "GET /admin/webhooks/{webhook_id}/deliveries": (ADMIN_OF_ALL, 200, None),
    "GET /admin/audit": (ADMIN_OF_ALL, 200, None),
    "GET /metrics": (READER_OF_ALL, 200, None),
    "GET /livez": (ANYBODY, 200, None),
    "GET /readyz": (ANYBODY, 200, None),
}
# The columns of the table in docs/hardening.md.
COLUMNS = ((DECIDER, DECIDER_BY_ITEM), (READER, READER_OF_A_LIST), (ADMIN,), (ADMIN_OF_ALL,))
KEYS = {
    "`decider`": "decider here",
    "`reader`": "reader here",
    "`admin` of some campaigns": "admin here",
    "`admin` of all campaigns": "admin",
}
UNDOCUMENTED = ("GET /dashboard", "GET /docs", "GET /openapi.json")


def test_the_documented_keys_are_those_that_each_endpoint_accepts():
    paths = create_app().openapi()["paths"]
    for name, (found, *_) in ENDPOINTS.items():
        method, _, path = name.partition(" ")
        operation = paths[path][method.lower()]
        needed = next(role for role in ROLES if found[role] == 200)
        roles = [role for security in operation["security"] for (role,) in security.values()]
        assert roles == ([] if found is ANYBODY else [needed, needed]), name
        assert operation.get("x-unlimited-key", False) == (found["admin here"] == 403), name


@pytest.fixture
def database(sqlite_template, tmp_path):
    shutil.copyfile(sqlite_template, tmp_path / "cbwk.db")
    with Database.open(f"sqlite:///{tmp_path}/cbwk.db") as opened:
        yield opened


@pytest.fixture
def client(database):
    with served(database) as client:
        for name in ("c", "other"):
            made = client("POST", "/campaigns", json=without_defaults(config(name)))
            assert made.status_code == 201, made.text
        assert client("POST", "/decide", json=DECIDE).status_code == 200
        shared = {"id": "acme", "resources": [{"id": "usd", "budget": 5}]}
        assert client("POST", "/portfolios", json=shared).status_code == 201
        with database.write() as connection:
            evaluation = {"campaign": 1, "id": "e", "status": "queued", "request": "{}", "progress": 0.0}
            webhook = {"id": "w", "url": "https://1.1.1.1/", "events": "[]", "thresholds": "[]", "secret": "whsec_"}
            connection.execute(tables.webhook.insert().values(**webhook, created_at=1))
            connection.execute(tables.evaluation.insert().values(**evaluation, created_at=1, beat_at=1))
        yield client


def without_defaults(body):
    """Return the configuration as a client sends it."""
    return body | {"context": {"dimension": 2}}


def content(body):
    """Return the arguments of a request: bytes unchanged, everything else as JSON."""
    return {"content": body} if isinstance(body, bytes) else {"json": body}


def keys_of(database):
    """Return the text of a key for every kind of caller, None for a request without a key."""
    keys = {"none": None, "wrong": "cbwk_" + "0" * 43, "environment": ADMIN_KEY}
    with database.write() as connection:
        key_id, keys["revoked"] = create_key(connection, "revoked", "admin", None, now=1)
        create_key(connection, "another admin, because the last one cannot be revoked", "admin", None, now=1)
        revoke_key(connection, key_id, now=2)
    for role in ROLES:
        keys[role] = key_for(database, role)
        keys[f"{role} here"] = key_for(database, role, ("c",))
        keys[f"{role} elsewhere"] = key_for(database, role, ("other",))
    return keys


@pytest.mark.parametrize("endpoint", [*ENDPOINTS, *UNDOCUMENTED])
def test_an_endpoint_answers_every_kind_of_key_as_the_table_says(endpoint, client, database):
    statuses, good, body = ENDPOINTS.get(endpoint, (ANYBODY, 200, None))
    good = good if isinstance(good, tuple) else (good, good)
    with database.write() as connection:
        victim, _ = create_key(connection, "to be revoked", "reader", None, now=1)
    method, path = endpoint.format(
        campaign_id="c", decision_id="d", evaluation_id="e", portfolio_id="acme", key_id=victim, webhook_id="w"
    ).split()
    if path == "/campaigns" and body is not None:
        body = without_defaults(body)
    found, expected, done = {}, {}, False
    for caller, key in keys_of(database).items():
        answer = client(method, path, key=key, **content(body))
        found[caller] = answer.status_code
        # Some operations succeed only once; later attempts fail for another reason than the key.
        expected[caller] = good[done] if statuses[caller] == 200 else statuses[caller]
        done = done or statuses[caller] == 200
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == "application/problem+json"
        if answer.status_code == 401:
            assert answer.headers["www-authenticate"].startswith("Bearer")
    assert found == expected


def test_the_table_has_every_operation_of_the_document():
    paths = create_app().openapi()["paths"]
    assert set(ENDPOINTS) == {f"{method.upper()} {path}" for path, item in paths.items() for method in item}


@pytest.mark.parametrize("endpoint", [name for name, (statuses, *_) in ENDPOINTS.items() if 404 in statuses.values()])
def test_a_campaign_the_key_may_not_see_is_answered_like_an_unknown_one(endpoint, client, database):
    key = key_for(database, "admin", ("other", "nowhere"))
    body = ENDPOINTS[endpoint][2]
    answers = []
    for campaign in ("c", "nowhere"):
        method, path = endpoint.format(campaign_id=campaign, decision_id="d", evaluation_id="e").split()
        named = isinstance(body, dict) and "campaign_id" in body
        sent = body | {"campaign_id": campaign} if named else body
        answers.append(client(method, path, key=key, **content(sent)))
    hidden, missing = answers
    assert hidden.status_code == missing.status_code == 404
    as_missing = hidden.json()["detail"].replace('"c"', '"nowhere"')  # an answer names the id that was sent
    assert hidden.json() | {"detail": as_missing} == missing.json()


def test_feedback_in_a_batch_on_a_campaign_the_key_may_not_see_is_an_unknown_campaign_in_its_place(client, database):
    key = key_for(database, "decider", ("other",))
    (result,) = client("POST", "/feedback/batch", key=key, json={"items": [FEEDBACK]}).json()["results"]
    assert result["error"]["status"] == 404
    assert result["error"]["type"].endswith("campaign-not-found")
    assert client("GET", "/admin/campaigns/c/decisions/d").json()["status"] == "held"


@pytest.mark.parametrize(("path", "name"), [("/campaigns", "id"), ("/admin/budgets", "campaign_id")])
def test_a_list_has_only_what_the_key_may_see(path, name, client, database):
    def seen(key):
        return [item[name] for item in client("GET", path, key=key).json()["items"]]

    assert seen(key_for(database, "reader")) == ["c", "other"]
    assert seen(key_for(database, "reader", ("other",))) == ["other"]
    assert seen(key_for(database, "reader", ("nowhere",))) == []


def test_a_key_is_accepted_in_either_header_and_the_bearer_token_wins(client, database):
    key = key_for(database, "reader")
    assert client("GET", "/campaigns", key=None, headers={"X-API-Key": key}).status_code == 200
    assert client("GET", "/campaigns", key="wrong", headers={"X-API-Key": key}).status_code == 401
    assert client("GET", "/campaigns", key=None, headers={"Authorization": f"Basic {key}"}).status_code == 401


def test_a_key_revoked_over_http_is_refused_at_once(client):
    made = client("POST", "/admin/keys", json={"name": "n", "role": "reader"}).json()
    assert client("GET", "/campaigns", key=made["key"]).status_code == 200
    assert client("DELETE", f"/admin/keys/{made['id']}").status_code == 200
    assert client("GET", "/campaigns", key=made["key"]).status_code == 401


def test_the_page_for_operators_says_what_each_kind_of_key_may_do():
    page = (ROOT / "docs" / "hardening.md").read_text(encoding="utf-8")
    expected = [
        [name, *("yes" if all(guard[key] == 200 for guard in column) else "no" for column in COLUMNS)]
        for name, key in KEYS.items()
    ]
    assert table(page, "What a key may do") == expected
