import json

import jsonschema_rs
import pytest
import schemathesis
from msgspec.json import Decoder

from service.app import create_app
from service.hot.bodies import read
from service.hot.endpoints import HOT_ROUTES
from service.problems import Problem
from service.responses import parsed
from service.schemas import ANSWERS, REQUESTS

DOCUMENT = create_app().openapi()

CAMPAIGN = "/campaigns/{campaign_id}"
ADMIN = "/admin/campaigns/{campaign_id}"
OPERATIONS = {
    ("post", "/decide"),
    ("post", "/decide/batch"),
    ("post", "/feedback"),
    ("post", "/feedback/batch"),
    ("post", "/campaigns"),
    ("get", "/campaigns"),
    ("get", CAMPAIGN),
    ("patch", CAMPAIGN),
    ("put", CAMPAIGN),
    *(("post", f"{CAMPAIGN}/{action}") for action in ("pause", "resume", "archive")),
    *((method, "/admin/webhooks") for method in ("post", "get")),
    ("delete", "/admin/webhooks/{webhook_id}"),
    ("get", "/admin/webhooks/{webhook_id}/deliveries"),
    ("get", "/admin/budgets"),
    *(
        ("get", f"{ADMIN}/{name}")
        for name in ("budget", "ledger", "verify", "timeline", "arms", "decisions", "export", "model")
    ),
    ("put", f"{ADMIN}/model"),
    ("get", f"{ADMIN}/uplift"),
    ("post", f"{ADMIN}/evaluations"),
    ("get", f"{ADMIN}/evaluations"),
    ("get", f"{ADMIN}/evaluations/{{evaluation_id}}"),
    ("get", f"{ADMIN}/decisions/{{decision_id}}"),
    ("post", f"{ADMIN}/adjust"),
    ("post", "/portfolios"),
    ("get", "/portfolios"),
    ("get", "/portfolios/{portfolio_id}"),
    ("patch", "/portfolios/{portfolio_id}"),
    *(("get", f"/admin/portfolios/{{portfolio_id}}/{name}") for name in ("budget", "ledger", "verify")),
    ("post", "/admin/keys"),
    ("get", "/admin/keys"),
    ("delete", "/admin/keys/{key_id}"),
    ("get", "/admin/audit"),
    ("get", "/livez"),
    ("get", "/readyz"),
    ("get", "/metrics"),
}


def operations():
    return {(method, path): operation for path, item in DOCUMENT["paths"].items() for method, operation in item.items()}


def validator(schema):
    """Return a validator of one schema of the document that can resolve references to the others."""
    return jsonschema_rs.validator_for({**schema, "components": DOCUMENT["components"]})


def media_types():
    """Yield every body of the document: its operation and request or status, its media type, its description."""
    for (method, path), operation in operations().items():
        name = f"{method} {path}"
        for media_type, body in operation.get("requestBody", {}).get("content", {}).items():
            yield f"{name} request", media_type, body
        for status, answer in operation["responses"].items():
            for media_type, body in answer["content"].items():
                yield f"{name} {status}", media_type, body


BODIES = {f"{place} {media_type}": body for place, media_type, body in media_types()}


def test_the_document_is_openapi_3_1():
    assert DOCUMENT["openapi"].startswith("3.1")
    schemathesis.openapi.from_dict(DOCUMENT).validate()
    json.dumps(DOCUMENT, allow_nan=False)


def test_it_has_every_operation_of_the_interface_under_a_unique_name():
    assert OPERATIONS <= set(operations())
    names = [operation["operationId"] for operation in operations().values()]
    assert len(set(names)) == len(names)
    for operation in operations().values():
        assert operation["summary"]
        assert operation["description"]
        assert operation["tags"]


def test_every_reference_has_a_target():
    known = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    text = json.dumps(DOCUMENT)
    assert {part.split('"')[0] for part in text.split('"$ref": "')[1:]} <= known
    for schema in DOCUMENT["components"]["schemas"].values():
        validator(schema)


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_every_json_body_has_an_example_that_fits_its_schema(body):
    if body["schema"].get("type") == "string":
        return  # a stream of text
    name = body["schema"]["$ref"].rpartition("/")[2]
    schema = DOCUMENT["components"]["schemas"][name]
    examples = [body["example"]] if "example" in body else schema["examples"]
    for one in examples:
        validator(schema).validate(one)


HOT = tuple(route.takes for route in HOT_ROUTES)


def taken(model, body):
    """The body as its model reads it, or a Problem."""
    data = json.dumps(body).encode()
    return read(data, Decoder(model)) if model in HOT else parsed(data, model)


