from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbwk_core.static_optimum import SAMPLE_SIZE, dual_bound, static_optimum


def spend(costs, probabilities, weights=None):
    contexts = len(costs)
    weights = np.full(contexts, 1 / contexts) if weights is None else weights
    return np.einsum("x,xa,xad->d", weights, probabilities, costs)


@st.composite
def programs(draw):
    contexts, arms, resources = draw(st.integers(1, 6)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    decimals = draw(st.sampled_from([1, 6]))  # one decimal makes ties and degenerate vertices
    rewards = rng.uniform(-0.2, 1, (contexts, arms)).round(decimals)
    costs = rng.random((contexts, arms, resources)).round(decimals)
    weights = rng.dirichlet(np.ones(contexts))
    return rewards, costs, rng.uniform(0, 0.6, resources).round(decimals), weights


@given(programs())
def test_the_solution_is_feasible_and_its_prices_prove_it_optimal(program):
    rewards, costs, rho, weights = program
    best = static_optimum(rewards, costs, rho, weights)
    assert (best.probabilities >= 0).all()
    assert (best.probabilities.sum(axis=1) <= 1 + 1e-7).all()
    assert (spend(costs, best.probabilities, weights) <= rho + 1e-7).all()
    assert best.value == pytest.approx(weights @ (rewards * best.probabilities).sum(axis=1), abs=1e-9)
    assert (best.prices >= 0).all()
    assert dual_bound(rewards, costs, rho, best.prices, weights) == pytest.approx(best.value, abs=1e-7)


@given(programs(), st.integers(0, 2**32 - 1))
def test_no_prices_bring_the_dual_bound_below_the_optimum(program, seed):
    rewards, costs, rho, weights = program
    prices = np.random.default_rng(seed).exponential(1.0, rho.size)
    assert dual_bound(rewards, costs, rho, prices, weights) >= static_optimum(*program).value - 1e-7


@pytest.mark.parametrize("seed", range(5))
def test_with_one_resource_the_optimum_is_the_least_dual_bound_over_all_kinks(seed):
    """The dual of one resource is convex and piecewise linear, so its minimum is at 0 or where two arms tie."""
    rng = np.random.default_rng(seed)
    rewards, costs = rng.random((3, 3)), rng.uniform(0.05, 1, (3, 3, 1))
    kinks = [0.0]
    for context in range(3):
        lines = [(0.0, 0.0), *zip(rewards[context], costs[context, :, 0], strict=True)]
        for (r1, c1), (r2, c2) in product(lines, lines):
            if c1 != c2 and (r1 - r2) / (c1 - c2) > 0:
                kinks.append((r1 - r2) / (c1 - c2))
    least = min(dual_bound(rewards, costs, 0.2, [kink]) for kink in kinks)
    assert static_optimum(rewards, costs, 0.2).value == pytest.approx(least, abs=1e-9)


def test_the_optimum_is_slightly_above_the_best_policy_of_a_fine_grid():
    rewards, costs, rho = np.array([[0.9, 0.5]]), np.array([[[0.8, 0.1], [0.2, 0.6]]]), np.array([0.4, 0.3])
    grid = np.linspace(0, 1, 401)
    feasible = [
        0.9 * p + 0.5 * q
        for p, q in product(grid, grid)
        if p + q <= 1 and 0.8 * p + 0.2 * q <= 0.4 and 0.1 * p + 0.6 * q <= 0.3
    ]
    value = static_optimum(rewards, costs, rho).value
    assert max(feasible) <= value + 1e-12
    assert value == pytest.approx(max(feasible), abs=2 * (0.9 + 0.5) / 400)


def test_the_papers_experiment_has_the_optimum_one_half():
    """Arm 1 earns 1 for ½ of the first resource. The others earn ½ for at least as much. At rho = ¼, p(arm 1) = ½."""
    root = 1 / np.sqrt(2)
    rewards = [[1.0, 0.5, 0.5]]
    costs = [[[0.5, root / 2, 0, 0], [1.0, root / 2, 0, 0], [0.5, root / 2, root, 0]]]
    best = static_optimum(rewards, costs, rho=0.25)
    assert best.value == pytest.approx(0.5, abs=1e-12)
    assert best.probabilities[0] == pytest.approx([0.5, 0, 0], abs=1e-9)


def test_budgets_that_do_not_bind_have_price_0_and_the_best_arm_is_played():
    best = static_optimum([[0.2, 0.7], [0.6, 0.1]], np.full((2, 2, 1), 0.5), rho=1.0)
    assert best.value == pytest.approx(0.65)
    assert best.prices == pytest.approx([0.0])


def test_a_resource_with_rho_0_forbids_every_arm_that_uses_it():
    best = static_optimum([[1.0, 0.3]], [[[0.1], [0.0]]], rho=0.0)
    assert best.value == pytest.approx(0.3)


def test_arms_that_only_lose_are_never_played():
    rewards = -np.ones((SAMPLE_SIZE + 1, 2))
    assert static_optimum(rewards, np.zeros((SAMPLE_SIZE + 1, 2, 1)), rho=0.1).value == 0.0


@pytest.mark.parametrize("seed", range(3))
def test_many_contexts_are_solved_to_the_dual_bound(seed):
    rng = np.random.default_rng(seed)
    rewards, costs = rng.random((3000, 5)), rng.random((3000, 5, 3))
    rewards[:1500] *= 0.1  # so that a sample differs from the whole
    best = static_optimum(rewards, costs, rho=0.2)
    assert dual_bound(rewards, costs, 0.2, best.prices) == pytest.approx(best.value, abs=1e-8)
    assert (spend(costs, best.probabilities) <= 0.2 + 1e-8).all()


def test_a_program_of_repeated_contexts_equals_the_weighted_one():
    rng = np.random.default_rng(7)
    rewards, costs, counts = rng.random((3, 2)), rng.random((3, 2, 2)), np.array([500, 900, 100])
    repeated = static_optimum(np.repeat(rewards, counts, axis=0), np.repeat(costs, counts, axis=0), rho=0.3)
    weighted = static_optimum(rewards, costs, rho=0.3, weights=counts / counts.sum())
    assert repeated.value == pytest.approx(weighted.value, abs=1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1.0]], [[[1.0]]], -0.1), "rho must not be negative"),
        (([[1.0]], [[[np.nan]]], 0.1), "costs must be finite"),
        (([[1.0, 2.0]], [[[1.0]]], 0.1), "costs must have shape"),
        (([[1.0]], [[[1.0]]], 0.1, [0.5]), "weights must be non-negative and sum to 1"),
        ((np.zeros((1, 0)), np.zeros((1, 0, 1)), 0.1), "at least one context, arm and resource"),
    ],
)
def test_an_invalid_argument_is_refused_and_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        static_optimum(*arguments)
