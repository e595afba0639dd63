import copy
import hashlib
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cbwk_core.features import BATCH_MIN, COORDINATE_MAX, ContextEncoder, concatenate, outer
from cbwk_core.features.feature import (
    BUCKETS_MAX,
    CACHED_STRINGS_MAX,
    DIMENSION_MAX,
    CategoryFeature,
    HashFeature,
    NumberFeature,
)

HOUR = NumberFeature("hour", 0, 24)
DEVICE = CategoryFeature("device", ("mobile", "desktop"))
SITE = HashFeature("site", 16)
ENCODER = ContextEncoder((HOUR, DEVICE, SITE))
GOOD = {"hour": 6, "device": "desktop", "site": "example.com"}
LONG = "s3cret" * 50

names = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=10)
limits = st.floats(-1e300, 1e300)
features = st.one_of(
    st.builds(
        lambda name, ends: NumberFeature(name, *sorted(ends)),
        names,
        st.lists(limits, min_size=2, max_size=2, unique=True),
    ),
    st.builds(
        CategoryFeature, names, st.lists(st.text("abc", min_size=1), min_size=1, max_size=4, unique=True).map(tuple)
    ),
    st.builds(HashFeature, names, st.integers(1, 20)),
)
encoders = st.lists(features, min_size=1, max_size=6, unique_by=lambda feature: feature.name).map(
    lambda chosen: ContextEncoder(tuple(chosen))
)


def a_value_for(feature):
    if isinstance(feature, NumberFeature):
        return st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**1000), 2**1000))
    return st.text(st.characters(exclude_categories=["Cs"])) | st.text("abc", min_size=1, max_size=2)


@st.composite
def encoders_and_contexts(draw):
    encoder = draw(encoders)
    return encoder, {feature.name: draw(a_value_for(feature)) for feature in encoder.features}


@given(encoders_and_contexts())
def test_every_coordinate_of_declared_features_lies_between_0_and_1(pair):
    encoder, context = pair
    encoded = encoder.encode(context)
    assert encoded.vector.shape == (encoder.dimension,) == (len(encoder.names),)
    assert encoded.vector.dtype == np.float64
    assert ((encoded.vector >= 0) & (encoded.vector <= 1)).all()


def expected_vector(encoder, context):
    """Encodes one coordinate at a time, straight from the definition."""
    vector = []
    for feature in encoder.features:
        value = context[feature.name]
        if isinstance(feature, NumberFeature):
            span = feature.max - feature.min
            vector.append(min(1.0, max(0.0, (float(value) - feature.min) / span)))
        elif isinstance(feature, CategoryFeature):
            vector.extend(float(value == declared) for declared in feature.values)
        else:
            digest = hashlib.blake2b(feature.name.encode() + bytes(1) + value.encode(), digest_size=8).hexdigest()
            vector.extend(float(bucket == int(digest, 16) % feature.buckets) for bucket in range(feature.buckets))
    return vector


@given(encoders_and_contexts())
def test_the_encoding_equals_the_definition_and_is_repeatable(pair):
    encoder, context = pair
    encoded = encoder.encode(context)
    assert encoded.vector.tolist() == pytest.approx(expected_vector(encoder, context), abs=1e-12)
    again = ContextEncoder(encoder.features).encode(dict(reversed(context.items())))
    assert again.vector.tobytes() == encoded.vector.tobytes()
    assert again[1:] == encoded[1:]


@given(encoders_and_contexts())
def test_clipped_and_unknown_features_are_named(pair):
    encoder, context = pair
    encoded = encoder.encode(context)
    outside = [
        f.name for f in encoder.features if isinstance(f, NumberFeature) and not f.min <= context[f.name] <= f.max
    ]
    unknown = [f.name for f in encoder.features if isinstance(f, CategoryFeature) and context[f.name] not in f.values]
    assert encoded.clipped == tuple(outside)
    assert encoded.unknown == tuple(unknown)


