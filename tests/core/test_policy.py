"""The policy as a whole: what a round does to a state, and that nothing else does."""

import copy
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbwk_core import NULL_ARM, SquareCBwK, snapshot
from cbwk_core.oracles import SklearnOracle
from cbwk_core.presets import PRESETS, PRICE_CEILING, PRICE_STEP
from cbwk_core.rules.dual import entropic_prices, entropic_start, entropic_step
from cbwk_core.snapshot import ForeignSnapshotError, SnapshotError, UnencodableError
from cbwk_core.state import columns
from cbwk_core.ticket import Ticket

EVERY_PRESET = sorted(PRESETS)
MODELS = ("shared", "per_arm")
KINDS = ("newton", "gradient", "aggregate", "kernel")
seeds = st.integers(0, 2**32 - 1)
every_preset = pytest.mark.parametrize("preset", EVERY_PRESET)
every_model = pytest.mark.parametrize("model", MODELS)


def make(**other):
    base = {"arms": 3, "dimension": 2, "resources": 2, "horizon": 500, "budget": [200.0, 90.0]}
    return SquareCBwK(**{**base, "max_cost": [[1.0, 0.5], [2.0, 0.3], [0.5, 0.4]], **other})


def features_of(policy, rng, rows=1):
    shape = (rows, policy.arms, policy.dimension) if policy.model == "shared" else (rows, policy.dimension)
    return rng.uniform(0.0, 0.7, shape)


def outcome_of(policy, rng, arms):
    """Rewards in [0, 1] and costs up to the hold, nothing for null."""
    real = arms != NULL_ARM
    hold = policy.problem.hold[np.maximum(arms, 0)]
    return rng.random(len(arms)) * real, rng.random((len(arms), policy.resources)) * hold * real[:, None]


def decided(policy, state, rng, rows=1):
    choice = policy.decide(state, features_of(policy, rng, rows), rng.random(rows))
    return choice, policy.commit(state, choice.ticket)


def played(policy, rng, rounds=15, state=None):
    state = policy.init() if state is None else state
    for _ in range(rounds):
        choice, state = decided(policy, state, rng)
        state = policy.settle(state, choice.ticket, *outcome_of(policy, rng, choice.arm))
    return state


def joined(tickets):
    return Ticket(*(np.concatenate(parts) for parts in list(zip(*tickets, strict=True))[:3]))


def arrays_in(state):
    if isinstance(state, np.ndarray):
        yield state
    elif isinstance(state, tuple):
        for part in state:
            yield from arrays_in(part)


def assert_same(one, other, **tolerance):
    for mine, others in zip(arrays_in(one), arrays_in(other), strict=True):
        np.testing.assert_allclose(mine, others, **{"rtol": 0.0, "atol": 0.0, **tolerance})


@every_preset
@every_model
def test_no_method_changes_the_state_the_ticket_or_the_arrays_it_is_given(preset, model):
    policy = make(preset=preset, model=model)
    rng = np.random.default_rng(1)
    before = played(policy, rng)
    choice, state = decided(policy, before, rng, 3)
    x, uniforms, exclude = features_of(policy, rng, 3), rng.random(3), rng.random((3, 3)) < 0.5
    outcome = outcome_of(policy, rng, choice.arm)
    given_to = (state, choice, x, uniforms, exclude, *outcome)
    kept = copy.deepcopy(given_to)
    later = [
        policy.commit(state, policy.decide(state, x, uniforms, exclude=exclude, free=[1, 1]).ticket),
        policy.commit(state, policy.decide(state, x[:1], uniforms[:1]).ticket),
        policy.settle(state, choice.ticket, *outcome),
        policy.settle(state, choice.ticket, *outcome, learn=False),
        policy.cancel(state, choice.ticket),
        policy.correct(state, choice.ticket, outcome[1]),
        policy.learn(state, x, choice.arm, *outcome),
        policy.learn(state, x[:1], np.array([1]), *(part[:1] for part in outcome)),
        replace(policy, budget=300.0).adopt(policy, state),
        policy.decode(policy.encode(state)),
    ]
    policy.quote(state)
    policy.refresh_due(state)
    assert_same(given_to, kept)
    for new in [before, state, *later]:
        assert not any(array.flags.writeable for array in arrays_in(new))


