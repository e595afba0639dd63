import copy
import json
import math

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.json import Decoder

from service.domain.campaign import Campaign
from service.domain.config import check_new_config
from service.hot.bodies import DecideBatch, DecideRequest, FeedbackRequest, read
from service.limits import ACTIONS_MAX, ARMS_MAX, EXCLUDE_MAX, ITEMS_MAX, RESOURCES_MAX
from service.money import micros
from service.problems import Problem
from service.responses import ERRORS_MAX, parsed
from service.schemas.admin import AdjustRequest, KeyRequest
from service.schemas.campaign import CONFIG_EXAMPLE, CampaignConfig, CampaignPatch
from service.words import error_at

SECRET = "s3cr3t-value"
DECIDE = {"campaign_id": "c", "context": {"hour": 3}}
FEEDBACK = {"campaign_id": "c", "decision_id": "d", "reward": 1}
GONE = object()


def changed(body, path, value):
    """A copy with the value at a path such as resources.0.budget; GONE takes it away."""
    body = copy.deepcopy(body)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place = body
    for part in parents:
        place = place[part]
    if value is GONE:
        del place[last]
    else:
        place[last] = value
    return body


def accepted(model, body):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    body = read(data, Decoder(model)) if issubclass(model, Struct) else parsed(data, model)
    if model is CampaignConfig:
        check_new_config(body.as_json())
    return body


def refused(model, body):
    """The problem that a body is refused with."""
    with pytest.raises(Problem) as refusal:
        accepted(model, body)
    return refusal.value.document()


def arms_with(count):
    return [{"id": f"a{index}"} for index in range(count)]


SHARED = {
    "arms": [{"id": "a", "features": {"size": 1}}],
    "resources": [{"id": "usd", "budget": 10, "max_cost": 1}],
    "horizon": 100,
    "context": {"dimension": 2},
    "model": "shared",
    "arm_features": {"features": [{"name": "size", "type": "number", "min": 0, "max": 2}]},
}

