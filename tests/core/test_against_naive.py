"""The `paper` preset against Algorithms 1 and 2 written out line by line."""

from __future__ import annotations

import numpy as np
import pytest

from cbwk_core import NULL_ARM, SquareCBwK
from tests.core import naive


def scenario(seed, horizon, arms, dimension, resources):
    """Random contexts in the unit ball, linear means, noise that leaves [0, 1]."""
    rng = np.random.default_rng(seed)
    x = rng.random((horizon, arms, dimension))
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    theta = rng.random((dimension, 1 + resources))
    theta /= np.linalg.norm(theta, axis=0)
    outcomes = x @ theta + rng.normal(scale=0.2, size=(horizon, arms, 1 + resources))
    return x, rng.random(horizon), outcomes


def play(policy, x, uniforms, outcomes):
    state, history = policy.init(), []
    unit = policy.problem.unit
    for t in range(len(x)):
        if policy.refresh_due(state):
            state = policy.refresh(state)
        choice = policy.decide(state, x[t : t + 1], uniforms[t : t + 1])
        arm = int(choice.arm[0])
        if choice.reason[0] != "policy":
            break
        history.append((arm, choice.probabilities[0], policy.quote(state).prices[0]))
        reward, *costs = outcomes[t][arm] if arm != NULL_ARM else np.zeros(1 + policy.resources)
        state = policy.learn(state, x[t : t + 1], choice.arm, [reward], [np.asarray(costs) * unit])
    return history, state


@pytest.mark.parametrize(
    ("seed", "arms", "dimension", "budget", "max_cost"),
    [
        (1, 3, 5, [100.0] * 4, [1.0] * 4),
        (2, 2, 3, [60.0], [1.0]),
        (3, 4, 6, [50.0, 300.0, 12.0], [0.5, 2.0, 0.1]),
        (4, 1, 1, [80.0, 90.0], [1.0, 1.0]),
    ],
)
def test_paper_preset_plays_the_arms_of_algorithm_1(seed, arms, dimension, budget, max_cost):
    horizon = 400
    x, uniforms, outcomes = scenario(seed, horizon, arms, dimension, len(budget))
    policy = SquareCBwK(
        arms=arms,
        dimension=dimension,
        resources=len(budget),
        horizon=horizon,
        budget=budget,
        max_cost=max_cost,
        preset="paper",
    )
    history, _ = play(policy, x, uniforms, outcomes)
    budgets = [b / c for b, c in zip(budget, max_cost, strict=True)]
    expected = naive.algorithm_1(x, uniforms, outcomes, budgets, horizon)
    assert [arm for arm, _, _ in history] == [step.arm for step in expected]
    assert len({arm for arm, _, _ in history}) == arms + 1
    np.testing.assert_allclose([p for _, p, _ in history], [step.probabilities for step in expected], atol=1e-9)
    np.testing.assert_allclose([p for _, _, p in history], [step.prices for step in expected], rtol=1e-9, atol=1e-9)


def test_the_loop_above_ends_by_exit_in_some_scenarios():
    x, uniforms, outcomes = scenario(2, 400, 2, 3, 1)
    assert len(naive.algorithm_1(x, uniforms, outcomes, [60.0], 400)) < 400


@pytest.mark.parametrize("seed", [5, 6])
def test_paper_preset_with_two_stages_plays_the_arms_of_algorithm_2(seed):
    horizon, arms, dimension, resources, budget = 1500, 2, 3, 2, 500.0
    x, uniforms, outcomes = scenario(seed, horizon, arms, dimension, resources)
    policy = SquareCBwK(
        arms=arms,
        dimension=dimension,
        resources=resources,
        horizon=horizon,
        budget=budget,
        preset="paper",
        two_stage="paper",
    )
    history, state = play(policy, x, uniforms, outcomes)
    expected, z, _ = naive.algorithm_2(x, uniforms, outcomes, [budget] * resources, horizon)
    assert [arm for arm, _, _ in history] == [step.arm for step in expected]
    np.testing.assert_allclose([p for _, p, _ in history], [step.probabilities for step in expected], atol=1e-9)
    np.testing.assert_allclose(state.stage.radius, z, rtol=1e-9)


def test_the_radius_of_algorithm_2_is_that_of_the_program_where_the_margin_leaves_room_for_it():
    """M(T0) is 0.64 here and OPT̂ about a tenth, so Z is three quarters of T/B; auto chooses Algorithm 2 by itself."""
    horizon, budget, rounds = 100_000, 80_000.0, 1_000
    x, uniforms, outcomes = scenario(7, rounds, 1, 1, 1)
    outcomes[..., 0] *= 0.1
    policy = SquareCBwK(arms=1, dimension=1, resources=1, horizon=horizon, budget=budget, preset="paper")
    history, state = play(policy, x, uniforms, outcomes)
    expected, z, margin = naive.algorithm_2(x, uniforms, outcomes, [budget], horizon, end=rounds)
    assert margin < 0.65
    assert z < 0.8 * horizon / budget
    assert len(history) == rounds
    assert [arm for arm, _, _ in history] == [step.arm for step in expected]
    np.testing.assert_allclose([p for _, p, _ in history], [step.probabilities for step in expected], atol=1e-9)
    np.testing.assert_allclose(state.stage.radius, z, rtol=1e-9)