@given(st.data())
def test_encode_many_equals_encode_for_each_context(data):
    encoder = data.draw(encoders)
    context = st.fixed_dictionaries({feature.name: a_value_for(feature) for feature in encoder.features})
    contexts = data.draw(st.lists(context, max_size=4))
    alone = [encoder.encode(context) for context in contexts]
    vectors, clipped, unknown = encoder.encode_many(iter(contexts))
    assert vectors.shape == (len(contexts), encoder.dimension)
    assert all((row == one.vector).all() for row, one in zip(vectors, alone, strict=True))
    assert clipped == sum(len(one.clipped) for one in alone)
    assert unknown == sum(len(one.unknown) for one in alone)


def a_fitting_value_for(feature):
    if isinstance(feature, NumberFeature):
        return st.floats(feature.min, feature.max)
    return st.sampled_from(feature.values) if isinstance(feature, CategoryFeature) else st.text("abc", max_size=300)


@given(encoders, st.data(), st.integers(0, 3))
def test_a_batch_equals_encode_for_each_context_bit_for_bit(encoder, data, misfits):
    fitting = st.fixed_dictionaries({feature.name: a_fitting_value_for(feature) for feature in encoder.features})
    contexts = data.draw(st.lists(fitting, min_size=BATCH_MIN, max_size=BATCH_MIN + 4))
    for index in range(misfits):
        contexts[index] |= {feature.name: data.draw(a_value_for(feature)) for feature in encoder.features[:1]}
    alone = [encoder.encode(context) for context in contexts]
    together = encoder.encode_many(contexts)
    np.testing.assert_array_equal(together.vectors, [one.vector for one in alone])
    assert together.clipped == sum(len(one.clipped) for one in alone)
    assert together.unknown == sum(len(one.unknown) for one in alone)


@pytest.mark.parametrize(
    "bad",
    [
        GOOD | {"hour": True},
        GOOD | {"hour": "6"},
        GOOD | {"hour": math.nan},
        GOOD | {"hour": 10**400},
        GOOD | {"device": ["desktop"]},
        GOOD | {"device": 1},
        GOOD | {"site": 7},
        GOOD | {"site": "\ud800"},
        GOOD | {"more": 1},
        {"hour": 6, "device": "desktop"},
        {"hour": 6, "device": "desktop", "place": "example.com"},
        [6, "desktop", "example.com"],
    ],
    ids=repr,
)
def test_the_bad_context_of_a_batch_is_named_with_the_message_of_encode(bad):
    contexts = [dict(GOOD) for _ in range(BATCH_MIN)]
    with pytest.raises(ValueError) as alone:  # noqa: PT011 - any message
        ENCODER.encode(bad)
    with pytest.raises(ValueError) as together:  # noqa: PT011
        ENCODER.encode_many([*contexts, bad])
    assert str(together.value) == f"context {BATCH_MIN}: {alone.value}"


def test_the_cache_of_a_hash_feature_is_bounded_and_skips_long_strings():
    feature = HashFeature("site", 16)
    encoder = ContextEncoder((feature,))
    encoder.encode_many([{"site": LONG}] * BATCH_MIN)
    assert LONG not in feature.coordinate_of
    sites = [{"site": f"site {number}"} for number in range(CACHED_STRINGS_MAX + 100)]
    vectors = encoder.encode_many(sites).vectors
    assert 100 <= len(feature.coordinate_of) <= CACHED_STRINGS_MAX
    assert (encoder.encode_many(sites).vectors == vectors).all()


def test_every_coordinate_has_a_label():
    assert ENCODER.names[:5] == ("hour", "device=mobile", "device=desktop", "site#0", "site#1")
    assert ENCODER.dimension == 19
    vector = ENCODER.encode(GOOD).vector
    assert {name: value for name, value in zip(ENCODER.names, vector, strict=True) if value} == {
        "hour": 0.25,
        "device=desktop": 1.0,
        "site#11": 1.0,
    }


