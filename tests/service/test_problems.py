import itertools
import json
import sqlite3

import pytest
from sqlalchemy.exc import OperationalError

from service.app import create_app
from service.engine.commands import Adjust, Answer, CreateCampaign, CreateKey, Decide, Feedback, PatchCampaign
from service.problems import Conflict, NotFound, Unavailable
from service.schemas.campaign import CONFIG_EXAMPLE
from tests.service.http_client import ADMIN_KEY, NotingEngine, client_of, key_for, noted

DECIDE = {"campaign_id": "summer", "context": {"hour": 3}}
FEEDBACK = {"campaign_id": "summer", "decision_id": "d-1", "reward": 1}
HOT = ["/decide", "/decide/batch", "/feedback", "/feedback/batch"]


@pytest.fixture
def dialect():
    """Problems are the same on both databases."""
    return "sqlite"


@pytest.fixture
def engine():
    return NotingEngine()


@pytest.fixture
def call(database, engine):
    with noted(database, engine) as client:
        yield client


def problem(answer, status, kind):
    """Return the problem document after checking its form."""
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["x-request-id"]
    document = answer.json()
    assert (answer.status_code, document["status"]) == (status, status)
    assert document["type"] == f"urn:cbwk:problem:{kind}"
    assert document["title"]
    assert document["detail"]
    return document


def test_a_request_without_a_key_is_401_and_the_answer_says_how_to_send_one(call):
    for method, path in [("POST", "/decide"), ("GET", "/campaigns"), ("GET", "/metrics"), ("GET", "/admin/keys")]:
        answer = call(method, path, key=None)
        problem(answer, 401, "key-missing")
        assert answer.headers["www-authenticate"] == 'Bearer realm="cbwk"'


@pytest.mark.parametrize("key", ["wrong", "cbwk_" + "A" * 43, "x" * 100_000, "é"])
def test_a_key_that_is_not_valid_is_401_and_not_repeated(call, key):
    answer = call("GET", "/campaigns", key=None, headers={"Authorization": b"Bearer " + key.encode()})
    problem(answer, 401, "unauthorized")
    assert key not in answer.text


def test_a_key_is_accepted_in_either_header(call):
    for headers in ({"Authorization": f"bearer {ADMIN_KEY}"}, {"X-API-Key": ADMIN_KEY}):
        assert call("GET", "/campaigns", key=None, headers=headers).status_code == 200
    assert call("GET", "/campaigns", key=None, headers={"Authorization": f"Basic {ADMIN_KEY}"}).status_code == 401


def test_health_and_documentation_are_open(call):
    for path in ("/livez", "/readyz", "/docs", "/openapi.json"):
        assert call("GET", path, key=None).status_code == 200


BY_ROLE = {
    "decider": [("POST", path) for path in HOT],
    "reader": [
        ("GET", path)
        for path in [
            "/metrics",
            "/campaigns",
            "/campaigns/summer",
            "/admin/budgets",
            *(
                f"/admin/campaigns/summer/{name}"
                for name in ["budget", "ledger", "verify", "timeline", "arms", "decisions", "decisions/d", "export"]
            ),
        ]
    ],
    "admin": [
        ("POST", "/campaigns"),
        ("PATCH", "/campaigns/summer"),
        ("POST", "/campaigns/summer/pause"),
        ("POST", "/campaigns/summer/resume"),
        ("POST", "/campaigns/summer/archive"),
        ("POST", "/admin/campaigns/summer/adjust"),
        ("POST", "/admin/keys"),
        ("GET", "/admin/keys"),
        ("DELETE", "/admin/keys/key-1"),
        ("GET", "/admin/audit"),
    ],
}


@pytest.mark.parametrize(
    ("role", "needed"), [pair for pair in itertools.permutations(BY_ROLE, 2) if pair[0] != "admin"]
)
def test_a_key_without_the_role_is_403(call, database, role, needed):
    key = key_for(database, role)
    for method, path in BY_ROLE[needed]:
        problem(call(method, path, key=key), 403, "role-missing")


@pytest.mark.parametrize("role", BY_ROLE)
def test_a_key_with_the_role_is_not_401_or_403(call, database, role):
    key = key_for(database, role)
    for method, path in BY_ROLE[role]:
        assert call(method, path, key=key).status_code not in (401, 403)


