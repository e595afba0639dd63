"""The units of a model: a policy that counts otherwise takes what can be converted exactly, and refuses the rest."""

import json
from dataclasses import replace

import numpy as np
import pytest

from cbwk_core import SquareCBwK, Ticket, snapshot
from cbwk_core.model import decode, model_of, units_of, with_model
from cbwk_core.model_units import ForeignUnitsError, Units
from cbwk_core.snapshot import MismatchError

SIZES = {"arms": 2, "dimension": 3, "resources": 2, "horizon": 500, "budget": 100.0, "model": "per_arm"}
EVEN = ((2.0, 0.5), (2.0, 0.5))
UNEVEN = ((2.0, 0.5), (1.0, 0.25))


def policy_of(**changes):
    return SquareCBwK(**(SIZES | changes))


def taught(policy, *, split=False):
    """The state after 60 outcomes within 1 and 0.25; split: after the costs of 20 more, whose rewards are not known."""
    rng, state = np.random.default_rng(5), policy.init()
    x = rng.random((80, 3) if policy.model == "per_arm" else (80, 2, 3))
    arm, reward, cost = rng.integers(0, 2, 80), rng.random(80), rng.random((80, 2)) * [1.0, 0.25]
    state = policy.learn(state, x[:60], arm[:60], reward[:60], cost[:60])
    if split:
        nothing, none = np.zeros((20, 2)), np.zeros(20)
        known = {"reward": none, "costs": nothing, "rho": nothing, "value": none, "hold": nothing}
        ticket = Ticket.of(arm=arm[60:], features=x[60:], round=np.zeros(20, dtype=np.int64), **known)
        state = policy.teach(state, ticket, reward[60:], cost[60:], learn_reward=False)
    return state


def moved(source, target, **options):
    return with_model(target.init(), target.decode_model(source.encode_model(taught(source, **options))))


