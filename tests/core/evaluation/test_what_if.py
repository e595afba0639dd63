from dataclasses import replace

import numpy as np
import pytest

from cbwk_core.evaluation import ASSUMPTION, Log, marginal_values, what_if_budgets
from cbwk_core.policy import SquareCBwK
from cbwk_core.simulation import LinearEnvironment
from cbwk_core.simulation.runner import run
from cbwk_core.static_optimum import static_optimum

ENVIRONMENT = LinearEnvironment(arms=3, dimension=4, resources=1)
ROUNDS = 1500


def campaign(budget):
    return SquareCBwK(arms=3, dimension=4, resources=1, horizon=ROUNDS, budget=budget, model=ENVIRONMENT.model)


def flown(policy, seed, rounds=ROUNDS):
    """The log of a campaign, money included: what it could not pay for was not eligible."""
    rng = np.random.default_rng(seed)
    draw = ENVIRONMENT.draw(rng, 0, rounds)
    uniforms, state = rng.random(rounds), policy.init()
    eligible, arm = np.empty((rounds, 3), dtype=bool), np.empty(rounds, dtype=np.int64)
    propensity, outcomes = np.empty(rounds), np.zeros((rounds, 2))
    for t in range(rounds):
        eligible[t] = (np.asarray(policy.budget) - state.spent[0] >= 1.0).all()
        choice = policy.decide(state, draw.features[t : t + 1], uniforms[t : t + 1])
        arm[t], propensity[t] = choice.arm[0], choice.probability[0]
        if arm[t] >= 0:
            outcomes[t] = draw.reward[t, arm[t]], draw.costs[t, arm[t], 0]
        state = policy.settle(
            policy.commit(state, choice.ticket), choice.ticket, outcomes[t, :1], outcomes[t, None, 1:]
        )
    return Log.of(
        features=draw.features, eligible=eligible, arm=arm, propensity=propensity, reward=outcomes[:, 0],
        costs=outcomes[:, 1:], offered=np.ones((rounds, 3), dtype=bool),
    )  # fmt: skip


@pytest.fixture(scope="module")
def log():
    return flown(campaign(150.0), seed=1)


@pytest.fixture(scope="module")
def doubled(log):
    return what_if_budgets(log, campaign(150.0), budget=300.0, rng=np.random.default_rng(1), runs=3)


def test_flights_come_to_what_the_campaign_really_does_with_those_budgets(doubled):
    """The truth for another budget is known here: the same environment, flown anew many times."""
    truth = run(campaign(300.0), ENVIRONMENT, horizon=ROUNDS, budget=300.0, seeds=range(10))
    assert doubled.changed.reward[:, -1].mean() == pytest.approx(truth.realised.mean(), rel=0.08)
    assert doubled.changed.spent[:, -1, 0].mean() == pytest.approx(truth.spent.mean(), rel=0.05)


def test_the_control_shows_how_far_the_model_is_from_what_happened(log, doubled):
    assert doubled.control.reward[:, -1].mean() == pytest.approx(doubled.actual_reward[-1], rel=0.1)
    assert doubled.actual_reward[-1] == pytest.approx(log.reward.sum())
    assert doubled.actual_spent[-1] == pytest.approx(log.costs.sum(axis=0))


def test_more_budget_earns_more_at_lower_prices_and_none_is_overspent(doubled):
    less, more = doubled.control, doubled.changed
    assert less.reward[:, -1].max() < more.reward[:, -1].min()
    assert less.prices[:, 100:].mean() > more.prices[:, 100:].mean()
    assert less.spent.max() <= 150.0
    assert more.spent.max() <= 300.0


def test_curves_have_one_value_for_each_point_in_time(doubled):
    points = doubled.changed.rounds
    assert (points[0], points[-1], len(points)) == (1, ROUNDS, 200)
    assert doubled.changed.reward.shape == (3, 200)
    assert doubled.changed.prices.shape == doubled.changed.spent.shape == (3, 200, 1)
    assert doubled.assumption == ASSUMPTION
    assert ((doubled.changed.matched > 0) & (doubled.changed.matched < 1)).all()


def test_the_same_budgets_fly_the_same_flight():
    small = flown(campaign(150.0), seed=2, rounds=200)
    found = what_if_budgets(small, campaign(150.0), budget=150.0, rng=np.random.default_rng(1), runs=2)
    np.testing.assert_array_equal(found.changed.reward, found.control.reward)
    assert found.changed.reward[0, -1] != found.changed.reward[1, -1]


