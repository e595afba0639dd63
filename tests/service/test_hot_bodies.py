"""Hot bodies: the fast pass, the slow pass and the published schema are three readings of one definition."""

import json
from unittest.mock import patch

import jsonschema_rs
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import from_json

from service.app import create_app
from service.auth import Principal
from service.engine.commands import Answer
from service.hot import endpoints
from service.hot.bodies import read_slowly
from service.hot.endpoints import HOT_ROUTES
from service.ids import ID_PATTERN
from service.limits import ACTIONS_MAX, EXCLUDE_MAX, ITEMS_MAX, RESOURCES_MAX, VALUE_LENGTH_MAX
from service.money import AMOUNT_MAX
from service.problems import Problem

ROUTES = {route.path: route for route in HOT_ROUTES}
COMPONENTS = create_app().openapi()["components"]
SCHEMAS = {
    path: jsonschema_rs.validator_for({**COMPONENTS["schemas"][route.takes.__name__], "components": COMPONENTS})
    for path, route in ROUTES.items()
}
ANYONE = Principal("key", "key", "decider", None)
SOMEONE = Principal("key", "key", "decider", frozenset({"c"}))


def outcome(path, body, principal=ANYONE):
    """What comes of a body: commands to the last type and bit, and the answer around theirs; or a problem."""
    try:
        submission = ROUTES[path].parse(principal, body)
        answer = submission.respond([Answer({"at": place}) for place in range(len(submission.commands))])
    except Problem as problem:
        return problem.document()
    return repr(submission.commands), orjson.dumps(answer.body)


def outcomes(path, body, principal=ANYONE):
    """The same by the fast pass, where that is enough, and by the slow pass alone."""
    with patch.object(endpoints, "read", lambda body, decoder: read_slowly(body, decoder.type)):
        slow = outcome(path, body, principal)
    return outcome(path, body, principal), slow


DECIDE = b'{"campaign_id":"c","decision_id":"d-1","context":%b}'
FEEDBACK = b'{"campaign_id":"c","decision_id":"d-1",%b}'
GOOD = [
    ("/decide", DECIDE % b'{"device":"mobile","hour":13,"share":0.5}'),
    ("/decide", DECIDE % b"[1, -2.5, 1e3]"),
    ("/decide", b' {"context": {}, "campaign_id": "c", "decision_id": null, "exclude": ["a"], "explain": true}\n'),
    ("/decide", DECIDE % b'{},"exclude":[]'),
    ("/decide", DECIDE % b'[1],"baseline_arm":null'),
    ("/decide", DECIDE % b'[1],"baseline_arm":"a","actions":[{"id":"a","features":{"size":1},"max_cost":{"usd":1.0}}]'),
    ("/decide", DECIDE % b'[1],"max_cost":{"usd":0.002},"max_costs":{"a":{"usd":0},"b":{}}'),
    ("/decide", DECIDE % b'[1],"max_cost":null,"max_costs":{}'),
    ("/decide/batch", b'{"campaign_id":"c","items":[]}'),
    ("/decide/batch", b'{"campaign_id":"c","items":[{"context":[0],"max_costs":{"a":{"usd":1}}}]}'),
    ("/decide/batch", b'{"campaign_id":"c","items":[{"context":[0]},{"context":{"a":"x"},"exclude":["b","c"]}]}'),
    ("/feedback", FEEDBACK % b'"reward":1,"costs":{"usd":0.031,"impressions":1}'),
    ("/feedback", FEEDBACK % b'"costs":{}'),
    ("/feedback", FEEDBACK % b'"void":true'),
    ("/feedback", FEEDBACK % b'"reward":0,"costs":null,"void":false'),
    ("/feedback/batch", b'{"items":[]}'),
    ("/feedback/batch", b'{"items":[%b,%b]}' % (FEEDBACK % b'"reward":-1.5', FEEDBACK % b'"costs":{"usd":1}')),
]


@pytest.mark.parametrize(("path", "body"), GOOD)
def test_a_good_body_is_read_in_one_pass_and_the_second_would_read_the_same(path, body):
    fast, slow = outcomes(path, body)
    assert fast == slow
    with patch("service.hot.bodies.read_slowly", side_effect=AssertionError):
        assert outcome(path, body) == fast


