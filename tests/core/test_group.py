"""Several policies that decide together decide and commit as each of them alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbwk_core import NULL_ARM, SquareCBwK
from cbwk_core.group import Group, shape_of
from cbwk_core.presets import BLIND_COUNT, PRICE_CEILING
from cbwk_core.rules.pace import blind_share, is_late


def policy_of(rng, arms, dimension, resources, **changes):
    """A policy of this shape with its own budget, holds and horizon."""
    chosen = {
        "model": "per_arm",
        "horizon": int(rng.integers(200, 2000)),
        "budget": rng.uniform(50, 500, resources),
        "max_cost": rng.uniform(0.2, 2.0, (arms, resources)),
    }
    sizes = {"arms": arms, "dimension": dimension, "resources": resources}
    return SquareCBwK(**sizes, **(chosen | changes))


def played(policy, rng, rounds, open_share=0.2):
    """A state after that many decisions; outcomes of the open share are missing."""
    state = policy.init()
    for _ in range(rounds):
        choice = policy.decide(state, rng.random((1, policy.dimension)), rng.random(1))
        state = policy.commit(state, choice.ticket)
        if choice.arm[0] != NULL_ARM and rng.random() > open_share:
            cost = rng.random((1, policy.resources)) * policy.problem.hold[choice.arm]
            state = policy.settle(state, choice.ticket, rng.random(1), cost)
    return state


def ordinary(policy, state, rng):
    return state, np.full(policy.resources, 1000.0)


def late(policy, state, rng):
    """Outcomes took up to twice as many rounds as are left."""
    delay = rng.uniform(0.002, 2.0) * (policy.horizon - state.round[0])
    return state.replaced(settled=5.0, waited=5.0 * delay), np.full(policy.resources, 1000.0)


def blind(policy, state, rng):
    return state.replaced(opened=BLIND_COUNT, settled=BLIND_COUNT - 1.0), np.full(policy.resources, 1000.0)


def poor(policy, state, rng):
    """Some holds are free and some are not."""
    return state, rng.uniform(0.0, 1.0, policy.resources) * policy.problem.unit


def exhausted(policy, state, rng):
    """Nothing is free, and the policy's own account is overdrawn."""
    spent = np.array(policy.budget) * rng.uniform(1.0, 1.1, policy.resources)
    return state.replaced(spent=spent), np.zeros(policy.resources)


def in_the_last_round(policy, state, rng):
    return state.replaced(round=policy.horizon - 1.0), np.full(policy.resources, 1000.0)


def ended(policy, state, rng):
    return state.replaced(round=float(policy.horizon)), np.full(policy.resources, 1000.0)


CONDITIONS = (ordinary, late, blind, poor, exhausted, in_the_last_round, ended)


def assert_decides_and_commits_as_alone(policies, states, x, uniforms, free):
    """The group's choice and the states after it, compared with those of each policy."""
    group = Group(policies, states)
    choice = group.decide(x, uniforms, free)
    after = group.commit(choice.ticket)
    for row, (policy, state) in enumerate(zip(policies, states, strict=True)):
        alone = policy.decide(state, x[row : row + 1], uniforms[row : row + 1], free=free[row])
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
    return choice


@settings(max_examples=80)
@given(
    st.integers(0, 2**32),
    st.integers(1, 6),
    st.integers(1, 5),
    st.integers(1, 3),
    st.lists(st.sampled_from(CONDITIONS), min_size=1, max_size=7),
)
def test_each_policy_of_a_group_decides_and_commits_as_it_does_alone(seed, arms, dimension, resources, conditions):
    rng = np.random.default_rng(seed)
    policies = [policy_of(rng, arms, dimension, resources) for _ in conditions]
    assert len({shape_of(policy) for policy in policies}) == 1
    before = [played(policy, rng, int(rng.integers(0, 40))) for policy in policies]
    cases = zip(conditions, policies, before, strict=True)
    states, free = zip(*[condition(policy, state, rng) for condition, policy, state in cases], strict=True)
    count = len(policies)
    x, uniforms = rng.random((count, dimension)), rng.random(count)
    assert_decides_and_commits_as_alone(policies, states, x, uniforms, np.array(free))


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_group_in_one_condition_decides_and_commits_as_its_policies_alone(condition):
    rng = np.random.default_rng(1)
    numbers = [{"budget": rng.uniform(300, 500, 2), "max_cost": rng.uniform(0.2, 1.0, (3, 2))} for _ in range(40)]
    policies = [policy_of(rng, 3, 2, 2, **each) for each in numbers]
    cases = [condition(policy, played(policy, rng, 10), rng) for policy in policies]
    states, free = [state for state, _ in cases], np.array([money for _, money in cases])
    x, uniforms = rng.random((40, 2)), rng.random(40)
    choice = assert_decides_and_commits_as_alone(policies, states, x, uniforms, free)
    books = {name: np.array([getattr(state, name)[0] for state in states]) for name in ("opened", "settled", "waited")}
    rest = np.array([policy.horizon - state.round[0] for policy, state in zip(policies, states, strict=True)])
    budgets = np.array([policy.problem.budgets for policy in policies])
    share = blind_share(books["opened"], books["settled"], budgets, np.full((40, 2), 0.5))
    assert (share is not None and (share == 0.5).all()) == (condition is blind)
    assert is_late(books["waited"] / np.maximum(books["settled"], 1.0), rest).all() == (condition is late)
    reason = {exhausted: "budget_exhausted", ended: "ended"}.get(condition, "policy")
    assert set(choice.reason) >= {reason}
    assert condition is poor or set(choice.reason) == {reason}


