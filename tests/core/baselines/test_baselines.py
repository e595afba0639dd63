import math
import statistics
from dataclasses import replace

import numpy as np
import pytest

from cbwk_core.baselines import (
    EpsilonGreedy,
    LagrangeCBwK,
    LinUCB,
    PricedThompson,
    PricedUCB,
    Resolving,
    Thompson,
    Throttle,
)
from cbwk_core.baselines.linear import best_column
from cbwk_core.baselines.priced import PricedLearner
from cbwk_core.baselines.thompson import standard_normals
from cbwk_core.problem import Problem
from cbwk_core.simulation import Delays, LinearEnvironment, PaperEnvironment, run
from cbwk_core.ticket import BUDGET_EXHAUSTED, ENDED, NULL_ARM, POLICY, Ticket

ARMS, DIMENSION, RESOURCES = 3, 4, 2


def problem(**changes):
    sizes = {"arms": ARMS, "dimension": DIMENSION, "resources": RESOURCES, "horizon": 60, "budget": [12.0, 7.0]}
    return Problem.of(**(sizes | {"max_cost": [[1.0, 0.5], [0.7, 1.0], [1.0, 1.0]]} | changes))


def policies(of):
    """Every baseline, for either model."""
    for model in ("shared", "per_arm"):
        common = {"problem": of, "model": model}
        yield LinUCB(**common)
        yield LinUCB(**common, delta=0.1, play_null=False)
        yield EpsilonGreedy(**common, epsilon=0.3)
        yield Thompson(**common)
        yield Throttle(policy=EpsilonGreedy(**common), problem=of)
        yield Throttle(policy=LinUCB(**common), problem=of)
        for peer in (PricedThompson, PricedUCB, Resolving, LagrangeCBwK):
            yield peer(**common)


def name(policy):
    inner = f"({type(policy.policy).__name__})" if isinstance(policy, Throttle) else ""
    return f"{type(policy).__name__}{inner}-{policy.model}"


every_policy = pytest.mark.parametrize("policy", list(policies(problem())), ids=name)


def request(rng, policy, lanes):
    shape = (lanes, DIMENSION) if policy.model == "per_arm" else (lanes, ARMS, DIMENSION)
    return rng.random(shape), rng.random(lanes)


def outcome(rng, of, arm):
    """Rewards in [0, 1] and costs up to the arm's hold, zero for null."""
    real = arm != NULL_ARM
    return rng.random(arm.size) * real, rng.random((arm.size, RESOURCES)) * of.hold[arm] * real[:, None]


def played(policy, lanes=2, rounds=15, seed=0, of=None):
    """A state some rounds later, all settled."""
    rng = np.random.default_rng(seed)
    state = policy.init(lanes)
    for _ in range(rounds):
        choice = policy.decide(state, *request(rng, policy, lanes))
        state = policy.commit(state, choice.ticket)
        state = policy.settle(state, choice.ticket, *outcome(rng, of or problem(), choice.arm))
    return state


def changed(ticket, **parts):
    names = ("arm", "features", "reward", "costs", "rho", "value", "round", "hold")
    return Ticket.of(**({name: getattr(ticket, name) for name in names} | parts))


def null_ticket(ticket):
    """The same rounds, with null instead."""
    nothing = 0 * ticket.costs
    return changed(ticket, arm=0 * ticket.arm + NULL_ARM, features=0 * ticket.features, costs=nothing, hold=nothing)


def leaves(state):
    if isinstance(state, tuple):
        return [leaf for part in state for leaf in leaves(part)]
    return [] if state is None else [np.asarray(state)]


def assert_same(first, second, atol=0.0):
    for one, other in zip(leaves(first), leaves(second), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=atol)


@every_policy
def test_probabilities_are_a_distribution_and_the_arms_own_is_reported(policy):
    rng, state = np.random.default_rng(1), policy.init(3)
    for _ in range(60):
        choice = policy.decide(state, *request(rng, policy, 3))
        assert choice.probabilities.shape == (3, ARMS + 1)
        assert (choice.probabilities >= 0).all()
        np.testing.assert_allclose(choice.probabilities.sum(axis=1), 1.0, atol=1e-12)
        np.testing.assert_array_equal(choice.probability, choice.probabilities[np.arange(3), choice.arm])
        assert (choice.probability > 0).all()
        state = policy.commit(state, choice.ticket)
        state = policy.settle(state, choice.ticket, *outcome(rng, problem(), choice.arm))