def test_where_the_log_has_but_one_arm_every_outcome_is_the_logged_one():
    rng = np.random.default_rng(2)
    n = 300
    log = Log.of(
        features=rng.random((n, 2)), eligible=np.ones((n, 1), dtype=bool), arm=np.zeros(n, dtype=int),
        propensity=np.ones(n), reward=rng.random(n), costs=rng.random((n, 1)),
    )  # fmt: skip
    policy = SquareCBwK(arms=1, dimension=2, resources=1, horizon=n, budget=1e6, model="per_arm")
    found = what_if_budgets(log, policy, budget=1e5, rng=rng, runs=1)
    np.testing.assert_allclose(found.changed.reward[0], found.actual_reward)
    np.testing.assert_allclose(found.changed.spent[0], found.actual_spent)
    assert found.changed.matched == [1.0]


def coins(rounds=200, eligible=None, offered=None, arm=None):
    """Two arms that pay a coin's toss and cost a quarter."""
    rng = np.random.default_rng(6)
    arm = rng.integers(2, size=rounds) if arm is None else arm
    played = arm >= 0
    return Log.of(
        features=np.ones((rounds, 1)), eligible=np.ones((rounds, 2), dtype=bool) if eligible is None else eligible,
        arm=arm, propensity=np.where(played, 0.5, 1.0), reward=played * rng.integers(2, size=rounds),
        costs=0.25 * played[:, None], offered=offered,
    )  # fmt: skip


def test_outcomes_of_a_flight_are_as_noisy_as_those_of_the_log():
    policy = SquareCBwK(arms=2, dimension=1, resources=1, horizon=200, budget=1e6, model="per_arm")
    found = what_if_budgets(coins(), policy, budget=1e5, rng=np.random.default_rng(1), runs=4).changed
    assert (found.matched < 0.7).all()
    earned = np.diff(found.reward, axis=1)
    assert earned.std() == pytest.approx(0.5, abs=0.05)
    assert earned.mean() == pytest.approx(0.5, abs=0.08)


def test_rounds_in_which_the_log_was_out_of_money_can_be_played_with_more_of_it():
    early = np.arange(200) < 100
    log = coins(
        eligible=np.repeat(early[:, None], 2, axis=1), offered=np.ones((200, 2), dtype=bool),
        arm=np.where(early, np.arange(200) % 2, -1),
    )  # fmt: skip
    policy = SquareCBwK(arms=2, dimension=1, resources=1, horizon=200, budget=25.0, model="per_arm")
    found = what_if_budgets(log, policy, budget=1e5, rng=np.random.default_rng(1), runs=1)
    assert found.actual_spent[-1] == pytest.approx(25.0)
    assert found.changed.spent[0, -1] == pytest.approx(50.0, rel=0.01)


def test_a_budget_below_one_max_cost_buys_nothing(log):
    found = what_if_budgets(log, campaign(150.0), budget=0.5, rng=np.random.default_rng(1), runs=1)
    assert found.changed.reward.max() == 0.0


@pytest.mark.parametrize("runs", [0, True, 1.5])
def test_no_runs_are_refused(log, runs):
    with pytest.raises(ValueError, match=f"runs must be a whole number of at least 1, got {runs!r}"):
        what_if_budgets(log, campaign(150.0), budget=1.0, rng=np.random.default_rng(1), runs=runs)


def test_one_more_unit_of_budget_is_worth_what_the_optimum_gains_by_it():
    """λ of a campaign half way through its flight, beside the slope of the linear program's T·OPT in the budget."""
    policy = replace(campaign(300.0), max_cost=2.0)
    draw = ENVIRONMENT.draw(np.random.default_rng(3), 0, ROUNDS)
    uniforms, state, values = np.random.default_rng(4).random(ROUNDS), policy.init(), []
    for t in range(ROUNDS):
        choice = policy.decide(state, draw.features[t : t + 1], uniforms[t : t + 1])
        a = choice.arm[0]
        state = policy.learn(
            state, draw.features[t : t + 1], choice.arm, draw.reward[t, [a]] * (a >= 0), draw.costs[t, [a]] * (a >= 0)
        )
        values.append(marginal_values(policy, state)[0, 0])
    least, most = (static_optimum(draw.mean_reward, draw.mean_costs, rho).value for rho in (0.19, 0.21))
    slope = (most - least) / 0.02
    assert np.mean(values[500:1200]) == pytest.approx(slope, rel=0.15)