def test_a_null_arm_costs_and_holds_nothing():
    rng = np.random.default_rng(3)
    policies = [policy_of(rng, 2, 3, 2) for _ in range(5)]
    # A mean reward at which no arm is worth its costs.
    states = [
        played(policy, rng, 30, open_share=0.0).replaced(value=1000.0, position=PRICE_CEILING) for policy in policies
    ]
    x, uniforms = rng.random((5, 3)), np.full(5, 0.999999)
    choice = assert_decides_and_commits_as_alone(policies, states, x, uniforms, np.full((5, 2), 1000.0))
    assert (choice.arm == NULL_ARM).all()
    assert not choice.ticket.hold.any()
    assert not choice.ticket.costs.any()
    assert not choice.ticket.features.any()


@pytest.mark.parametrize("resources", [7, 8, 10])
def test_arms_that_are_equal_to_the_last_bit_alone_are_equal_in_a_group(resources):
    """Another order of the same sum could make them differ, and then another arm would be the best one."""
    rng = np.random.default_rng(resources)
    policies, states = [], []
    for _ in range(60):
        policy = policy_of(rng, 5, 3, resources, max_cost=1.0, budget=20.0, horizon=500)
        state, x, cost = policy.init(), rng.random((1, 3)), 0.12 * rng.random((1, resources))
        for arm in range(5):  # every arm learns the same
            state = policy.learn(state, x, np.array([arm]), np.ones(1), cost)
        policies.append(policy)
        # Prices low enough for arms to be worth their costs.
        states.append(state.replaced(round=10.0, value=5.0, position=0.02 * rng.random(resources)))
    x, uniforms, free = rng.random((60, 3)), rng.random(60), np.full((60, resources), 1000.0)
    assert_decides_and_commits_as_alone(policies, states, x, uniforms, free)


def test_a_group_reports_the_rounds_and_the_learnt_outcomes_of_each_policy():
    rng = np.random.default_rng(5)
    policies = [policy_of(rng, 2, 1, 1) for _ in range(3)]
    states = [played(policy, rng, rounds) for policy, rounds in zip(policies, (0, 4, 9), strict=True)]
    group = Group(policies, states)
    assert group.round.tolist() == [0, 4, 9]
    assert group.learnt.tolist() == [state.learnt[0] for state in states]


WRONG = {
    "features": [[[0.1, 0.2], [0.3, np.nan]], [[0.1, 0.2], [0.3, np.inf]], [[0.1], [0.2]]],
    "uniforms": [[0.1, 1.0], [0.1, np.nan], [0.1]],
    "free": [[[5.0, 5.0], [5.0, np.nan]], [[5.0, 5.0]], [5.0, 5.0]],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_group_refuses_a_wrong_argument_by_name(name, value):
    rng = np.random.default_rng(1)
    policies = [policy_of(rng, 3, 2, 2) for _ in range(2)]
    asked = {"features": rng.random((2, 2)), "uniforms": rng.random(2), "free": np.full((2, 2), 9.0)}
    with pytest.raises(ValueError, match=name):
        Group(policies, [policy.init() for policy in policies]).decide(**{**asked, name: np.array(value)})


def test_only_policies_of_one_shape_have_the_same_shape():
    rng = np.random.default_rng(1)
    policy = policy_of(rng, 3, 2, 2)
    shape = shape_of(policy)
    assert shape == (3, 2, 2, policy.rules, policy.ranges is None)
    assert shape_of(policy_of(rng, 3, 2, 2, max_cost=1.0)) != shape
    assert shape_of(policy_of(rng, 4, 2, 2)) != shape
    assert shape_of(policy_of(rng, 3, 2, 2, rules=1)) != shape
    others = [
        {"preset": "paper", "budget": 100.0, "max_cost": 1.0},
        {"model": "shared"},
        {"gamma": 3.0},
        {"retired": (1,)},
        {"link": "logistic"},
        {"oracle": "gradient"},
    ]
    assert [shape_of(policy_of(rng, 3, 2, 2, **changes)) for changes in others] == [None] * len(others)
