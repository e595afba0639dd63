"""When an oracle detects a change, and how it restarts."""

from functools import partial

import numpy as np
import pytest

from cbwk_core import SquareCBwK
from cbwk_core.evaluation.outcome_model import OutcomeModel
from cbwk_core.model import with_model
from cbwk_core.oracles import Newton, Product
from cbwk_core.oracles.product import changes, forgotten
from cbwk_core.oracles.watch import LEVEL_MIN, OUTCOMES_MIN, alarm_level, observe_errors
from cbwk_core.snapshot import MismatchError
from cbwk_core.ticket import Ticket


def naive_wealth(errors, leverages, pulls):
    """The largest log wealth after every outcome of a single block, each computed from the whole history."""
    rows, targets = errors.shape
    squares = errors**2 / (1.0 + leverages[:, None])
    wealth, largest = np.zeros(targets), np.zeros(rows)
    for t in range(rows):
        if leverages[t] > 0.1:
            continue
        earlier = np.flatnonzero(leverages[:t] <= 0.1)
        count = earlier.size + 1
        if count > 40:
            shares = np.array([1.0 / min(i, 100) for i in range(1, count)])
            weights = shares * np.append(np.cumprod((1.0 - shares)[::-1])[-2::-1], 1.0)
            shift = weights @ errors[earlier]
            pooled = (1.0 + squares[: t + 1].sum(axis=0)) / (t + 1)
            variance = np.maximum(squares[earlier].mean(axis=0), pooled)
            bet = np.sign(shift) * np.maximum(np.abs(shift) - pulls[t], 0.0)
            wealth = np.maximum(wealth + np.log(np.maximum(1.0 + bet * errors[t] / variance, 0.5)), 0.0)
        largest[t] = wealth.max()
    return largest


def test_incremental_wealth_equals_the_wealth_computed_from_the_whole_history():
    rng = np.random.default_rng(1)
    errors = rng.standard_normal((400, 2)) * [0.1, 3.0]
    errors[200:, 0] += 0.08
    leverages = np.where(rng.random(400) < 0.1, 0.3, 0.05)
    pulls = np.full(400, 0.004)
    row, pool = [0.0] * 7, [0.0] * 3
    rows = zip(errors.tolist(), leverages.tolist(), pulls.tolist(), strict=True)
    found = np.array([observe_errors(row, pool, *each) for each in rows])
    known = leverages <= 0.1
    np.testing.assert_allclose(found[known], naive_wealth(errors, leverages, pulls)[known], atol=1e-9)
    assert found.max() > 10.0


def test_no_alarm_level_is_below_the_smallest_one():
    rows = OUTCOMES_MIN + 1
    row, pool = [0.0] * 4, [0.0] * 2
    wealth = [observe_errors(row, pool, [1.0], 0.01, 0.0) for _ in range(rows)]
    assert not any(wealth[:-1])  # there are no bets yet
    assert wealth[-1] > 0.0
    levels = [alarm_level(count, series) for count in (*range(rows, 2_000), 1e6, 1e12) for series in (1, 2, 15, 1_000)]
    assert LEVEL_MIN <= min(levels)


def test_one_row_at_a_time_detects_the_same_change_as_all_rows_at_once():
    rng = np.random.default_rng(20)
    x, y, arm = changing_world(rng, 2_000, blocks=3)
    policy = SquareCBwK(arms=3, dimension=1, resources=1, horizon=4_000, budget=4_000, model="per_arm")
    state = policy.init()
    for row in range(2_000):
        one = slice(row, row + 1)
        state = policy.learn(state, x[one, :1], arm[one], y[one, 0], y[one, 1:])
    together = policy.regressor.update(policy.init().oracle, x, y, arm)
    assert changes(state.oracle) == changes(together) == 1
    np.testing.assert_array_equal(forgotten(state.oracle), forgotten(together))
    np.testing.assert_allclose(state.oracle.watch, together.watch, atol=1e-9)
    np.testing.assert_allclose(state.oracle.noticed, together.noticed, atol=1e-9)


def normal(rng, rows):
    return rng.standard_normal(rows)


def clicks(rng, rows, rate=0.02):
    return (rng.random(rows) < rate) - rate