@every_policy
def test_the_reported_probability_is_the_share_of_uniforms_that_lead_to_the_arm(policy):
    """Thompson sampling and LinUCB report what is certain given the uniform; ε-greedy is checked over a fine grid."""
    state = played(policy, lanes=1)
    features, _ = request(np.random.default_rng(2), policy, 1)
    grid = (np.arange(1000) + 0.5) / 1000
    choices = [policy.decide(state, features, np.array([u])) for u in grid]
    counts = np.bincount([int(choice.arm[0]) % (ARMS + 1) for choice in choices], minlength=ARMS + 1) / 1000
    if isinstance(policy, Thompson | PricedThompson):
        assert all(choice.probability == 1 for choice in choices)
    else:
        np.testing.assert_allclose(counts, choices[0].probabilities[0], atol=0.0011)


@every_policy
def test_no_arm_is_played_or_given_probability_that_cannot_be_paid_and_nothing_is_overspent(policy):
    rng, state, of = np.random.default_rng(3), policy.init(4), problem()
    spent, open_tickets = np.zeros((4, RESOURCES)), []
    held = np.zeros((4, RESOURCES))
    for t in range(60):
        choice = policy.decide(state, *request(rng, policy, 4))
        free = np.array(of.budget) - spent - held
        payable = (free[:, None, :] >= of.hold - 1e-12).all(axis=2)
        assert (choice.probabilities[:, :-1][~payable] == 0).all()
        state = policy.commit(state, choice.ticket)
        real = (choice.arm != NULL_ARM)[:, None]
        held += of.hold[choice.arm] * real
        open_tickets.append(choice.ticket)
        if t % 3 == 2:  # three rounds come back at once, the last first
            for ticket in reversed(open_tickets):
                rewards, costs = outcome(rng, of, ticket.arm)
                state = policy.settle(state, ticket, rewards, costs)
                held -= of.hold[ticket.arm] * (ticket.arm != NULL_ARM)[:, None]
                spent += costs
            open_tickets.clear()
        assert (spent <= np.array(of.budget)).all()
    assert (spent > 0).all()


@every_policy
@pytest.mark.parametrize("delays", [None, Delays(rounds=10, varying=True, missing=0.2)], ids=["prompt", "late"])
def test_runs_of_bounded_costs_never_overspend(policy, delays):
    environment = LinearEnvironment(arms=ARMS, dimension=DIMENSION, resources=RESOURCES, model=policy.model)
    of = problem(max_cost=1.0)
    policy = replace(policy, problem=of)
    if isinstance(policy, Throttle):
        policy = replace(policy, policy=replace(policy.policy, problem=of))
    runs = run(policy, environment, horizon=60, budget=of.budget, seeds=[1, 2], delays=delays)
    assert (runs.overspend <= 1e-9).all()
    assert (runs.played > 5).all()


@every_policy
def test_deciding_does_not_move_the_state(policy):
    state = played(policy)
    before = tuple(leaf.copy() for leaf in leaves(state))
    features, uniforms = request(np.random.default_rng(4), policy, 2)
    first, second = (policy.decide(state, features, uniforms) for _ in range(2))
    assert_same(first[:3], second[:3])
    assert_same(before, state)


@every_policy
def test_a_cancelled_decision_leaves_nothing_but_its_round(policy):
    state = played(policy)
    choice = policy.decide(state, *request(np.random.default_rng(5), policy, 2))
    cancelled = policy.cancel(policy.commit(state, choice.ticket), choice.ticket)
    never = policy.commit(state, null_ticket(choice.ticket))
    if isinstance(policy, PricedLearner):
        # The price step of a decision, and what it was predicted to earn, stay: as in `practical`, only a share of a
        # difference moves a price.
        cancelled, never = ((each.account, each.oracle, each.books._replace(value=0.0)) for each in (cancelled, never))
    assert_same(cancelled, never, atol=1e-12)


