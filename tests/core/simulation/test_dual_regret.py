"""The honest T·OPT: the dual bound on each run's own contexts, against closed forms on worlds with few contexts."""

import numpy as np
import pytest

from cbwk_core.baselines import EpsilonGreedy, PricedUCB, Throttle
from cbwk_core.problem import Problem
from cbwk_core.simulation import LinearEnvironment, run
from cbwk_core.simulation.dual_regret import dual_regrets, dual_totals, lagrangian_sums, static_prices
from cbwk_core.simulation.known_means import KnownMeans, Revealed
from cbwk_core.simulation.worlds import SegmentEnvironment
from cbwk_core.static_optimum import dual_bound, static_optimum

# Good and poor requests, half each; playing costs 1 and a pace of ½ pays for the good ones: OPT = ½·0.9. Any price from
# 0.2 to 0.9 is optimal.
TWO = SegmentEnvironment((0.5, 0.5), ((1.0, 0.0), (0.0, 1.0)), (((0.9, 1.0),), ((0.2, 1.0),)))
RICH = SegmentEnvironment(
    (0.2, 0.3, 0.5),
    ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    (((0.9, 0.8), (0.3, 0.1)), ((0.5, 0.6), (0.4, 0.2)), ((0.2, 0.3), (0.6, 0.9))),
)


def runs_of(environment, rho, prices, horizon=400, seeds=range(60), policy=EpsilonGreedy):
    of = Problem.of(
        arms=environment.arms,
        dimension=environment.dimension,
        resources=environment.resources,
        horizon=horizon,
        budget=rho * horizon,
    )
    built = policy(problem=of, model=environment.model)
    return run(built, environment, horizon=horizon, budget=rho * horizon, seeds=seeds, prices=prices)


def test_the_bound_of_a_run_is_the_closed_form_in_the_number_of_its_good_requests():
    """D_T(λ) = λ·T/2 + (0.9 - λ)·good + max(0, 0.2 - λ)·poor, whatever the policy does."""
    for price in (0.1, 0.5):
        runs = runs_of(TWO, 0.5, [price])
        good = [count_good(seed, 400) for seed in range(60)]
        expected = [price * 200 + (0.9 - price) * n + max(0.0, 0.2 - price) * (400 - n) for n in good]
        np.testing.assert_allclose(dual_totals(runs, [price], [200.0]), expected, atol=1e-9)


def count_good(seed, horizon):
    stream = np.random.default_rng(np.random.SeedSequence(seed).spawn(3)[0])
    return int((TWO.draw(stream, 0, horizon).mean_reward[:, 0] == 0.9).sum())


def test_at_optimal_prices_the_bound_has_the_mean_of_t_opt_and_above_it_at_others():
    runs = runs_of(RICH, 0.3, [0.0], seeds=range(200))
    exact = 400 * RICH.optimum(0.3)
    means = np.array(RICH.means)
    optimal = static_optimum(means[..., 0], means[..., 1:], 0.3, RICH.weights).prices
    totals = dual_totals(runs_of(RICH, 0.3, optimal, seeds=range(200)), optimal, [120.0])
    assert totals.mean() == pytest.approx(exact, abs=4 * totals.std() / np.sqrt(200))
    assert dual_totals(runs, [0.0], [120.0]).mean() > 1.1 * exact


@pytest.mark.parametrize("policy", [EpsilonGreedy, PricedUCB])
def test_the_regret_has_the_mean_of_t_opt_minus_the_reward_with_less_noise_and_is_never_negative(policy):
    means = np.array(RICH.means)
    prices = static_optimum(means[..., 0], means[..., 1:], 0.3, RICH.weights).prices
    runs = runs_of(RICH, 0.3, prices, seeds=range(200), policy=policy)
    plain, corrected = runs.regret(400 * RICH.optimum(0.3)), dual_regrets(runs, prices, [120.0])
    difference = plain - corrected
    assert difference.mean() == pytest.approx(0.0, abs=4 * difference.std() / np.sqrt(200))
    assert (corrected >= -1e-9).all()
    if policy is PricedUCB:
        assert corrected.std() < 0.7 * plain.std()


