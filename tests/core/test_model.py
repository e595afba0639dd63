"""Models: what was learnt goes from one policy to another of the same shape, and nothing else is taken for one."""

import struct
from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbwk_core import SquareCBwK, snapshot
from cbwk_core.model import ForeignModelError, Model, model_of, shape_of, with_model
from cbwk_core.snapshot import MismatchError, SnapshotError

KINDS = [("newton", "identity"), ("newton", "logistic"), ("gradient", "identity"), ("aggregate", "identity")]
KINDS += [("kernel", "identity"), ("gradient", "logistic")]
MODELS = ("per_arm", "shared")


def policy_of(**changes):
    sizes = {"arms": 2, "dimension": 3, "resources": 2, "horizon": 500, "budget": 100.0, "model": "per_arm"}
    return SquareCBwK(**(sizes | changes))


def features_of(policy, rng, rows):
    return rng.random((rows, 3) if policy.model == "per_arm" else (rows, 2, 3))


def taught(policy, state, rows=40, seed=5):
    """The state after some rounds, the null arm among them."""
    rng = np.random.default_rng(seed)
    x, arms = features_of(policy, rng, rows), rng.integers(-1, 2, rows)
    return policy.learn(state, x, arms, rng.random(rows) * (arms >= 0), rng.random((rows, 2)) * (arms >= 0)[:, None])


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("oracle", "link"), KINDS)
def test_another_policy_of_the_same_shape_goes_on_from_a_model_as_the_first_does(oracle, link, model):
    first = policy_of(oracle=oracle, link=link, model=model)
    state = taught(first, first.init())
    second = policy_of(oracle=oracle, link=link, model=model, horizon=9_000, budget=[70, 8])
    before = taught(second, second.init(), rows=7, seed=6)
    after = with_model(before, second.decode_model(first.encode_model(state)))
    x = features_of(first, np.random.default_rng(8), 20)
    np.testing.assert_array_equal(second.predict(after, x), first.predict(state, x))
    assert second.encode_model(after) == first.encode_model(state)
    # The learnt outcomes belong to the model, all other books to the policy.
    np.testing.assert_array_equal(after.replaced(learnt=before.learnt).books, before.books)
    assert after.learnt == state.learnt > before.learnt
    ticket = first.decide(state, x[:1], [0.3]).ticket
    ahead = [policy.teach(one, ticket, [1.0], [[0.2, 0.4]]) for policy, one in ((first, state), (second, after))]
    np.testing.assert_array_equal(second.predict(ahead[1], x), first.predict(ahead[0], x))


@pytest.mark.parametrize(
    ("changes", "differing"),
    [
        ({"arms": 3}, ("arms",)),
        ({"dimension": 4, "resources": 1}, ("dimension", "resources")),
        ({"model": "shared"}, ("model", "arms")),
        ({"oracle": "gradient"}, ("oracle",)),
        ({"link": "logistic"}, ("link",)),
        ({"preset": "paper"}, ("preset.constant", "preset.projected", "preset.ridge", "preset.scaled_ridge")),
    ],
)
def test_a_model_of_another_shape_is_refused_with_what_differs(changes, differing):
    policy, other = policy_of(), policy_of(**changes)
    with pytest.raises(ForeignModelError) as caught:
        policy.decode_model(other.encode_model(other.init()))
    assert caught.value.differing == differing


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"preset": "paper"}, {"preset": "authors"}),
        ({"model": "shared"}, {"model": "shared", "arms": 7}),
        ({}, {"forgetting": 0.99, "gamma": 3.0, "max_cost": 2.0}),
    ],
)
def test_policies_of_one_shape_may_differ_in_everything_else(one, other):
    assert shape_of(policy_of(**one)) == shape_of(policy_of(**other))
    source, target = policy_of(**one), policy_of(**other)
    assert target.decode_model(source.encode_model(taught(source, source.init()))).learnt > 0