@every_policy
def test_an_outcome_that_may_not_be_learnt_is_booked_all_the_same(policy):
    state = played(policy)
    rng = np.random.default_rng(6)
    choice = policy.decide(state, *request(rng, policy, 2))
    committed = policy.commit(state, choice.ticket)
    rewards, costs = outcome(rng, problem(), choice.arm)
    untaught = policy.settle(committed, choice.ticket, rewards, costs, learn=False)
    first_only = policy.settle(committed, choice.ticket, rewards, costs, learn=np.array([True, False]))
    taught = policy.settle(committed, choice.ticket, rewards, costs)
    learner = [oracle_of(state) for state in (state, untaught, first_only, taught)]
    assert_same(learner[0], learner[1])
    for none, half, whole in zip(*map(leaves, learner[1:]), strict=True):
        np.testing.assert_allclose(half[0], whole[0], rtol=0, atol=1e-12)
        np.testing.assert_array_equal(half[1], none[1])
    assert_same(account_of(untaught), account_of(taught))


def learner_of(state):
    state = getattr(state, "inner", state)
    return getattr(state, "learner", state)


def oracle_of(state):
    return learner_of(state).oracle


def account_of(state):
    return learner_of(state).account


@every_policy
def test_the_order_of_settling_does_not_matter_to_the_account(policy):
    rng, state = np.random.default_rng(7), played(policy, rounds=2)
    tickets = []
    for _ in range(2):
        choice = policy.decide(state, *request(rng, policy, 2))
        state = policy.commit(state, choice.ticket)
        tickets.append((choice.ticket, *outcome(rng, problem(), choice.arm)))
    forwards = policy.settle(policy.settle(state, *tickets[0]), *tickets[1])
    backwards = policy.settle(policy.settle(state, *tickets[1]), *tickets[0])
    assert_same(account_of(forwards), account_of(backwards), atol=1e-12)
    # Ridge regression forgets the order, too; the watch for changes, which only the peers with prices have, does not.
    regressions = [oracle_of(each) for each in (forwards, backwards)]
    if isinstance(policy, PricedLearner):
        regressions = [(each.solution, each.gram, each.updates) for each in regressions]
    assert_same(*regressions, atol=1e-9)


@every_policy
def test_several_rounds_settled_in_one_call_equal_one_call_for_each(policy):
    rng, state = np.random.default_rng(8), played(policy, rounds=2)
    tickets, outcomes = [], []
    for _ in range(2):
        choice = policy.decide(state, *request(rng, policy, 2))
        state = policy.commit(state, choice.ticket)
        tickets.append(choice.ticket)
        outcomes.append(outcome(rng, problem(), choice.arm))
    one_by_one = state
    for ticket, (rewards, costs) in zip(tickets, outcomes, strict=True):
        one_by_one = policy.settle(one_by_one, ticket, rewards, costs)
    joined = type(tickets[0])(*(None if a is None else np.concatenate([a, b]) for a, b in zip(*tickets, strict=True)))
    rewards, costs = (np.concatenate(parts) for parts in zip(*outcomes, strict=True))
    assert_same(policy.settle(state, joined, rewards, costs), one_by_one, atol=1e-12)


@every_policy
def test_after_the_horizon_all_is_null_and_ended(policy):
    state = played(policy, rounds=60, of=problem(max_cost=1e-9))
    choice = policy.decide(state, *request(np.random.default_rng(9), policy, 2))
    assert choice.reason == (ENDED, ENDED)
    assert (choice.arm == NULL_ARM).all()
    assert (choice.probability == 1).all()


@every_policy
def test_a_lane_without_money_says_so_while_the_other_plays_on(policy):
    state = policy.init(2)
    choice = policy.decide(state, *request(np.random.default_rng(10), policy, 2))
    assert choice.reason == (POLICY, POLICY)
    state = policy.commit(state, choice.ticket)
    state = policy.settle(state, choice.ticket, np.zeros(2), np.array([[0.0, 0.0], [12.0, 7.0]]))
    choice = policy.decide(state, *request(np.random.default_rng(11), policy, 2))
    assert choice.reason == (POLICY, BUDGET_EXHAUSTED)
    assert choice.arm[1] == NULL_ARM


