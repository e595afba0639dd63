"""Pace and holds when outcomes are late: the formula by another route, the states, and the effect on a campaign."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbwk_core import NULL_ARM, SquareCBwK
from cbwk_core.presets import BLIND_COUNT
from cbwk_core.rules.pace import DELAY_SHARE_MIN, pace_of_one, paces
from cbwk_core.ticket import Ticket

UNIT = np.array([2.0, 0.5])
BUDGET = np.array([200.0, 90.0])
money = st.floats(0.0, 1e4).map(lambda amount: round(amount, 6))  # nothing that underflows


def make(**other):
    base = {"arms": 3, "dimension": 2, "resources": 2, "horizon": 300, "budget": BUDGET}
    return SquareCBwK(**{**base, "max_cost": [[1.0, 0.5], [2.0, 0.3], [0.5, 0.4]], **other})


def features_of(policy, rng, rows=1):
    shape = (rows, policy.arms, policy.dimension) if policy.model == "shared" else (rows, policy.dimension)
    return rng.uniform(0.0, 0.7, shape)


def outcome_of(policy, rng, arms):
    """Rewards in [0, 1] and costs up to three tenths of the hold, nothing for null."""
    real = arms != NULL_ARM
    hold = policy.problem.hold[np.maximum(arms, 0)]
    return rng.random(len(arms)) * real, 0.3 * rng.random((len(arms), policy.resources)) * hold * real[:, None]


def played(policy, rng, rounds, delay, lanes=1, state=None):
    """The states after each round; every outcome comes `delay` rounds late."""
    state, waiting, states = policy.init(lanes) if state is None else state, [], []
    for _ in range(rounds):
        choice = policy.decide(state, features_of(policy, rng, lanes), rng.random(lanes))
        state = policy.commit(state, choice.ticket)
        waiting.append((choice.ticket, *outcome_of(policy, rng, choice.arm)))
        if len(waiting) > delay:
            state = policy.settle(state, *waiting.pop(0))
        states.append(state)
    return states


def by_hand(left, free, held, predicted, delay, rest):
    """ρ_t and the blocking share of one resource, as the text of pace.py describes them."""
    if rest <= delay:
        returning = max(held - predicted, 0.0) * rest / delay
        return (4.0 * free + returning) / rest, 1.0
    turnover = delay * (held / predicted) if held > 1e-9 and predicted > 1e-9 else 0.0
    until = rest - turnover / 4.0
    if until < turnover:
        until = min(rest, turnover)
    # What counts as h·share against left / until is h·n·delay <= 4·free + what comes back, or left where that is more.
    capacity = max(4.0 * free + max(held - predicted, 0.0), left)
    return left / until, (left / until) / (capacity / delay) if capacity else delay / until


@given(money, money, st.floats(1e-3, 1e4), st.floats(1.0, 1e4), st.integers(1, 10_000))
def test_the_pace_of_one_resource_and_the_paces_of_arrays_are_those_that_the_text_describes(
    unspent, held, predicted, delay, rest
):
    left, free = max(unspent - predicted, 0.0), max(unspent - held, 0.0)
    rho, share = pace_of_one(unspent, held, predicted, delay, rest)
    table = [np.array([[each]]) for each in (unspent, held, predicted, delay, float(rest))]
    rhos, shares = paces(*table)
    if delay > DELAY_SHARE_MIN * rest:
        expected = by_hand(left, free, held, predicted, delay, rest)
        np.testing.assert_allclose((rho, share), expected, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose((rhos[0, 0], shares[0, 0]), (rho, share), rtol=1e-12)
    else:
        assert rhos[0, 0] == rho == left / rest
        assert np.isnan(share)
        assert shares is None


def test_without_delay_the_pace_is_what_is_left_over_the_rounds_left_and_holds_count_for_nothing():
    policy, rng = make(), np.random.default_rng(1)
    for t, state in enumerate(played(policy, rng, 250, delay=0), start=1):
        quote = policy.quote(state)
        assert state.waited[0] == 0
        assert quote.blocking is None
        np.testing.assert_allclose(quote.rho[0], (BUDGET - state.spent[0]) / UNIT / (300 - t), rtol=1e-9)


def test_the_delay_is_the_mean_of_the_rounds_between_decision_and_outcome_without_cancelled_ones():
    policy, rng = make(), np.random.default_rng(2)
    state, total, count = policy.init(), 0, 0
    waiting = []
    for t in range(200):
        choice = policy.decide(state, features_of(policy, rng), rng.random(1))
        state = policy.commit(state, choice.ticket)
        waiting.append((t, choice))
        if rng.random() < 0.9:
            made, old = waiting.pop(rng.integers(len(waiting)))
            if rng.random() < 0.2:
                state = policy.cancel(state, old.ticket)
                continue
            state = policy.settle(state, old.ticket, *outcome_of(policy, rng, old.arm), learn=bool(rng.random() < 0.8))
            if old.arm[0] != NULL_ARM:
                total, count = total + t - made, count + 1
    assert count > 50
    assert (state.waited[0], state.settled[0]) == (total, count)


def test_pace_and_blocking_of_a_state_follow_from_its_own_account():
    policy, rng = make(), np.random.default_rng(3)
    seen = set()
    for t, state in enumerate(played(policy, rng, 299, delay=25), start=1):
        quote, settled = policy.quote(state), state.settled[0]
        delay, rest = state.waited[0] / max(settled, 1), 300 - t
        if delay == 0:
            assert quote.blocking is None
            continue
        assert delay == 25
        seen.add(rest <= delay)
        for j in range(2):
            unspent, held = (BUDGET[j] - state.spent[0, j]) / UNIT[j], state.held[0, j] / UNIT[j]
            predicted = state.predicted[0, j]
            expected = by_hand(max(unspent - predicted, 0), max(unspent - held, 0), held, predicted, delay, rest)
            np.testing.assert_allclose((quote.rho[0, j], quote.blocking[0, j]), expected, rtol=1e-9)
    assert seen == {True, False}


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["shared", "per_arm"]), st.integers(1, 60), st.sampled_from([1, 8]))
def test_one_lane_and_two_equal_lanes_stay_equal_when_outcomes_are_late(seed, model, delay, tight):
    policy, rng = make(model=model, budget=BUDGET / tight), np.random.default_rng(seed)
    one, two, waiting = policy.init(), policy.init(2), []
    for _ in range(160):
        x, uniforms = features_of(policy, rng), rng.random(1)
        choice, both = policy.decide(one, x, uniforms), policy.decide(two, np.repeat(x, 2, 0), np.repeat(uniforms, 2))
        assert choice.arm[0] == both.arm[0] == both.arm[1]
        np.testing.assert_allclose(choice.probabilities[0], both.probabilities[0], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(choice.ticket.numbers[0], both.ticket.numbers[0], rtol=1e-9, atol=1e-12)
        one, two = policy.commit(one, choice.ticket), policy.commit(two, both.ticket)
        waiting.append((choice.ticket, both.ticket, *outcome_of(policy, rng, choice.arm)))
        if len(waiting) > delay:
            mine, others, reward, costs = waiting.pop(0)
            one = policy.settle(one, mine, reward, costs)
            two = policy.settle(two, others, np.repeat(reward, 2), np.repeat(costs, 2, axis=0))
        np.testing.assert_allclose(one.books[0], two.books[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("rows", [6, 24])
@pytest.mark.parametrize("model", ["shared", "per_arm"])
def test_several_late_decisions_at_once_equal_the_same_decisions_one_by_one(model, rows):
    policy, rng = make(model=model), np.random.default_rng(5)
    state = played(policy, rng, 200, delay=40)[-1]
    assert policy.quote(state).blocking is not None
    x, uniforms = features_of(policy, rng, rows), rng.random(rows)
    together = policy.decide(state, x, uniforms)
    alone = [policy.decide(state, x[i : i + 1], uniforms[i : i + 1]) for i in range(rows)]
    np.testing.assert_allclose(together.probabilities, [one.probabilities[0] for one in alone], rtol=1e-9)
    ticket = together.ticket
    committed, one_by_one = policy.commit(state, ticket), state
    for i in range(rows):
        part = slice(i, i + 1)
        one_by_one = policy.commit(one_by_one, Ticket(ticket.arm[part], ticket.features[part], ticket.numbers[part]))
    np.testing.assert_allclose(committed.books, one_by_one.books, rtol=1e-12)


def test_outcomes_that_become_late_within_a_batch_count_from_the_round_in_which_they_do():
    policy, rng = make(horizon=2_000), np.random.default_rng(7)
    state = played(policy, rng, 20, delay=1)[-1]
    rounds = int(policy.horizon - state.waited[0] / state.settled[0] / DELAY_SHARE_MIN)  # late from here on
    state = state.replaced(round=rounds - 8)
    assert policy.quote(state).blocking is None
    rows = 16
    ticket = policy.decide(state, features_of(policy, rng, rows), rng.random(rows)).ticket
    committed, one_by_one = policy.commit(state, ticket), state
    for i in range(rows):
        one_by_one = policy.commit(one_by_one, ticket.rows(slice(i, i + 1)))
    assert policy.quote(committed).blocking is not None
    np.testing.assert_array_equal(committed.books, one_by_one.books)


def test_learning_at_once_in_a_campaign_with_late_outcomes_equals_commit_then_settle():
    policy, rng = make(), np.random.default_rng(6)
    state = played(policy, rng, 200, delay=40)[-1]
    x, arm = features_of(policy, rng), np.array([1])
    reward, costs = np.array([0.4]), np.array([[0.3, 0.1]])
    learnt = policy.learn(state, x, arm, reward, costs)
    lanes = policy.learn(
        state._replace(
            books=np.repeat(state.books, 2, axis=0),
            oracle=type(state.oracle)(
                *(
                    tuple(np.repeat(each, 2, axis=0) for each in part)
                    if isinstance(part, tuple)
                    else np.repeat(part, 2, axis=0)
                    for part in state.oracle
                )
            ),
            residuals=np.repeat(state.residuals, 2, axis=0),
        ),
        np.repeat(x, 2, axis=0),
        np.repeat(arm, 2),
        np.repeat(reward, 2),
        np.repeat(costs, 2, axis=0),
    )
    np.testing.assert_allclose(learnt.books[0], lanes.books[0], rtol=1e-9, atol=1e-12)
    assert learnt.waited[0] == state.waited[0]


def test_a_decision_moves_the_price_by_what_it_blocks_where_that_is_more_than_it_costs():
    policy, rng = make(), np.random.default_rng(7)
    state = played(policy, rng, 290, delay=40)[-1]  # ten rounds left: a hold counts in full
    choice = policy.decide(state, features_of(policy, rng), np.array([0.5]))
    ticket = choice.ticket
    assert choice.arm[0] != NULL_ARM
    excess = (np.maximum(ticket.hold[0] / UNIT, ticket.costs[0]) - ticket.rho[0]) / policy.problem.rho
    energy = state.energy[0] + excess**2
    np.testing.assert_allclose(policy.commit(state, ticket).energy[0], energy, rtol=1e-9)


def test_delays_do_not_change_the_paper_presets():
    policy, rng = make(preset="paper"), np.random.default_rng(8)
    states = played(policy, rng, 120, delay=30)
    assert policy.quote(states[-1]).blocking is None
    *weights, slack = states[-1].log_weights[0]
    np.testing.assert_allclose(slack, np.log1p(-np.exp(weights).sum()), rtol=1e-9)


def test_the_delay_survives_bytes_and_a_change_of_budgets():
    policy, rng = make(), np.random.default_rng(9)
    state = played(policy, rng, 100, delay=20)[-1]
    assert state.waited[0] == 20 * state.settled[0] > 0
    richer = make(budget=3 * BUDGET)
    for other in (policy.decode(policy.encode(state)), richer.adopt(policy, state)):
        assert other.waited[0] == state.waited[0]


def test_scarce_holds_go_to_the_better_half_of_requests():
    # Nearly free to play, so money never runs short, but only 150 may be open at a time and 600 asked for in a delay.
    horizon, delay = 6_000, 600
    policy = SquareCBwK(arms=1, dimension=2, resources=1, horizon=horizon, budget=150.0)
    rng, state, waiting, good = np.random.default_rng(10), policy.init(), [], []
    for t in range(horizon):
        kind = int(rng.random() < 0.5)
        choice = policy.decide(state, np.eye(2)[[[kind]]], rng.random(1))
        state = policy.commit(state, choice.ticket)
        real = choice.arm[0] != NULL_ARM
        waiting.append((choice.ticket, np.array([(0.2, 0.8)[kind] * real]), np.full((1, 1), 0.01 * real)))
        if len(waiting) > delay:
            state = policy.settle(state, *waiting.pop(0))
        if real and 3 * delay < t:
            good.append(kind)
    assert state.settled[0] > BLIND_COUNT
    assert len(good) > 500
    assert np.mean(good) > 0.75