@every_preset
def test_a_choice_does_not_follow_what_the_caller_does_to_its_arrays_afterwards(preset):
    stages = "auto" if preset == "practical" else "measured"
    policy = make(arms=2, budget=200.0, max_cost=1.0, preset=preset, two_stage=stages)
    rng, state = np.random.default_rng(2), policy.init()
    for rounds in (0, 60):  # the second in the rounds that collect contexts
        state = state.booked(round=rounds)
        x = features_of(policy, rng)
        ticket = policy.decide(state, x, [0.3]).ticket
        kept = copy.deepcopy(ticket)
        x[:] = 7.0
        assert_same(ticket, kept)


@every_preset
def test_commit_counts_every_round_and_books_hold_and_predicted_cost_of_real_arms(preset):
    policy = make(preset=preset)
    rng = np.random.default_rng(3)
    before = played(policy, rng)
    exclude = np.array([[True] * 3, [False] * 3, [True, False, True]])
    choice = policy.decide(before, features_of(policy, rng, 3), [0.0, 0.0, 0.0], exclude=exclude)
    assert choice.arm[0] == NULL_ARM
    after, ticket = policy.commit(before, choice.ticket), choice.ticket
    real = choice.arm != NULL_ARM
    assert after.round[0] - before.round[0] == 3
    assert after.opened[0] - before.opened[0] == real.sum() > 0
    np.testing.assert_allclose(after.held - before.held, [policy.problem.hold[choice.arm[real]].sum(axis=0)])
    np.testing.assert_allclose(after.predicted - before.predicted, [ticket.costs[real].sum(axis=0)], atol=1e-12)
    np.testing.assert_allclose(after.value - before.value, ticket.value.sum())
    assert (after.settled[0], after.learnt[0]) == (before.settled[0], before.learnt[0])
    np.testing.assert_array_equal(after.spent, before.spent)
    assert_same(after.oracle, before.oracle)


@settings(max_examples=30)
@given(st.sampled_from(EVERY_PRESET), st.sampled_from(MODELS), seeds)
def test_the_order_of_settlement_matters_neither_to_the_account_nor_to_the_newton_oracle(preset, model, seed):
    policy = make(preset=preset, model=model, horizon=5000)
    rng = np.random.default_rng(seed)
    choice, state = decided(policy, played(policy, rng, 5), rng, 12)
    rewards, costs = outcome_of(policy, rng, choice.arm)
    rewards, costs = rewards * 0.3, costs * 0.3  # θ stays within the ball: a projection would remember the order
    ends = []
    for order in (np.arange(12), rng.permutation(12)):
        end = state
        for i in order:
            row = slice(i, i + 1)
            end = policy.settle(end, choice.ticket.rows(row), rewards[row], costs[row])
        ends.append(end)
    one, other = ends
    for name in ("round", "opened", "settled", "learnt", "spent", "held", "predicted"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=1e-9)
    np.testing.assert_allclose(one.residuals, other.residuals, atol=1e-9)
    np.testing.assert_allclose(one.oracle.theta, other.oracle.theta, atol=1e-9)
    if preset != "practical":
        np.testing.assert_allclose(policy.quote(one).prices, policy.quote(other).prices, rtol=1e-9)
    np.testing.assert_allclose(one.held, 0.0, atol=1e-12)
    np.testing.assert_allclose(one.predicted, 0.0, atol=1e-12)


@every_preset
def test_cancelled_decisions_return_hold_prediction_and_count_and_keep_their_round(preset):
    policy = make(preset=preset)
    rng = np.random.default_rng(5)
    before = played(policy, rng)
    choice, committed = decided(policy, before, rng, 6)
    after = policy.cancel(committed, choice.ticket)
    assert after.round[0] == before.round[0] + 6
    for name in ("opened", "settled", "learnt", "spent", "held", "predicted"):
        np.testing.assert_allclose(getattr(after, name), getattr(before, name), atol=1e-12)
    assert_same((after.oracle, after.residuals), (before.oracle, before.residuals))
    if preset != "practical":  # no clipping there: prices stand as after as many null rounds
        ticket = choice.ticket
        null = Ticket.of(
            arm=np.full(6, NULL_ARM),
            features=ticket.features,
            reward=ticket.reward,
            costs=ticket.costs * 0.0,
            rho=ticket.rho,
            value=ticket.value,
            round=ticket.round,
            hold=ticket.hold * 0.0,
        )
        expected = policy.quote(policy.commit(before, null)).prices
        np.testing.assert_allclose(policy.quote(after).prices, expected, rtol=1e-9)


