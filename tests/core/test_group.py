"""Several policies asked at once decide as each by itself."""

from __future__ import annotations

import numpy as np
import pytest
from cbwk_core.across import Across, shape_of
from hypothesis import given, settings
from hypothesis import strategies as st

from cbwk_core import NULL_ARM, SquareCBwK
from cbwk_core.presets import BLIND_COUNT
from cbwk_core.state import layout


def policy_of(rng, arms, dimension, resources, **changes):
    """One of the shape, with a budget, holds and a horizon of its own."""
    chosen = {
        "model": "per_arm",
        "horizon": int(rng.integers(200, 2000)),
        "budget": rng.uniform(50, 500, resources),
        "max_cost": rng.uniform(0.2, 2.0, (arms, resources)),
    }
    sizes = {"arms": arms, "dimension": dimension, "resources": resources}
    return SquareCBwK(**sizes, **(chosen | changes))


def lived(policy, rng, rounds, open_share=0.2):
    """A state after so many decisions, most of which have outcomes."""
    state = policy.init()
    for _ in range(rounds):
        choice = policy.decide(state, rng.random((1, policy.dimension)), rng.random(1))
        state = policy.commit(state, choice.ticket)
        if choice.arm[0] != NULL_ARM and rng.random() > open_share:
            cost = rng.random((1, policy.resources)) * policy.problem.hold[choice.arm]
            state = policy.settle(state, choice.ticket, rng.random(1), cost)
    return state


def plenty(policies):
    return np.full((len(policies), policies[0].resources), 1000.0)


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 5), st.integers(1, 3), st.integers(1, 7))
def test_each_decides_and_commits_as_it_would_alone(seed, arms, dimension, resources, count):
    rng = np.random.default_rng(seed)
    policies = [policy_of(rng, arms, dimension, resources) for _ in range(count)]
    states = [lived(policy, rng, int(rng.integers(0, 40))) for policy in policies]
    assert len({shape_of(policy) for policy in policies}) == 1
    across = Across(policies, states)
    fit = across.fit(plenty(policies))
    policies = [policy for policy, good in zip(policies, fit, strict=True) if good]
    states = [state for state, good in zip(states, fit, strict=True) if good]
    if not policies:
        return
    across, x, uniforms = Across(policies, states), rng.random((len(policies), dimension)), rng.random(len(policies))
    choice = across.decide(x, uniforms)
    after = across.commit(choice.ticket)
    for row, (policy, state) in enumerate(zip(policies, states, strict=True)):
        alone = policy.decide(state, x[row : row + 1], uniforms[row : row + 1], free=np.full(resources, 1000.0))
        assert choice.arm[row] == alone.arm[0]
        assert choice.reason[row] == alone.reason[0]
        for name in ("probability", "probabilities"):
            np.testing.assert_allclose(getattr(choice, name)[row], getattr(alone, name)[0], rtol=1e-9)
        for name in ("predictions", "prices", "gamma"):
            together, single = getattr(choice.thought, name)[row], getattr(alone.thought, name)[0]
            np.testing.assert_allclose(together, single, rtol=1e-9, atol=1e-12)
        for name in ("arm", "features", "numbers"):
            together, single = getattr(choice.ticket, name)[row], getattr(alone.ticket, name)[0]
            np.testing.assert_allclose(together, single, rtol=1e-9, atol=1e-12)
        single = policy.commit(state, alone.ticket)
        np.testing.assert_allclose(after[row].books, single.books, rtol=1e-9, atol=1e-12)
        assert after[row].oracle is state.oracle
        assert after[row].residuals is state.residuals
        assert not after[row].books.flags.writeable
        assert after[row].books.base is None


