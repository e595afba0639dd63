"""A campaign of two stages, its outcomes, and the same decisions made by the library alone."""

from __future__ import annotations

import numpy as np

from cbwk_core import NULL_ARM, SquareCBwK
from service.domain.campaign import uniforms_of
from tests.service.engine.campaigns import config

ONE = 1_000_000
SEED, HORIZON, BUDGET = 7, 400, 150
T0 = 19  # ⌈∛(m·d)·√(T/K)⌉ = ⌈∛4·√(400/3)⌉, K with the null arm
DRAWN, LAST = 2 * T0, 3 * T0
ARMS = {"a": 0, "b": 1, None: NULL_ARM}


def staged(preset="authors", two="measured", **changes):
    policy = config()["policy"] | {"preset": preset, "two_stage": two}
    return config(budget=BUDGET, horizon=HORIZON, policy=policy, **changes)


def context_of(i):
    return [(i * 7 % 10) / 10, (i * 3 % 10) / 10]


def reward_of(i, arm):
    return float((i * 13 + arm * 5) % 7 < 4 - 2 * arm)


def usd_of(i, arm):
    """In millionths."""
    return (200_000 + 300_000 * arm) + 10_000 * (i % 5)


def library_play(preset, rounds, *, cancelled=(), expired=()):
    """The library alone with the same uniforms, a ledger of its own and no service; stage one drawn uniformly.

    What has expired is charged its hold, and teaches nothing, when all rounds of stage one are taken.
    """
    policy = SquareCBwK(
        arms=2,
        dimension=2,
        resources=2,
        horizon=HORIZON,
        budget=[BUDGET * ONE, 100_000 * ONE],
        max_cost=ONE,
        model="per_arm",
        preset=preset,
        two_stage="measured",
        stage_one="uniform",
    )
    state, made, left = policy.init(), [], np.array([BUDGET * ONE, 100_000 * ONE])
    waiting = []
    for i in range(rounds):
        if i == LAST:
            for ticket in waiting:
                state = policy.settle(state, ticket, [0.0], [[ONE, ONE]], learn=False)
        if policy.refresh_due(state):
            state = policy.refresh(state)
        choice = policy.decide(state, [context_of(i)], uniforms_of([b"%d:%d" % (SEED, i)]), free=left)
        state, arm = policy.commit(state, choice.ticket), int(choice.arm[0])
        made.append((arm, float(choice.probability[0])))
        if arm == NULL_ARM:
            continue
        if i in cancelled:
            state = policy.cancel(state, choice.ticket)
            continue
        if i in expired:
            waiting.append(choice.ticket)
            left = left - ONE
            continue
        cost = np.array([[usd_of(i, arm), ONE]])
        state = policy.settle(state, choice.ticket, [reward_of(i, arm)], cost)
        left = left - cost[0]
    return state, made


def assert_equal_play(bodies, made):
    assert [ARMS[body["arm"]] for body in bodies] == [arm for arm, _ in made]
    np.testing.assert_allclose([body["probability"] for body in bodies], [p for _, p in made], atol=1e-9)