# First 8 bytes, big-endian, modulo; from b2sum -l 64 over name, a zero byte and value.
PINNED = [
    ("site", "example.com", 16, 11),
    ("site", "example.com", 65536, 2139),
    ("site", "", 1000, 243),
    ("país", "España", 1000, 266),
    ("user", "42", 997, 666),
    ("user", "42", 1, 0),
]


@pytest.mark.parametrize(("name", "value", "buckets", "bucket"), PINNED)
def test_the_bucket_of_a_string_never_changes(name, value, buckets, bucket):
    assert HashFeature(name, buckets).locate(value) == (bucket, 1.0, 0)


def test_the_bucket_of_a_string_is_the_same_in_every_process():
    code = "from cbwk_core import HashFeature as H; print(*[H('site', 997).locate(f'v{i}')[0] for i in range(9)])"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert outputs == {" ".join(str(HashFeature("site", 997).locate(f"v{i}")[0]) for i in range(9)) + "\n"}


@pytest.mark.parametrize(
    ("feature", "values"),
    [
        (
            HOUR,
            ["6", LONG, True, None, [6], {}, math.nan, math.inf, -math.inf, 10**5000, -(10**5000), 1j, np.bool(True)],
        ),
        (DEVICE, [1, True, None, 0.5, ["mobile"], {}, b"mobile"]),
        (SITE, [1, True, None, 0.5, ["a"], {}, b"a", "\ud800" + LONG]),
        (NumberFeature("hour", 0, 24, strict=True), [25, -1e-9, 10**5000, math.nan, np.float64(24.5)]),
        (CategoryFeature("device", ("mobile",), strict=True), ["tv", LONG, "", 1]),
    ],
)
def test_the_error_about_a_bad_value_names_the_feature_and_does_not_show_the_value(feature, values):
    others = [other for other in (HOUR, DEVICE, SITE) if other.name != feature.name]
    encoder = ContextEncoder((feature, *others))
    for value in values:
        with pytest.raises(ValueError, match=f"feature '{feature.name}' must") as caught:
            encoder.encode(GOOD | {feature.name: value})
        assert len(str(caught.value)) < 100
        assert "s3cret" not in str(caught.value)


def test_the_bad_context_among_many_is_named():
    with pytest.raises(ValueError, match=r"^context 1: feature 'hour' must"):
        ENCODER.encode_many([GOOD, GOOD | {"hour": None}, GOOD])


@pytest.mark.parametrize("feature", ENCODER.features, ids=lambda feature: feature.name)
def test_a_missing_feature_is_refused_unless_it_has_a_default(feature):
    context = {name: value for name, value in GOOD.items() if name != feature.name}
    with pytest.raises(ValueError, match=f"feature '{feature.name}' is missing"):
        ENCODER.encode(context)
    defaults = (NumberFeature("hour", 0, 24, 6), CategoryFeature("device", DEVICE.values, "desktop"))
    encoder = ContextEncoder((*defaults, HashFeature("site", 16, "example.com")))
    assert encoder.encode(context).vector.tolist() == ENCODER.encode(GOOD).vector.tolist()
    assert encoder.encode({}).vector.tolist() == ENCODER.encode(GOOD).vector.tolist()
    with pytest.raises(ValueError, match="not declared: 'colour'"):
        encoder.encode(context | {"colour": "red"})


@pytest.mark.parametrize(("name", "shown"), [("colour", "'colour'"), (LONG, "'s3crets3"), (7, "a name of type int")])
def test_an_undeclared_feature_is_refused_and_its_name_is_shortened(name, shown):
    with pytest.raises(ValueError, match=f"not declared: {shown}") as caught:
        ENCODER.encode(GOOD | {name: LONG})
    assert len(str(caught.value)) < 100


@pytest.mark.parametrize("context", [[1.0, 2.0], "hour", None, 7, np.zeros(19), b""])
def test_an_encoder_with_features_refuses_anything_but_an_object(context):
    with pytest.raises(ValueError, match=r"^context must be an object by feature name, got"):
        ENCODER.encode(context)