def test_bodies_become_commands_to_the_type():
    decide, feedback = ROUTES["/decide"].parse, ROUTES["/feedback"].parse
    (asked,) = decide(
        ANYONE, DECIDE % b'[1],"actions":[{"id":"a","features":[2],"max_cost":{"usd":1.0,"eur":0.5}}]'
    ).commands
    assert repr(asked.context) == "[1.0]"
    assert repr(asked.actions) == "[{'id': 'a', 'features': [2.0], 'max_cost': {'usd': 1, 'eur': 0.5}}]"
    assert (asked.baseline, asked.max_cost, asked.max_costs) == ((), None, None)
    own = b'[1],"max_cost":{"usd":1.0,"eur":-0.0},"max_costs":{"a":{"usd":0.5}}'
    (priced,) = decide(ANYONE, DECIDE % own).commands
    assert repr((priced.max_cost, priced.max_costs)) == "({'usd': 1, 'eur': 0}, {'a': {'usd': 0.5}})"
    assert decide(ANYONE, DECIDE % b'[1],"baseline_arm":null').commands[0].baseline == (None,)
    assert decide(ANYONE, DECIDE % b'[1],"baseline_arm":"a"').commands[0].baseline == ("a",)
    (report,) = feedback(ANYONE, FEEDBACK % b'"costs":{"usd":1}').commands
    assert repr(report.costs) == "{'usd': 1.0}"
    assert (report.reward, report.void) == (None, False)


def test_all_errors_of_a_body_are_listed_with_what_is_allowed():
    body = (
        b'{"context":{"hour":null,"day":[]},"decision_id":7,"exclude":["a","-"],"explain":1,"color":1,'
        b'"actions":[{"id":"a","features":[true],"max_cost":{"usd":-1,"u s d":1}},{"id":"b"},{"id":"c","features":[1],'
        b'"max_cost":{"usd":1e-7,"eur":1,"gbp":1e-8}}],"max_cost":{"usd":1e-7},"max_costs":{"a":1,"-":{"usd":-1}}}'
    )
    problem = outcome("/decide", body)
    identity = "must have 1 to 128 letters, digits and . _ : ~ -, and begin with a letter or digit"
    feature = f"must be a finite number or a string of 0 to {VALUE_LENGTH_MAX} characters"
    assert problem["detail"] == "the body does not fit DecideRequest; /docs shows what it may be"
    assert {error["field"]: error["message"] for error in problem["errors"]} == {
        "context.hour": feature,
        "context.day": feature,
        "decision_id": "must be a string or null",
        "exclude.1": identity,
        "actions.0.features.0": "must be a finite number",
        "actions.0.max_cost.usd": f"must be a number from 0 to {AMOUNT_MAX}",
        "actions.0.max_cost.u s d": f"its name {identity}",
        "actions.1.features": "is required",
        "actions.2.max_cost.usd": "must have at most 6 decimals",
        "actions.2.max_cost.gbp": "must have at most 6 decimals",
        "max_cost.usd": "must have at most 6 decimals",
        "max_costs.a": f"must be an object of 0 to {RESOURCES_MAX} fields",
        "max_costs.-": f"its name {identity}",
        "max_costs.-.usd": f"must be a number from 0 to {AMOUNT_MAX}",
        "campaign_id": "is required",
        "explain": "must be true or false",
        "color": "is not a field of this body; its fields are context, decision_id, exclude, actions, baseline_arm, "
        "max_cost, max_costs, campaign_id, explain",
    }


@pytest.mark.parametrize(
    ("path", "body", "field", "message"),
    [
        ("/decide", DECIDE % b"3", "context", "must be an object or a list"),
        ("/decide", DECIDE % b'[1],"actions":[]', "actions", f"must be a list of 1 to {ACTIONS_MAX} items or null"),
        (
            "/decide",
            DECIDE % b'[1],"actions":[{"id":"a","features":[1]},{"id":"a","features":[2]}]',
            "actions",
            "must not have the same id twice",
        ),
        ("/feedback", FEEDBACK % b'"costs":1', "costs", f"must be an object of 0 to {RESOURCES_MAX} fields or null"),
        ("/feedback", FEEDBACK % b'"void":true,"reward":1', "void", "must stand alone, without reward and costs"),
        ("/feedback", FEEDBACK % b'"void":false', "body", "must have reward, costs or void: true"),
        ("/feedback", b"[]", "body", "must be an object"),
        ("/feedback/batch", b'{"items":{}}', "items", f"must be a list of 0 to {ITEMS_MAX} items"),
    ],
)
def test_an_error_names_the_field_and_what_is_allowed(path, body, field, message):
    (error,) = outcome(path, body)["errors"]
    assert (error["field"], error["message"]) == (field, message)
    assert error["pointer"] == ("" if field == "body" else f"/{field}")


