"""Must play: every request gets an arm as long as one can be paid, and the floor's money stays in reserve."""

from dataclasses import replace
from fractions import Fraction
from math import log, sqrt
from statistics import fmean, pvariance

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbwk_core import NULL_ARM, SquareCBwK
from cbwk_core.presets import RESERVE_RISK
from cbwk_core.rules import reserve
from cbwk_core.ticket import ALL_EXCLUDED, BUDGET_EXHAUSTED, ENDED, POLICY

HOLDS = [[4.0], [20.0], [300.0]]


def policy_of(**changes):
    terms = {"arms": 3, "dimension": 2, "resources": 1, "horizon": 60, "budget": 400.0, "max_cost": HOLDS}
    terms |= {"model": "per_arm", "must_play": True, "floor_arm": 0}
    return SquareCBwK(**(terms | changes))


def slow_reserve(costs, rounds, delay, hold):
    """The reserve of one resource from the list of known costs, by the standard library."""
    known = [*costs, hold]
    mean, variance = fmean(known), pvariance(known)
    risk = log(1 / RESERVE_RISK)
    bound = mean * rounds + sqrt(2 * risk * variance * (rounds + rounds**2 / len(known))) + hold * risk / 3
    for at in range(round(rounds)):
        bound += max(hold - mean, 0.0) * min(1.0, max(0.0, 1 + delay - at))
    return min(bound, sum(max(hold, mean) for _ in range(round(rounds))))


def fast_reserve(costs, rounds, delay, hold):
    one = np.ones((1, 1))
    known = reserve.moments(len(costs) * one, sum(costs) * one, sum(c * c for c in costs) * one, hold * one)
    return reserve.reserve(rounds * one, delay * one, known, hold * one).item()


@settings(max_examples=50, deadline=None)
@given(st.floats(0.1, 50.0), st.lists(st.floats(0.0, 1.0), max_size=30), st.integers(0, 200), st.floats(0.0, 300.0))
def test_the_reserve_is_that_of_a_slow_independent_one(hold, shares, rounds, delay):
    costs = [share * hold for share in shares]
    expected = slow_reserve(costs, rounds, delay, hold)
    assert fast_reserve(costs, rounds, delay, hold) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("known", "rounds"), [(20, 500), (200, 200), (1_000, 1_000)])
def test_the_reserve_pays_skewed_costs_but_for_its_risk(known, rounds):
    rng = np.random.default_rng(known)
    costs = 4.0 * rng.random((300, known + rounds)) ** 4
    enough = [fast_reserve(run[:known].tolist(), rounds, 0.0, 4.0) >= run[known:].sum() for run in costs]
    assert enough.count(False) <= 1


def test_the_reserve_of_an_arm_with_equal_costs_is_little_more_than_they_are():
    assert 1_000 < fast_reserve([1.0] * 5_000, 1_000, 0.0, 4.0) < 1_030


def played(policy, requests, *, seed, delay=0):
    """Plays requests at random costs; yields the choice, what was free before it, and the state before it."""
    rng, state, waiting = np.random.default_rng(seed), policy.init(), []
    spent, held = 0.0, 0.0
    for _ in range(requests):
        x = rng.normal(size=(1, 2))
        choice = policy.decide(state, x, rng.random(1))
        yield choice, policy.problem.budget[0] - spent - held, state
        state = policy.commit(state, choice.ticket)
        held += choice.ticket.hold[0, 0]
        waiting.append((choice, rng.random() ** 2))
        while len(waiting) > delay:
            known, share = waiting.pop(0)
            cost = known.ticket.hold * share
            state = policy.settle(state, known.ticket, [rng.random()], cost)
            spent, held = spent + cost.item(), held - known.ticket.hold.item()


@pytest.mark.parametrize("delay", [0, 7])
@pytest.mark.parametrize("budget", [30.0, 120.0, 400.0, 5_000.0])
def test_null_is_given_only_where_no_arm_can_be_paid(budget, delay):
    for seed in range(1):
        for choice, free, _ in played(policy_of(budget=budget), 60, seed=seed, delay=delay):
            arm, payable = choice.arm.item(), free >= min(hold for (hold,) in HOLDS)
            assert (arm != NULL_ARM) == payable
            assert choice.probabilities[0, -1] == (not payable)
            assert choice.probabilities.sum() == pytest.approx(1.0)
            assert (choice.probabilities >= 0).all()
            assert choice.probability.item() == choice.probabilities[0, arm] > 0
            assert choice.reason == ((POLICY if payable else BUDGET_EXHAUSTED),)


