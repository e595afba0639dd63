"""Prices that a caller adds, and the prices of budgets that policies share, against slow reckoning by other routes."""

from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbwk_core import SquareCBwK
from cbwk_core.presets import PRICE_CEILING, PRICE_CORRECTION, PRICE_STEP
from cbwk_core.shared_prices import called, decided, first_state, read_state, settled

CLOSE = {"rtol": 1e-12, "atol": 1e-12}


def taught(rounds=40, **changes):
    """A policy with two resources and its state after some rounds."""
    terms = {
        "arms": 3,
        "dimension": 2,
        "resources": 2,
        "horizon": 200,
        "budget": [300.0, 130.0],
        "max_cost": [2.0, 1.0],
    }
    policy = SquareCBwK(**terms, **{"model": "per_arm", **changes})
    rng, state = np.random.default_rng(3), policy.init()
    for _ in range(rounds):
        x = rng.random((1, 2))
        cost = np.array([[rng.random() * 2.0, rng.random()]])
        state = policy.learn(state, x, np.array([rng.integers(3)]), rng.random(1), cost)
    return policy, state


@pytest.mark.parametrize("rows", [1, 3])
def test_added_prices_decide_as_if_they_were_the_policys_own(rows):
    """The other route: the policy's own prices, moved to the sum by the place where they stand."""
    policy, state = taught(rules=4)
    rng, added = np.random.default_rng(5), [0.05, 0.2]
    own, rho = policy.quote(state).prices[0], policy.problem.rho
    mean_value = state.value[0] / state.round[0]
    total = own + np.array(added) * policy.problem.unit
    elsewhere = state.replaced(position=total * rho / mean_value)
    x, uniforms = rng.random((rows, 2)), rng.random(rows)
    mine, other = policy.decide(state, x, uniforms, prices=added), policy.decide(elsewhere, x, uniforms)
    np.testing.assert_allclose(mine.probabilities, other.probabilities, **CLOSE)
    np.testing.assert_allclose(mine.thought.prices[0], total, **CLOSE)
    before = policy.decide(state, x, uniforms)
    assert np.abs(mine.probabilities - before.probabilities).max() > 0.01, "the prices matter here"


def test_one_row_in_floats_and_rows_in_arrays_add_the_same_prices():
    policy, state = taught()
    rng, added = np.random.default_rng(6), [0.3, 0.0]
    x, uniforms = rng.random((4, 2)), rng.random(4)
    together = policy.decide(state, x, uniforms, prices=np.array(added))
    for row in range(4):
        alone = policy.decide(state, x[row : row + 1], uniforms[row : row + 1], prices=added)
        np.testing.assert_allclose(alone.probabilities[0], together.probabilities[row], **CLOSE)


def test_the_dual_of_the_paper_takes_added_prices_too():
    policy, state = taught(preset="paper")
    own = policy.quote(state).prices[0]
    choice = policy.decide(state, np.ones((1, 2)), np.array([0.5]), prices=[1.0, 0.5])
    np.testing.assert_allclose(choice.thought.prices[0], own + np.array([2.0, 0.5]), **CLOSE)


@pytest.mark.parametrize("prices", [[-0.1, 1.0], [1.0], [np.inf, 1.0]])
def test_prices_that_are_none_are_refused(prices):
    policy, state = taught(rounds=2)
    with pytest.raises(ValueError, match="prices must"):
        policy.decide(state, np.ones((1, 2)), np.array([0.5]), prices=prices)


class Slow:
    """One shared budget, decision by decision, in plain numbers."""

    def __init__(self):
        self.rounds = self.value = self.position = self.energy = self.even = self.surprise = 0.0

    def call(self, budget, left):
        even = budget / (self.rounds + max(left, 1.0))
        if self.even:
            most = max(self.position, PRICE_CEILING)
            self.position = min(self.position * even / self.even, most)
        self.even = even
        surprise = PRICE_CORRECTION * self.surprise / even
        step = PRICE_STEP * surprise / sqrt(1.0 + self.energy + surprise**2)
        self.position = (
            min(max(self.position + step, 0.0), max(PRICE_CEILING, self.position)) if step else self.position
        )
        self.surprise = 0.0

    def decide(self, costs, rewards, pace):
        for cost, reward in zip(costs, rewards, strict=True):
            excess = (cost - pace) / self.even
            self.energy += excess**2
            moved = self.position + PRICE_STEP * excess / sqrt(1.0 + self.energy)
            self.position = min(max(moved, 0.0), max(PRICE_CEILING, self.position))
            self.rounds, self.value = self.rounds + 1, self.value + reward

    @property
    def price(self):
        return self.position * self.value / max(self.rounds, 1) / self.even


calls = st.lists(
    st.tuples(
        st.lists(st.tuples(st.floats(0.0, 3.0), st.floats(0.0, 50.0)), min_size=1, max_size=4),
        st.floats(0.05, 2.0),
        st.integers(1, 500),
        st.floats(-2.0, 2.0),
    ),
    min_size=1,
    max_size=12,
)


@given(calls)
def test_shared_prices_follow_the_slow_reckoning_whatever_the_order_of_calls(made):
    slow, state = Slow(), first_state(1)
    for decisions, pace, left, surprise in made:
        costs, rewards = (np.array(each) for each in zip(*decisions, strict=True))
        state = called(read_state(state.numbers()), [30.0], left)
        slow.call(30.0, left)
        np.testing.assert_allclose(state.prices, [slow.price], rtol=1e-9, atol=1e-12)
        state = decided(state, costs[:, None], rewards, np.array([pace]), paced=False)
        slow.decide(costs, rewards, pace)
        state = settled(state, [0.5], [0.5 + surprise])
        slow.surprise += surprise
    np.testing.assert_allclose(
        [state.energy[0], state.position[0]], [slow.energy, slow.position], rtol=1e-9, atol=1e-12
    )


def test_another_number_of_rounds_to_come_keeps_the_prices():
    state = called(first_state(2), [30.0, 60.0], 60)
    state = decided(state, np.array([[2.0, 2.0], [1.0, 3.0]]), np.array([3.0, 1.0]), np.array([0.5, 1.0]), paced=False)
    before = state.prices
    assert (before > 0).all()
    np.testing.assert_allclose(called(state, [30.0, 60.0], 100.0).prices, before, **CLOSE)


def test_a_paced_budget_moves_its_prices_in_units_of_the_pace():
    """Where a window leaves a tenth of the even pace, a cost of the even pace is ten paces, and the price jumps."""
    plain = called(first_state(1), [100.0], 100)
    costs, pace = np.ones((1, 1)), np.array([0.1])
    free, tight = (decided(plain, costs, np.ones(1), pace, paced=paced) for paced in (False, True))
    assert tight.position[0] > 5 * free.position[0]


def test_open_decisions_count_at_their_predictions_until_they_are_settled():
    state = called(first_state(1), [30.0], 60)
    state = decided(state, np.array([[0.4], [0.6]]), np.zeros(2), np.array([0.5]), paced=False)
    assert state.predicted[0] == pytest.approx(1.0)
    state = settled(settled(state, [0.4], [0.9]), [0.6], [0.0])
    assert (state.predicted[0], state.surprise[0]) == (pytest.approx(0.0), pytest.approx(-0.1))