def test_a_bad_item_is_named_by_its_place_and_the_others_are_served():
    bad = FEEDBACK % b'"reward":"x","cost":1'
    body = b'{"items":[%b,%b,%b,3]}' % (FEEDBACK % b'"reward":1', bad, FEEDBACK % b'"void":true,"reward":1')
    commands, answer = outcome("/feedback/batch", body)
    assert commands.count("Feedback(") == 1
    good, wrong, rule, number = orjson.loads(answer)["results"]
    assert good == {"at": 0}
    assert wrong["error"]["detail"] == "items.1 does not fit FeedbackItem; /docs shows what it may be"
    assert [error["field"] for error in wrong["error"]["errors"]] == ["items.1.reward", "items.1.cost"]
    assert [error["field"] for error in rule["error"]["errors"]] == ["items.2.void"]
    assert [error["field"] for error in number["error"]["errors"]] == ["items.3"]


ITEM = b'{"decision_id":"d","reward":1}'


@pytest.mark.parametrize(
    ("batch", "campaigns", "messages"),
    [
        (b'{"campaign_id":"c","items":[%b,%b]}' % (ITEM, ITEM), ["c", "c"], []),
        (b'{"items":[%b],"campaign_id":"c"}' % (FEEDBACK % b'"reward":1'), ["c"], []),
        (b'{"items":[%b]}' % ITEM, [], ["is required, here or beside items"]),
        (
            b'{"campaign_id":"d","items":[%b,%b]}' % (FEEDBACK % b'"reward":1', ITEM),
            ["d"],
            ["must be that beside items or absent"],
        ),
        # A bad item leaves the others, and the campaign, as they are.
        (
            b'{"campaign_id":"c","items":[{"decision_id":"d"},%b]}' % ITEM,
            ["c"],
            ["must have reward, costs or void: true"],
        ),
    ],
)
def test_a_batch_of_reports_may_name_the_campaign_of_all(batch, campaigns, messages):
    submission = endpoints.feedback_batch(ANYONE, batch)
    assert [command.campaign_id for command in submission.commands] == campaigns
    answer = submission.respond([Answer({"at": at}) for at in range(len(campaigns))])
    problems = [one["error"] for one in answer.body["results"] if "error" in one]
    assert [error["message"] for problem in problems for error in problem["errors"]] == messages
    if messages and messages[0].startswith(("is", "must be")):
        assert problems[0]["errors"][0]["pointer"] == "/items/0/campaign_id"


# fmt: off
NUMBERS = [
    "0", "-0", "-0.0", "-0e5", "1", "-1", "1e5", "1E+5", "1e-5", "1e400", "-1e400", "1e-400", "1e308",
    "1.7976931348623157e308", "1.7976931348623159e308", "5e-324", "2.4e-324", "2.2250738585072011e-308",
    "9007199254740993", "9007199254740993.5", "9223372036854775807", "9223372036854775808", "-9223372036854775809",
    "18446744073709551616", "36893488147419107329", "123456789012345678901234567890", "01", "-01", "1.", ".5", "+1",
    "-", "1e", "1e+", "0x1", "1_0", "NaN", "Infinity", "-Infinity", "1e00000000000000000001",
    "0e99999999999999999999", "1e-99999999999999999999", "1e99999999999999999999",
    "1" + "0" * 308, "1" + "0" * 309, "0." + "0" * 5_000 + "1", "9" * 25, f"{AMOUNT_MAX}", f"{AMOUNT_MAX}.1",
]
STRINGS = [
    r'""', r'"x"', r'"\ud800"', r'"\ud83d\ude00"', r'"\ude00\ud83d"', r'"\u0000"', r'"\/\b\f\n\r\t\"\\"', r'"\x41"',
    r'"\u00"', r'"\u00g0"', r'"\u+123"', r'"a\n"', '"\x00"', '"\x1f"', '"\x7f"', '"\t"', '"é"', '"1"',
    '"\udcff"',  # no UTF-8
    f'"{"é" * VALUE_LENGTH_MAX}"', f'"{"😀" * (VALUE_LENGTH_MAX + 1)}"', '"' + r"\u0041" * VALUE_LENGTH_MAX + '"',
]
# fmt: on
OTHERS = ["true", "false", "null", "[]", "{}", "[[]]", '{"a":{}}', "[1,]", '{"a":1,}', "{1:1}", "", "'x'", "/**/1"]
ODD = st.sampled_from(NUMBERS) | st.sampled_from(STRINGS) | st.sampled_from(OTHERS)


