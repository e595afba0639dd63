"""Wrong arguments: each is refused with a ValueError that names it, and nothing has happened.

The tables say which argument takes which harm, a harm being a function of the good value; Hypothesis picks from them.
"""

import copy
import inspect
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbwk_core import (
    CategoryFeature,
    ContextEncoder,
    HashFeature,
    NumberFeature,
    Problem,
    SquareCBwK,
    concatenate,
    outer,
    static_optimum,
)
from cbwk_core.oracles import Newton
from cbwk_core.static_optimum import dual_bound

ARMS, DIMENSION, RESOURCES = 3, 2, 2


def with_number(number):
    def harmed(value):
        array = np.array(value, dtype=np.float64)
        array.flat[array.size // 2] = number
        return array

    return harmed


def longer(value):
    return np.concatenate([value, value[:1]])


def wider(value):
    return np.concatenate([value, value[..., :1]], axis=-1)


HARMS = {
    "nothing": lambda value: None,
    "text": lambda value: "abc",
    "words": lambda value: np.full(np.shape(value), "abc").tolist(),
    "digits in letters": lambda value: np.full(np.shape(value), "0.5"),
    "a list of digits in letters": lambda value: np.full(np.shape(value), "1").tolist(),
    "a mapping": lambda value: {"a": 1.0},
    "an object": lambda value: object(),
    "objects": lambda value: np.full(np.shape(value), None),
    "rows of unequal length": lambda value: [[1.0], [1.0, 2.0]],
    "complex numbers": lambda value: np.asarray(value) + 1j,
    "dates": lambda value: np.full(np.shape(value), "2020-01-01", dtype="datetime64[D]"),
    "not a number": with_number(np.nan),
    "infinity": with_number(np.inf),
    "minus infinity": with_number(-np.inf),
    "one row more": longer,
    "no rows": lambda value: value[:0],
    "one column more": wider,
    "one column less": lambda value: value[..., :-1],
    "one axis more": lambda value: np.asarray(value)[None],
    "two axes more": lambda value: np.asarray(value)[None, None],
    "one axis less": lambda value: value[0],
    "a single number": lambda value: 0.25,
    "numbers for booleans": lambda value: np.ones(np.shape(value)),
    "whole numbers for booleans": lambda value: np.ones(np.shape(value), dtype=int).tolist(),
    "fractions": lambda value: np.asarray(value) + 0.5,
    "booleans": lambda value: np.asarray(value) > 0,
    "one": with_number(1.0),
    "less than nothing": with_number(-0.125),
    "too much": with_number(1e6),
    "an index too large": lambda value: np.asarray(value) + ARMS,
    "an index too small": lambda value: np.asarray(value) - ARMS - 2,
}
NOT_NUMBERS = {
    "text",
    "words",
    "digits in letters",
    "a list of digits in letters",
    "a mapping",
    "an object",
    "objects",
    "rows of unequal length",
    "complex numbers",
    "dates",
}
NOT_FINITE = {"not a number", "infinity", "minus infinity"}
NUMBERS = NOT_NUMBERS | NOT_FINITE | {"nothing"}
ROWS = {"one row more", "no rows", "one axis more", "a single number"}
TABLE = ROWS | {"one column more", "one column less", "one axis less"}
FEATURES = NUMBERS | {"one column more", "one column less", "one axis more", "one axis less", "a single number"}
BOOLEANS = NOT_NUMBERS | {"one row more", "one axis more", "numbers for booleans", "whole numbers for booleans"}
ARMS_GIVEN = NUMBERS | ROWS | {"fractions", "booleans", "an index too large", "an index too small"}
MONEY = NOT_NUMBERS | NOT_FINITE | {"one row more", "no rows", "two axes more", "a single number", "booleans"}
PACE = (MONEY - {"infinity"}) | {"less than nothing"}
PRICES = (MONEY - {"booleans"}) | {"less than nothing"}
HOLDS = NOT_NUMBERS | NOT_FINITE | {"one row more", "one column more", "one column less", "one axis more"}
HOLDS |= {"a single number", "less than nothing", "too much"}
FOREIGN = {"nothing", "text", "a mapping", "an object", "a number", "an array", "a tuple", "of another policy"}

NOT_BYTES = {"nothing", "text", "a mapping", "an object", "a number", "an array", "a tuple"}

OUTCOME = {"rewards": NUMBERS | ROWS, "costs": NUMBERS | TABLE}
HALVES = ("learn_reward", "learn_costs")
TICKET = {"tickets": FOREIGN | {"a whole choice", "of another dimension"}}
METHODS = {
    "init": {"lanes": {"nothing", "text", "an object", "zero", "a fraction", "a boolean"}},
    "quote": {"state": FOREIGN},
    "decide": {
        "state": FOREIGN,
        "features": FEATURES,
        "uniforms": NUMBERS | ROWS | {"one", "less than nothing"},
        "exclude": BOOLEANS | {"one column more"},
        "free": MONEY,
        "holds": HOLDS,
        "pace": PACE,
        "prices": PRICES,
    },
    "changes": {"state": FOREIGN},
    "dismissed_alarms": {"state": FOREIGN},
    "is_finite": {"state": FOREIGN},
    "predict": {"state": FOREIGN, "features": FEATURES},
    "mean_squared_errors": {"state": FOREIGN},
    "commit": {"state": FOREIGN, "ticket": TICKET["tickets"]},
    "settle": {"state": FOREIGN, **TICKET, **OUTCOME, "learn": BOOLEANS | {"nothing"}},
    "teach": {"state": FOREIGN, **TICKET, **OUTCOME, **dict.fromkeys(HALVES, BOOLEANS | {"nothing"})},
    "cancel": {"state": FOREIGN, **TICKET},
    "correct": {"state": FOREIGN, **TICKET, "costs": OUTCOME["costs"]},
    "learn": {"state": FOREIGN, "features": FEATURES, "arm": ARMS_GIVEN, **OUTCOME},
    "refresh_due": {"state": FOREIGN},
    "refresh": {"state": FOREIGN},
    "adopt": {"older": FOREIGN - {"of another policy"}, "state": FOREIGN},
    "encode": {"state": FOREIGN},
    "decode": {"data": NOT_BYTES},
    "read_books": {"numbers": NOT_NUMBERS | {"nothing", "one column more", "two axes more", "a single number"}},
    "encode_model": {"state": FOREIGN},
    "decode_model": {"data": NOT_BYTES},
}
EVERY_HARM = [(name, word, harm) for name, words in METHODS.items() for word in words for harm in sorted(words[word])]


def make(**other):
    base = {"arms": ARMS, "dimension": DIMENSION, "resources": RESOURCES, "horizon": 100, "budget": [40.0, 30.0]}
    return SquareCBwK(**{**base, **other})


def good_arguments(policy, rows, method=""):
    """What every method of the policy would accept; bytes differ from method to method."""
    rng = np.random.default_rng(rows)
    shape = (rows, ARMS, DIMENSION) if policy.model == "shared" else (rows, DIMENSION)
    features, uniforms = rng.random(shape), rng.random(rows)
    choice = policy.decide(policy.init(), features, uniforms)
    state = policy.commit(policy.init(), choice.ticket)
    return {
        "lanes": 2,
        "state": state,
        "features": features,
        "uniforms": uniforms,
        "exclude": rng.random((rows, ARMS)) < 0.5,
        "free": np.array([3.0, 4.0]),
        "holds": np.full((rows, ARMS, RESOURCES), 0.5),
        "pace": np.array([0.5, 0.25]),
        "prices": np.array([0.5, 0.25]),
        "ticket": choice.ticket,
        "tickets": choice.ticket,
        "rewards": rng.random(rows),
        "costs": rng.random((rows, RESOURCES)),
        **dict.fromkeys(("learn", *HALVES), np.full(rows, True)),
        "arm": np.arange(rows) % ARMS,
        "older": policy,
        "numbers": state.books,
        "data": policy.encode_model(state) if method == "decode_model" else policy.encode(state),
    }


def foreign(harm, name, rows):
    """A value of another type, or one of another policy; None if the harm is of another kind."""
    others = {"a number": 3.5, "an array": np.ones(4), "a tuple": (1, 2), "zero": 0, "a fraction": 1.5}
    if harm in others:
        return others[harm]
    if harm == "a boolean":
        return True
    if harm == "of another policy":
        return good_arguments(make(resources=3, budget=9.0), rows)[name]
    if harm == "of another dimension":
        wide = make(dimension=5)
        return wide.decide(wide.init(), np.ones((rows, ARMS, 5)), np.zeros(rows)).ticket
    if harm == "a whole choice":
        policy = make()
        return policy.decide(policy.init(), np.ones((rows, ARMS, DIMENSION)), np.zeros(rows))
    return None


def arrays_in(value):
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from arrays_in(part)
    elif isinstance(value, dict):
        yield from arrays_in(list(value.values()))


def assert_unchanged(value, kept):
    for now, before in zip(arrays_in(value), arrays_in(kept), strict=True):
        np.testing.assert_array_equal(now, before)


@settings(max_examples=700)
@given(
    st.sampled_from(EVERY_HARM),
    st.sampled_from([1, 2]),
    st.sampled_from(["shared", "per_arm"]),
    st.sampled_from(["practical", "paper"]),
)
def test_a_method_refuses_a_bad_argument_by_name_and_leaves_the_state_alone(harmed, rows, model, preset):
    method, name, harm = harmed
    policy = make(model=model, preset=preset)
    arguments = {word: value for word, value in good_arguments(policy, rows, method).items() if word in METHODS[method]}
    kept = copy.deepcopy(arguments)
    replaced = foreign(harm, name, rows)
    if replaced is None:
        replaced = HARMS[harm](arguments[name])
    with pytest.raises(ValueError, match=r"must .* got |begins with") as refusal:
        getattr(policy, method)(**{**arguments, name: replaced})
    message = str(refusal.value)
    assert name.removesuffix("s") in message or (name == "data" and "snapshot" in message)
    assert_unchanged(arguments, kept)


@pytest.mark.parametrize("preset", ["practical", "paper"])
@pytest.mark.parametrize("model", ["shared", "per_arm"])
@pytest.mark.parametrize("method", METHODS)
def test_the_arguments_are_good_before_they_are_harmed(method, model, preset):
    policy = make(model=model, preset=preset)
    for rows in (1, 2):
        good = good_arguments(policy, rows, method)
        arguments = {word: good[word] for word in METHODS[method]}
        if method == "refresh":
            with pytest.raises(ValueError, match="stage one is not over"):
                policy.refresh(**arguments)
        else:
            getattr(policy, method)(**arguments)


@pytest.mark.parametrize("method", METHODS)
def test_an_argument_left_out_is_a_type_error(method):
    policy = make()
    function = getattr(policy, method)
    needed = {p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty}
    arguments = good_arguments(policy, 1, method)
    for name in needed:
        with pytest.raises(TypeError, match=name):
            function(**{word: arguments[word] for word in needed - {name}})


def test_every_method_of_the_policy_and_every_argument_is_in_the_table():
    public = {
        name: inspect.signature(method).parameters.keys() - {"self"}
        for name, method in inspect.getmembers(SquareCBwK, inspect.isfunction)
        if not name.startswith("_")
    }
    # For the library itself: their arguments were checked before, or are being checked.
    inner = (
        "make_oracle",
        "oracle_regrets",
        "lifted",
        "checked_features",
        "regressor_of",
        "forgotten",
        "asked",
        "holds",
    )
    for name in inner:
        public.pop(name)
    # Of policies that must play: `test_must_play.py` checks them.
    public.pop("reserve")
    public["decide"] -= {"kept", "floor"}
    assert public == {name: words.keys() for name, words in METHODS.items()}


BAD_SIZES = [-1, 1.5, "3", None, True, math.nan, [3], np.float64(3.0)]
BAD_NUMBERS = [0, -5.0, math.nan, math.inf, None, True]
BAD_MONEY = [
    -5.0,
    math.nan,
    math.inf,
    "5",
    None,
    [1.0, 2.0, 3.0],
    [[[1.0, 2.0]]],
    {"a": 1},
    object(),
    [1.0, "x"],
    [[1], []],
]
PROBLEM = {
    "arms": BAD_SIZES,
    "dimension": [0, *BAD_SIZES],
    "resources": [0, *BAD_SIZES],
    "horizon": [0, *BAD_SIZES],
    "budget": [0.0, [1.0, 0.0], [[1.0, 2.0]], *BAD_MONEY],
    "max_cost": [0.0, [1.0, 0.0], np.ones((2, RESOURCES)), *BAD_MONEY],
}
POLICY = {
    **PROBLEM,
    "model": ["linear", None, 3, ["shared"], "Shared"],
    "preset": ["best", None, 3, ["paper"], {}],
    "oracle": ["ridge", "", None, 3, Newton(dimension=7, targets=3), Newton],
    "link": ["probit", None, 3, ["identity"], {}],
    "forgetting": [0.2, 1.01, -1, "0.9", math.nan, True, [0.9]],
    "gamma": [*BAD_NUMBERS, "large", [1.0], np.ones(2)],
    "z": [*BAD_NUMBERS, "large", [1.0], np.ones(2)],
    "two_stage": ["three", None, 2, 1, 0, [True], True],  # the last needs a preset of the paper
    "retired": [None, 3, (ARMS,), (-1,), (1.5,), "ab", (None,), (True,), (math.nan,), [[0]]],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in POLICY.items() for value in values])
