"""The peers with prices: their predictions, prices and choices, each against another route."""

import math
import statistics

import numpy as np
import pytest
from scipy.optimize import linprog, minimize

from cbwk_core import SquareCBwK
from cbwk_core.baselines import LagrangeCBwK, PricedThompson, PricedUCB, Resolving
from cbwk_core.baselines.resolving import solved_prices
from cbwk_core.problem import Problem
from cbwk_core.simulation import LinearEnvironment, run
from cbwk_core.simulation.kinds import model_menu
from cbwk_core.simulation.worlds import SegmentEnvironment
from cbwk_core.static_optimum import static_optimum
from cbwk_core.ticket import NULL_ARM
from tests.core.oracles.cases import arrays_in

ARMS, DIMENSION, RESOURCES = 3, 4, 2
PEERS = (PricedThompson, PricedUCB, Resolving, LagrangeCBwK)
every_peer = pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.__name__)


def problem(**changes):
    sizes = {"arms": ARMS, "dimension": DIMENSION, "resources": RESOURCES, "horizon": 60, "budget": [12.0, 7.0]}
    return Problem.of(**(sizes | {"max_cost": 1.0} | changes))


def played(policy, rounds, seed=0, delay=0):
    """A state some rounds later, and the rows that were learnt: features, reward and costs of the arm, and the arm."""
    rng, state, open_tickets, rows = np.random.default_rng(seed), policy.init(), [], []
    hold = policy.problem.hold
    for _ in range(rounds):
        features = rng.random((1, DIMENSION) if policy.model == "per_arm" else (1, ARMS, DIMENSION))
        choice = policy.decide(state, features, rng.random(1))
        state = policy.commit(state, choice.ticket)
        open_tickets.append(choice.ticket)
        if len(open_tickets) > delay:
            ticket = open_tickets.pop(0)
            arm = int(ticket.arm[0])
            reward, costs = rng.random(1), rng.random((1, RESOURCES)) * hold[arm] * (arm != NULL_ARM)
            state = policy.settle(state, ticket, reward, costs)
            if arm != NULL_ARM:
                rows.append((ticket.features[0], reward[0], costs[0], arm))
    return state, rows


@every_peer
@pytest.mark.parametrize("model", ["shared", "per_arm"])
def test_settling_first_and_teaching_later_is_settling_with_learning(peer, model):
    policy, rng = peer(problem=problem(), model=model), np.random.default_rng(3)
    state, _ = played(policy, 12)
    ticket = policy.decide(
        state, rng.random((1, DIMENSION) if model == "per_arm" else (1, ARMS, DIMENSION)), [0.5]
    ).ticket
    state, reward, costs = policy.commit(state, ticket), rng.random(1), rng.random((1, RESOURCES))
    at_once = policy.settle(state, ticket, reward, costs)
    apart = policy.teach(policy.settle(state, ticket, reward, costs, learn=False), ticket, reward, costs)
    for one, other in zip(arrays_in(at_once), arrays_in(apart), strict=True):
        np.testing.assert_array_equal(one, other)


@every_peer
def test_predictions_are_ridge_regression_with_the_prior_of_practical(peer):
    of = problem(budget=1e6, max_cost=[0.8, 0.5])
    policy = peer(problem=of)
    state, rows = played(policy, 30)
    x = np.array([[*features, 1.0] for features, *_ in rows])
    y = np.array([[reward, *(costs / of.unit)] for _, reward, costs, _ in rows])
    ridge = max(0.3, math.sqrt(DIMENSION + 1) / 12)
    theta = np.linalg.solve(x.T @ x + ridge * np.eye(DIMENSION + 1), x.T @ y)
    asked = np.random.default_rng(1).random((1, ARMS, DIMENSION + 1))
    expected = asked[0] @ theta
    expected[:, 1:] = np.maximum(expected[:, 1:], 0.0)
    np.testing.assert_allclose(policy.predict(state, asked)[0], expected, atol=1e-9)


@every_peer
def test_costs_of_each_arm_are_learnt_in_its_own_max_cost_and_predicted_in_the_largest(peer):
    of = problem(budget=1e6, max_cost=[[1.0, 2.0], [10.0, 2.0], [500.0, 4.0]])
    policy = peer(problem=of, model="per_arm")
    state, rows = played(policy, 40)
    ridge = max(0.3, math.sqrt(DIMENSION + 1) / 12)
    asked = np.append(np.random.default_rng(1).random(DIMENSION), 1.0)
    predicted = policy.predict(state, asked[None, None])[0]
    for arm in range(ARMS):
        mine = [row for row in rows if row[3] == arm]
        x = np.array([[*features, 1.0] for features, *_ in mine]).reshape(-1, DIMENSION + 1)
        costs = np.array([row[2] for row in mine]).reshape(-1, RESOURCES)
        theta = np.linalg.solve(x.T @ x + ridge * np.eye(DIMENSION + 1), x.T @ (costs / of.hold[arm]))
        expected = np.maximum(asked @ theta, 0.0) * of.hold[arm] / of.unit
        np.testing.assert_allclose(predicted[arm, 1:], expected, atol=1e-9)