@every_policy
def test_what_is_reported_for_null_is_ignored(policy):
    state = played(policy)
    null = null_ticket(policy.decide(state, *request(np.random.default_rng(21), policy, 2)).ticket)
    committed = policy.commit(state, null)
    assert_same(policy.settle(committed, null, np.ones(2), np.ones((2, RESOURCES))), committed)


def test_scores_that_differ_by_rounding_only_are_ties_and_go_to_the_lower_index():
    third = np.array([[1 / 3, 1 - 2 / 3, 0.0], [0.0, 1 / 3, 1 - 2 / 3]])
    assert third[0, 0] < third[0, 1]
    assert best_column(third, np.ones((2, 3), dtype=bool)).tolist() == [0, 1]


def test_predictions_are_ridge_regression():
    rng, of = np.random.default_rng(12), problem(budget=1e9)
    policy = EpsilonGreedy(problem=of, epsilon=1.0)
    state, rows, targets = policy.init(1), [], []
    for _ in range(30):
        features, uniforms = request(rng, policy, 1)
        choice = policy.decide(state, features, uniforms)
        rewards, costs = outcome(rng, of, choice.arm)
        rows.append(features[0, choice.arm[0]])
        targets.append(np.concatenate([rewards, costs[0] / of.unit]))
        state = policy.settle(policy.commit(state, choice.ticket), choice.ticket, rewards, costs)
    x, y = np.array(rows), np.array(targets)
    theta = np.linalg.solve(x.T @ x + np.eye(DIMENSION), x.T @ y)
    features, _ = request(rng, policy, 1)
    np.testing.assert_allclose(policy.predict(state, features)[0], features[0] @ theta, atol=1e-10)


class TestLinUCB:
    def test_it_plays_what_the_algorithm_written_as_loops_plays(self):
        rng, of = np.random.default_rng(13), problem(horizon=200, budget=[80.0, 40.0], max_cost=[0.8, 0.5])
        policy = LinUCB(problem=of, delta=0.1)
        state = policy.init()
        gram, moments = np.eye(DIMENSION), np.zeros((DIMENSION, 1 + RESOURCES))
        weights = np.ones(RESOURCES + 1)
        equal = np.array([0.8, 1.0])  # budgets of 100 and 80 max costs, made equal to the least
        pace, step = 80.0 / 200, math.sqrt(math.log(3) / 200)
        nulls = 0
        for t in range(80):
            features, uniforms = request(rng, policy, 1)
            theta = weights[:-1] / weights.sum()
            estimates = np.linalg.solve(gram, moments)
            beta = math.sqrt(DIMENSION * math.log((1 + t * DIMENSION) / 0.1)) + math.sqrt(DIMENSION)
            scores = []
            for arm in range(ARMS):
                x = features[0, arm]
                width = beta * math.sqrt(x @ np.linalg.solve(gram, x))
                price = sum(theta[j] * equal[j] * (x @ estimates[:, 1 + j] - width) for j in range(RESOURCES))
                scores.append(x @ estimates[:, 0] + width - price / pace)
            expected = int(np.argmax(scores)) if max(scores) > 0 else NULL_ARM
            choice = policy.decide(state, features, uniforms)
            assert choice.arm[0] == expected
            rewards, costs = outcome(rng, of, choice.arm)
            rewards = rewards - 30.0 * (t > 40)  # so that null is best at last
            state = policy.settle(policy.commit(state, choice.ticket), choice.ticket, rewards, costs)
            scaled = costs[0] / of.unit
            if expected == NULL_ARM:
                nulls += 1
            else:
                x = features[0, expected]
                gram += np.outer(x, x)
                moments += np.outer(x, np.concatenate([rewards, scaled]))
            weights[:-1] *= np.exp(step * (scaled * equal - pace))
        assert 0 < nulls < 40

    @pytest.mark.parametrize(("m", "regret"), [(5, 82.05), (52, 169.0)])
    def test_it_lands_at_the_regret_reported_by_those_who_compared_with_it(self, m, regret):
        """As the authors of SquareCBwK set it: β = √m, step 2 ln d/√T, no null. Their 10 runs spread by 12."""
        of = Problem.of(arms=3, dimension=m, resources=4, horizon=1000, budget=250)
        policy = LinUCB(problem=of, play_null=False, step=2 * math.log(4) / math.sqrt(1000))
        runs = run(policy, PaperEnvironment(m=m, arms=3), horizon=1000, budget=250, seeds=range(10))
        assert runs.regret(500.0).mean() == pytest.approx(regret, abs=4 * 12 * math.sqrt(2 / 10))

    def test_settled_costs_take_the_place_of_predicted_ones_in_the_prices(self):
        policy = LinUCB(problem=problem())
        state = played(policy)
        choice = policy.decide(state, *request(np.random.default_rng(14), policy, 2))
        costs = np.full((2, RESOURCES), 0.3)
        moved = policy.settle(policy.commit(state, choice.ticket), choice.ticket, np.zeros(2), costs)
        guessed = changed(choice.ticket, costs=np.full((2, RESOURCES), 0.9))
        same = policy.settle(policy.commit(state, guessed), guessed, np.zeros(2), costs)
        np.testing.assert_allclose(policy.prices(moved), policy.prices(same), atol=1e-12)

    def test_prices_rise_with_spend_above_pace_and_sum_to_at_most_z(self):
        of = problem(budget=30.0, max_cost=1.0)  # pace ½, Z = 2
        policy = LinUCB(problem=of)
        state = policy.init()
        choice = policy.decide(state, *request(np.random.default_rng(15), policy, 1))
        state = policy.settle(policy.commit(state, choice.ticket), choice.ticket, [0.0], [[1.0, 0.2]])
        before, after = policy.prices(policy.init())[0], policy.prices(state)[0]
        np.testing.assert_allclose(before, 2 / 3)
        assert after[0] > before[0] > after[1]
        assert after.sum() <= 2