def test_a_limited_key_gets_404_for_campaigns_it_may_not_see(call, database, engine):
    decider = key_for(database, "decider", ("spring",))
    for path, body in (
        ("/decide", DECIDE),
        ("/decide/batch", {"campaign_id": "summer", "items": []}),
        ("/feedback", FEEDBACK),
    ):
        problem(call("POST", path, key=decider, json=body), 404, "campaign-not-found")
    admin = key_for(database, "admin", ("spring",))
    for method, path in BY_ROLE["reader"] + BY_ROLE["admin"]:
        if "summer" in path:
            problem(call(method, path, key=admin), 404, "campaign-not-found")
    assert engine.commands == []


def test_a_limited_key_has_no_access_to_what_concerns_all_campaigns(call, database, engine):
    admin = key_for(database, "admin", ("spring",))
    for method, path in [
        ("POST", "/campaigns"),
        ("POST", "/admin/keys"),
        ("GET", "/admin/keys"),
        ("DELETE", "/admin/keys/key-1"),
        ("GET", "/admin/audit"),
        ("GET", "/metrics"),
    ]:
        problem(call(method, path, key=admin), 403, "key-limited")
    assert engine.commands == []


def test_feedback_of_a_batch_for_a_campaign_the_key_may_not_see_is_an_error_in_its_place(call, database, engine):
    key = key_for(database, "decider", ("spring",))
    items = [FEEDBACK, {**FEEDBACK, "campaign_id": "spring"}]
    hidden, seen = call("POST", "/feedback/batch", key=key, json={"items": items}).json()["results"]
    assert hidden["error"]["type"] == "urn:cbwk:problem:campaign-not-found"
    assert seen == {"noted": True}
    assert [command.campaign_id for command in engine.commands] == ["spring"]


@pytest.mark.parametrize("path", ["/nothing", "/decide/", "/campaigns/a/b", "/admin", "/campaigns/../x", "/livez/"])
def test_an_unknown_path_is_404(call, path):
    problem(call("GET", path), 404, "path-not-found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        *(("GET", path, "POST") for path in HOT),
        ("DELETE", "/campaigns", "GET, POST"),
        ("OPTIONS", "/campaigns/summer", "GET, PATCH, PUT"),
        ("PUT", "/livez", "GET"),
        ("POST", "/openapi.json", "GET"),
    ],
)
def test_a_wrong_method_is_405_and_the_answer_lists_the_allowed_methods(call, method, path, allowed):
    answer = call(method, path)
    problem(answer, 405, "method-not-allowed")
    assert answer.headers["allow"] == allowed


@pytest.mark.parametrize("campaign_id", ["%00", "-x", "a%20b", "%F0%9F%98%80", "x" * 200, "none"])
def test_an_invalid_id_in_a_path_is_404(call, campaign_id):
    problem(call("GET", f"/campaigns/{campaign_id}"), 404, "campaign-not-found")
    problem(call("GET", f"/admin/campaigns/{campaign_id}/decisions/x"), 404, "campaign-not-found")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=s3cr3t", "limit"),
        ("status=s3cr3t", "status"),
        ("cursor=s3cr3t!", "cursor"),
        ("cursor=czNjcjN0", "cursor"),
        ("cursor=" + "9" * 300, "cursor"),
        ("cursor=OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5", "cursor"),
    ],
)
def test_a_bad_query_is_422_and_names_the_parameter(call, query, field):
    document = problem(call("GET", f"/campaigns?{query}"), 422, "invalid")
    assert [error["field"] for error in document["errors"]] == [field]
    assert "s3cr3t" not in json.dumps(document)


BODIES = [("POST", path) for path in HOT] + [
    ("POST", "/campaigns"),
    ("PATCH", "/campaigns/summer"),
    ("POST", "/admin/campaigns/summer/adjust"),
    ("POST", "/admin/keys"),
]


@pytest.mark.parametrize(("method", "path"), BODIES)
@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b'{"x": "\xc3("}', b"[" * 10_000, b"9" * 10_000])
def test_a_body_that_is_not_json_is_400(call, engine, method, path, body):
    problem(call(method, path, content=body), 400, "not-json")
    assert engine.commands == []


@pytest.mark.parametrize(("method", "path"), BODIES)
@pytest.mark.parametrize("body", [b"null", b"[]", b'{"unknown": 1e400}', b'{"context": NaN, "s3cr3t": "s3cr3t-value"}'])
def test_a_body_of_the_wrong_form_is_422_and_names_fields(call, engine, method, path, body):
    document = problem(call(method, path, content=body), 422, "invalid")
    assert all(error.keys() == {"field", "message", "pointer"} for error in document["errors"])
    assert "s3cr3t-value" not in json.dumps(document)
    assert engine.commands == []