@every_preset
@every_model
def test_outcomes_settled_first_and_taught_later_leave_the_state_of_outcomes_learnt_at_once(preset, model):
    policy = make(preset=preset, model=model)
    rng = np.random.default_rng(4)
    for rows in (1, 4):
        choice, state = decided(policy, played(policy, rng), rng, rows)
        rewards, costs = outcome_of(policy, rng, choice.arm)
        at_once = policy.settle(state, choice.ticket, rewards, costs)
        settled = policy.settle(state, choice.ticket, rewards, costs, learn=False)
        assert_same((settled.oracle, settled.residuals), (state.oracle, state.residuals))
        assert_same(policy.teach(settled, choice.ticket, rewards, costs), at_once, atol=1e-9)


@every_preset
def test_a_correction_moves_spend_and_prices_and_nothing_else(preset):
    policy = make(preset=preset)
    rng = np.random.default_rng(6)
    before = played(policy, rng)
    choice = policy.decide(before, features_of(policy, rng, 2), [0.0, 0.0])
    committed = policy.commit(before, choice.ticket)
    assert (choice.arm != NULL_ARM).all()
    costs, more = np.array([[0.2, 0.1], [0.1, 0.2]]), np.array([[0.3, 0.1], [-0.05, 0.0]])
    settled = policy.settle(committed, choice.ticket, [0.5, 0.5], costs)
    corrected = policy.correct(settled, choice.ticket, more)
    np.testing.assert_allclose(corrected.spent - settled.spent, [more.sum(axis=0)], atol=1e-12)
    assert (policy.quote(corrected).prices != policy.quote(settled).prices).any()
    moved = "position" if preset == "practical" else "log_weights"
    restored = corrected.replaced(**{moved: getattr(settled, moved), "spent": settled.spent})
    assert_same(restored, settled, atol=1e-12)
    if preset != "practical":
        at_once = policy.settle(committed, choice.ticket, [0.5, 0.5], costs + more, learn=False)
        np.testing.assert_allclose(policy.quote(at_once).prices, policy.quote(corrected).prices, rtol=1e-9)


def test_the_pace_is_what_is_neither_spent_nor_expected_over_the_rounds_left():
    policy = make()
    rng, state = np.random.default_rng(9), policy.init()
    spent, expected, waiting = np.zeros(2), np.zeros(2), []
    unit = np.array([2.0, 0.5])
    for t in range(120):
        rho = np.maximum([200.0 / 2.0, 90.0 / 0.5] - spent / unit - expected, 0.0) / (500 - t)
        np.testing.assert_allclose(policy.quote(state).rho, [rho], rtol=1e-9)
        choice, state = decided(policy, state, rng)
        np.testing.assert_allclose(choice.ticket.rho, [rho], rtol=1e-9)
        waiting.append(choice.ticket)
        expected += choice.ticket.costs[0]
        if t % 8 == 7 and choice.arm[0] != NULL_ARM:  # some at once, the rest never: no delay is seen
            ticket = waiting.pop()
            costs = rng.random((1, 2))
            state = policy.settle(state, ticket, rng.random(1), costs)
            expected, spent = expected - ticket.costs[0], spent + costs[0]


def test_a_decision_moves_a_price_by_its_relative_excess_over_the_root_of_all_squares():
    policy = make()
    rng = np.random.default_rng(10)
    state = played(policy, rng, 8)
    energy, position = state.energy[0].copy(), state.position[0].copy()
    for _ in range(40):
        choice, state = decided(policy, state, rng)
        excess = (choice.ticket.costs[0] - choice.ticket.rho[0]) / policy.problem.rho
        energy += excess**2
        position = np.clip(position + PRICE_STEP * excess / np.sqrt(1.0 + energy), 0.0, PRICE_CEILING)
        np.testing.assert_allclose(state.position[0], position, atol=1e-12)