def encoded(text):
    """Surrogates as the bytes they would be, which are no UTF-8."""
    return text.encode("utf-8", "surrogatepass")


def places(value):
    """Bodies with the value in every place that has one."""
    item = f'{{"context":{{"a":{value},"b":1}}}}'
    report = f'{{"campaign_id":"c","decision_id":"d","reward":{value}}}'
    yield "/decide", f'{{"campaign_id":{value},"context":[1]}}'
    yield "/decide", f'{{"campaign_id":"c","context":{value}}}'
    yield "/decide", f'{{"campaign_id":"c","context":[1,{value}]}}'
    yield "/decide", f'{{"campaign_id":"c",{item[1:]}'
    yield "/decide", f'{{"campaign_id":"c","context":{{{value}:1}}}}'
    yield "/decide", f'{{"campaign_id":"c","context":[1],"decision_id":{value}}}'
    yield "/decide", f'{{"campaign_id":"c","context":[1],"exclude":{value}}}'
    yield "/decide", f'{{"campaign_id":"c","context":[1],"exclude":["a",{value}]}}'
    yield "/decide", f'{{"campaign_id":"c","context":[1],"explain":{value}}}'
    yield "/decide", f'{{"campaign_id":"c","context":[1],"actions":{value}}}'
    yield "/decide", f'{{"campaign_id":"c","context":[1],"actions":[{{"id":{value},"features":[1]}}]}}'
    yield "/decide", f'{{"campaign_id":"c","context":[1],"actions":[{{"id":"a","features":{value}}}]}}'
    yield (
        "/decide",
        f'{{"campaign_id":"c","context":[1],"actions":[{{"id":"a","features":[1],"max_cost":{{"usd":{value}}}}}]}}',
    )
    yield "/decide", f'{{"campaign_id":"c","context":[1],"baseline_arm":{value}}}'
    yield "/decide", f'{{"campaign_id":"c","context":[1],{value}:1}}'
    yield "/decide", f'{{"campaign_id":"c","context":[1],"context":{value}}}'
    yield "/decide", f'{{"campaign_id":"c","context":[1]}}{value}'
    yield "/decide/batch", f'{{"campaign_id":{value},"items":[{{"context":[1]}}]}}'
    yield "/decide/batch", f'{{"campaign_id":"c","items":[{{"context":[1]}}],{value}:1}}'
    yield "/decide/batch", f'{{"campaign_id":"c","items":{value}}}'
    yield "/decide/batch", f'{{"campaign_id":"c","items":[{{"context":[1]}},{item}]}}'
    yield "/decide/batch", f'{{"campaign_id":"c","items":[{{"context":[1],"decision_id":{value}}}]}}'
    yield "/decide/batch", f'{{"campaign_id":"c","items":[{{"context":[1],"exclude":[{value}]}}]}}'
    yield "/decide/batch", f'{{"campaign_id":"c","items":[{{"context":[1],{value}:1}}]}}'
    yield "/feedback", report
    yield "/feedback", f'{{"campaign_id":"c","decision_id":"d","reward":1,"costs":{value}}}'
    yield "/feedback", f'{{"campaign_id":"c","decision_id":"d","costs":{{"usd":{value}}}}}'
    yield "/feedback", f'{{"campaign_id":"c","decision_id":"d","costs":{{{value}:1}}}}'
    yield "/feedback", f'{{"campaign_id":"c","decision_id":{value},"reward":1}}'
    yield "/feedback", f'{{"campaign_id":{value},"decision_id":"d","reward":1}}'
    yield "/feedback", f'{{"campaign_id":"c","decision_id":"d","reward":1,{value}:1}}'
    yield "/feedback", f'{{"campaign_id":"c","decision_id":"d","void":{value}}}'
    yield "/feedback/batch", f'{{"items":{value}}}'
    yield "/feedback/batch", f'{{"items":[],{value}:1}}'
    yield "/feedback/batch", f'{{"items":[{report},{report}]}}'
    yield "/feedback/batch", f'{{"items":[{{"campaign_id":{value},"decision_id":"d","reward":1}}]}}'
    yield "/feedback/batch", f'{{"items":[{{"campaign_id":"c","decision_id":{value},"reward":1}}]}}'
    yield "/feedback/batch", f'{{"items":[{{"campaign_id":"c","decision_id":"d","costs":{{{value}:1}}}}]}}'