def test_the_regret_is_the_bound_minus_the_reward_plus_the_priced_luck_with_costs():
    """A world without contexts: mean rewards and mean costs of a run follow from its plays."""
    environment = SegmentEnvironment((1.0,), ((1.0,),), (((0.5, 0.4), (0.9, 0.9)),))
    price = 0.8
    runs = runs_of(environment, 0.25, [price], seeds=range(8))
    best = max(0.0, 0.5 - price * 0.4, 0.9 - price * 0.9)
    bound = price * 100 + 400 * best
    mean_costs, rewards = runs.plays[:, :2] @ [0.4, 0.9], runs.plays[:, :2] @ [0.5, 0.9]
    expected = bound - rewards + price * (mean_costs - runs.spent[:, 0])
    np.testing.assert_allclose(dual_totals(runs, [price], [100.0]), bound, atol=1e-9)
    np.testing.assert_allclose(dual_regrets(runs, [price], [100.0]), expected, atol=1e-9)


def test_rounds_after_the_budget_is_gone_count_in_the_bound():
    runs = runs_of(TWO, 0.01, [0.5], seeds=range(2))
    assert (runs.played == 4).all()
    good = np.array([count_good(seed, 400) for seed in range(2)])
    np.testing.assert_allclose(runs.bound, 0.4 * good, atol=1e-9)


def test_without_prices_nothing_is_summed():
    runs = runs_of(TWO, 0.5, None, seeds=range(2))
    assert (runs.gap == 0).all()
    assert (runs.bound == 0).all()


def test_null_is_the_best_where_every_arm_costs_more_than_it_is_worth():
    reward, costs = np.array([[[0.5, 0.2, 0.0]]]), np.array([[[[1.0], [1.0], [0.0]]]])
    gap, bound = lagrangian_sums(reward, costs, np.array([[0.9]]), np.array([[0]]))
    assert (gap[0], bound[0]) == (pytest.approx(0.4), 0.0)


def test_sampled_prices_bound_the_optimum_within_a_thousandth():
    """On contexts that neither the prices nor a run have seen; the program on these contexts is the reference."""
    environment, rho = LinearEnvironment(arms=4, dimension=5, resources=2, seed=9), (0.2, 0.3)
    prices = static_prices(environment, rho, horizon=1000)
    draw = environment.draw(np.random.default_rng(77), 0, 20_000)
    exact = static_optimum(draw.mean_reward, draw.mean_costs, rho).value
    bound = dual_bound(draw.mean_reward, draw.mean_costs, rho, prices)
    assert exact <= bound + 1e-9
    assert bound == pytest.approx(exact, rel=1e-3)


def test_a_policy_that_knows_all_means_loses_next_to_nothing_and_does_not_overspend():
    rho = 0.3
    prices = static_prices(RICH, (rho,), horizon=4000)
    of = Problem.of(arms=2, dimension=2, resources=1, horizon=4000, budget=rho * 4000)
    policy = KnownMeans(problem=of, static=np.tile(prices, (5, 1)))
    runs = run(policy, Revealed(RICH), horizon=4000, budget=rho * 4000, seeds=range(5), prices=prices)
    assert (dual_regrets(runs, prices, [1200.0]) / dual_totals(runs, prices, [1200.0])).max() < 0.01
    assert (runs.overspend == 0).all()


def test_environments_of_the_lanes_may_differ_and_each_lane_is_as_if_it_were_alone():
    other = SegmentEnvironment(TWO.weights, TWO.rows, (((0.3, 0.5),), ((0.8, 0.7),)))
    of = Problem.of(arms=1, dimension=2, resources=1, horizon=200, budget=60)
    policy = Throttle(policy=EpsilonGreedy(problem=of, model="per_arm"), problem=of)
    common = {"horizon": 200, "budget": 60}
    together = run(policy, [TWO, other], seeds=[1, 2], prices=[[0.5], [0.1]], **common)
    first, second = (
        run(policy, environment, seeds=[seed], prices=[price], **common)
        for environment, seed, price in ((TWO, 1, 0.5), (other, 2, 0.1))
    )
    for name in ("reward", "spent", "plays", "gap", "bound"):
        expected = np.concatenate([getattr(first, name), getattr(second, name)])
        np.testing.assert_allclose(getattr(together, name), expected, atol=1e-12)
    with pytest.raises(ValueError, match="one environment per seed"):
        run(policy, [TWO, other], seeds=[1], **common)