def test_the_ends_of_a_range_are_not_clipped_and_the_next_float_is():
    feature = NumberFeature("x", -0.1, 0.3)
    encoder = ContextEncoder((feature,))
    for value, scaled in ((-0.1, 0.0), (0.3, 1.0)):
        assert encoder.encode({"x": value}) == ([scaled], (), ())
    for value, scaled in ((math.nextafter(-0.1, -1), 0.0), (math.nextafter(0.3, 1), 1.0)):
        assert encoder.encode({"x": value}) == ([scaled], ("x",), ())


def test_numpy_numbers_are_accepted_as_numbers():
    for six in (np.float64(6), np.float32(6), np.int64(6), np.uint8(6)):
        assert ENCODER.encode(GOOD | {"hour": six}).vector[0] == 0.25


@given(hnp.arrays(np.float64, 5, elements=st.floats(-COORDINATE_MAX, COORDINATE_MAX)))
def test_a_list_of_numbers_is_not_scaled(vector):
    encoder = ContextEncoder.vector(5)
    for context in (vector, vector.tolist(), tuple(vector.tolist())):
        assert encoder.encode(context).vector.tobytes() == vector.tobytes()
    assert encoder.names == ("x[0]", "x[1]", "x[2]", "x[3]", "x[4]")
    assert (encoder.encode_many([vector, vector]).vectors == vector).all()


@pytest.mark.parametrize(
    "value",
    ["1", LONG, True, None, math.nan, math.inf, -math.inf, 10**5000, 1001, -1000.5, [1.0], {}, np.bool(True)],
    ids=lambda value: type(value).__name__,
)
def test_a_bad_number_in_a_list_is_refused_and_its_index_is_named(value):
    with pytest.raises(ValueError, match=r"feature 'x\[1\]' must") as caught:
        ContextEncoder.vector(3).encode([1, value, 0.5])
    assert len(str(caught.value)) < 100


@pytest.mark.parametrize(
    "context", [[], [1.0], [1.0] * 4, {"hour": 1}, "abc", b"abc", None, 3, np.zeros(2), np.array(3.0), np.zeros((2, 3))]
)
def test_a_list_of_another_length_or_type_is_refused(context):
    with pytest.raises(ValueError, match=r"^context must be a list of 3 numbers, got"):
        ContextEncoder.vector(3).encode(context)


BAD_DECLARATIONS = {
    "an empty range": lambda: NumberFeature("x", 1, 1),
    "a range upside down": lambda: NumberFeature("x", 2, 1),
    "an infinite end": lambda: NumberFeature("x", 0, math.inf),
    "an end that is no number": lambda: NumberFeature("x", math.nan, 1),
    "an end that is text": lambda: NumberFeature("x", "0", 1),
    "an end beyond floats": lambda: NumberFeature("x", 0, 10**5000),
    "a width beyond floats": lambda: NumberFeature("x", -1.7e308, 1.7e308),
    "a default outside": lambda: NumberFeature("x", 0, 1, default=2),
    "a default that is text": lambda: NumberFeature("x", 0, 1, default="0"),
    "no values": lambda: CategoryFeature("x", ()),
    "a list of values": lambda: CategoryFeature("x", ["a"]),
    "a value twice": lambda: CategoryFeature("x", ("a", "b", "a")),
    "an empty value": lambda: CategoryFeature("x", ("a", "")),
    "a number as value": lambda: CategoryFeature("x", ("a", 1)),
    "half a surrogate pair as value": lambda: CategoryFeature("x", ("\ud800",)),
    "a default that is not declared": lambda: CategoryFeature("x", ("a",), default="b"),
    "too many values": lambda: CategoryFeature("x", tuple(map(str, range(DIMENSION_MAX + 1)))),
    "no bucket": lambda: HashFeature("x", 0),
    "too many buckets": lambda: HashFeature("x", BUCKETS_MAX + 1),
    "buckets that are not whole": lambda: HashFeature("x", 2.0),
    "a truth value as buckets": lambda: HashFeature("x", True),
    "a hash default that is a number": lambda: HashFeature("x", 2, default=1),
    "an empty name": lambda: HashFeature("", 2),
    "a name that is a number": lambda: HashFeature(1, 2),
    "a name that is too long": lambda: HashFeature("x" * 129, 2),
    "a name that cannot be printed": lambda: NumberFeature("x\n", 0, 1),
    "half a surrogate pair as name": lambda: HashFeature("\ud800", 2),
    "a name twice": lambda: ContextEncoder((HOUR, DEVICE, NumberFeature("device", 0, 1))),
    "no features": lambda: ContextEncoder(()),
    "a list of features": lambda: ContextEncoder([HOUR]),
    "something else as feature": lambda: ContextEncoder(("hour",)),
    "too many coordinates": lambda: ContextEncoder((HOUR, HashFeature("site", DIMENSION_MAX))),
    "features and a dimension": lambda: ContextEncoder((HOUR,), 3),
    "no dimension": lambda: ContextEncoder.vector(0),
    "a dimension that is not whole": lambda: ContextEncoder.vector(2.0),
    "too large a dimension": lambda: ContextEncoder.vector(DIMENSION_MAX + 1),
}


