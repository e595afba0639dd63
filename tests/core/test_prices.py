"""How the prices of `practical` move when costs become known."""

import numpy as np
import pytest

from cbwk_core import NULL_ARM, SquareCBwK
from cbwk_core.presets import PRICE_CEILING, PRICE_CORRECTION, PRICE_STEP


@pytest.mark.parametrize("model", ["shared", "per_arm"])
def test_a_price_moves_by_a_share_of_what_a_cost_exceeds_its_prediction_and_stays_where_the_cost_was_predicted(model):
    policy = SquareCBwK(arms=3, dimension=2, resources=2, horizon=500, budget=[200.0, 90.0], max_cost=2.0, model=model)
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
    moved = PRICE_STEP * PRICE_CORRECTION * (0.1 / policy.problem.rho) / np.sqrt(1.0 + open_.energy[0])
    expected = np.minimum(open_.position[0] + moved, PRICE_CEILING)
    np.testing.assert_allclose(dearer.position[0], expected, rtol=1e-9)


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