def rare_and_large(rng, rows):
    return 10.0 * (rng.random(rows) < 0.1) - 1.0


def first_alarm(errors, parameters=2, series=1):
    """The index of the outcome at which a single target's errors raise an alarm, or infinity."""
    row, pool = [0.0] * 4, [0.0] * 2
    for t, error in enumerate(errors.tolist()):
        leverage = parameters / (parameters + t)
        if observe_errors(row, pool, [error], leverage, 0.3 * leverage) > alarm_level(row[0], series):
            return t
    return np.inf


@pytest.mark.parametrize("draw", [normal, clicks, partial(clicks, rate=0.01), rare_and_large])
def test_a_model_that_is_right_raises_an_alarm_in_at_most_one_of_twenty_runs(draw):
    rng = np.random.default_rng(2)
    alarms = [first_alarm(draw(rng, 2_000)) < np.inf for _ in range(150)]
    assert np.mean(alarms) <= 0.05


@pytest.mark.parametrize(("shift", "within"), [(2.0, 50), (1.0, 100), (0.5, 300)])
def test_a_larger_shift_is_detected_after_fewer_outcomes(shift, within):
    rng = np.random.default_rng(3)
    delays = []
    for _ in range(40):
        errors = 0.3 * normal(rng, 2_000)
        errors[1_000:] -= 0.3 * shift
        delays.append(first_alarm(errors, series=15) - 1_000)
    assert min(delays) >= 0
    assert np.median(delays) <= within


def test_errors_that_the_prior_explains_are_no_change():
    oracle = Newton(dimension=2, targets=2, ridge=0.3, watch=True)
    x = np.column_stack([np.random.default_rng(4).uniform(-1, 1, 3_000), np.ones(3_000)])
    state = oracle.update(oracle.init(), x, x @ np.array([[0.5, 0.0], [-0.5, 1.0]]))
    assert changes(state) == 0