@settings(max_examples=20)
@given(seeds, st.sampled_from(MODELS), st.sampled_from([0.02, 0.3, 3.0]))
def test_prices_lie_between_0_and_one_and_a_half_times_the_mean_best_reward_over_the_pace(seed, model, share):
    policy = make(model=model, budget=[500 * share, 250 * share])
    rng, state, best = np.random.default_rng(seed), policy.init(), []
    pace = np.array([500 * share / 2.0, 250 * share / 0.5]) / 500
    for _ in range(40):
        prices = policy.quote(state).prices[0]
        limit = PRICE_CEILING * np.mean(best or [0.0]) / pace
        assert (prices >= 0.0).all()
        assert (prices <= limit * (1.0 + 1e-12)).all()
        x = features_of(policy, rng)
        lifted = policy.lifted(x if model == "shared" else x[:, None])
        best.append(max(0.0, policy.regressor.predict(state.oracle, lifted)[..., 0].max()))
        arm = rng.integers(0, 3, 1)
        state = policy.learn(state, x, arm, rng.uniform(-0.5, 1.0, 1), rng.random((1, 2)))


@pytest.mark.parametrize(("preset", "model", "oracle"), [*product(EVERY_PRESET, MODELS, ("newton", "gradient"))])
def test_learning_many_rows_equals_learning_them_one_by_one(preset, model, oracle):
    policy = make(preset=preset, model=model, oracle=oracle)
    rng = np.random.default_rng(12)
    x, arms = features_of(policy, rng, 20), rng.integers(-1, 3, 20)
    rewards, costs = outcome_of(policy, rng, arms)
    together, alone, in_steps = policy.learn(policy.init(), x, arms, rewards, costs), policy.init(), policy.init()
    for i in range(20):
        row = slice(i, i + 1)
        alone = policy.learn(alone, x[row], arms[row], rewards[row], costs[row])
        uniform = policy.decide(in_steps, x[row], [0.0]).probabilities[0].cumsum()[arms[i]]
        choice = policy.decide(in_steps, x[row], [max(np.nextafter(uniform, 0.0) - 1e-12, 0.0)])
        if choice.arm[0] == arms[i]:
            committed = policy.commit(in_steps, choice.ticket)
            settled = policy.settle(committed, choice.ticket, rewards[row], costs[row])
            assert_same(policy.learn(in_steps, x[row], arms[row], rewards[row], costs[row]), settled, atol=1e-9)
        in_steps = alone
    assert_same(together, alone, atol=1e-9)


def test_entropic_prices_survive_a_hundred_thousand_extreme_steps_and_come_back():
    radius, d = np.full(5, 40.0), 3
    weights, scale, rate = entropic_start(5, d), np.ones((5, d)), np.full((5, 1), 0.9)
    rng = np.random.default_rng(13)
    signs = np.array([[1, 1, 1], [-1, -1, -1], [1, -1, 1], [-1, -1, 1], [0, 0, 0]], dtype=float)
    for t in range(100_000):
        if t % 1000 == 0:
            prices = entropic_prices(weights, radius, scale)
            assert np.isfinite(prices).all()
            assert (prices > 0.0).all()
            assert (prices.sum(axis=1) <= 40.0 * (1.0 + 1e-12)).all()
            signs[4] = rng.choice([-1.0, 1.0], d)
        weights = entropic_step(weights, signs, scale, rate)
    for _ in range(2000):
        weights = entropic_step(weights, -signs, scale, rate)
    prices = entropic_prices(weights, radius, scale)
    np.testing.assert_allclose(prices[1], 40.0 / 3.0)  # nearly 0 for long, now the whole radius
    np.testing.assert_allclose(prices[2, 1], 40.0)