class TestThompson:
    def test_normals_are_splitmix64_through_the_inverse_distribution(self):
        def splitmix64(seed, count):
            for _ in range(count):
                seed = (seed + 0x9E3779B97F4A7C15) % 2**64
                z = seed
                z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
                z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
                yield z ^ (z >> 31)

        assert next(splitmix64(1234567, 1)) == 6457827717110365317  # the generator's published test vector
        for u in (0.0, 0.25, 0.7310585786300049):
            bits = int(np.float64(u).view(np.uint64))
            expected = [statistics.NormalDist().inv_cdf(((word >> 12) + 0.5) / 2**52) for word in splitmix64(bits, 5)]
            np.testing.assert_allclose(standard_normals(np.array([u]), 5)[0], expected, atol=1e-9)

    def test_normals_are_normal_and_uncorrelated(self):
        normals = standard_normals(np.random.default_rng(16).random(20_000), 3)
        assert np.abs(normals.mean(axis=0)).max() < 5 / np.sqrt(20_000)
        np.testing.assert_allclose(np.cov(normals.T), np.eye(3), atol=5 * np.sqrt(2 / 20_000))

    @pytest.mark.parametrize("model", ["shared", "per_arm"])
    def test_an_arm_is_played_as_often_as_it_is_best_under_the_posterior(self, model):
        """Two arms: P(0 beats 1) = Φ(difference of means / standard deviation of the difference)."""
        lanes, of = 4000, Problem.of(arms=2, dimension=2, resources=1, horizon=100, budget=100)
        policy = Thompson(problem=of, model=model, scale=0.5)
        rng, state = np.random.default_rng(17), policy.init(lanes)
        gram, moments = np.stack([np.eye(2)] * 2), np.zeros((2, 2))
        for arm, reward in ((0, 0.6), (0, 0.5), (1, 0.4)):
            x = rng.random(2)
            block = arm if model == "per_arm" else 0
            gram[block] += np.outer(x, x)
            moments[block] += reward * x
            features = np.tile(x, (lanes, 1)) if model == "per_arm" else np.tile(x, (lanes, 2, 1))
            ticket = policy.decide(state, features, np.full(lanes, 0.5)).ticket
            ticket = changed(ticket, arm=np.full(lanes, arm), features=np.tile(x, (lanes, 1)))
            state = policy.settle(policy.commit(state, ticket), ticket, np.full(lanes, reward), np.zeros((lanes, 1)))
        inverse = np.linalg.inv(gram)
        theta = np.einsum("bij,bj->bi", inverse, moments)
        x = rng.random((2, 2))
        if model == "per_arm":
            features = np.tile(x[0], (lanes, 1))
            mean = x[0] @ (theta[0] - theta[1])
            variance = x[0] @ (inverse[0] + inverse[1]) @ x[0]
        else:
            features = np.tile(x, (lanes, 1, 1))
            mean = (x[0] - x[1]) @ theta[0]
            variance = (x[0] - x[1]) @ inverse[0] @ (x[0] - x[1])
        share = (policy.decide(state, features, rng.random(lanes)).arm == 0).mean()
        expected = statistics.NormalDist().cdf(mean / (0.5 * math.sqrt(variance)))
        assert share == pytest.approx(expected, abs=5 * math.sqrt(expected * (1 - expected) / lanes))