@every_peer
@pytest.mark.parametrize("delay", [0, 7])
def test_the_pace_and_for_the_same_decisions_the_prices_are_those_of_practical(peer, delay):
    """SquareCBwK counts the tickets of the peer: pace always, prices where the peer has the dual of `practical`."""
    of = problem(horizon=300, budget=[60.0, 35.0])
    policy = peer(problem=of)
    ours = SquareCBwK(
        arms=ARMS, dimension=DIMENSION, resources=RESOURCES, horizon=300, budget=of.budget, two_stage="off"
    )
    rng, state, our_state, open_tickets = np.random.default_rng(2), policy.init(), ours.init(), []
    for _ in range(120):
        choice = policy.decide(state, rng.random((1, ARMS, DIMENSION)), rng.random(1))
        ticket = choice.ticket
        rho, _ = policy.paces(state)
        np.testing.assert_allclose(rho, ours.quote(our_state).rho, atol=1e-12)
        ticket_with_pace = type(ticket).of(
            arm=ticket.arm,
            features=ticket.features,
            reward=ticket.reward,
            costs=ticket.costs,
            rho=rho,
            value=np.maximum(ticket.reward, 0.0),
            round=ticket.round,
            hold=ticket.hold,
        )
        if not isinstance(policy, Resolving | LagrangeCBwK):
            np.testing.assert_allclose(policy.prices(state), ours.quote(our_state).prices, atol=1e-9)
        state, our_state = policy.commit(state, ticket), ours.commit(our_state, ticket_with_pace)
        open_tickets.append((ticket, ticket_with_pace))
        if len(open_tickets) > delay:
            mine, theirs = open_tickets.pop(0)
            reward = rng.random(1)
            costs = rng.random((1, RESOURCES)) * (mine.arm != NULL_ARM)
            state, our_state = policy.settle(state, mine, reward, costs), ours.settle(our_state, theirs, reward, costs)
    assert state.account.spent.min() > 5


def test_ucb_plays_the_best_optimistic_lagrangian_written_as_a_loop():
    of = problem(horizon=200, budget=[60.0, 40.0])
    policy = PricedUCB(problem=of, width=2.0)
    state, rows = played(policy, 80)
    x = np.array([[*features, 1.0] for features, *_ in rows])
    y = np.array([[reward, *costs] for _, reward, costs, _ in rows])
    gram = x.T @ x + max(0.3, math.sqrt(DIMENSION + 1) / 12) * np.eye(DIMENSION + 1)
    theta, prices = np.linalg.solve(gram, x.T @ y), policy.prices(state)[0]
    u = np.array([1.0, *-prices])
    variance = u @ (state.books.residuals[0] / (len(rows) + 2)) @ u
    assert prices.max() > 0
    for seed in range(20):
        features = np.random.default_rng([3, seed]).random((1, ARMS, DIMENSION))
        scores = []
        for arm in range(ARMS):
            phi = np.append(features[0, arm], 1.0)
            reward, *costs = phi @ theta
            width = 2.0 * math.sqrt(variance * (phi @ np.linalg.solve(gram, phi)))
            scores.append(reward - sum(p * max(c, 0.0) for p, c in zip(prices, costs, strict=True)) + width)
        expected = int(np.argmax(scores)) if max(scores) > 0 else NULL_ARM
        assert policy.decide(state, features, np.array([0.5])).arm[0] == expected