@pytest.mark.parametrize("delay", [0, 7])
def test_an_arm_has_a_chance_exactly_where_its_hold_leaves_the_reserve(delay):
    policy, masked = policy_of(budget=245.0), 0
    for choice, free, state in played(policy, 60, seed=5, delay=delay):
        rest = 59 - state.round.item()
        waited = (state.waited / max(state.settled.item(), 1)).item()
        known, total, squares = (state.floor[0] * [1.0, 300.0, 300.0**2]).tolist()
        costs = (known * np.ones((1, 1)), total * np.ones((1, 1)), squares * np.ones((1, 1)))
        hold = np.full((1, 1), 4.0)
        kept = reserve.reserve(np.full((1, 1), rest), np.full((1, 1), waited), reserve.moments(*costs, hold), hold)
        back = max((state.held - state.predicted * 300.0).item(), 0.0) * min(1.0, rest / max(waited, 1.0))
        spare = min(free + back - kept.item(), free - 4.0 * (rest > 0))
        fits = np.array([hold <= spare + 1e-6 for (hold,) in HOLDS])
        expected = [True, fits[1], fits[2]] if free >= 4.0 else [False] * 3
        assert ((choice.probabilities[0, :-1] > 0) == expected).all()
        masked += not fits[1]
    assert 0 < masked < 60


def test_a_request_that_excludes_the_floor_gets_the_cheapest_arm_whatever_the_reserve():
    policy, uniform = policy_of(budget=100.0), [0.7]
    state, x = policy.init(), np.ones((1, 2))
    assert policy.decide(state, x, uniform).probabilities.tolist() == [[1.0, 0.0, 0.0, 0.0]]
    choice = policy.decide(state, x, uniform, exclude=np.array([[True, False, False]]))
    assert choice.probabilities.tolist() == [[0.0, 1.0, 0.0, 0.0]]
    nothing = policy.decide(state, x, uniform, exclude=np.array([[True, True, False]]))
    assert (nothing.arm.item(), nothing.reason) == (NULL_ARM, (BUDGET_EXHAUSTED,))
    everything = policy.decide(state, x, uniform, exclude=np.ones((1, 3), dtype=bool))
    assert (everything.arm.item(), everything.reason) == (NULL_ARM, (ALL_EXCLUDED,))
    rich = policy_of(budget=50_000.0)
    open_to_both = rich.decide(rich.init(), x, uniform, exclude=np.array([[True, False, False]]))
    assert open_to_both.probabilities.tolist() == [[0.0, 1.0, 0.0, 0.0]]


def test_after_the_last_round_everything_is_null():
    policy = policy_of(horizon=1)
    state = policy.commit(policy.init(), policy.decide(policy.init(), np.ones((1, 2)), [0.5]).ticket)
    choice = policy.decide(state, np.ones((1, 2)), [0.5])
    assert (choice.arm.item(), choice.reason, choice.probability.item()) == (NULL_ARM, (ENDED,), 1.0)


def test_requests_of_one_call_share_what_is_free_and_what_is_spare():
    policy = policy_of(budget=22.0, horizon=5)
    choice = policy.decide(policy.init(), np.ones((7, 2)), np.full(7, 0.99))
    assert choice.arm.tolist() == [0, 0, 0, 0, 0, NULL_ARM, NULL_ARM]
    assert choice.reason == (*[POLICY] * 5, ENDED, ENDED)
    dear = policy_of(budget=4.0 * 59 + 30.0).decide(policy_of().init(), np.ones((30, 2)), np.full(30, 0.9))
    assert dear.ticket.hold.sum() <= 4.0 * 59 + 30.0
    assert set(dear.arm.tolist()) <= {0, 1}