@pytest.mark.parametrize("declare", BAD_DECLARATIONS.values(), ids=BAD_DECLARATIONS.keys())
def test_a_bad_declaration_is_refused(declare):
    with pytest.raises(ValueError, match=r"feature|dimension"):
        declare()


def test_the_largest_encoder_is_allowed():
    assert ContextEncoder((HashFeature("site", DIMENSION_MAX),)).dimension == DIMENSION_MAX
    assert ContextEncoder.vector(DIMENSION_MAX).dimension == DIMENSION_MAX
    assert HashFeature("site", BUCKETS_MAX).buckets == BUCKETS_MAX


def test_encoders_are_values_that_can_be_compared_and_copied_after_use():
    twin = ContextEncoder((NumberFeature("hour", 0, 24), DEVICE, SITE))
    ENCODER.encode(GOOD)
    assert twin == ENCODER
    assert hash(twin) == hash(ENCODER)
    assert copy.deepcopy(ENCODER).encode(GOOD).vector.tolist() == twin.encode(GOOD).vector.tolist()


@given(st.integers(0, 3), st.integers(0, 3), st.integers(1, 3), st.integers(1, 3), st.booleans(), st.integers(0, 99))
def test_feature_maps_equal_the_definition_row_by_row(n, k, p, r, own_arms, seed):
    rng = np.random.default_rng(seed)
    context, arms = rng.random((n, p)), rng.random((n, k, r) if own_arms else (k, r))
    joined, product = concatenate(context, arms), outer(context, arms)
    assert joined.shape == (n, k, p + r)
    assert product.shape == (n, k, p * r)
    for i in range(n):
        for a in range(k):
            arm = arms[i, a] if own_arms else arms[a]
            assert joined[i, a].tolist() == [*context[i], *arm]
            assert product[i, a].tolist() == [x * y for x in context[i] for y in arm]


@pytest.mark.parametrize("join", [concatenate, outer])
@pytest.mark.parametrize(
    ("context", "arms", "named"),
    [
        ([1.0], [[1.0]], "context"),
        ([[[1.0]]], [[1.0]], "context"),
        ([[math.nan]], [[1.0]], "context"),
        ([["a"]], [[1.0]], "context"),
        ([[1.0]], [1.0], "arm_features"),
        ([[1.0]], [[math.inf]], "arm_features"),
        ([[1.0]], [[[1.0]], [[1.0]]], "arm_features"),
        ([[1.0]], [[[[1.0]]]], "arm_features"),
    ],
)
def test_feature_maps_name_the_argument_that_does_not_fit(join, context, arms, named):
    with pytest.raises(ValueError, match=f"^{named} must"):
        join(context, arms)