@pytest.mark.parametrize("model", ["shared", "per_arm"])
def test_thompson_plays_an_arm_as_often_as_its_lagrangian_is_best_under_the_posterior(model):
    """Two arms of which one is not affordable: the other is played where its drawn score is positive."""
    lanes, of = 4000, Problem.of(arms=2, dimension=1, resources=1, horizon=100, budget=1.5, max_cost=[[1.0], [9.0]])
    policy = PricedThompson(problem=of, model=model)
    state = policy.init(lanes)
    features = np.ones((lanes, 1)) if model == "per_arm" else np.ones((lanes, 2, 1))
    ticket = policy.decide(state, features, np.full(lanes, 0.5)).ticket
    ticket = type(ticket).of(
        arm=np.zeros(lanes, dtype=np.int64),
        features=np.ones((lanes, 1)),
        reward=np.zeros(lanes),
        costs=np.zeros((lanes, 1)),
        rho=ticket.rho,
        value=np.zeros(lanes),
        round=ticket.round,
        hold=np.ones((lanes, 1)),
    )
    state = policy.settle(policy.commit(state, ticket), ticket, np.full(lanes, -0.2), np.full((lanes, 1), 0.1))
    gram = 0.3 * np.eye(2) + np.ones((2, 2))
    mean = np.ones(2) @ np.linalg.solve(gram, np.ones(2)) * -0.2
    variance = (2 / 12 + 0.2**2) / 3 * (np.ones(2) @ np.linalg.solve(gram, np.ones(2)))
    assert policy.prices(state).max() == 0.0  # nothing was predicted to earn
    share = (policy.decide(state, features, np.random.default_rng(4).random(lanes)).arm == 0).mean()
    expected = 1 - statistics.NormalDist().cdf(-mean / math.sqrt(variance))
    assert share == pytest.approx(expected, abs=5 * math.sqrt(expected * (1 - expected) / lanes))


class TestLagrange:
    def test_hedge_moves_as_multiplicative_weights_written_as_a_loop(self):
        of = problem(horizon=100, budget=[30.0, 20.0])
        policy = LagrangeCBwK(problem=of)
        rng, state = np.random.default_rng(5), policy.init()
        weights, energy, value, spent = np.ones(RESOURCES + 1), 0.0, 0.0, np.zeros(RESOURCES)
        for t in range(60):
            rho_now = (np.array(of.budget) - spent) / (100 - t)
            choice = policy.decide(state, rng.random((1, ARMS, DIMENSION)), rng.random(1))
            ticket = choice.ticket
            state = policy.commit(state, ticket)
            excess = (ticket.costs[0] - rho_now) / of.rho
            energy += max(excess**2)
            weights[:-1] *= np.exp(math.sqrt(math.log(3) / (1 + energy)) * excess)
            value += max(float(ticket.reward[0]), 0.0)
            costs = rng.random((1, RESOURCES)) * (ticket.arm != NULL_ARM)
            state = policy.settle(state, ticket, rng.random(1), costs)
            surprise = (costs[0] - ticket.costs[0]) / of.rho
            if ticket.arm[0] != NULL_ARM:
                weights[:-1] *= np.exp(math.sqrt(math.log(3) / (1 + energy + max(surprise**2))) * surprise)
            spent += costs[0]
            expected = 2.0 * weights[:-1] / weights.sum() * (value / (t + 1)) / of.rho
            np.testing.assert_allclose(policy.prices(state)[0], expected, rtol=1e-9, atol=1e-12)

    def test_play_is_inverse_gap_weighting_without_damping(self):
        policy = LagrangeCBwK(problem=problem(horizon=200, budget=[60.0, 40.0]))
        state, _ = played(policy, 100)
        choice = policy.decide(state, np.random.default_rng(6).random((1, ARMS, DIMENSION)), np.array([0.5]))
        real = choice.probabilities[0, :-1]
        assert (real > 0).all()
        assert choice.probabilities[0, -1] == 0 or choice.probabilities[0].argmax() == ARMS