def test_the_caller_can_keep_more_free_and_say_which_candidate_is_the_floor():
    policy = policy_of(budget=50_000.0)
    state, x = policy.init(), np.ones((1, 2))
    assert (policy.decide(state, x, [0.5]).probabilities[0, :2] > 0).all()
    assert policy.decide(state, x, [0.5], kept=[49_990.0]).probabilities.tolist() == [[1.0, 0.0, 0.0, 0.0]]
    assert policy.decide(state, x, [0.5], kept=[49_999.0], floor=2).probabilities.tolist() == [[0.0, 0.0, 1.0, 0.0]]
    for wrong in ({"floor": 3}, {"floor": -2}, {"floor": True}, {"kept": [1.0, 2.0]}, {"kept": ["a"]}):
        with pytest.raises(ValueError, match=f"^{next(iter(wrong))} must"):
            policy.decide(state, x, [0.5], **wrong)
    plain = policy_of(must_play=False, floor_arm=None)
    for needless in ({"floor": 0}, {"kept": [1.0]}):
        with pytest.raises(ValueError, match="must_play"):
            plain.decide(plain.init(), x, [0.5], **needless)


def test_the_reserve_of_a_policy_is_in_the_units_of_its_caller():
    policy = policy_of()
    *_, (_, _, state) = played(policy, 20, seed=1)
    known = state.floor * [1.0, 300.0, 300.0**2]
    moments = reserve.moments(known[:, :1], known[:, 1:2], known[:, 2:], np.array([[4.0]]))
    expected = reserve.reserve(np.full((1, 1), 30.0), np.zeros((1, 1)), moments, np.array([[4.0]]))
    assert policy.reserve(state, 30).item() == pytest.approx(expected.item())
    for rounds in (-1, np.inf, True, "3", None):
        with pytest.raises(ValueError, match="rounds must"):
            policy.reserve(state, rounds)
    plain = policy_of(must_play=False, floor_arm=None)
    with pytest.raises(ValueError, match="must_play"):
        plain.reserve(plain.init(), 3)


def test_without_outcomes_the_policy_plays_its_floor_where_it_would_wait():
    policy = policy_of(horizon=1_000, budget=100_000.0, max_cost=[[4.0], [200.0], [300.0]])
    state, x = policy.init(), np.ones((1, 2))
    for _ in range(30):
        state = policy.commit(state, policy.decide(state, x, [0.3]).ticket)
    shares = policy.decide(state, x, [0.3]).probabilities[0]
    assert shares[-1] == 0
    assert shares[0] >= 1 - policy.problem.rho.item()


def test_one_settlement_after_another_gives_the_books_of_all_at_once():
    policy, rng = policy_of(horizon=500, budget=9_000.0), np.random.default_rng(3)
    ticket = policy.decide(policy.init(), rng.normal(size=(20, 2)), rng.random(20)).ticket
    rewards, costs = rng.random(20), ticket.hold * rng.random((20, 1))
    state = policy.commit(policy.init(), ticket)
    at_once, one_by_one = policy.settle(state, ticket, rewards, costs), policy.init()
    for row in range(20):
        one_by_one = policy.commit(one_by_one, ticket.rows(slice(row, row + 1)))
    np.testing.assert_array_equal(one_by_one.books, state.books)
    for row in range(20):
        part = slice(row, row + 1)
        one_by_one = policy.settle(one_by_one, ticket.rows(part), rewards[part], costs[part])
    np.testing.assert_allclose(one_by_one.books, at_once.books, rtol=1e-13)
    of_floor = ticket.arm == 0
    assert at_once.floor[0, 0] == of_floor.sum() > 0
    assert at_once.floor[0, 1] * 300.0 == pytest.approx(costs[of_floor].sum())


def test_lanes_are_separate_runs():
    policy, rng = policy_of(budget=300.0), np.random.default_rng(4)
    both, apart = policy.init(2), [policy.init(), policy.init()]
    for _ in range(40):
        x, u, rewards, shares = rng.normal(size=(2, 2)), rng.random(2), rng.random(2), rng.random((2, 1))
        choice = policy.decide(both, x, u)
        both = policy.settle(policy.commit(both, choice.ticket), choice.ticket, rewards, choice.ticket.hold * shares)
        for lane in range(2):
            part, state = slice(lane, lane + 1), apart[lane]
            one = policy.decide(state, x[part], u[part])
            assert one.arm.item() == choice.arm[lane]
            costs = one.ticket.hold * shares[part]
            apart[lane] = policy.settle(policy.commit(state, one.ticket), one.ticket, rewards[part], costs)
    np.testing.assert_allclose(both.books, np.concatenate([state.books for state in apart]), rtol=1e-9)