def changing_world(rng, rows, blocks=1):
    """Contexts, outcomes of two targets whose parameters change halfway, and blocks."""
    x = np.column_stack([rng.uniform(-1, 1, rows), np.ones(rows)])
    before, after = np.array([[0.3, -0.1], [0.4, 0.5]]), np.array([[-0.3, 0.1], [0.7, 0.4]])
    mean = np.where(np.arange(rows)[:, None] < rows // 2, x @ before, x @ after)
    return x, mean + 0.1 * rng.standard_normal((rows, 2)), rng.integers(0, blocks, rows)


def test_after_a_change_it_is_ridge_regression_around_the_earlier_parameters():
    x, y, _ = changing_world(np.random.default_rng(5), 800)
    oracle = Newton(dimension=2, targets=2, ridge=0.3, watch=True)
    states = [oracle.init()]
    for row in range(800):
        states.append(oracle.update(states[-1], x[row : row + 1], y[row : row + 1]))
    (detected,) = np.flatnonzero(np.diff([state.changes.item() for state in states])) + 1
    assert 400 < detected < 450
    assert forgotten(states[-1]) == detected
    believed, later = states[detected].theta[0, :, 0], slice(detected, None)
    gram = x[later].T @ x[later] + 0.3 * np.eye(2)
    solved = np.linalg.solve(gram, x[later].T @ y[later] + 0.3 * believed)
    np.testing.assert_allclose(states[-1].theta[0, :, 0], solved, atol=1e-9)
    np.testing.assert_allclose(states[-1].inverse[0, 0], np.linalg.inv(gram), atol=1e-9)
    np.testing.assert_allclose(states[-1].gram[0][0], gram, atol=1e-9)


def test_all_blocks_restart_when_one_detects_a_change():
    x, y, block = changing_world(np.random.default_rng(6), 2_000, blocks=3)
    block[1_000:] = 1  # the other blocks get no more outcomes
    oracle = Newton(dimension=2, targets=2, blocks=3, ridge=0.3, watch=True)
    before = oracle.update(oracle.init(), x[:1_000], y[:1_000], block[:1_000])
    state = oracle.update(before, x[1_000:], y[1_000:], block[1_000:])
    assert before.changes == 0
    assert state.changes == 1
    for unplayed in (0, 2):
        np.testing.assert_allclose(state.inverse[0, unplayed], np.eye(2) / 0.3)
        np.testing.assert_array_equal(state.theta[0, :, unplayed], before.theta[0, :, unplayed])


def test_a_lane_that_detects_a_change_does_not_restart_the_others():
    rng = np.random.default_rng(7)
    x, y, _ = changing_world(rng, 800)
    unchanged = y.copy()
    unchanged[400:] = x[400:] @ np.array([[0.3, -0.1], [0.4, 0.5]]) + 0.1 * rng.standard_normal((400, 2))
    oracle = Newton(dimension=2, targets=2, ridge=0.3, watch=True)
    both = oracle.update(oracle.init(2), np.repeat(x, 2, axis=0), np.stack([y, unchanged], axis=1).reshape(-1, 2))
    np.testing.assert_array_equal(both.changes, [1, 0])
    for lane, outcomes in enumerate((y, unchanged)):
        alone = oracle.update(oracle.init(), x, outcomes)
        np.testing.assert_allclose(both.theta[lane], alone.theta[0], atol=1e-10)
        np.testing.assert_allclose(both.watch[lane], alone.watch[0], atol=1e-8)


def test_the_parts_of_a_product_restart_after_the_same_row_in_one_update_and_in_many():
    rng = np.random.default_rng(8)
    x = np.column_stack([rng.uniform(-1, 1, 1_500), np.ones(1_500)])
    rate = np.where(np.arange(1_500) < 750, 0.2, 0.6)
    y = (rng.random((1_500, 2)) < rate[:, None]).astype(float)
    watching = Newton(dimension=2, targets=1, link="logistic", ridge=0.3, watch=True)
    oracle = Product((watching, Newton(dimension=2, targets=1, link="logistic", ridge=0.3)))
    together = oracle.update(oracle.init(), x, y)
    one_by_one = oracle.init()
    for row in range(1_500):
        one_by_one = oracle.update(one_by_one, x[row : row + 1], y[row : row + 1])
    assert changes(together) == 1
    for part, other in zip(together.parts, one_by_one.parts, strict=True):
        assert part.changes == 1
        np.testing.assert_array_equal(part.solution, other.solution)


def policy_of(model="per_arm", **options):
    sizes = {"arms": 3, "dimension": 2, "resources": 2, "horizon": 3_000, "budget": 900.0}
    return SquareCBwK(**(sizes | {"model": model} | options))


def states_of(policy, lanes, rounds=1_500, start=None):
    """States after every round, the same in all lanes; after 900 rounds the arms or the features change places."""
    rng = np.random.default_rng(9)
    theta = np.array([[0.9, 0.1, 0.3], [0.1, 0.8, 0.5], [0.2, 0.2, 0.2]])
    states = [policy.init(lanes) if start is None else start]
    for t in range(rounds):
        x = rng.random((3, 2)) if policy.model == "shared" else rng.random(2)
        uniform, noise = rng.random(), 0.1 * rng.standard_normal(3)
        choice = policy.decide(states[-1], np.stack([x] * lanes), np.full(lanes, uniform))
        arm = choice.arm[0]
        means = np.roll(theta, t >= 900, axis=0)
        mean = means[arm] * x.mean() if policy.model == "per_arm" else x[arm] @ means[:2]
        outcome = np.stack([(mean + noise) * (arm >= 0)] * lanes)
        state = policy.commit(states[-1], choice.ticket)
        states.append(policy.settle(state, choice.ticket, outcome[:, 0], outcome[:, 1:]))
    return states


@pytest.mark.parametrize("model", ["per_arm", "shared"])
def test_one_lane_detects_a_change_in_the_same_round_as_many_lanes(model):
    policy = policy_of(model)
    alone, beside = states_of(policy, 1), states_of(policy, 2)
    np.testing.assert_array_equal(
        [policy.changes(state)[0] for state in alone], [policy.changes(state)[1] for state in beside]
    )
    assert policy.changes(alone[-1]) == 1
    assert policy.changes(alone[900]) == 0
    np.testing.assert_allclose(alone[-1].books[0], beside[-1].books[1], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(policy.quote(alone[-1]).gamma[0], policy.quote(beside[-1]).gamma[1], rtol=1e-8)


def test_exploration_restarts_with_the_model():
    policy = policy_of()
    states = states_of(policy, 1, rounds=1_100)
    detected = next(t for t, state in enumerate(states) if policy.changes(state))
    before, after = policy.quote(states[detected - 1]), policy.quote(states[detected])
    assert after.gamma < before.gamma / 10
    learnt, rounds = states[-1].learnt.item(), states[-1].round.item()
    alarmed = next(t for t, state in enumerate(states) if state.oracle.trial)
    share = (learnt + 1 - states[alarmed].learnt.item()) / (learnt + 1)
    quote = policy.quote(states[-1])
    by_hand = 4.0 * np.sqrt(4 * (rounds + 1) * share / (quote.noise[:, 0] * 9))
    np.testing.assert_allclose(quote.gamma[0], by_hand)


def test_snapshots_models_and_adopted_states_keep_the_detected_changes():
    policy = policy_of()
    state = states_of(policy, 1)[-1]
    again = policy.decode(policy.encode(state))
    np.testing.assert_array_equal(again.oracle.watch, state.oracle.watch)
    np.testing.assert_array_equal(again.oracle.noticed, state.oracle.noticed)
    moved = with_model(policy.init(), policy.decode_model(policy.encode_model(state)))
    assert policy.changes(moved) == 1
    wider = policy_of(arms=4)
    adopted = wider.adopt(policy, state)
    assert wider.changes(adopted) == 1
    np.testing.assert_array_equal(adopted.oracle.watch[:, :3], state.oracle.watch)
    assert not adopted.oracle.watch[:, 3].any()


def test_a_model_with_negative_counts_is_refused():
    policy = policy_of()
    oracle = policy.init().oracle
    for spoilt in (
        oracle._replace(noticed=oracle.noticed - 1.0),
        oracle._replace(watch=oracle.watch - 1.0),
        oracle._replace(dismissed=oracle.dismissed - 1.0),
    ):
        forged = policy.init()._replace(oracle=spoilt)
        with pytest.raises(MismatchError, match="must not be negative"):
            policy.decode_model(policy.encode_model(forged))


def test_explicit_forgetting_turns_detection_off():
    assert policy_of().regressor.watch
    for option in ({"forgetting": 0.99}, {"forgetting": 1.0}, {"preset": "paper"}, {"preset": "authors"}):
        assert not policy_of(**option).regressor.watch
    assert policy_of(forgetting=1.0).regressor.forgetting is None
    assert policy_of(forgetting=0.99).regressor.forgetting == 0.99
    assert not OutcomeModel().build(dimension=2, targets=2, blocks=1).watch


def test_with_a_logistic_link_only_the_reward_is_tested_for_changes():
    oracle = policy_of(link="logistic").regressor
    assert [part.watch for part in oracle.parts] == [True, False, False]
    assert policy_of(oracle="aggregate").changes(policy_of(oracle="aggregate").init(2)).tolist() == [0, 0]


def flat(oracle):
    return [*oracle.gram, *oracle.trial, *(part for part in oracle if not isinstance(part, tuple))]


def test_arms_added_before_or_after_the_outcomes_are_learnt_do_not_affect_detection():
    """A replay of a log adopts the newest arms first and then learns the outcomes that came before them."""
    few, many = policy_of(model="per_arm", arms=2), policy_of(model="per_arm", arms=20)
    detected = 0
    for seed in range(12):
        x, y, block = changing_world(np.random.default_rng(seed), 700, blocks=2)
        rows = len(x)
        numbers = np.zeros((rows, 3 + 3 * few.resources))
        tickets = Ticket(block, x[:, : few.dimension], numbers)
        reward, costs = y[:, 0], np.repeat(y[:, 1:], few.resources, axis=1)
        before = many.adopt(few, few.teach(few.init(), tickets, reward, costs))
        after = many.teach(many.adopt(few, few.init()), tickets, reward, costs)
        for one, other in zip(flat(before.oracle), flat(after.oracle), strict=True):
            np.testing.assert_array_equal(one, other)
        detected += int(before.oracle.changes.item())
    assert detected > 0