def parts_of(oracle):
    return getattr(oracle, "parts", (oracle,))


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({}, {}),
        ({}, {"split": True}),
        ({"rules": 3}, {}),
        ({"model": "shared"}, {}),
        ({"oracle": "kernel"}, {}),
        ({"forgetting": 0.99}, {}),
    ],
)
@pytest.mark.parametrize("times", [8.0, 0.3])
def test_a_model_in_other_units_is_the_one_that_its_outcomes_leave_in_these_units(changes, options, times):
    source = policy_of(max_cost=EVEN, **changes)
    target = replace(source, max_cost=np.array(EVEN) * [times, 1.0], horizon=90)
    found, wanted = moved(source, target, **options), taught(target, **options)
    np.testing.assert_allclose(found.residuals, wanted.residuals, rtol=1e-9, atol=1e-12)
    for one, other in zip(parts_of(found.oracle), parts_of(wanted.oracle), strict=True):
        np.testing.assert_allclose(one.solution, other.solution, rtol=1e-9, atol=1e-12)
        # Means and squares of errors, and the pool of squares; the wealth of bets has no unit.
        kinds = 1 + 2 * (one.solution.shape[2] - one.solution.shape[3])
        np.testing.assert_allclose(one.watch[..., :kinds], other.watch[..., :kinds], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(one.noticed, other.noticed, rtol=1e-9, atol=1e-12)


def test_a_policy_that_kept_its_units_when_max_costs_changed_gives_a_new_one_the_costs_that_it_predicts():
    old = policy_of(max_cost=EVEN)
    raised = replace(old, max_cost=np.array(EVEN) * 3.0, unit=old.problem.unit, arm_unit=old.problem.arm_unit)
    new, x = policy_of(max_cost=np.array(EVEN) * 3.0), np.full((1, 3), 0.4)
    state = raised.adopt(old, taught(old))
    taken = with_model(new.init(), new.decode_model(raised.encode_model(state)))
    costs = raised.predict(state, x)[..., 1:] * raised.problem.unit
    np.testing.assert_allclose(new.predict(taken, x)[..., 1:] * new.problem.unit, costs, rtol=1e-12)
    np.testing.assert_array_equal(new.predict(taken, x)[..., 0], raised.predict(state, x)[..., 0])


@pytest.mark.parametrize(
    "changes",
    [{"link": "logistic"}, {"oracle": "gradient"}, {"oracle": "aggregate"}, {"preset": "paper"}],
    ids=lambda changes: "-".join(changes.values()),
)
def test_an_oracle_whose_predictions_or_steps_have_bounds_keeps_its_units(changes):
    source, other = policy_of(max_cost=EVEN, **changes), policy_of(max_cost=1.0, **changes)
    with pytest.raises(ForeignUnitsError, match=r"unit of the model is \[2.0, 0.5\].* converted to \[1.0, 1.0\]"):
        moved(source, other)
    assert moved(source, replace(source, horizon=90)).learnt == 60


def test_residuals_of_arms_whose_units_have_other_ratios_are_refused():
    """Between rules 3 and 4 the unit of an arm's noise differs, unless all arms have the same max costs."""
    source = policy_of(max_cost=UNEVEN)
    refused = r"arm_unit\[1\] of the model is \[1.0, 0.25\], which cannot be converted to \[2.0, 0.5\]"
    for target in (replace(source, rules=3), policy_of(max_cost=EVEN)):
        with pytest.raises(ForeignUnitsError, match=refused):
            moved(source, target)
    for one, other in ((3, 5), (5, 3)):
        old, new = (policy_of(max_cost=EVEN, rules=rules) for rules in (one, other))
        np.testing.assert_array_equal(moved(old, new).residuals, taught(old).residuals)


def test_the_arm_that_is_named_is_one_whose_unit_differs():
    """The first arm was there before max costs doubled, the second came after."""
    source = policy_of(max_cost=np.array(EVEN) * [[1.0], [2.0]])
    with pytest.raises(ForeignUnitsError, match=r"arm_unit\[0\] of the model is \[2.0, 0.5\].* to \[4.0, 1.0\]"):
        moved(source, policy_of(max_cost=np.array(EVEN) * 2.0))


def test_arms_whose_units_all_changed_in_one_ratio_are_converted():
    source, target = policy_of(max_cost=UNEVEN), policy_of(max_cost=np.array(UNEVEN) * 4.0)
    spread = moved(source, target).residuals - target.init().residuals
    np.testing.assert_allclose(spread[0, 0, 0], taught(source).residuals[0, 0, 0] - source.init().residuals[0, 0, 0])
    own = taught(source).residuals - source.init().residuals
    np.testing.assert_allclose(spread[:, 1:, 1:], own[:, 1:, 1:] / 16.0, rtol=1e-9)


def renamed(policy, **changes):
    """A model whose bytes name other units; None: they do not name it."""
    data = policy.encode_model(taught(policy))
    named = json.loads(snapshot.fingerprint_of(data))["model"] | changes
    fingerprint = json.dumps({"model": {name: each for name, each in named.items() if each != "none"}})
    return snapshot.encode(model_of(taught(policy)), fingerprint=fingerprint)


def test_bytes_that_name_no_units_are_refused_except_as_the_own_ones():
    policy = policy_of(max_cost=EVEN)
    unnamed = renamed(policy, rules="none", unit="none", arm_unit="none")
    assert units_of(unnamed) is None
    with pytest.raises(MismatchError, match="names no units"):
        policy.decode_model(unnamed)
    np.testing.assert_array_equal(decode(policy, unnamed, is_own=True).residuals, taught(policy).residuals)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rules": 99}, "model.rules must be one of"),
        ({"rules": True}, "model.rules must be one of"),
        ({"rules": "none"}, "model.rules must be one of"),
        ({"unit": [1.0]}, "model.unit must have"),
        ({"unit": [1.0, 0.0]}, "model.unit must have"),
        ({"unit": [1.0, float("inf")]}, "model.unit must have"),
        ({"unit": [1.0, "1"]}, "model.unit must have"),
        ({"unit": [1.0, 10**400]}, "model.unit must have"),
        ({"unit": [1e300, 1.0]}, "must be finite"),
        ({"unit": "none"}, "model.unit must have"),
        ({"arm_unit": [[1.0, 1.0]]}, "model.arm_unit must have"),
        ({"arm_unit": [[1.0, 1.0], [1.0, -1.0]]}, "model.arm_unit must have"),
        ({"arm_unit": 1.0}, "model.arm_unit must have"),
    ],
)
def test_units_that_no_policy_could_have_named_are_refused(changes, message):
    policy = policy_of(max_cost=EVEN)
    with pytest.raises(MismatchError, match=message):
        policy.decode_model(renamed(policy, **changes))


def test_the_bytes_name_the_units_and_rules_of_their_policy():
    policy = policy_of(max_cost=UNEVEN)
    assert units_of(policy.encode_model(policy.init())) == Units(5, [2.0, 0.5], [[2.0, 0.5], [1.0, 0.25]])
    older = replace(policy, rules=3)
    assert units_of(older.encode_model(older.init())) == Units(3, [2.0, 0.5], None)