BAD_CONFIGS = [
    ("id", "-starts-with-a-dash", "id"),
    ("id", "x" * 129, "id"),
    ("id", "line\n", "id"),
    ("id", 7, "id"),
    ("arms", GONE, "arms"),
    ("arms", [], "arms"),
    ("arms", arms_with(ARMS_MAX + 1), "arms"),
    ("arms", [{"id": "a"}, {"id": "a"}], "arms"),
    ("arms.0", SECRET, "arms.0"),
    ("arms.0.id", GONE, "arms.0.id"),
    ("arms.0.features", {"size": 1}, "arms.0.features"),
    ("arms.1.max_cost", {"eur": 0.01}, "arms.1.max_cost"),
    ("arms.1.max_cost.usd", 0.06, "arms.1.max_cost"),
    ("arms.1.max_cost.usd", -0.01, "arms.1.max_cost.usd"),
    ("arms.1.max_cost.usd", 0.0000001, "arms.1.max_cost.usd"),
    ("resources", [], "resources"),
    ("resources", [{"id": f"r{i}", "budget": 1, "max_cost": 1} for i in range(RESOURCES_MAX + 1)], "resources"),
    ("resources.1.id", "usd", "resources"),
    ("resources.0.budget", 0, "resources.0.budget"),
    ("resources.0.budget", -1, "resources.0.budget"),
    ("resources.0.budget", "250", "resources.0.budget"),
    ("resources.0.budget", True, "resources.0.budget"),
    ("resources.0.budget", None, "resources.0.budget"),
    ("resources.0.budget", 250.0000001, "resources.0.budget"),
    ("resources.0.budget", 9_000_000_001, "resources.0.budget"),
    ("resources.0.max_cost", 0, "resources.0.max_cost"),
    ("resources.0.maxcost", 1, "resources.0.maxcost"),
    ("horizon", GONE, "horizon"),
    ("horizon", 0, "horizon"),
    ("horizon", 1.5, "horizon"),
    ("horizon", "100", "horizon"),
    ("ends_at", "2026-12-01T00:00:00Z", "horizon"),
    ("ends_at", "tomorrow", "ends_at"),
    ("ends_at", "2026-12-01T00:00:00", "ends_at"),
    ("ends_at", 1790000000, "ends_at"),
    ("ends_at", "0001-01-01T00:02:00+01:00", "ends_at"),
    ("ends_at", "9999-12-31T23:59:59-01:00", "ends_at"),
    ("context", {}, "context"),
    ("context", {"dimension": 0}, "context.dimension"),
    ("context", {"dimension": 5000}, "context.dimension"),
    ("context.dimension", 3, "context"),
    ("context.features", [], "context.features"),
    ("context.features.0.name", "device", "context.features"),
    ("context.features.0.name", "two\nlines", "context.features.0.name"),
    ("context.features.0.type", SECRET, "context.features.0"),
    ("context.features.0.type", GONE, "context.features.0"),
    ("context.features.0.max", 0, "context.features.0"),
    ("context.features.0.max", GONE, "context.features.0.max"),
    ("context.features.0.default", 99, "context.features.0"),
    ("context.features.1.values", [], "context.features.1.values"),
    ("context.features.1.values", ["a", "a"], "context.features.1"),
    ("context.features.1.default", SECRET, "context.features.1"),
    ("context.features.2.buckets", 0, "context.features.2.buckets"),
    ("context.features.2.buckets", 5000, "context.features.2"),
    ("context.features.2.buckets", 4095, "context.features"),
    ("context.features.2.strict", True, "context.features.2.strict"),
    ("reward", {"min": 1, "max": 1}, "reward"),
    ("reward", {"min": -1.7e308, "max": 1.7e308}, "reward"),
    ("model", SECRET, "model"),
    ("model", "shared", "arm_features"),
    ("arm_features", {"dimension": 2}, "arm_features"),
    ("policy.preset", SECRET, "policy.preset"),
    ("policy.oracle.kind", SECRET, "policy.oracle.kind"),
    ("policy.oracle.kind", "aggregate", "policy"),
    ("policy.oracle", {"kind": "kernel", "link": "logistic"}, "policy"),
    ("policy.oracle", {"kind": "gradient", "forgetting": 0.9}, "policy"),
    ("policy.oracle.forgetting", 1.01, "policy.oracle.forgetting"),
    ("policy.gamma", 0, "policy.gamma"),
    ("policy.gamma", 1e300, "policy.gamma"),
    ("policy.z", 1e300, "policy.z"),
    ("policy.gamma", SECRET, "policy.gamma"),
    ("policy.z", -1, "policy.z"),
    ("policy.two_stage", True, "policy.two_stage"),
    ("policy.two_stage", SECRET, "policy.two_stage"),
    ("feedback.ttl_seconds", 0, "feedback.ttl_seconds"),
    ("feedback.missing_reward", 2, "feedback.missing_reward"),
    ("feedback.missing_cost", SECRET, "feedback.missing_cost"),
    ("seed", -1, "seed"),
    ("seed", 2**53, "seed"),
    ("holdout", {"fraction": 1, "arm": None}, "holdout.fraction"),
    ("holdout", {"fraction": 0.1, "arm": "nobody"}, "holdout.arm"),
    ("holdout", {"fraction": 0.1}, "holdout.arm"),
    ("mode", "dark", "mode"),
    (SECRET[:4], 1, SECRET[:4]),
]


@pytest.mark.parametrize("two_stage", [True, "measured", "paper", "off", False, "auto"])
def test_two_stages_are_taken_with_a_preset_that_has_them_and_a_horizon(two_stage):
    body = changed(CONFIG_EXAMPLE, "policy", {"preset": "paper", "two_stage": two_stage})
    body = changed(changed(body, "horizon", 20_000), "resources.0.budget", 9_000)
    assert accepted(CampaignConfig, body).as_json()["policy"]["two_stage"] == two_stage
    ends = changed(changed(body, "horizon", GONE), "ends_at", "2099-01-01T00:00:00Z")
    if two_stage in (False, "off", "auto"):
        accepted(CampaignConfig, ends)
    else:
        assert refused(CampaignConfig, ends)["errors"] == [error_at("policy.two_stage", "needs a horizon")]
        poor = refused(CampaignConfig, changed(body, "resources.0.budget", 1))
        assert [error["field"] for error in poor["errors"]] == ["policy.two_stage"]


@pytest.mark.parametrize(("path", "value", "field"), BAD_CONFIGS)
def test_a_bad_configuration_is_422_and_names_the_field_and_not_the_value(path, value, field):
    problem = refused(CampaignConfig, changed(CONFIG_EXAMPLE, path, value))
    assert problem["status"] == 422
    assert field in [error["field"] for error in problem["errors"]]
    assert SECRET not in json.dumps(problem)


BAD_SHARED = [
    ("arms.0.features", GONE, "arms.0.features"),
    ("arms.0.features", {}, "arms.0.features"),
    ("arms.0.features", [1], "arms.0.features"),
    ("arms.0.features", {"size": SECRET}, "arms.0.features"),
    ("arms.0.features", {"size": None}, "arms.0.features.size"),
    ("arm_features", GONE, "arm_features"),
]