class TestResolving:
    @pytest.mark.parametrize("seed", range(5))
    def test_prices_minimise_the_smoothed_dual_as_a_general_minimiser_does(self, seed):
        rng = np.random.default_rng([7, seed])
        rewards, costs = rng.random((40, 2, 3)), 3.0 * rng.random((40, 2, 3, 2))
        temperature = np.array([0.02, 0.05])
        found = solved_prices(rewards, costs, np.zeros((2, 2)), temperature)
        for lane in range(2):

            def value(q, lane=lane):
                worth = (rewards[:, lane] - costs[:, lane] @ q) / temperature[lane]
                top = np.maximum(worth.max(axis=1), 0.0)
                total = np.exp(worth - top[:, None]).sum(axis=1) + np.exp(-top)
                return q.sum() + temperature[lane] * (top + np.log(total)).mean()

            best = minimize(value, np.full(2, 0.1), bounds=[(0, 1)] * 2, method="L-BFGS-B", options={"ftol": 1e-14})
            assert value(found[lane]) <= best.fun + 2e-4

    def test_at_a_low_temperature_prices_are_those_of_the_linear_program(self):
        rng = np.random.default_rng(8)
        rewards, costs, rho = rng.random((200, 3)), rng.random((200, 3, 2)), np.array([0.15, 0.2])
        program = static_optimum(rewards, costs, rho)
        found = solved_prices(rewards[:, None], costs[:, None] / rho, np.zeros((1, 2)), np.array([0.002]))[0] / rho
        np.testing.assert_allclose(found, program.prices, rtol=0.05)

    def test_where_the_optimum_mixes_two_arms_it_mixes_them_in_the_right_shares(self):
        """Rewards 0.9 and 0.4 at costs 0.8 and 0.2 with a pace of 0.4: the program plays the first in a third."""
        environment = SegmentEnvironment((1.0,), ((1.0,),), (((0.9, 0.8), (0.4, 0.2)),))
        of = Problem.of(arms=2, dimension=1, resources=1, horizon=2000, budget=800)
        runs = run(Resolving(problem=of, model="per_arm"), environment, horizon=2000, budget=800, seeds=range(4))
        share = runs.plays[:, 0] / runs.plays[:, :2].sum(axis=1)
        np.testing.assert_allclose(share, 1 / 3, atol=0.05)
        assert (runs.overspend == 0).all()

    def test_it_keeps_the_last_contexts_only(self):
        policy = Resolving(problem=problem(), window=5)
        state, _ = played(policy, 12)
        assert len(state.dual.contexts) == 5


@every_peer
def test_peers_come_close_to_the_optimum_of_a_linear_world_within_the_budget(peer):
    environment = LinearEnvironment(arms=3, dimension=4, resources=2, seed=3)
    of = Problem.of(arms=3, dimension=4, resources=2, horizon=2000, budget=400)
    runs = run(peer(problem=of), environment, horizon=2000, budget=400, seeds=range(5))
    total = 2000 * environment.optimum(0.2)
    assert (runs.overspend == 0).all()
    assert runs.regret(total).mean() < 0.08 * total


@every_peer
def test_a_lane_does_not_depend_on_the_other_lanes(peer):
    environment = LinearEnvironment(arms=3, dimension=4, resources=2)
    policy = peer(problem=Problem.of(arms=3, dimension=4, resources=2, horizon=200, budget=40))
    together = run(policy, environment, horizon=200, budget=40, seeds=[4, 5, 6])
    alone = run(policy, environment, horizon=200, budget=40, seeds=[5])
    np.testing.assert_array_equal(together.plays[1], alone.plays[0])


@every_peer
@pytest.mark.parametrize("budget", [30.0, 400.0])
def test_a_peer_with_a_floor_arm_gives_null_only_where_nothing_can_be_paid(peer, budget):
    sizes = {"arms": 3, "dimension": 2, "resources": 1, "horizon": 60, "budget": budget}
    policy = peer(problem=Problem.of(**sizes, max_cost=[[4.0], [20.0], [300.0]], floor_arm=0), model="per_arm")
    rng, state, spent, known = np.random.default_rng(2), policy.init(), 0.0, []
    for _ in range(60):
        choice = policy.decide(state, rng.normal(size=(1, 2)), rng.random(1))
        arm, payable = choice.arm.item(), budget - spent >= 4.0
        assert (arm != NULL_ARM) == payable
        assert choice.probabilities[0, -1] == (not payable)
        hold = choice.ticket.hold.item()
        assert hold <= 4.0 or budget - spent - hold >= 4.0
        cost = hold * rng.random() ** 2
        state = policy.settle(policy.commit(state, choice.ticket), choice.ticket, [rng.random()], [[cost]])
        spent += cost
        known += [cost] * (arm == 0)
    expected = [len(known), sum(known) / 300.0, sum(cost**2 for cost in known) / 300.0**2]
    np.testing.assert_allclose(state.books.floor[0], expected)


@pytest.mark.parametrize("rho", [1.1, 3.0, 30.0])
def test_in_model_menus_the_program_without_null_has_the_value_of_that_with_null(rho):
    draw = model_menu(1, 100).draw(np.random.default_rng(0), 0, 60)
    rewards, costs = draw.mean_reward, draw.mean_costs[..., 0]
    every_request = np.kron(np.eye(60), np.ones((1, 3)))
    played = linprog(-rewards.ravel(), A_ub=costs.reshape(1, -1), b_ub=[rho * 60], A_eq=every_request, b_eq=np.ones(60))
    with_null = static_optimum(rewards, costs[..., None], rho)
    assert -played.fun / 60 == pytest.approx(with_null.value)
