"""The two stages of Algorithm 2 during a run: what is played, when stage one ends, what is refused."""

from itertools import product

import numpy as np
import pytest

from cbwk_core import SquareCBwK
from tests.core.test_policy import MODELS, arrays_in, assert_same, decided, features_of, played


def two_stages(preset="authors", mode=True, **other):
    """T0 is ⌈∛(2·1)·√(300/3)⌉ = 13: 26 rounds for the arms, 13 for contexts."""
    sizes = {"arms": 2, "dimension": 2, "resources": 1, "horizon": 300, "budget": 150.0}
    return SquareCBwK(**{**sizes, "preset": preset, "two_stage": mode, **other})


@pytest.mark.parametrize(
    ("preset", "model", "mode"), [*product(("paper", "authors"), MODELS, (True, "paper", "measured"))]
)
def test_stage_one_ends_when_the_last_of_its_decisions_is_settled_or_cancelled(preset, model, mode):
    policy = two_stages(preset, mode, model=model)
    rng, state, waiting = np.random.default_rng(24), policy.init(), []
    for t in range(45):
        choice, state = decided(policy, state, rng)
        turn = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]][t // 13 % 2] if preset == "paper" else [0.5, 0.5, 0.0]
        if t < 39:
            np.testing.assert_array_equal(choice.probabilities[0], turn if t < 26 else [0.0, 0.0, 1.0])
        waiting.append((t, choice.ticket))
    rng.shuffle(waiting)
    for i in range(45):
        stage_one_open = [t for t, _ in waiting if t < 26]
        assert policy.refresh_due(state) is (not stage_one_open)
        if stage_one_open:
            with pytest.raises(ValueError, match="stage one is not over"):
                policy.refresh(state)
        if i == 20:  # in the middle of stage one
            state = policy.decode(policy.encode(state))
        _, ticket = waiting.pop()
        if i % 5 == 4:
            state = policy.cancel(state, ticket)
        else:
            state = policy.settle(state, ticket, [0.5], [[0.25]])
    refreshed = policy.refresh(state)
    assert not policy.refresh_due(refreshed)
    assert not any(array.flags.writeable for array in arrays_in(refreshed))
    left = 150.0 - state.spent[0, 0]
    np.testing.assert_allclose(policy.quote(refreshed).rho, [[left / (300 - 45)]])
    assert 0.0 < refreshed.stage.radius[0] <= 2.0
    assert refreshed.stage.radius[0] == 2.0 or mode != "paper"  # M(T0) exceeds 1 at this size, so Z is T/B
    fresh = policy.init().oracle if preset == "paper" else state.oracle
    assert_same(refreshed.oracle, fresh)
    assert policy.decide(refreshed, features_of(policy, rng), [0.5]).reason == ("policy",)


@pytest.mark.parametrize("preset", ["paper", "authors"])
def test_a_state_decoded_in_the_middle_of_stage_one_ends_it_the_same(preset):
    policy = two_stages(preset)
    ends = []
    for stop in (None, 20, 33):
        rng, state = np.random.default_rng(25), policy.init()
        for t in range(60):
            if t == stop:
                state = policy.decode(policy.encode(state))
            if policy.refresh_due(state):
                state = policy.refresh(state)
            state = played(policy, rng, 1, state)
        ends.append(policy.encode(state))
    assert ends[0] == ends[1] == ends[2]


def test_stage_one_draws_uniformly_among_the_arms_that_may_be_played_or_waits_for_the_arm_whose_turn_it_is():
    x, first_excluded = np.full((1, 2, 2), 0.5), [[True, False]]
    for preset, odds in (("authors", [0.0, 1.0, 0.0]), ("paper", [0.0, 0.0, 1.0])):
        policy = two_stages(preset)
        choice = policy.decide(policy.init(), x, [0.3], exclude=first_excluded)
        assert choice.probabilities[0].tolist() == odds


def test_stage_one_without_a_single_play_still_ends():
    policy = two_stages(mode="measured")
    state, nothing = policy.init(), np.full((39, 2), True)
    choice = policy.decide(state, np.full((39, 2, 2), 0.5), np.zeros(39), exclude=nothing)
    state = policy.commit(state, choice.ticket)
    assert policy.refresh_due(state)
    assert policy.refresh(state).stage.running.all()


def test_two_stages_refuse_what_they_cannot_do():
    with pytest.raises(ValueError, match="practical"):
        two_stages("practical")
    with pytest.raises(ValueError, match=r"budget above \(K \+ 2\)·T0 = 65 max costs, got 65"):
        two_stages(budget=65.0)
    with pytest.raises(ValueError, match="oracle must have"):
        two_stages(mode="paper", oracle=two_stages().regressor)  # one block, where stage one needs one for each arm
    policy = two_stages()
    with pytest.raises(ValueError, match="features must be of the 2 arms during stage one, got 3 candidates"):
        policy.decide(policy.init(), np.zeros((1, 3, 2)), [0.5])