@pytest.mark.parametrize("model", [*REQUESTS, *HOT, *ANSWERS], ids=lambda model: model.__name__)
def test_every_model_accepts_its_example(model):
    (one,) = DOCUMENT["components"]["schemas"][model.__name__]["examples"]
    taken(model, one)


@pytest.mark.parametrize("model", [*REQUESTS, *HOT], ids=lambda model: model.__name__)
def test_the_schema_of_a_request_and_its_model_refuse_unknown_fields(model):
    schema = DOCUMENT["components"]["schemas"][model.__name__]
    body = {**schema["examples"][0], "unknown": 1}
    assert not validator(schema).is_valid(body)
    with pytest.raises(Problem):
        taken(model, body)


def test_every_field_and_every_parameter_is_described():
    for name, schema in DOCUMENT["components"]["schemas"].items():
        assert schema["description"], name
        for field, described in schema.get("properties", {}).items():
            assert described.get("description"), f"{name}.{field}"
    for operation in operations().values():
        for parameter in operation.get("parameters", []):
            assert parameter["description"], (operation["operationId"], parameter["name"])


def test_the_body_of_a_change_shows_no_default_because_an_absent_field_changes_nothing():
    schemas, seen = DOCUMENT["components"]["schemas"], set()
    waiting = [
        operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        for (method, _), operation in operations().items()
        if method == "patch"
    ]
    created = {"Arm", "Holdout", "Window"}  # parts that a change adds whole
    while waiting:
        name = waiting.pop().rpartition("/")[2]
        if name not in seen | created:
            seen.add(name)
            properties = schemas[name]["properties"]
            assert [field for field, described in properties.items() if "default" in described] == [], name
            waiting += [part.split('"')[0] for part in json.dumps(properties).split('"$ref": "')[1:]]
    assert seen == {
        *("CampaignPatch", "ResourceChange", "ArmChange", "FeedbackTermsChange"),
        *("PortfolioPatch", "SharedResourceChange"),
    }
    assert schemas["FeedbackTerms"]["properties"]["ttl_seconds"]["default"] == 3600


def test_every_operation_except_health_documents_that_it_needs_a_key():
    schemes = DOCUMENT["components"]["securitySchemes"]
    for (_, path), operation in operations().items():
        needed = [name for alternative in operation["security"] for name in alternative]
        roles = {role for alternative in operation["security"] for roles in alternative.values() for role in roles}
        assert roles <= {"decider", "reader", "admin"}
        assert len(roles) == bool(needed)
        assert needed == ([] if path in ("/livez", "/readyz") else list(schemes))
        assert ("401" in operation["responses"]) == bool(needed)


def test_every_operation_documents_its_problems_as_problem_json():
    for (method, path), operation in operations().items():
        statuses = {int(status) for status in operation["responses"]}
        good = {200, 201} if operation["operationId"] == "ensure_campaign" else None
        assert statuses & {200, 201, 202} == good or (good is None and len(statuses & {200, 201, 202}) == 1)
        if "requestBody" in operation:
            assert {400, 413, 422} <= statuses
        if "{" in path or path in ("/decide", "/feedback"):
            assert 404 in statuses
        if path != "/livez":
            assert 503 in statuses
        for status in statuses - {200, 201, 202}:
            answer = operation["responses"][str(status)]
            assert list(answer["content"]) == ["application/problem+json"], (method, path)
            assert answer["content"]["application/problem+json"]["example"]["status"] == status


def test_links_lead_from_a_response_to_operations_that_accept_its_fields():
    by_name = {operation["operationId"]: operation for operation in operations().values()}
    linked = set()
    for name, operation in by_name.items():
        for status, answer in operation["responses"].items():
            for link in answer.get("links", {}).values():
                following = by_name[link["operationId"]]
                schema = answer["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
                given = link.get("parameters", {}) | link.get("requestBody", {})
                fields = {expression.rpartition("/")[2] for expression in given.values()}
                assert fields <= set(DOCUMENT["components"]["schemas"][schema]["properties"])
                taken = {parameter["name"] for parameter in following.get("parameters", [])}
                assert set(link.get("parameters", {})) <= taken
                assert status in ("200", "201", "202")
                linked.add((name, link["operationId"]))
    assert {
        ("create_campaign", "show_campaign"),
        ("create_campaign", "change_campaign"),
        ("create_campaign", "decide"),
        ("decide", "feedback"),
        ("decide", "show_decision"),
        ("create_key", "revoke_key"),
    } <= linked


def test_no_response_has_a_schema_of_fastapi():
    assert "HTTPValidationError" not in json.dumps(DOCUMENT)
