"""A pace that the caller sets: the tighter one counts, prices follow it, plain floats and arrays agree."""

from dataclasses import replace

import numpy as np
import pytest

from cbwk_core import NULL_ARM, SquareCBwK
from cbwk_core.baselines import LagrangeCBwK, PricedThompson, PricedUCB, Resolving
from cbwk_core.problem import Problem

CLOSE = {"rtol": 1e-10, "atol": 1e-12}


def policy_of(budget=5000.0, **changes):
    terms = {
        "arms": 3,
        "dimension": 2,
        "resources": 2,
        "horizon": 1000,
        "budget": [budget, 700.0],
        "max_cost": [2.0, 1.0],
    } | changes
    return SquareCBwK(**terms, model="per_arm", paced=True)


@pytest.mark.parametrize("pace", [[0.5, 0.25], [1e9, np.inf], [0.001, 1e-6]])
def test_the_ticket_has_the_tighter_pace_in_max_costs(pace):
    policy = policy_of()
    state, features = policy.init(), np.ones((1, 2))
    own = policy.quote(state).rho[0]
    for given in (pace, np.array(pace)):
        ticket = policy.decide(state, features, np.array([0.5]), pace=given).ticket
        np.testing.assert_allclose(ticket.rho[0], np.minimum(own, np.array(pace) / [2.0, 1.0]), **CLOSE)


@pytest.mark.parametrize("pace", [[0.0, 1.0], [1.0], [np.nan, 1.0], ["1", "2"]])
def test_a_pace_that_is_none_is_refused(pace):
    policy = policy_of()
    with pytest.raises(ValueError, match="pace must be positive numbers"):
        policy.decide(policy.init(), np.ones((1, 2)), np.array([0.5]), pace=pace)


def test_one_row_in_plain_floats_does_what_rows_do():
    """A call for two rows takes the arrays; their first row is the decision of one."""
    policy, rng = policy_of(), np.random.default_rng(3)
    one = rows = policy.init()
    for _ in range(120):
        x, uniform = rng.random((1, 2)), rng.random(1)
        pace = [float(rng.uniform(0.01, 3.0)), float(rng.uniform(0.001, 2.0))]
        single = policy.decide(one, x, uniform, pace=pace)
        both = policy.decide(rows, np.repeat(x, 2, axis=0), np.repeat(uniform, 2), pace=pace)
        assert single.arm[0] == both.arm[0]
        np.testing.assert_allclose(single.ticket.numbers[0], both.ticket.numbers[0], **CLOSE)
        ticket = both.ticket.rows(slice(0, 1))
        one, rows = policy.commit(one, single.ticket), replaced(policy, rows, ticket)
        if ticket.arm[0] != NULL_ARM:
            reward, costs = rng.random(1), rng.random((1, 2))
            one = policy.settle(one, single.ticket, reward, costs)
            rows = policy.settle(rows, ticket, [reward[0]], costs.tolist())  # lists are not for plain floats
        np.testing.assert_allclose(one.books, rows.books, **CLOSE)


def replaced(policy, state, ticket):
    """Commits one row as an array: the ticket of an equal policy that has retired an arm is not for plain floats."""
    other = replace(policy, retired=())
    vars(other)["_single"] = None
    return other.commit(state, ticket)


def costs_at(policy, paces):
    """What every round costs at its pace; reward grows with cost."""
    rng, state, costs = np.random.default_rng(1), policy.init(), []
    for pace in paces:
        x = rng.random((1, 2))
        choice = policy.decide(state, x, rng.random(1), pace=pace)
        state, arm = policy.commit(state, choice.ticket), choice.arm[0]
        cost = 0.0 if arm == NULL_ARM else (0.2, 0.6, 1.6)[arm]
        costs.append(cost)
        if arm != NULL_ARM:
            reward = np.array([(0.2, 0.4, 0.8)[arm] * (0.5 + x[0, 0])])
            state = policy.settle(state, choice.ticket, reward, np.array([[cost, 0.0]]))
    return costs


