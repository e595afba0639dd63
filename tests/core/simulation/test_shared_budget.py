"""Campaigns that share a budget: peers see the shared prices in the programs that they solve."""

from dataclasses import replace

import numpy as np
import pytest

from cbwk_core.baselines import Resolving
from cbwk_core.problem import Problem
from cbwk_core.simulation import shared_budget


def solved_policy():
    """A policy that has learnt two arms at a pace of ½, of which the dearer one is worth 0.75 per cost."""
    policy = Resolving(problem=Problem.of(arms=2, dimension=2, resources=1, horizon=2000, budget=1000.0))
    state, features = policy.init(), np.eye(2)[None]
    for number in range(64):
        ticket = policy.decide(state, features, [number % 2 * 0.9]).ticket
        reward, cost = ((0.75, 1.0), (0.4, 0.2), (0.0, 0.0))[ticket.arm[0]]
        state = policy.settle(policy.commit(state, ticket), ticket, [reward], [[cost]])
    return policy, state


@pytest.mark.parametrize("added", [0.1, 0.3])
def test_a_price_that_is_added_takes_the_place_of_the_own_one(added):
    """At the added price a the program asks for λ* - a: what a decision pays per cost is λ* in both."""
    policy, state = solved_policy()
    alone = policy.prices(policy.refresh(state))
    assert alone[0, 0] > 0.35
    np.testing.assert_allclose(policy.prices(policy.refresh(state, prices=[added])) + added, alone, atol=0.02)
    assert (policy.prices(policy.refresh(state, prices=[2.0])) == 0.0).all()


def test_the_program_is_solved_while_campaigns_share_a_budget(monkeypatch):
    solutions, refresh = [], Resolving.refresh

    def noted(*terms, prices):
        solutions.append(prices)
        return refresh(*terms, prices)

    monkeypatch.setattr(Resolving, "refresh", noted)
    row = replace(shared_budget.ROWS[0], rounds=50)
    shared_budget.measure(shared_budget.Task(row, "resolving", 2))
    assert len(solutions) == 2 * row.rounds
    assert all(each.shape == (2, 1) for each in solutions)
    assert solutions[-1].max() > 0.0
