"""What a stranger reads after a typical mistake: the name that was wrong, what is allowed, and what was meant."""

from __future__ import annotations

import re

import pytest

from service.meanings import MEANINGS
from tests.service.http_client import served

CONTEXT = {"hour": 3, "device": "mobile"}
FEATURES = [
    {"name": "hour", "type": "number", "min": 0, "max": 23, "strict": True},
    {"name": "device", "type": "category", "values": ["mobile", "desktop"], "strict": True},
]
SALE = {
    "id": "summer-sale",
    "arms": [{"id": "banner-a"}, {"id": "banner-b"}],
    "resources": [{"id": "usd", "budget": 250, "max_cost": 0.05}],
    "horizon": 1000,
    "context": {"features": FEATURES},
}
SIZE = {"features": [{"name": "size", "type": "number", "min": 0, "max": 1}]}
SHARED = {**SALE, "id": "shared", "arms": [], "model": "shared", "arm_features": SIZE}
SALE_PATH, BEHIND = "/campaigns/summer-sale", "/admin/campaigns/summer-sale"


def new(**changes):
    return {**SALE, "id": "new", **changes}


def ask(context=CONTEXT, name="summer-sale", **more):
    return {"campaign_id": name, "context": context, **more}


def feature(**changes):
    return new(context={"features": [{"name": "device", **changes}]})


NOT_DECIDE = (
    "is not a field of this body; its fields are context, decision_id, exclude, actions, baseline_arm, max_cost, "
    'max_costs, campaign_id, explain; did you mean "context"?'
)
NOT_CATEGORY = 'is not a field of this body; its fields are name, type, values, default, strict; did you mean "values"?'
KINDS = 'type must be one of number, category, hash; did you mean "category"?'
ARM_AA = 'is none of the arms, which are banner-a, banner-b; did you mean "banner-a"?'
FEATURE = 'is none of the declared features, which are hour, device; did you mean "device"?'
LIMIT = "must be at most 0.05, the max cost of the dearest arm"
PARAMETERS = (
    "is none of the parameters of this path, which are limit, cursor, arm, status, from, to, after; "
    'did you mean "status"?'
)

# A request, and one of the errors by its pointer (or its field, where it is no part of the body).
FIELDS = [
    ("POST", "/campaigns", new(model="per-arm"), "/model", 'must be one of per_arm, shared; did you mean "per_arm"?'),
    ("POST", "/campaigns", new(horizon="1000"), "/horizon", "must be a whole number"),
    ("POST", "/campaigns", new(horizon=1.5), "/horizon", "must be a whole number"),
    ("POST", "/campaigns", new(arms={}), "/arms", "must be a list"),
    ("POST", "/campaigns", new(context=[]), "/context", "must be an object"),
    ("POST", "/campaigns", new(resources=[{"id": "usd"}]), "/resources/0/budget", "is required"),
    ("POST", "/campaigns", new(display_name=""), "/display_name", "must have at least 1 character"),
    ("POST", "/campaigns", new(metadata={"a/b": 1}), "/metadata/a~1b", "must be a string"),
    (
        "POST",
        "/campaigns",
        feature(type="category", values=["a"], strict=1),
        "/context/features/0/strict",
        "true",
    ),
    ("POST", "/campaigns", feature(type="categorie"), "/context/features/0", KINDS),
    ("POST", "/campaigns", feature(type="category", value=["a"]), "/context/features/0/value", NOT_CATEGORY),
    ("POST", "/campaigns", [1], "", "must be an object"),
    (
        "POST",
        "/campaigns",
        new(holdout={"fraction": 0.1, "arm": "baner-a"}),
        "/holdout/arm",
        'must be one of banner-a, banner-b; did you mean "banner-a"?',
    ),
    ("GET", "/campaigns?status=activ", None, "status", 'ended, archived; did you mean "active"?'),
    ("GET", "/campaigns?limit=0", None, "limit", "must be at least 1"),
    ("GET", f"{BEHIND}/decisions?statuss=held", None, "statuss", PARAMETERS),
    ("POST", "/decide", {"campaign_id": "c", "contxt": {}}, "/contxt", NOT_DECIDE),
    ("POST", "/decide", ask({"hour": 3}), "/context/device", "is missing and has no default"),
    ("POST", "/decide", ask({}), "/context/hour", "is missing and has no default"),
    (
        "POST",
        "/decide",
        ask({"hour": 3, "device": "mobil"}),
        "/context/device",
        'must be one of mobile, desktop; did you mean "mobile"?',
    ),
    ("POST", "/decide", ask({"hour": "3", "device": "mobile"}), "/context/hour", "must be a number"),
    ("POST", "/decide", ask({"hour": 3, "device": 1}), "/context/device", "must be a string"),
    ("POST", "/decide", ask({**CONTEXT, "hour": 99}), "/context/hour", "must lie in its declared range, 0 to 23"),
    ("POST", "/decide", ask({**CONTEXT, "devise": "x"}), "/context/devise", FEATURE),
    ("POST", "/decide", ask([1, 2]), "/context", "must be an object by feature name"),
    ("POST", "/decide", ask(max_costs={"banner-aa": {}}), "/max_costs/banner-aa", ARM_AA),
    ("POST", "/decide", ask(name="shared", actions=[{"id": "a", "features": {}}]), "/actions/0/features/size", ""),
    (
        "POST",
        "/decide",
        ask(name="shared", actions=[{"id": "a", "features": {"size": 1}, "max_cost": {"usd": 9}}]),
        "/actions/0/max_cost/usd",
        LIMIT,
    ),
    (
        "POST",
        "/feedback",
        {"campaign_id": "summer-sale", "decision_id": "known", "costs": {"us": 1}},
        "/costs/us",
        'is none of the resources, which are usd; did you mean "usd"?',
    ),
]
DETAILS = [
    ("GET", "/campaigns/summer-sael", None, 404, 'there is no campaign "summer-sael"'),
    ("POST", "/decide", ask(name="summer-sael"), 404, 'there is no campaign "summer-sael"'),
    (
        "POST",
        "/feedback",
        {"campaign_id": "summer-sale", "decision_id": "lost", "reward": 1},
        404,
        'there is no decision "lost" in campaign summer-sale',
    ),
    ("GET", f"{BEHIND}/decisions/lost", None, 404, 'there is no decision "lost" in campaign summer-sale'),
    ("GET", f"{BEHIND}/evaluations/lost", None, 404, 'there is no evaluation "lost" of campaign summer-sale'),
    ("GET", "/portfolios/acme", None, 404, 'there is no portfolio "acme"'),
    ("DELETE", "/admin/keys/key-1", None, 404, 'there is no key "key-1"'),
    ("DELETE", "/admin/webhooks/w", None, 404, 'there is no webhook "w"'),
    (
        "PATCH",
        SALE_PATH,
        {"arms": [{"id": "baner-a", "status": "paused"}]},
        404,
        'there is no arm "baner-a" in the campaign; did you mean "banner-a"?',
    ),
    (
        "POST",
        f"{BEHIND}/adjust",
        {"resource": "USD", "amount": 1, "reason": "x"},
        404,
        'there is no resource "USD" in the campaign; did you mean "usd"?',
    ),
    ("POST", "/admin/keys", {"name": "n", "role": "admin", "campaigns": ["c"]}, 404, 'there is no campaign "c"'),
    ("POST", "/decides", None, 404, 'there is nothing at /decides; did you mean "/decide"?'),
    ("DELETE", SALE_PATH, None, 405, "/campaigns/summer-sale takes GET, PATCH, PUT only"),
]
JARGON = re.compile(
    r"\b(input|valid (?:integer|number|string|list|dictionary)|instance|dictionary|NoneType|dict|str)\b", re.I
)