@every_preset
def test_a_single_resource_has_a_price_that_rises_with_spend_and_falls_without(preset):
    policy = make(resources=1, budget=50.0, max_cost=1.0, preset=preset)
    x, state = np.full((1, 3, 2), 0.5), policy.init()
    prices = []
    for arm in [0] * 20 + [NULL_ARM] * 60:
        state = policy.learn(state, x, [arm], [0.8], [[1.0 if arm == 0 else 0.0]])
        prices.append(policy.quote(state).prices[0, 0])
    assert prices[0] < prices[4]
    assert prices[79] < prices[19]


@every_preset
@every_model
def test_another_unit_of_a_resource_changes_nothing(preset, model):
    factor = np.array([1000.0, 0.01])
    one = make(preset=preset, model=model)
    other = replace(one, budget=one.budget * factor, max_cost=one.max_cost * factor)
    rngs, states = [np.random.default_rng(14) for _ in range(2)], [one.init(), other.init()]
    for _ in range(80):
        choices = []
        for i, (policy, money) in enumerate(((one, 1.0), (other, factor))):
            choice, states[i] = decided(policy, states[i], rngs[i])
            rewards, costs = outcome_of(one, rngs[i], choice.arm)
            states[i] = policy.settle(states[i], choice.ticket, rewards, costs * money)
            choices.append(choice)
        assert choices[0].arm[0] == choices[1].arm[0]
        np.testing.assert_allclose(choices[0].probabilities, choices[1].probabilities, atol=1e-9)
    np.testing.assert_allclose(one.quote(states[0]).prices, other.quote(states[1]).prices, rtol=1e-9)
    np.testing.assert_allclose(states[0].spent * factor, states[1].spent, rtol=1e-9)


@every_preset
def test_given_numbers_replace_gamma_and_the_radius(preset):
    policy = make(preset=preset, gamma=12.5, z=3.0, budget=[200.0, 50.0])
    assert policy.quote(policy.init()).gamma.tolist() == [[12.5]]
    if preset != "practical":  # equal weights over d + 1 coordinates; both budgets are 100 max costs
        np.testing.assert_allclose(policy.quote(policy.init()).prices, [[1.0, 1.0]])


@every_preset
@every_model
def test_prices_stay_when_budgets_or_the_horizon_change(preset, model):
    policy = make(preset=preset, model=model)
    state = played(policy, np.random.default_rng(15), 40)
    prices = policy.quote(state).prices
    assert preset != "practical" or prices.max() > 0.0
    for change in ({"budget": [190.0, 95.0]}, {"budget": [150.0, 80.0]}, {"horizon": 520}):
        newer = replace(policy, **change)
        adopted = newer.adopt(policy, state)
        np.testing.assert_allclose(newer.quote(adopted).prices, prices, rtol=1e-9)
        assert_same(adopted.oracle, state.oracle)
        for name in ("round", "opened", "settled", "learnt", "value", "spent", "held", "predicted"):
            np.testing.assert_array_equal(getattr(adopted, name), getattr(state, name))


def test_a_radius_too_small_for_the_prices_scales_all_of_them():
    policy = make(preset="paper")
    state = played(policy, np.random.default_rng(16), 40)
    newer = replace(policy, budget=[20000.0, 9000.0])
    prices = newer.quote(newer.adopt(policy, state)).prices[0]
    before = policy.quote(state).prices[0]
    np.testing.assert_allclose(prices / before, (prices / before)[0], rtol=1e-9)
    scale = np.array([1.0, (20000.0 / 2.0) / (9000.0 / 0.5)])
    np.testing.assert_allclose((prices / scale).sum(), 500 / (20000.0 / 2.0), rtol=1e-6)


