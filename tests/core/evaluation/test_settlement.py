"""Many rows at once come to what they come to row by row."""

import numpy as np
import pytest

from cbwk_core import SquareCBwK
from cbwk_core.evaluation.settlement import commit_and_settle, learns_in_closed_form


def policy_of(**options):
    sizes = {"arms": 3, "dimension": 2, "resources": 2, "horizon": 400, "budget": (60.0, 90.0), "max_cost": (0.5, 2.0)}
    return SquareCBwK(**(sizes | {"model": "per_arm"} | options))


def flown(policy, step, *, batches=6, rows=40):
    """The state after some batches, by one way or the other."""
    rng, state = np.random.default_rng(3), policy.init()
    for _ in range(batches):
        shape = (rows, policy.arms, 2) if policy.model == "shared" else (rows, 2)
        x, exclude = rng.random(shape), rng.random((rows, policy.arms)) < 0.5
        choice = policy.decide(state, x, rng.random(rows), exclude=exclude)
        outcomes = rng.random((rows, 3)) * [1.0, 0.5, 2.0] * (choice.arm >= 0)[:, None]
        state = step(policy, state, choice.ticket, outcomes)
    return state


def row_by_row(policy, state, ticket, outcomes):
    return policy.settle(policy.commit(state, ticket), ticket, outcomes[:, 0], outcomes[:, 1:])


@pytest.mark.parametrize(
    ("options", "fast"),
    [
        ({}, True),
        ({"model": "shared"}, True),
        ({"retired": (1,)}, True),
        ({"oracle": "gradient"}, False),
        ({"link": "logistic"}, False),
        ({"forgetting": 0.99}, False),
        ({"preset": "paper"}, False),
    ],
)
def test_a_batch_at_once_leaves_the_state_that_its_rows_leave(options, fast):
    policy = policy_of(**options)
    assert learns_in_closed_form(policy) == fast
    one, other = flown(policy, commit_and_settle), flown(policy, row_by_row)
    np.testing.assert_allclose(one.books, other.books, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(one.residuals, other.residuals, rtol=1e-9)
    if fast:
        np.testing.assert_allclose(one.oracle.solution, other.oracle.solution, rtol=1e-7, atol=1e-10)
        np.testing.assert_allclose(np.stack(one.oracle.gram), np.stack(other.oracle.gram), rtol=1e-12)
        assert one.oracle.updates.tolist() == other.oracle.updates.tolist()