@pytest.mark.parametrize("value", [*NUMBERS, *STRINGS, *OTHERS], ids=lambda value: ascii(value[:30]))
def test_a_value_means_the_same_in_both_passes_wherever_it_stands(value):
    for path, text in places(value):
        fast, slow = outcomes(path, encoded(text))
        assert fast == slow, (path, text)
        assert agrees_with_the_schema(path, encoded(text), fast), (path, text)


def agrees_with_the_schema(path, body, found):
    """Whether a body that is no JSON or that the schema refuses has an error, and another has none but of a rule."""
    text = orjson.dumps(found) if isinstance(found, dict) else found[1]
    refused = isinstance(found, dict) or b'"errors"' in text
    try:
        fits = SCHEMAS[path].is_valid(from_json(body))
    except ValueError:
        fits = False
    rules = (b"must have reward", b"must stand alone", b"decimals", b"same id twice")
    return refused != fits or (refused and any(rule in text for rule in rules))


def pairs(count, name="r{}"):
    return ",".join(f'"{name.format(i)}":1' for i in range(count)).encode()


LIMITS = [
    *[("/feedback", FEEDBACK % b'"costs":{%b}' % pairs(RESOURCES_MAX + more)) for more in (0, 1)],
    ("/feedback", FEEDBACK % b'"costs":{%b}' % pairs(RESOURCES_MAX + 1, "the-same")),
    *[("/feedback", FEEDBACK % b'"costs":{"%b":1}' % (b"x" * length)) for length in (0, 128, 129)],
    *[("/decide", DECIDE.replace(b"d-1", b"x" * length) % b"[1]") for length in (0, 1, 128, 129)],
    *[("/decide", DECIDE % b'[1],"exclude":[%b]' % b",".join([b'"a"'] * (EXCLUDE_MAX + more))) for more in (0, 1)],
    *[
        ("/decide/batch", b'{"campaign_id":"c","items":[%b]}' % b",".join([b'{"context":[1]}'] * (ITEMS_MAX + more)))
        for more in (0, 1)
    ],
    *[
        ("/feedback/batch", b'{"items":[%b]}' % b",".join([FEEDBACK % b'"reward":1'] * (ITEMS_MAX + more)))
        for more in (0, 1)
    ],
    ("/decide/batch", b'{"campaign_id":"c","items":[{"context":[1],"decision_id":"a\\nb"},{"context":[1]}]}'),
    ("/feedback", FEEDBACK % b'"costs":{"a\\nb":1}'),
    ("/feedback", FEEDBACK % b'"void":true,"reward":1'),
    ("/feedback", FEEDBACK % b'"void":true,"costs":{}'),
    ("/feedback", FEEDBACK % b'"void":false'),
    ("/feedback", FEEDBACK % b'"reward":null'),
]


@pytest.mark.parametrize(("path", "body"), LIMITS)
def test_both_passes_have_the_limits_of_the_schema(path, body):
    fast, slow = outcomes(path, body)
    assert fast == slow
    assert agrees_with_the_schema(path, body, fast)


def test_a_key_for_some_campaigns_sees_the_same_in_both_passes():
    reports = b",".join(FEEDBACK.replace(b'"c"', b'"%b"' % name) % b'"reward":1' for name in (b"c", b"other", b"c"))
    for path, body in [
        ("/feedback/batch", b'{"items":[%b]}' % reports),
        ("/feedback", FEEDBACK.replace(b'"c"', b'"other"') % b'"reward":1'),
        ("/decide", DECIDE.replace(b'"c"', b'"other"') % b"[1]"),
        ("/decide/batch", b'{"campaign_id":"other","items":[{"context":[1]}]}'),
    ]:
        fast, slow = outcomes(path, body, SOMEONE)
        assert fast == slow
        assert "campaign-not-found" in str(fast)


IDS = st.from_regex(ID_PATTERN.replace("$", r"\Z"))
TEXTS = st.text(st.characters(), max_size=20)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
RIGHT_NUMBERS = FLOATS.map(repr) | st.integers().map(str) | st.integers(-(10**300), 10**300).map(str)
DECIMALS = st.from_regex(r"\A-?(0|[1-9][0-9]{0,30})\.[0-9]{1,30}([eE][+-]?[0-9]{1,3})?\Z")