def spent_at(policy, pace):
    """What a round costs on average under a pace, of the last third of the rounds."""
    return np.mean(costs_at(policy, [pace] * 600)[400:])


@pytest.mark.parametrize("budget", [2000.0, 200_000.0, 2e9])
def test_spending_follows_the_pace_whatever_the_budget(budget):
    assert spent_at(policy_of(budget=budget), [0.1, np.inf]) == pytest.approx(0.1, rel=0.3)


def test_a_policy_that_is_not_paced_keeps_its_prices():
    """Where no pace is below the own one, the tightness is that of the own pace, which starts at the even pace."""
    plain, paced = replace(policy_of(), paced=False), policy_of()
    assert plain.fingerprint != paced.fingerprint
    assert spent_at(plain, None) == pytest.approx(spent_at(paced, None), rel=0.2)


@pytest.mark.parametrize("rules", [4, 5])
def test_from_version_5_on_prices_follow_a_new_pace_however_long_the_old_one_held(rules):
    costs = costs_at(policy_of(2e9, horizon=10_000, rules=rules), [[0.1, np.inf]] * 3000 + [[0.5, np.inf]] * 400)
    assert np.mean(costs[2000:3000]) == pytest.approx(0.1, rel=0.1)
    assert (np.mean(costs[3100:]) > 0.4) == (rules == 5)


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("rules", [4, 5])
def test_from_version_5_on_prices_rest_while_nothing_can_be_paid(rules, rows):
    policy = policy_of(rules=rules)
    state = policy.init().replaced(
        position=np.array([[0.5, 0.25]]), energy=np.array([[3.0, 2.0]]), value=9.0, round=9.0
    )
    x, pace = np.full((rows, 2), 0.5), np.array([0.1, 0.1])
    choice = policy.decide(state, x, np.full(rows, 0.5), free=np.zeros(2), pace=pace)
    assert set(choice.reason) == {"budget_exhausted"}
    ticket = choice.ticket
    after = policy.settle(policy.commit(state, ticket), ticket, np.zeros(rows), np.zeros((rows, 2)))
    assert after.round[0] == 9 + rows
    assert (after.position == state.position).all() == (rules == 5)
    assert (after.position <= state.position).all()
    played = policy.decide(state, x, np.full(rows, 0.5), free=np.full(2, 9.0), pace=pace)
    assert (played.ticket.rho > 0.0).all()


@pytest.mark.parametrize("peer", [PricedUCB, PricedThompson, LagrangeCBwK, Resolving])
def test_the_prices_of_paced_peers_follow_the_pace_and_rest_while_nothing_can_be_paid(peer):
    problem = Problem.of(arms=3, dimension=2, resources=1, horizon=1000, budget=900.0)
    policy, rng, spent = peer(problem=problem, model="per_arm", paced=True), np.random.default_rng(0), []
    state = policy.init()
    for _ in range(300):
        x, pace = rng.random((1, 2)), np.array([[0.1]])
        choice = policy.decide(state, x, rng.random(1), pace=pace)
        state, arm = policy.commit(state, choice.ticket), choice.arm[0]
        cost = 0.0 if arm == NULL_ARM else (0.1, 0.3, 0.8)[arm]
        reward = np.array([0.0 if arm == NULL_ARM else (0.2, 0.4, 0.8)[arm] * (0.5 + x[0, 0])])
        state = policy.settle(state, choice.ticket, reward, np.array([[cost]]))
        state = policy.refresh(state) if policy.refresh_due(state) else state
        spent.append(cost)
    assert np.mean(spent[150:]) == pytest.approx(0.1, rel=0.5)
    before = policy.prices(state) / policy.mean_value(state)
    for _ in range(50):
        choice = policy.decide(state, rng.random((1, 2)), rng.random(1), free=np.zeros((1, 1)), pace=np.array([[0.1]]))
        assert choice.reason == ("budget_exhausted",)
        state = policy.commit(state, choice.ticket)
    if peer is not Resolving:  # its prices are those of its last program
        np.testing.assert_allclose(policy.prices(state) / policy.mean_value(state), before, rtol=1e-12)