@pytest.mark.parametrize(("path", "value", "field"), BAD_SHARED)
def test_a_shared_model_needs_features_of_every_arm(path, value, field):
    problem = refused(CampaignConfig, changed(SHARED, path, value))
    assert [error["field"] for error in problem["errors"]] == [field]
    assert SECRET not in json.dumps(problem)


def test_a_shared_model_may_have_no_arms_of_its_own():
    assert accepted(CampaignConfig, changed(SHARED, "arms", [])).as_json()["arms"] == []


BAD_DECIDES = [
    ("campaign_id", GONE, "campaign_id"),
    ("campaign_id", SECRET + " ", "campaign_id"),
    ("decision_id", "", "decision_id"),
    ("context", GONE, "context"),
    ("context", SECRET, "context"),
    ("context", None, "context"),
    ("context.hour", True, "context.hour"),
    ("context.hour", None, "context.hour"),
    ("context.hour", [SECRET], "context.hour"),
    ("context.hour", "x" * 1001, "context.hour"),
    ("context", [1, SECRET], "context.1"),
    ("context", [1, True], "context.1"),
    ("exclude", "a", "exclude"),
    ("exclude", [1], "exclude.0"),
    ("exclude", ["a"] * (EXCLUDE_MAX + 1), "exclude"),
    ("explain", 1, "explain"),
    ("explain", "true", "explain"),
    ("actions", [], "actions"),
    ("actions", [{"id": "a"}], "actions.0.features"),
    ("actions", [{"id": "a", "features": [1]}] * 2, "actions"),
    ("actions", [{"id": "a", "features": [1], "max_cost": {"usd": 1e-7}}], "actions.0.max_cost.usd"),
    ("actions", [{"id": f"a{i}", "features": [1]} for i in range(ACTIONS_MAX + 1)], "actions"),
    ("baseline_arm", "-a", "baseline_arm"),
    ("max_cost", {"usd": -1}, "max_cost.usd"),
    ("max_costs", {"a": {"usd": 1e-7}}, "max_costs.a.usd"),
    ("max_costs", {f"a{i}": {} for i in range(ARMS_MAX + 1)}, "max_costs"),
]


@pytest.mark.parametrize(("path", "value", "field"), BAD_DECIDES)
def test_a_bad_decide_request_names_the_field_and_not_the_value(path, value, field):
    problem = refused(DecideRequest, changed(DECIDE, path, value))
    assert [error["field"] for error in problem["errors"]] == [field]
    assert SECRET not in json.dumps(problem)


BAD_FEEDBACKS = [
    ("reward", GONE, "body"),
    ("reward", None, "body"),
    ("reward", "1", "reward"),
    ("reward", False, "reward"),
    ("void", True, "void"),
    ("void", "yes", "void"),
    ("costs", {"usd": -0.01}, "costs.usd"),
    ("costs", {"usd": 9_000_000_001}, "costs.usd"),
    ("costs", {"usd": SECRET}, "costs.usd"),
    ("costs", {"usd": None}, "costs.usd"),
    ("costs", {"u s d": 1}, "costs.u s d"),
    ("costs", {f"r{i}": 1 for i in range(RESOURCES_MAX + 1)}, "costs"),
    ("costs", [1], "costs"),
    ("decision_id", GONE, "decision_id"),
    ("campaign_id", None, "campaign_id"),
    ("cost", {}, "cost"),
]


@pytest.mark.parametrize(("path", "value", "field"), BAD_FEEDBACKS)
def test_bad_feedback_names_the_field_and_not_the_value(path, value, field):
    problem = refused(FeedbackRequest, changed(FEEDBACK, path, value))
    assert [error["field"] for error in problem["errors"]] == [field]
    assert SECRET not in json.dumps(problem)