def test_a_policy_is_not_made_with_a_bad_option(name, value):
    with pytest.raises(ValueError, match=name):
        make(**{name: value})


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in PROBLEM.items() for value in values])
def test_a_problem_is_not_made_with_a_bad_size(name, value):
    good = {"arms": ARMS, "dimension": 2, "resources": RESOURCES, "horizon": 10, "budget": [4, 5], "max_cost": 1.0}
    with pytest.raises(ValueError, match=rf"{name} must .* got "):
        Problem.of(**{**good, name: value})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"oracle": "gradient", "forgetting": 0.9},
            "forgetting is an option of the newton oracle, got oracle 'gradient'",
        ),
        ({"oracle": "kernel", "link": "logistic"}, "kernel oracle has no link to choose, got 'logistic'"),
        ({"oracle": "aggregate", "dimension": 5}, "dimension must be at most 4"),
        ({"arms": 0, "model": "per_arm"}, "at least 1 arm, got 0"),
        ({"arms": 0, "preset": "paper", "two_stage": True}, "two_stage explores the policy's arms, got none"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


PROGRAM = {
    "rewards": np.array([[0.5, 0.2], [0.1, 0.9]]),
    "costs": np.full((2, 2, 2), 0.5),
    "rho": np.array([0.3, 0.4]),
    "weights": np.array([0.25, 0.75]),
    "prices": np.array([0.1, 0.2]),
}
PROGRAM_HARMS = {
    "rewards": NUMBERS | {"one axis more", "one axis less", "a single number"},
    "costs": NUMBERS | TABLE - {"one column more", "one column less"},
    "rho": NUMBERS | {"one row more", "one axis more", "less than nothing"},
    "weights": NUMBERS - {"nothing"} | ROWS | {"less than nothing", "too much"},
    "prices": NUMBERS | ROWS,
}
MAPS = {"context": np.ones((2, 3)), "arm_features": np.ones((4, 2))}
MAP_HARMS = {
    "context": NUMBERS | {"one axis more", "one axis less", "a single number"},
    "arm_features": NUMBERS | {"one axis more", "two axes more", "one axis less", "a single number"},
}
FUNCTIONS = [
    (function, good, name, harm)
    for function, good, harms in (
        (static_optimum, {name: PROGRAM[name] for name in ("rewards", "costs", "rho", "weights")}, PROGRAM_HARMS),
        (dual_bound, PROGRAM, PROGRAM_HARMS),
        (concatenate, MAPS, MAP_HARMS),
        (outer, MAPS, MAP_HARMS),
    )
    for name in good
    for harm in sorted(harms[name])
]


@settings(max_examples=300)
@given(st.sampled_from(FUNCTIONS))
def test_a_function_refuses_a_bad_argument_by_name(harmed):
    function, good, name, harm = harmed
    arguments = {word: value.copy() for word, value in good.items()}
    kept = copy.deepcopy(arguments)
    with pytest.raises(ValueError, match=name):
        function(**{**arguments, name: HARMS[harm](arguments[name])})
    assert_unchanged(arguments, kept)


BAD_NAMES = ["", None, 3, "x" * 1000, "line\nbreak", b"hour"]
HOUR, DEVICE = NumberFeature("hour", 0, 24), CategoryFeature("device", ("mobile", "desktop"))
BY_NAME, PLAIN = ContextEncoder((HOUR, DEVICE)), ContextEncoder.vector(2)
ENCODERS = [
    (lambda bad: NumberFeature(bad, 0, 1), "name", BAD_NAMES),
    (lambda bad: CategoryFeature(bad, ("a",)), "name", BAD_NAMES),
    (lambda bad: HashFeature(bad, 3), "name", BAD_NAMES),
    (lambda bad: NumberFeature("hour", bad, 24), "hour", [None, "0", math.nan, -math.inf, True, [0], 24, 25, 1j]),
    (lambda bad: NumberFeature("hour", 0, bad), "hour", [None, "1", math.nan, math.inf, True, [1], 0, -1]),
    (lambda bad: NumberFeature("hour", 0, 24, default=bad), "hour", ["1", math.nan, 25, -1, True, [1]]),
    (lambda bad: CategoryFeature("device", bad), "device", [None, (), ["a"], "ab", (1,), ("",), ("a", "a"), (None,)]),
    (lambda bad: CategoryFeature("device", ("a",), default=bad), "device", ["b", 1, b"a", ("a",)]),
    (lambda bad: HashFeature("site", bad), "site", [0, -1, 1.5, "3", None, True, 10**9]),
    (lambda bad: HashFeature("site", 3, default=bad), "site", [1, b"a", ("a",)]),
    (ContextEncoder, "features", [None, (), [HOUR], "hour", ("hour",), (HOUR, None), HOUR]),
    (ContextEncoder.vector, "dimension", [0, -1, 1.5, "3", True, 10**9]),
    (BY_NAME.encode, "context", [None, 3, "hour", [1, 2], np.ones(3), {"hour": 1, "device": "mobile", "more": 1}]),
    (lambda bad: BY_NAME.encode({"hour": bad, "device": "mobile"}), "hour", [None, "1", math.nan, math.inf, True, [1]]),
    (lambda bad: BY_NAME.encode({"hour": 1, "device": bad}), "device", [None, 1, math.nan, b"mobile", ["mobile"]]),
    (lambda bad: BY_NAME.encode_many([{"hour": 1, "device": "mobile"}, bad]), "context 1", [None, 3, {}, {"hour": 1}]),
    (PLAIN.encode, "context", [None, 3, "ab", b"ab", {"a": 1}, [1.0], [1.0, 2.0, 3.0]]),
    (lambda bad: PLAIN.encode([0.0, bad]), r"x\[1\]", [None, "1", math.nan, math.inf, True, [1], 1e9]),
]


@pytest.mark.parametrize(
    ("call", "word", "bad"), [(call, word, bad) for call, word, values in ENCODERS for bad in values]
)
def test_features_and_encoders_refuse_what_they_cannot_use(call, word, bad):
    with pytest.raises(ValueError, match=word):
        call(bad)