@every_preset
def test_an_added_arm_leaves_the_others_as_they_were_and_is_explored(preset):
    policy = make(preset=preset, model="per_arm")
    rng = np.random.default_rng(17)
    state, x = played(policy, rng, 30), rng.random((1, 2))
    newer = replace(policy, arms=4, max_cost=(*policy.max_cost, (1.0, 0.2)))
    adopted = newer.adopt(policy, state)
    lifted = policy.lifted(x)[:, None]
    old, new = policy.regressor.predict(state.oracle, lifted), newer.regressor.predict(adopted.oracle, lifted)
    np.testing.assert_allclose(new[:, :3], old, rtol=1e-12)
    np.testing.assert_array_equal(new[:, 3], 0.0)
    odds = newer.decide(adopted, x, [0.0]).probabilities[0]
    choice = newer.decide(adopted, x, [odds[:3].sum() + odds[3] / 2])
    assert (choice.arm[0], choice.probability[0]) == (3, odds[3])
    assert odds[3] > 1e-3
    after = newer.settle(newer.commit(adopted, choice.ticket), choice.ticket, [0.9], [[0.5, 0.1]])
    assert newer.regressor.predict(after.oracle, lifted)[0, 3, 0] > 0.0
    np.testing.assert_allclose(newer.regressor.predict(after.oracle, lifted)[:, :3], old, rtol=1e-12)


@every_preset
@every_model
def test_a_retired_arm_is_never_chosen_and_its_tickets_still_settle(preset, model):
    policy = make(preset=preset, model=model, gamma=0.01, budget=5000.0)
    rng = np.random.default_rng(18)
    before = played(policy, rng)
    ticket = policy.decide(before, features_of(policy, rng), [0.0], exclude=[[True, False, True]]).ticket
    assert ticket.arm[0] == 1
    state = policy.commit(before, ticket)
    newer = replace(policy, retired=(1,))
    adopted = newer.adopt(policy, state)
    later = newer.decide(adopted, features_of(policy, rng, 40), np.arange(40) / 40)
    assert not later.probabilities[:, 1].any()
    assert set(later.arm.tolist()) == {0, 2} | ({NULL_ARM} if preset != "practical" else set())
    outcome = np.array([0.4]), np.array([[0.3, 0.1]])
    assert_same(newer.settle(adopted, ticket, *outcome), policy.settle(state, ticket, *outcome), atol=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dimension": 3}, "dimension cannot change, was 2, got 3"),
        ({"resources": 3, "budget": 9.0, "max_cost": 1.0}, "resources cannot change, was 2, got 3"),
        ({"model": "per_arm"}, "model cannot change, was 'shared', got 'per_arm'"),
        ({"preset": "paper"}, "preset cannot change, was 'practical', got 'paper'"),
        ({"oracle": "gradient"}, "oracle cannot change, was 'newton', got 'gradient'"),
        ({"link": "logistic"}, "link cannot change"),
        ({"forgetting": 0.99}, "forgetting cannot change, was None, got 0.99"),
        ({"arms": 2, "max_cost": [[1.0, 0.5], [2.0, 0.3]]}, "there were 3, got 2"),
        ({"max_cost": 1.0}, r"pass unit=\[2.0, 0.5\]"),
        ({"max_cost": 1.0, "unit": [2.0, 0.5]}, r"pass arm_unit with \[\[1.0, 0.5\], \[2.0, 0.3\], \[0.5, 0.4\]\]"),
        ({"arms": 4, "max_cost": [[1.0, 0.5], [2.0, 0.3], [0.5, 0.4], [2.5, 0.1]]}, r"pass unit=\[2.0, 0.5\]"),
    ],
)
def test_a_policy_that_does_not_fit_the_state_cannot_adopt_it(change, message):
    policy = make()
    with pytest.raises(ValueError, match=message):
        make(**change).adopt(policy, policy.init())


