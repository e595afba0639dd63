"""How the prices of `practical` move when costs become known."""

import numpy as np
import pytest

from cbwk_core import NULL_ARM, RULES_KNOWN, SquareCBwK
from cbwk_core.presets import PRICE_CEILING, PRICE_CORRECTION, PRICE_STEP


@pytest.mark.parametrize("rules", RULES_KNOWN)
@pytest.mark.parametrize("model", ["shared", "per_arm"])
def test_a_price_moves_by_a_share_of_what_a_cost_exceeds_its_prediction_and_stays_where_the_cost_was_predicted(
    model, rules
):
    sizes = {"arms": 3, "dimension": 2, "resources": 2, "horizon": 500, "budget": [200.0, 90.0], "max_cost": 2.0}
    policy = SquareCBwK(**sizes, model=model, rules=rules)
    rng, state = np.random.default_rng(5), policy.init()
    for _ in range(40):
        x = rng.uniform(0.0, 0.7, (1, 3, 2) if model == "shared" else (1, 2))
        state = policy.learn(state, x, [int(rng.integers(3))], rng.random(1), 0.4 * rng.random((1, 2)))
    choice = policy.decide(state, x, np.array([0.3]))
    assert choice.arm[0] != NULL_ARM
    open_ = policy.commit(state, choice.ticket)
    predicted = choice.ticket.costs * policy.problem.unit
    same = policy.settle(open_, choice.ticket, [0.5], predicted)
    np.testing.assert_allclose(same.position, open_.position, atol=1e-12)
    np.testing.assert_array_equal(same.energy, open_.energy)
    dearer = policy.settle(open_, choice.ticket, [0.5], predicted + 0.1 * policy.problem.unit)
    surprise = PRICE_CORRECTION * (0.1 / policy.problem.rho)
    root = np.sqrt(1.0 + open_.energy[0] + (surprise**2 if rules >= 3 else 0.0))
    expected = np.minimum(open_.position[0] + PRICE_STEP * surprise / root, PRICE_CEILING)
    np.testing.assert_allclose(dearer.position[0], expected, rtol=1e-9)


@pytest.mark.parametrize("rules", RULES_KNOWN)
def test_one_cost_of_a_thousand_paces_moves_the_price_by_a_step_from_rules_3_on(rules):
    """Before, it threw the price to its ceiling, and thousands of rounds passed before the price was back."""
    policy = SquareCBwK(arms=1, dimension=1, resources=1, horizon=10_000, budget=10.0, model="per_arm", rules=rules)
    state = policy.init()
    for _ in range(50):
        state = policy.learn(state, [[1.0]], [0], [0.5], [[0.0]])
    after = policy.learn(state, [[1.0]], [0], [0.5], [[1.0]])
    moved = (after.position - state.position).item()
    assert 0.0 < moved <= PRICE_STEP if rules >= 3 else moved == PRICE_CEILING


def test_the_value_of_a_decision_is_its_predicted_reward_and_null_has_value_0():
    policy = SquareCBwK(arms=2, dimension=1, resources=1, horizon=100, budget=1.0)
    state = policy.init()
    for _ in range(30):
        state = policy.learn(state, [[[0.2], [0.8]]], [0], [0.6], [[0.01]])
    before = state.value
    choice = policy.decide(state, np.array([[[0.2], [0.8]]]), np.array([0.0]))
    after = policy.commit(state, choice.ticket)
    assert after.value - before == pytest.approx(max(choice.ticket.reward[0], 0.0))
    null = policy.learn(state, [[[0.2], [0.8]]], [NULL_ARM], [0.0], [[0.0]])
    assert null.value == before