@pytest.mark.parametrize(("method", "path"), BODIES)
def test_a_body_above_the_limit_is_413_whether_its_length_was_declared_or_not(database, engine, method, path):
    async def in_chunks():
        for _ in range(5):
            yield b" " * 1000

    with noted(database, engine, body_bytes_max=2000, batch_body_bytes_max=4000) as call:
        problem(call(method, path, content=b" " * 5000), 413, "too-large")
        problem(call(method, path, content=in_chunks()), 413, "too-large")
        fits = b" " * (4000 if path.endswith("/batch") else 2000)
        assert call(method, path, content=fits).status_code == 400
        # A content length below the limit is not trusted.
        assert call(method, path, content=b" " * 5000, headers={"Content-Length": "10"}).status_code == 413


def test_problems_of_the_engine_become_the_answer_unchanged(call, engine):
    engine.problem = Conflict("this decision_id was used with another body", kind="decision-id-reused")
    assert problem(call("POST", "/decide", json=DECIDE), 409, "decision-id-reused")["detail"] == engine.problem.detail
    engine.problem = NotFound("there is no such decision in this campaign", kind="decision-not-found")
    problem(call("POST", "/feedback", json=FEEDBACK), 404, "decision-not-found")
    problem(call("POST", "/campaigns/summer/pause"), 404, "decision-not-found")


def test_unavailable_says_when_to_try_again(call, engine):
    engine.problem = Unavailable("the queue is full; try again", kind="queue-full")
    for path, body in (("/decide", DECIDE), ("/decide/batch", {"campaign_id": "summer", "items": [DECIDE_ITEM]})):
        answer = call("POST", path, json=body)
        problem(answer, 503, "queue-full")
        assert int(answer.headers["retry-after"]) >= 1


DECIDE_ITEM = {"context": [1.0]}


def test_a_request_is_answered_by_its_deadline(database, engine):
    engine.seconds = 60
    batch = {"campaign_id": "summer", "items": [DECIDE_ITEM]}
    with noted(database, engine, request_deadline_ms=20) as call:
        for path, body in (("/decide", DECIDE), ("/feedback", FEEDBACK), ("/decide/batch", batch)):
            answer = call("POST", path, json=body)
            problem(answer, 503, "deadline-passed")
            assert answer.headers["retry-after"]


def test_a_process_without_its_components_is_alive_and_not_ready():
    with client_of(create_app()) as call:
        assert call("GET", "/livez").json() == {"status": "ok"}
        for method, path in [("GET", "/readyz"), ("POST", "/decide"), ("GET", "/campaigns")]:
            problem(call(method, path), 503, "not-ready")


def test_a_database_that_does_not_answer_is_503(call):
    class Away:
        def read(self):
            cause = sqlite3.OperationalError("the password is s3cr3t")
            cause.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise OperationalError("SELECT 1", {}, cause)

    call.app.state.database = Away()
    for path in ("/readyz", "/campaigns", "/admin/campaigns/summer/export"):
        answer = call("GET", path)
        problem(answer, 503, "database-away")
        assert answer.headers["retry-after"]
        assert "s3cr3t" not in answer.text
    assert "cbwk_database_up 0.0" in call("GET", "/metrics").text


def test_an_unexpected_exception_is_500_without_its_text_and_logged_with_the_requests_id(call, engine, logged):
    engine.problem = RuntimeError("s3cr3t detail")
    for method, path, body in [("POST", "/decide", DECIDE), ("POST", "/campaigns/summer/pause", None)]:
        answer = call(method, path, json=body, headers={"X-Request-Id": "mine-1"})
        problem(answer, 500, "internal")
        assert "s3cr3t" not in answer.text
        assert "Traceback" not in answer.text
        (line,) = logged()
        assert (line["request_id"], line["level"], line["method"]) == ("mine-1", "error", method)
        assert "RuntimeError: s3cr3t detail" in line["exception"]
        assert ADMIN_KEY not in json.dumps(line)


def test_a_request_keeps_its_own_id_or_gets_a_new_one(call):
    for path in ("/livez", "/nothing", "/decide"):
        assert call("POST", path, headers={"X-Request-Id": "a.b:c~d-1"}).headers["x-request-id"] == "a.b:c~d-1"
        made = {
            call("POST", path, headers={"X-Request-Id": bad}).headers["x-request-id"] for bad in ("", "a b", "x" * 129)
        }
        assert len(made) == 3
        assert not made & {"", "a b"}