def test_learn_is_commit_then_settle():
    policy, x = policy_of(), np.array([[0.3, 1.0]])
    choice = policy.decide(policy.init(), x, [0.5])
    apart = policy.settle(policy.commit(policy.init(), choice.ticket), choice.ticket, [0.5], [[1.5]])
    np.testing.assert_array_equal(policy.learn(policy.init(), x, choice.arm, [0.5], [[1.5]]).books, apart.books)


def test_shared_models_learn_from_candidates_that_are_not_the_arms():
    policy, x = policy_of(model="shared", floor_arm=2), np.ones((1, 2, 2))
    choice = policy.decide(policy.init(), x, [0.5], holds=np.full((1, 2, 1), 4.0))
    assert choice.arm.item() == 0
    after = policy.learn(policy.init(), x, choice.arm, [0.5], [[1.5]])
    assert (after.value.item(), after.floor[0, 0], after.spent.item()) == (0.0, 0.0, 1.5)


def test_a_snapshot_keeps_what_is_known_of_the_floor_and_fits_no_other_policy():
    policy = policy_of()
    *_, (_, _, state) = played(policy, 20, seed=1)
    read = policy.decode(policy.encode(state))
    np.testing.assert_array_equal(read.books, state.books)
    assert read.floor[0, 0] > 0
    for other in (replace(policy, must_play=False, floor_arm=None), replace(policy, floor_arm=1)):
        with pytest.raises(ValueError, match="configuration"):
            other.decode(policy.encode(state))


def test_a_policy_without_must_play_has_the_books_and_the_fingerprint_that_it_had():
    plain = policy_of(must_play=False, floor_arm=None)
    assert plain.init().books.shape == (1, 12)
    assert "floor" not in plain.fingerprint
    assert policy_of().init().books.shape == (1, 15)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"floor_arm": None}, "needs a floor_arm"),
        ({"floor_arm": 3}, "one of the 3 arms"),
        ({"floor_arm": -1}, "one of the 3 arms"),
        ({"floor_arm": True}, "one of the 3 arms"),
        ({"must_play": False}, "needs must_play"),
        ({"must_play": 1}, "needs must_play"),
        ({"retired": (0,)}, "not retired"),
        ({"preset": "paper", "max_cost": 1.0}, "practical"),
        ({"preset": "authors", "max_cost": 1.0}, "practical"),
        ({"rules": 3}, "practical"),
    ],
)
def test_a_floor_that_cannot_be_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        policy_of(**changes)


def test_other_max_costs_and_arms_keep_what_is_known_of_the_floor():
    older = policy_of()
    *_, (_, _, state) = played(older, 20, seed=1)
    newer = policy_of(
        arms=4, budget=900.0, max_cost=[[6.0], *HOLDS[1:], [10.0]], unit=[300.0], arm_unit=[*HOLDS, [10.0]]
    )
    adopted = newer.adopt(older, state)
    np.testing.assert_array_equal(adopted.floor, state.floor)
    assert newer.decide(adopted, np.ones((1, 2)), [0.5]).arm.item() != NULL_ARM


def test_arms_are_weighed_by_what_they_earn_beyond_the_floor():
    """At the same prices a reward that all arms share changes nothing, nor does it raise the prices."""
    found = []
    for shift in (0.0, 0.5):
        policy, rng = policy_of(horizon=200, budget=1_500.0, arms=2, max_cost=HOLDS[:2]), np.random.default_rng(8)
        state, plays = policy.init(), 0
        for _ in range(200):
            choice = policy.decide(state, np.ones((1, 2)), rng.random(1))
            arm = choice.arm.item()
            plays += arm == 1
            cost = choice.ticket.hold * 0.5
            reward = shift + 0.4 * arm
            state = policy.settle(policy.commit(state, choice.ticket), choice.ticket, [reward], cost)
        found.append((plays, state.value.item()))
    (plays, value), (shifted, shifted_value) = found
    fluid = Fraction(1_500 - 200 * 2, 8)  # of 200 rounds, at 2 a floor play and 10 a play of the other
    assert abs(plays - fluid) < 0.2 * fluid
    assert abs(shifted - fluid) < 0.2 * fluid
    assert shifted_value < 1.5 * value