@pytest.mark.parametrize(
    ("model", "body", "field"),
    [
        (CampaignPatch, {}, "body"),
        (CampaignPatch, {"expected_version": 1}, "body"),
        (CampaignPatch, {"horizon": 5, "ends_at": "2026-12-01T00:00:00Z"}, "horizon"),
        (CampaignPatch, {"resources": None}, "resources"),
        (CampaignPatch, {"resources": [{"id": "usd", "budget": 1}] * 2}, "resources"),
        (CampaignPatch, {"resources": [{"id": "usd", "max_cost": 0}]}, "resources.0.max_cost"),
        (CampaignPatch, {"context": {"dimension": 2}}, "context"),
        (CampaignPatch, {"retire_arms": ["a", "a"]}, "retire_arms"),
        (CampaignPatch, {"add_arms": [{"id": "a"}, {"id": "a"}]}, "add_arms"),
        (CampaignPatch, {"feedback": {"ttl_seconds": None}}, "feedback.ttl_seconds"),
        (AdjustRequest, {"resource": "usd", "amount": 1e-7, "reason": "x"}, "amount"),
        (AdjustRequest, {"resource": "usd", "amount": 1, "reason": ""}, "reason"),
        (AdjustRequest, {"resource": "usd", "amount": 1, "reason": "a\x00b"}, "reason"),
        (AdjustRequest, {"resource": "usd", "amount": 1}, "reason"),
        (KeyRequest, {"name": "x", "role": SECRET}, "role"),
        (KeyRequest, {"name": "", "role": "admin"}, "name"),
        (KeyRequest, {"name": "x", "role": "admin", "campaigns": []}, "campaigns"),
        (KeyRequest, {"name": "x", "role": "admin", "campaigns": ["a", "a"]}, "campaigns"),
        (DecideBatch, {"campaign_id": "c", "items": [{}] * (ITEMS_MAX + 1)}, "items"),
        (DecideBatch, {"campaign_id": "c"}, "items"),
    ],
)
def test_the_other_bodies_name_the_field_too(model, body, field):
    problem = refused(model, body)
    assert field in [error["field"] for error in problem["errors"]]
    assert SECRET not in json.dumps(problem)