def test_a_null_arm_costs_and_holds_nothing():
    rng = np.random.default_rng(3)
    policies = [policy_of(rng, 2, 3, 2) for _ in range(5)]
    states = [lived(policy, rng, 30, open_share=0.0) for policy in policies]
    for at, state in enumerate(states):  # a mean reward at which nothing is worth its costs
        books = state.books.copy()
        books[0, 4], books[0, layout(2)["position"]] = 1000.0, 1.5
        states[at] = state._replace(books=books)
    x, uniforms = rng.random((5, 3)), np.full(5, 0.999999)
    choice = Across(policies, states).decide(x, uniforms)
    after = Across(policies, states).commit(choice.ticket)
    assert (choice.arm == NULL_ARM).all()
    assert not choice.ticket.hold.any()
    assert not choice.ticket.costs.any()
    assert not choice.ticket.features.any()
    for row, (policy, state) in enumerate(zip(policies, states, strict=True)):
        alone = policy.decide(state, x[row : row + 1], uniforms[row : row + 1], free=np.full(2, 1000.0))
        assert alone.arm[0] == NULL_ARM
        np.testing.assert_allclose(choice.ticket.numbers[row], alone.ticket.numbers[0])
        np.testing.assert_allclose(after[row].books, policy.commit(state, alone.ticket).books)


@pytest.mark.parametrize("resources", [7, 8, 10])
def test_arms_that_are_equal_to_the_last_bit_are_equal_together_too(resources):
    """Another product of the same numbers may tell them apart, and then another arm is the best one."""
    rng = np.random.default_rng(resources)
    policies, states = [], []
    for _ in range(60):
        policy = policy_of(rng, 5, 3, resources, max_cost=1.0, budget=20.0, horizon=500)
        state, x, cost = policy.init(), rng.random((1, 3)), 0.12 * rng.random((1, resources))
        for arm in range(5):  # every arm learns the same
            state = policy.learn(state, x, np.array([arm]), np.ones(1), cost)
        books = state.books.copy()
        books[0, 0], books[0, 4] = 10.0, 5.0  # prices low enough for arms to be worth their costs
        books[0, layout(resources)["position"]] = 0.02 * rng.random(resources)
        policies.append(policy)
        states.append(state._replace(books=books))
    x, uniforms = rng.random((60, 3)), rng.random(60)
    together = Across(policies, states).decide(x, uniforms)
    for row, (policy, state) in enumerate(zip(policies, states, strict=True)):
        alone = policy.decide(state, x[row : row + 1], uniforms[row : row + 1], free=np.full(resources, 1000.0))
        np.testing.assert_allclose(together.probabilities[row], alone.probabilities[0], rtol=1e-9)
        assert together.arm[row] == alone.arm[0]


def test_who_has_to_be_asked_alone_is_not_fit():
    rng = np.random.default_rng(1)
    policies = [policy_of(rng, 3, 2, 2, horizon=100, max_cost=1.0) for _ in range(6)]
    states = [lived(policy, rng, 10) for policy in policies]
    over, blind, late = (states[at].books.copy() for at in (1, 2, 3))
    over[0, 0] = 100
    blind[0, 1], blind[0, 2] = BLIND_COUNT, BLIND_COUNT - 1
    late[0, 2] = 5
    states[1], states[2] = states[1]._replace(books=over), states[2]._replace(books=blind)
    states[3] = states[3]._replace(books=late).booked(waited=500.0)
    free = plenty(policies)
    free[4, 1] = 0.999
    assert Across(policies, states).fit(free).tolist() == [True, False, False, False, False, True]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_feature_that_is_no_number_is_left_to_who_can_say_so(bad):
    rng = np.random.default_rng(1)
    policies = [policy_of(rng, 3, 2, 2) for _ in range(2)]
    x = np.array([[0.1, 0.2], [0.3, bad]])
    assert Across(policies, [policy.init() for policy in policies]).decide(x, rng.random(2)) is None


def test_only_policies_of_one_shape_go_together():
    rng = np.random.default_rng(1)
    shape = shape_of(policy_of(rng, 3, 2, 2))
    assert shape == (3, 2, 2)
    assert shape_of(policy_of(rng, 4, 2, 2)) != shape
    others = [
        {"preset": "paper", "budget": 100.0, "max_cost": 1.0},
        {"model": "shared"},
        {"gamma": 3.0},
        {"retired": (1,)},
        {"link": "logistic"},
        {"oracle": "gradient"},
    ]
    assert [shape_of(policy_of(rng, 3, 2, 2, **changes)) for changes in others] == [None] * len(others)