class TestThrottle:
    def test_spend_keeps_within_two_holds_of_the_even_pace_in_every_round(self):
        of = problem(horizon=200, budget=[20.0, 30.0], max_cost=1.0)
        policy = Throttle(policy=EpsilonGreedy(problem=of), problem=of)
        rng, state, spent = np.random.default_rng(18), policy.init(2), np.zeros((2, RESOURCES))
        for t in range(200):
            choice = policy.decide(state, *request(rng, policy, 2))
            rewards, costs = outcome(rng, of, choice.arm)
            state = policy.settle(policy.commit(state, choice.ticket), choice.ticket, rewards, costs)
            spent += costs
            assert (spent <= np.array(of.budget) * (t + 1) / 200 + 2).all()
        assert (spent.max(axis=0) > 15).all()

    def test_open_holds_count_as_spent(self):
        of = problem(horizon=200, budget=20.0, max_cost=1.0)
        policy = Throttle(policy=EpsilonGreedy(problem=of), problem=of)
        rng, state, arms = np.random.default_rng(22), policy.init(1), []
        for _ in range(10):
            choice = policy.decide(state, *request(rng, policy, 1))
            state = policy.commit(state, choice.ticket)
            arms.append(int(choice.arm[0]))
        assert [arm != NULL_ARM for arm in arms] == [True, True, *[False] * 7, True]  # 2 <= 1 + 0.1·10

    def test_it_leaves_the_policy_alone_while_the_pace_allows(self):
        of = problem(budget=1e6)
        inner = EpsilonGreedy(problem=of)
        policy = Throttle(policy=inner, problem=of)
        features, uniforms = request(np.random.default_rng(19), policy, 2)
        assert_same(
            policy.decide(policy.init(2), features, uniforms)[:3], inner.decide(inner.init(2), features, uniforms)[:3]
        )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EpsilonGreedy(problem=problem(), epsilon=1.5), "epsilon must lie"),
        (lambda: EpsilonGreedy(problem=problem(), model="none"), "model must be"),
        (lambda: EpsilonGreedy(problem=problem(arms=0, max_cost=1.0)), "at least one arm"),
        (lambda: Thompson(problem=problem(), scale=0.0), "scale must be positive"),
        (lambda: LinUCB(problem=problem(), delta=0.0), "delta must lie"),
        (lambda: LinUCB(problem=problem(), z=-1.0), "z must be positive"),
        (lambda: LinUCB(problem=problem(), step=0.0), "step must be positive"),
        (lambda: PricedUCB(problem=problem(), width=-1.0), "width must not be negative"),
        (lambda: PricedUCB(problem=problem(), model="none"), "model must be"),
        (lambda: PricedUCB(problem=problem(arms=0, max_cost=1.0)), "at least one arm"),
        (lambda: PricedThompson(problem=problem(), scale=0.0), "scale must be positive"),
        (lambda: LagrangeCBwK(problem=problem(), radius=0.5), "radius must be at least 1"),
        (lambda: Resolving(problem=problem(), window=0), "window must be at least 1"),
        (lambda: Resolving(problem=problem(), temperature=0.0), "temperature must be positive"),
        (lambda: Resolving(problem=problem(), width=-1.0), "width must not be negative"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@every_policy
def test_features_for_another_number_of_lanes_are_refused(policy):
    with pytest.raises(ValueError, match="features must have shape"):
        policy.decide(policy.init(2), *request(np.random.default_rng(20), policy, 3))