@pytest.mark.parametrize("number", [b"1e400", b"-1e400", b"NaN", b"Infinity", b"-Infinity", b"1" * 400])
@pytest.mark.parametrize(
    "body",
    [
        b'{"campaign_id": "c", "decision_id": "d", "reward": %s}',
        b'{"campaign_id": "c", "decision_id": "d", "costs": {"usd": %s}}',
    ],
)
def test_a_number_that_is_not_finite_is_422(body, number):
    assert refused(FeedbackRequest, body % number)["status"] == 422


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b'{"campaign_id": "\xff"}',
        b'{"campaign_id": "\\ud800"}',
        b"[" * 10_000,
        b'{"campaign_id": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        b'{"context": {"x": ' + b'{"x": ' * 10_000 + b"1" + b"}" * 10_001 + b"}",
        b'{"context": [' + b"1" * 5_000 + b"]}",
        b"\xef\xbb\xbf{}",
        b"{'campaign_id': 1}",
    ],
)
def test_what_is_not_json_is_400_and_says_where(body):
    problem = refused(DecideRequest, body)
    assert (problem["status"], problem["type"]) == (400, "urn:cbwk:problem:not-json")
    assert "line 1 column" in problem["detail"]


@pytest.mark.parametrize("body", [b"null", b"[]", b'"text"', b"3"])
def test_json_that_is_no_object_is_422(body):
    assert refused(DecideRequest, body)["status"] == 422


def test_a_body_that_is_wrong_everywhere_is_answered_with_the_first_errors_only():
    problem = refused(CampaignConfig, changed(CONFIG_EXAMPLE, "arms", [SECRET] * ARMS_MAX))
    assert len(problem["errors"]) == ERRORS_MAX


def test_names_that_a_caller_made_up_are_shown_short_and_printable():
    problem = refused(DecideRequest, {**DECIDE, "x" * 500: 1, "\x1b[31m": 2})
    fields = {error["field"] for error in problem["errors"]}
    assert fields == {"x" * 64, "'\\x1b[31m'"}


def test_the_example_fills_in_to_itself():
    config = accepted(CampaignConfig, CONFIG_EXAMPLE).as_json()
    for feature in config["context"]["features"]:
        feature.pop("strict", None)
    assert config == CONFIG_EXAMPLE


def test_a_small_configuration_gets_the_defaults_of_the_interface():
    given = {
        "arms": [{"id": "a"}],
        "resources": [{"id": "usd", "budget": 10, "max_cost": 0.1}],
        "context": {"dimension": 2},
        "ends_at": "2026-12-01T02:00:00+02:00",
    }
    config = accepted(CampaignConfig, given).as_json()
    defaults = {name: CONFIG_EXAMPLE[name] for name in ("reward", "model", "arm_features", "policy", "feedback")}
    assert {name: config[name] for name in defaults} == defaults
    assert config["horizon"] is None
    assert config["ends_at"] == "2026-12-01T00:00:00Z"
    assert config["arms"] == [{"id": "a"}]
    assert config["context"] == {"dimension": 2}
    again = accepted(CampaignConfig, given).as_json()
    assert config["id"] != again["id"]
    assert config["seed"] != again["seed"]


def test_a_configuration_is_plain_json_and_survives_it():
    config = accepted(CampaignConfig, SHARED).as_json()
    assert json.loads(json.dumps(config, allow_nan=False)) == config
    assert accepted(CampaignConfig, config).as_json() == config


def test_whole_amounts_stay_whole_in_a_configuration():
    config = accepted(CampaignConfig, changed(CONFIG_EXAMPLE, "resources.0.budget", 250.0)).as_json()
    assert json.dumps(config["resources"][0]) == '{"id": "usd", "budget": 250, "max_cost": 0.05}'


def test_a_missing_reward_of_zero_is_moved_into_a_range_without_zero_unless_it_was_asked_for():
    body = changed(CONFIG_EXAMPLE, "reward", {"min": 2, "max": 5})
    refused(CampaignConfig, body)
    config = accepted(CampaignConfig, changed(body, "feedback.missing_reward", GONE)).as_json()
    assert config["feedback"]["missing_reward"] == 2
    assert (
        accepted(CampaignConfig, changed(body, "feedback.missing_reward", None)).as_json()["feedback"]["missing_reward"]
        is None
    )


def test_what_newton_would_have_to_remember_is_limited():
    body = changed(CONFIG_EXAMPLE, "arms", arms_with(1000))
    accepted(CampaignConfig, changed(body, "context", {"dimension": 140}))
    big = changed(body, "context", {"dimension": 141})
    assert refused(CampaignConfig, big)["errors"][0]["field"] == "arms"
    accepted(CampaignConfig, changed(big, "policy.oracle", {"kind": "gradient"}))


def test_a_checked_configuration_makes_a_policy():
    for body in (CONFIG_EXAMPLE, SHARED):
        config = accepted(CampaignConfig, body).as_json()
        assert Campaign(1, config["id"], 1, config).policy.horizon == body["horizon"]


def test_a_patch_has_the_given_fields_and_no_others():
    body = {"ends_at": "2026-12-01T00:00:00Z", "feedback": {"missing_reward": None}, "expected_version": 3}
    assert accepted(CampaignPatch, body).as_json() == body
    body = {"horizon": None, "ends_at": "2026-12-01T00:00:00Z", "retire_arms": []}
    assert accepted(CampaignPatch, body).as_json() == body


def test_feedback_may_be_a_half_or_a_void():
    for half in (
        {"reward": -3.5},
        {"costs": {}},
        {"costs": {"usd": 0.0000001}},
        {"void": True},
        {"void": False, "reward": 0},
    ):
        accepted(FeedbackRequest, {"campaign_id": "c", "decision_id": "d", **half})


TEXT = st.text(st.characters(codec="utf-8"), max_size=20)


@given(st.dictionaries(TEXT, st.floats(allow_nan=False, allow_infinity=False) | TEXT))
def test_a_context_reaches_the_engine_as_it_was_sent(context):
    assert accepted(DecideRequest, {"campaign_id": "c", "context": context}).context == context


def test_a_whole_number_of_a_context_is_a_float_so_that_it_is_the_same_request_as_with_a_decimal_point():
    for whole, decimal in ((b'{"hour": 3, "site": "a"}', b'{"hour": 3.0, "site": "a"}'), (b"[1, 2]", b"[1.0, 2.0]")):
        contexts = [
            accepted(DecideRequest, b'{"campaign_id": "c", "context": %b}' % context).context
            for context in (whole, decimal)
        ]
        assert orjson.dumps(contexts[0]) == orjson.dumps(contexts[1])
    for more in (b"", b", {}"):  # without a bad item and with one
        batch = accepted(DecideBatch, b'{"campaign_id": "c", "items": [{"context": {"hour": 3}}%b]}' % more)
        assert orjson.dumps(batch.items[0].context) == b'{"hour":3.0}'


@given(st.integers(1, 9 * 10**15))
def test_a_budget_is_the_millionths_that_were_written(millionths):
    text = f"{millionths // 10**6}.{millionths % 10**6:06}"
    body = json.dumps(CONFIG_EXAMPLE).replace('"budget": 250', f'"budget": {text}')
    config = CampaignConfig.model_validate_json(body).as_json()
    booked = micros(config["resources"][0]["budget"])
    assert math.isclose(booked, millionths, abs_tol=1, rel_tol=0)
    if len(text) <= 16:
        assert booked == millionths