@pytest.mark.parametrize("oracle", ["newton", "gradient", "aggregate"])
def test_outcomes_taught_together_leave_the_same_bytes_as_one_by_one(oracle):
    policy, rng = policy_of(oracle=oracle), np.random.default_rng(4)
    ticket = policy.decide(policy.init(), rng.random((90, 3)), rng.random(90)).ticket
    rewards, costs = rng.random(90), rng.random((90, 2))
    single = policy.init()
    for row in range(90):
        one = slice(row, row + 1)
        single = policy.teach(single, ticket.rows(one), rewards[one], costs[one])
    together = policy.teach(policy.init(), ticket, rewards, costs)
    assert policy.encode_model(together) == policy.encode_model(single)


def test_the_bytes_of_a_state_are_refused_as_a_model_and_those_of_a_model_as_a_state():
    policy = policy_of()
    with pytest.raises(SnapshotError, match="not of a model"):
        policy.decode_model(policy.encode(policy.init()))
    with pytest.raises(SnapshotError):
        policy.decode(policy.encode_model(policy.init()))


@given(data=st.data())
def test_bytes_with_a_bit_flipped_or_an_end_missing_are_refused(data):
    policy = policy_of()
    whole = policy.encode_model(taught(policy, policy.init()))
    place = data.draw(st.integers(0, len(whole) * 8 - 1))
    flipped = bytearray(whole)
    flipped[place // 8] ^= 1 << place % 8
    for damaged in (bytes(flipped), whole[: place // 8], whole[place // 8 + 1 :], whole + b"\0"):
        with pytest.raises(SnapshotError):
            policy.decode_model(damaged)


@given(st.binary(max_size=200))
def test_garbage_with_a_correct_checksum_is_refused(garbage):
    body = b"CBWK" + struct.pack("<HI", 1, max(len(garbage) - 3, 0)) + garbage
    with pytest.raises(SnapshotError):
        policy_of().decode_model(body + blake2b(body, digest_size=16).digest())


def forged(policy, change):
    """A model changed by hand, with a checksum that is right."""
    own = policy.encode_model(policy.init())
    return snapshot.encode(change(model_of(taught(policy, policy.init()))), fingerprint=snapshot.fingerprint_of(own))


@pytest.mark.parametrize(
    ("oracle", "change", "message"),
    [
        ("newton", lambda m: m._replace(residuals=m.residuals[:, :2, :2]), "residuals must have shape"),
        ("newton", lambda m: m._replace(residuals=m.residuals * np.nan), "residuals must be finite"),
        ("newton", lambda m: m._replace(learnt=np.array([-1])), "learnt must not be negative"),
        ("newton", lambda m: m._replace(learnt=np.array([2**60])), "learnt must be below"),
        ("newton", lambda m: m._replace(oracle=m.oracle._replace(gram=m.oracle.gram[:1])), "must have 2 elements"),
        (
            "newton",
            lambda m: m._replace(oracle=m.oracle._replace(gram=tuple(-part for part in m.oracle.gram))),
            "positive definite",
        ),
        ("aggregate", lambda m: m._replace(oracle=m.oracle._replace(keys=m.oracle.keys[::-1].copy())), "increasing"),
        ("aggregate", lambda m: m._replace(oracle=m.oracle._replace(visits=m.oracle.visits[1:])), "as many visits"),
        ("aggregate", lambda m: m._replace(oracle=m.oracle._replace(visits=m.oracle.visits * 0)), "were visited"),
        ("gradient", lambda m: m._replace(oracle=m.oracle._replace(theta=m.oracle.theta[:, :2])), "theta must have"),
    ],
)
def test_a_forged_model_that_no_policy_could_have_written_is_refused(oracle, change, message):
    policy = policy_of(oracle=oracle)
    assert isinstance(policy.decode_model(forged(policy, lambda m: m)), Model)
    with pytest.raises(MismatchError, match=message):
        policy.decode_model(forged(policy, change))