@st.composite
def strings(draw, texts):
    return json.dumps(draw(texts), ensure_ascii=draw(st.booleans()))


@st.composite
def rarely(draw, odd, right):
    """What is right, and now and then what is not."""
    return draw(odd if draw(st.integers(0, 15)) == 7 else right)


@st.composite
def objects(draw, members, *, needed=()):
    """Members by name, in any order, some of them left out and some twice."""
    names = draw(st.lists(st.sampled_from(sorted(members)), max_size=3)) + list(needed)
    if draw(st.integers(0, 15)) != 7:
        names = list(dict.fromkeys(names))
    space = draw(st.sampled_from(("", "", " ", "\n\t\r")))
    written = [f'{space}"{name}"{space}:{draw(members[name])}' for name in draw(st.permutations(names))]
    if draw(st.integers(0, 31)) == 7:
        written.append(f"{draw(strings(TEXTS))}:{draw(ODD)}")
    return "{" + f"{space},".join(written) + space + "}"


@st.composite
def mappings(draw, keys, values, size=4):
    written = draw(st.lists(st.tuples(keys, values), max_size=size))
    return "{" + ",".join(f"{key}:{value}" for key, value in written) + "}"


def lists(values, size=4):
    return st.lists(values, max_size=size).map(lambda written: "[" + ",".join(written) + "]")


NUMBER = rarely(ODD, RIGHT_NUMBERS | DECIMALS)
NAME = rarely(ODD, strings(IDS))
FLAG = rarely(ODD, st.sampled_from(("true", "false")))
CONTEXT = rarely(ODD, mappings(strings(TEXTS), NUMBER | strings(TEXTS)) | lists(NUMBER))
ACTION = {"id": NAME, "features": CONTEXT, "max_cost": rarely(ODD, mappings(NAME, NUMBER))}
ITEM = {
    "decision_id": NAME,
    "context": CONTEXT,
    "exclude": rarely(ODD, lists(NAME)),
    "actions": rarely(ODD, lists(objects(ACTION, needed=("id", "features")))),
    "baseline_arm": NAME,
    "max_cost": rarely(ODD, mappings(NAME, NUMBER)),
    "max_costs": rarely(ODD, mappings(NAME, rarely(ODD, mappings(NAME, NUMBER)))),
}
COSTS = mappings(NAME, rarely(ODD, st.floats(0, AMOUNT_MAX).map(repr) | st.integers(0, 10).map(str)))
REPORT = objects(
    {"campaign_id": NAME, "decision_id": NAME, "reward": NUMBER, "costs": rarely(ODD, COSTS), "void": FLAG},
    needed=("campaign_id", "decision_id"),
)
ITEMS = rarely(ODD, lists(objects(ITEM, needed=("context",)), size=3))
BODIES = st.one_of(
    st.tuples(
        st.just("/decide"),
        objects(ITEM | {"campaign_id": NAME, "explain": FLAG}, needed=("campaign_id", "context")),
    ),
    st.tuples(
        st.just("/decide/batch"), objects({"campaign_id": NAME, "items": ITEMS}, needed=("campaign_id", "items"))
    ),
    st.tuples(st.just("/feedback"), REPORT),
    st.tuples(st.just("/feedback/batch"), objects({"items": rarely(ODD, lists(REPORT, size=3))}, needed=("items",))),
)
SPLICED = st.sampled_from(
    [b"", *(bytes([byte]) for byte in b'\x00\xff",0-\\ }]:e.\n'), b"\xef\xbb\xbf", b"\\ud800", b"1e5"]
)


@settings(max_examples=400, deadline=None)
@given(BODIES)
def test_whatever_a_body_says_both_passes_and_the_schema_agree(request_made):
    path, text = request_made
    fast, slow = outcomes(path, encoded(text))
    assert fast == slow
    assert agrees_with_the_schema(path, encoded(text), fast)


@settings(max_examples=400, deadline=None)
@given(BODIES, st.integers(0, 10_000), st.integers(0, 2), SPLICED)
def test_the_same_holds_for_a_body_in_which_bytes_were_changed(request_made, place, removed, spliced):
    path, text = request_made
    body = encoded(text)
    place %= len(body) + 1
    fast, slow = outcomes(path, body[:place] + spliced + body[place + removed :])
    assert fast == slow