@every_preset
@every_model
def test_other_max_costs_are_the_next_holds_and_leave_what_was_learnt_in_its_scale(preset, model):
    policy, rng = make(preset=preset, model=model, budget=500.0), np.random.default_rng(29)
    choice, state = decided(policy, played(policy, rng, 20), rng)
    problem, max_cost = policy.problem, ((0.2, 0.5), (6.0, 0.1), (0.5, 0.4))
    newer = replace(policy, max_cost=max_cost, unit=problem.unit, arm_unit=problem.arm_unit)
    adopted = newer.adopt(policy, state)
    np.testing.assert_allclose(newer.quote(adopted).prices, policy.quote(state).prices, rtol=1e-9)
    x, outcome = features_of(policy, rng), outcome_of(policy, rng, choice.arm)
    np.testing.assert_array_equal(newer.predict(adopted, x), policy.predict(state, x))
    after, before = newer.settle(adopted, choice.ticket, *outcome), policy.settle(state, choice.ticket, *outcome)
    np.testing.assert_allclose(after.books, before.books, atol=1e-9)
    np.testing.assert_array_equal(after.residuals, before.residuals)
    np.testing.assert_allclose(newer.quote(after).gamma, policy.quote(before).gamma, rtol=1e-9)
    for arm, hold in enumerate(max_cost):
        ticket = newer.decide(adopted, x, [0.0], exclude=[[other != arm for other in range(3)]]).ticket
        assert ticket.arm[0] == NULL_ARM or tuple(ticket.hold[0]) == hold
    assert newer.decide(adopted, x, [0.0], free=[5, 9]).probabilities[0, 1] == 0.0
    with pytest.raises(ValueError, match="another configuration"):
        replace(newer, arm_unit=max_cost).decode(newer.encode(adopted))


def test_an_arm_that_was_free_and_costs_now_has_noise_in_its_costs_and_the_same_residuals():
    costs, rng = ((1.0, 0.5), (0.0, 0.3), (0.5, 0.4)), np.random.default_rng(31)
    policy = make(model="per_arm", max_cost=costs, budget=500.0)
    choice, state = decided(policy, played(policy, rng, 20), rng)
    paid = ((1.0, 0.5), (0.8, 0.3), (0.5, 0.4))
    newer = replace(policy, max_cost=paid, unit=policy.problem.unit, arm_unit=policy.problem.arm_unit)
    adopted, outcome = newer.adopt(policy, state), outcome_of(policy, rng, choice.arm)
    after, before = newer.settle(adopted, choice.ticket, *outcome), policy.settle(state, choice.ticket, *outcome)
    np.testing.assert_array_equal(after.residuals, before.residuals)
    noise = newer.quote(after.replaced(position=after.position + 1.0)).noise[0]
    same = policy.quote(before.replaced(position=before.position + 1.0)).noise[0]
    assert noise[1] > same[1]
    np.testing.assert_array_equal(noise[[0, 2]], same[[0, 2]])


@every_model
def test_a_dearer_arm_is_adopted_in_the_unit_of_the_arms_before_it(model):
    policy, rng = make(model=model, budget=500.0), np.random.default_rng(23)
    choice, state = decided(policy, played(policy, rng, 8), rng)
    max_cost = [*policy.max_cost, (5.0, 3.0)]
    newer = make(model=model, budget=500.0, arms=4, max_cost=max_cost, unit=policy.problem.unit)
    adopted = newer.adopt(policy, state)
    np.testing.assert_allclose(newer.quote(adopted).prices, policy.quote(state).prices)
    np.testing.assert_array_equal(newer.predict(adopted, features_of(newer, rng))[0, 3:, 1:].shape, (1, 2))
    outcome = outcome_of(policy, rng, choice.arm)
    both = newer.settle(adopted, choice.ticket, *outcome), policy.settle(state, choice.ticket, *outcome)
    np.testing.assert_array_equal(both[0].books, both[1].books)
    dear = newer.decide(adopted, features_of(newer, rng), [0.5], exclude=[[True, True, True, False]])
    assert dear.arm[0] in (3, NULL_ARM)
    poor = newer.decide(adopted, features_of(newer, rng), [0.0], free=[4, 9])
    assert poor.probabilities[0, 3] == 0.0


@pytest.mark.parametrize(("preset", "model", "kind"), [*product(EVERY_PRESET, MODELS, KINDS)])
def test_a_decoded_state_is_the_same_and_goes_on_the_same(preset, model, kind):
    policy = make(preset=preset, model=model, oracle=kind)
    choice, state = decided(policy, played(policy, np.random.default_rng(19), 8), np.random.default_rng(20), 3)
    data = policy.encode(state)
    decoded = policy.decode(data)
    assert_same(decoded, state)
    assert policy.encode(decoded) == data
    assert not any(array.flags.writeable for array in arrays_in(decoded))
    ends = []
    for start in (state, decoded):
        settled = policy.settle(start, choice.ticket, [0.1, 0.2, 0.3], np.full((3, 2), 0.2))
        ends.append(policy.encode(played(policy, np.random.default_rng(21), 5, settled)))
    assert ends[0] == ends[1]