@pytest.fixture(scope="module")
def dialect():
    """Messages are the same on both databases."""
    return "sqlite"


@pytest.fixture
def call(database):
    with served(database) as client:
        for body in (SALE, SHARED):
            assert client("POST", "/campaigns", json=body).status_code == 201
        assert client("POST", "/decide", json=ask(decision_id="known")).status_code == 200
        yield client


def test_a_field_is_named_by_its_pointer_with_what_is_allowed_and_what_was_meant(call):
    for method, path, body, pointer, message in FIELDS:
        answer = call(method, path, **({} if body is None else {"json": body}))
        assert answer.status_code == 422, (path, body, answer.text)
        errors = {error.get("pointer", error["field"]): error["message"] for error in answer.json()["errors"]}
        assert message in errors[pointer], (path, errors)
        assert not [message for message in errors.values() if JARGON.search(message)]


def test_what_is_not_there_is_named(call):
    for method, path, body, status, detail in DETAILS:
        answer = call(method, path, **({} if body is None else {"json": body}))
        assert (answer.status_code, answer.json()["detail"]) == (status, detail)


def test_a_name_that_is_long_or_cannot_be_printed_is_shown_safely(call):
    answer = call("GET", f"/campaigns/{'x' * 5000}")
    assert answer.json()["detail"] == f'there is no campaign "{"x" * 64}"'
    assert "\\u202e" in call("GET", "/campaigns/%E2%80%AEevil").json()["detail"]


def test_an_error_that_the_engine_finds_in_an_item_names_its_place(call):
    items = [{"context": CONTEXT}, {"context": {"hour": 3}}]
    good, bad = call("POST", "/decide/batch", json={"campaign_id": "summer-sale", "items": items}).json()["decisions"]
    assert good["reason"] == "policy"
    (error,) = bad["error"]["errors"]
    assert (error["field"], error["pointer"]) == ("items.1.context.device", "/items/1/context/device")


def test_help_leads_to_the_entry_of_the_problem_without_a_key(call):
    page = call("GET", "/docs/problems", key=None)
    assert page.headers["content-type"].startswith("text/html")
    for path, kind in (("/campaigns/none", "campaign-not-found"), ("/nothing", "path-not-found")):
        assert call("GET", path).json()["help"] == f"/docs/problems#{kind}"
    assert re.findall(r'<h2 id="([a-z-]+)">', page.text) == [*MEANINGS]
    assert "<code>Authorization: Bearer …</code>" in page.text