def test_successful_requests_write_no_log_line(call, logged):
    assert call("POST", "/decide", json=DECIDE).status_code == 200
    assert call("GET", "/campaigns").status_code == 200
    assert logged() == []


def test_requests_are_counted_by_route_and_status(call):
    call("POST", "/decide", json=DECIDE)
    call("GET", "/decide")
    call("GET", "/campaigns/none")
    call("GET", "/nothing")
    text = call("GET", "/metrics").text
    for labels in [
        'method="POST",route="/decide",status="200"',
        'method="GET",route="/decide",status="405"',
        'method="GET",route="/campaigns/{campaign_id}",status="404"',
        'method="GET",route="other",status="404"',
    ]:
        assert f"cbwk_requests_total{{{labels}}} 1.0" in text


def test_metrics_may_be_public(database, engine):
    with noted(database, engine, metrics_public=True) as call:
        answer = call("GET", "/metrics", key=None)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")


def test_bodies_become_commands(call, engine):
    action = {"id": "a", "features": {"size": 1}, "max_cost": {"usd": 0.5}}
    call(
        "POST", "/decide", json={**DECIDE, "decision_id": "d-1", "exclude": ["b"], "actions": [action], "explain": True}
    )
    call("POST", "/feedback", json={"campaign_id": "summer", "decision_id": "d-1", "costs": {"usd": 0.1}})
    call("PATCH", "/campaigns/summer", json={"resources": [{"id": "usd", "budget": 300.0}]})
    call("POST", "/admin/campaigns/summer/adjust", json={"resource": "usd", "amount": -1.5, "reason": "refund"})
    call("POST", "/admin/keys", json={"name": "n", "role": "decider", "campaigns": ["summer"]})
    assert engine.commands == [
        Decide("summer", "d-1", {"hour": 3.0}, ["b"], [action], explain=True),
        Feedback("summer", "d-1", None, {"usd": 0.1}),
        PatchCampaign("summer", {"resources": [{"id": "usd", "budget": 300}]}, "environment"),
        Adjust("summer", "usd", -1.5, "refund", "environment"),
        CreateKey("n", "decider", ("summer",), "environment"),
    ]


def test_a_campaign_is_created_with_all_its_defaults(call, engine):
    engine.answer = Answer({"id": "summer-sale"}, status=201)
    assert call("POST", "/campaigns", json=CONFIG_EXAMPLE).status_code == 201
    (command,) = engine.commands
    assert isinstance(command, CreateCampaign)
    assert command.actor == "environment"
    assert command.config["feedback"] == CONFIG_EXAMPLE["feedback"]


def test_the_answer_to_a_repeated_request_has_a_header(call, engine):
    assert "idempotent-replayed" not in call("POST", "/decide", json=DECIDE).headers
    engine.answer = Answer({}, replayed=True)
    assert call("POST", "/decide", json=DECIDE).headers["idempotent-replayed"] == "true"
    items = {"campaign_id": "summer", "items": [DECIDE_ITEM]}
    assert call("POST", "/decide/batch", json=items).headers["idempotent-replayed"] == "true"


def test_a_bad_item_of_a_batch_is_an_error_in_its_own_place(call, engine):
    items = [DECIDE_ITEM, {}, 5, {"context": [True]}, {"context": {"hour": 1}, "explain": True}, DECIDE_ITEM]
    answer = call("POST", "/decide/batch", json={"campaign_id": "summer", "items": items})
    assert answer.status_code == 200
    decisions = answer.json()["decisions"]
    fields = [[error["field"] for error in one["error"]["errors"]] if "error" in one else [] for one in decisions]
    assert fields == [[], ["items.1.context"], ["items.2"], ["items.3.context.0"], ["items.4.explain"], []]
    assert len(engine.commands) == 2


def test_an_empty_batch_is_answered_with_an_empty_list(call, engine):
    assert call("POST", "/feedback/batch", json={"items": []}).json() == {"results": []}
    assert engine.commands == []


def test_numbers_in_a_batch_that_no_float_can_hold_are_errors_in_their_place(call):
    items = b", ".join(b'{"context": [%s]}' % number for number in (b"1e400", b"NaN", b"1" * 400))
    answer = call("POST", "/decide/batch", content=b'{"campaign_id": "summer", "items": [%s]}' % items)
    assert [one["error"]["status"] for one in answer.json()["decisions"]] == [422, 422, 422]