@every_preset
def test_a_snapshot_whose_books_have_no_column_for_the_rounds_waited_is_decoded(preset):
    """Version 0.1 kept these rounds in the column of the slack, where prices were in units of value."""
    policy, rng = make(preset=preset, rules=1), np.random.default_rng(27)
    choice, state = decided(policy, played(policy, rng, 8), rng)
    _, state = decided(policy, state, rng, 3)
    state = policy.settle(state, choice.ticket, *outcome_of(policy, rng, choice.arm))
    assert state.waited[0] == (3 if preset == "practical" else 0)
    old = state.books[:, :-1].copy()
    if preset == "practical":
        old[:, columns(2).slack] = state.waited
    decoded = policy.decode(snapshot.encode(state._replace(books=old), fingerprint=policy.fingerprint))
    assert_same(decoded, state)


def test_several_lanes_and_links_are_encoded_as_well():
    for policy in (make(link="logistic"), make(link="logistic", model="per_arm", oracle="gradient")):
        state = policy.init(lanes=3)
        choice = policy.decide(state, features_of(policy, np.random.default_rng(22), 3), [0.1, 0.5, 0.9])
        state = policy.commit(state, choice.ticket)
        assert_same(policy.decode(policy.encode(state)), state)


@settings(max_examples=40)
@given(st.integers(0, 10**9), st.integers(1, 255))
def test_damaged_bytes_are_refused(position, flip):
    policy = make()
    data = bytearray(policy.encode(policy.init()))
    data[position % len(data)] ^= flip
    with pytest.raises(SnapshotError):
        policy.decode(bytes(data))
    with pytest.raises(SnapshotError):
        policy.decode(bytes(data[: position % len(data)]))


@pytest.mark.parametrize("change", [{"budget": [200.0, 91.0]}, {"horizon": 501}, {"gamma": 2.0}, {"preset": "paper"}])
def test_the_bytes_of_another_policy_are_refused(change):
    policy = make()
    with pytest.raises(ForeignSnapshotError):
        make(**change).decode(policy.encode(policy.init()))


def test_equal_policies_read_each_others_bytes_however_their_numbers_were_written():
    one = make(gamma=2, retired=[2, 1, 1], budget=[200, 90])
    other = make(arms=np.int64(3), horizon=np.int32(500), gamma=np.float64(2.0), retired=(np.int64(1), 2))
    assert one == other
    assert_same(other.decode(one.encode(one.init())), one.init())


class Mean:
    """The smallest model that an adapter accepts."""

    total, rows = 0.0, 0

    def partial_fit(self, x, y):
        self.total, self.rows = self.total + float(y[0]), self.rows + 1

    def predict(self, x):
        return [self.total / self.rows] * len(x)


def test_a_policy_with_models_of_other_libraries_runs_and_refuses_to_encode_its_state():
    policy = make(oracle=SklearnOracle(Mean, dimension=3, targets=3, prior=0.5))
    state = played(policy, np.random.default_rng(23))
    with pytest.raises(UnencodableError, match=r"state\.oracle\.models.* got Mean"):
        policy.encode(state)


@pytest.mark.parametrize("preset", ["paper", "authors"])
def test_a_preset_that_exits_does_not_overspend_after_it_has_adopted_a_dearer_arm(preset):
    sizes = {"dimension": 1, "resources": 1, "horizon": 100, "budget": 10.0, "preset": preset, "model": "per_arm"}
    older = SquareCBwK(arms=1, max_cost=1.0, two_stage="off", **sizes)
    newer = SquareCBwK(arms=2, max_cost=[[1.0], [4.0]], unit=1.0, two_stage="off", **sizes)
    state = older.init()
    for _ in range(8):
        state = older.learn(state, [[1.0]], [0], [0.5], [[1.0]])
    choice = newer.decide(newer.adopt(older, state), [[1.0]], [0.5])
    assert choice.reason == ("budget_exhausted",)
