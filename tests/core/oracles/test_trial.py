"""An alarm goes on trial: when a restarted model replaces the old one, and when it is dropped."""

from collections import namedtuple
from dataclasses import replace

import numpy as np
import pytest

from cbwk_core import SquareCBwK, snapshot
from cbwk_core.model import with_model
from cbwk_core.oracles import Newton, Product
from cbwk_core.oracles.trial import GAIN, LEFT, LEVEL, OUTCOMES_COMPARED, with_trial
from cbwk_core.oracles.watch import alarm_level
from cbwk_core.simulation.kinds import traffic
from cbwk_core.simulation.runner import run

ORACLE = Newton(dimension=2, targets=2, ridge=0.3, watch=True, has_trials=True)
OLD, NEW = np.array([[0.3, -0.1], [0.4, 0.5]]), np.array([[-0.3, 0.1], [0.7, 0.4]])


def outcomes(rng, rows, theta=OLD):
    x = np.column_stack([rng.uniform(-1, 1, rows), np.ones(rows)])
    return x, x @ theta + 0.1 * rng.standard_normal((rows, 2))


def alarmed(oracle=ORACLE, excursion=0.15, seed=1):
    """The state right after an alarm, and the generator: errors of one sign, which end with the alarm."""
    rng = np.random.default_rng(seed)
    state = oracle.update(oracle.init(), *outcomes(rng, 400))
    for _ in range(200):
        x, y = outcomes(rng, 1)
        state = oracle.update(state, x, y + excursion)
        if state.trial or state.changes:
            return state, rng
    raise AssertionError("no alarm")


def naive_gain(old, new, state, x, y):
    """Both models run on as separate oracles without a watch, and the pool of squares as its definition says."""
    plain, gain = replace(ORACLE, watch=False, has_trials=False), 0.0
    pool = state.noticed[0, 2:].copy()
    for row in range(len(x)):
        one = x[row : row + 1]
        leverage = plain.spread(old, one)[0, 0]
        errors = [plain.predict(model, one)[0, 0] - y[row] for model in (old, new)]
        pool += [1.0, *(errors[0] ** 2 / (1.0 + leverage))]
        gain += ((errors[0] ** 2 - errors[1] ** 2) / ((1.0 + pool[1:]) / pool[0])).sum()
        old, new = (plain.update(model, one, y[row : row + 1]) for model in (old, new))
    return gain, old, new


def candidate_of(state):
    _, solution, gram = state.trial
    return state._replace(solution=solution, gram=tuple(gram.swapaxes(0, 1)), trial=())


def test_during_a_trial_both_models_learn_and_the_old_one_predicts():
    state, rng = alarmed()
    x, y = outcomes(rng, 50)
    after = ORACLE.update(state, x, y)
    gain, old, new = naive_gain(state._replace(trial=()), candidate_of(state), state, x, y)
    np.testing.assert_allclose(after.solution, old.solution, atol=1e-12)
    np.testing.assert_allclose(after.trial[1], new.solution, atol=1e-12)
    np.testing.assert_allclose(after.trial[0][0, GAIN], gain, rtol=1e-9)
    assert after.trial[0][0, LEFT] == state.trial[0][0, LEFT] - 50
    assert after.changes == 0


def test_a_trial_starts_with_the_ridge_and_the_parameters_of_the_old_model():
    state, _ = alarmed()
    record, solution, gram = state.trial
    np.testing.assert_array_equal(gram[0, 0], 0.3 * np.eye(2))
    np.testing.assert_array_equal(solution[0, 0, :2], np.eye(2) / 0.3)
    np.testing.assert_array_equal(solution[0, 0, 2:], state.solution[0, 0, 2:])
    assert record[0, LEFT] == 10 * 2 + OUTCOMES_COMPARED
    assert record[0, LEVEL] > alarm_level(40, 2)


def test_an_alarm_without_a_change_is_dismissed_and_nothing_is_forgotten():
    state, rng = alarmed()
    x, y = outcomes(rng, 10 * 2 + OUTCOMES_COMPARED)
    last = ORACLE.update(state, x[:-1], y[:-1])
    assert last.trial
    after = ORACLE.update(last, x[-1:], y[-1:])
    assert (after.trial, after.changes, after.forgotten, after.dismissed) == ((), 0, 0, 1)
    assert not after.watch.any()
    plain = replace(ORACLE, watch=False)
    np.testing.assert_allclose(after.solution, plain.update(state._replace(trial=()), x, y).solution, atol=1e-12)


def test_a_change_is_proved_and_the_outcomes_since_the_alarm_are_kept():
    state, rng = alarmed()
    before = state.noticed[0, 2]
    x, y = outcomes(rng, 100, NEW)
    for row in range(100):
        beside, state = state, ORACLE.update(state, x[row : row + 1], y[row : row + 1])
        if state.changes:
            break
    assert (state.trial, state.changes, state.dismissed, state.forgotten) == ((), 1, 0, before)
    plain, one = replace(ORACLE, watch=False), slice(row, row + 1)
    np.testing.assert_allclose(state.solution, plain.update(candidate_of(beside), x[one], y[one]).solution, atol=1e-12)


def test_every_dismissed_alarm_raises_the_level_by_the_first():
    assert alarm_level(100, 6, dismissed=2.0) == 3.0 * alarm_level(100, 6)
    state, _ = alarmed()
    rng = np.random.default_rng(1)
    again = ORACLE.update(ORACLE.init(), *outcomes(rng, 400))._replace(dismissed=np.array([1.0]))
    while not again.trial:
        x, y = outcomes(rng, 1)
        again = ORACLE.update(again, x, y + 0.15)
    assert again.trial[0][0, LEVEL] > 2.0 * alarm_level(300, 2)
    assert state.updates[0, 0] < again.updates[0, 0]


@pytest.mark.parametrize("model", ["per_arm", "shared"])
@pytest.mark.parametrize("late", [OLD, NEW])
def test_rows_one_at_a_time_all_at_once_and_in_lanes_are_equal_through_a_trial(model, late):
    policy = SquareCBwK(arms=2, dimension=1, resources=1, horizon=4_000, budget=4_000, model=model)
    rng = np.random.default_rng(3)
    parts = [outcomes(rng, 500), outcomes(rng, 60, NEW), outcomes(rng, 600, late)]
    x, y = (np.concatenate(each) for each in zip(*parts, strict=True))
    arm = rng.integers(0, 2, len(x))
    block = arm if model == "per_arm" else None
    one, tried = policy.init(), 0
    for row in range(len(x)):
        at = slice(row, row + 1)
        features = x[at, :1] if model == "per_arm" else np.stack([x[at, :1]] * 2, axis=1)
        one = policy.learn(one, features, arm[at], y[at, 0], y[at, 1:])
        tried += bool(one.oracle.trial)
    oracle = policy.regressor
    together = oracle.update(oracle.init(), x, y, block)
    twice = (np.repeat(part, 2, axis=0) for part in (x, y))
    lanes = oracle.update(oracle.init(2), *twice, None if block is None else np.repeat(block, 2))
    assert tried > 0
    assert together.changes + together.dismissed > 0
    for name in ("solution", "updates", "watch", "noticed", "dismissed"):
        found = getattr(one.oracle, name)
        np.testing.assert_array_equal(found, getattr(together, name))
        np.testing.assert_allclose(getattr(lanes, name)[1:], found, atol=1e-9)


def test_a_trial_survives_a_snapshot_and_added_arms_and_is_not_part_of_a_model():
    policy = SquareCBwK(arms=2, dimension=1, resources=1, horizon=4_000, budget=4_000, model="per_arm")
    rng, oracle = np.random.default_rng(3), policy.regressor
    parts = [outcomes(rng, 500), outcomes(rng, 120, NEW)]
    x, y = (np.concatenate(each) for each in zip(*parts, strict=True))
    rows = next(n for n in range(500, 620) if oracle.update(oracle.init(), x[:n], y[:n], np.arange(n) % 2).trial)
    state = policy.init()._replace(oracle=oracle.update(oracle.init(), x[:rows], y[:rows], np.arange(rows) % 2))
    again = policy.decode(policy.encode(state))
    for one, other in zip(again.oracle.trial, state.oracle.trial, strict=True):
        np.testing.assert_array_equal(one, other)
    wider = replace(policy, arms=3, max_cost=1.0)
    grown = wider.adopt(policy, state).oracle.trial
    np.testing.assert_array_equal(grown[1][:, :2], state.oracle.trial[1])
    np.testing.assert_array_equal(grown[1][:, 2:], wider.init().oracle.solution[:, 2:])
    moved = with_model(policy.init(), policy.decode_model(policy.encode_model(state)))
    assert moved.oracle.trial == ()
    np.testing.assert_array_equal(moved.oracle.solution, state.oracle.solution)


def test_a_state_from_before_trials_is_read_as_one_without():
    policy = SquareCBwK(arms=2, dimension=1, resources=1, horizon=4_000, budget=4_000, rules=3)
    state = policy.learn(policy.init(), np.ones((1, 2, 1)), np.array([0]), [1.0], [[0.5]])

    older = namedtuple("older", state.oracle._fields[:5])(*state.oracle[:5])
    data = snapshot.encode(state._replace(oracle=older), fingerprint=policy.fingerprint)
    assert policy.encode(policy.decode(data)) == policy.encode(state) != data


def test_rules_3_restart_at_once():
    options = {"arms": 2, "dimension": 1, "resources": 1, "horizon": 100, "budget": 100}
    assert not SquareCBwK(**options, rules=3).regressor.has_trials
    assert SquareCBwK(**options).regressor.has_trials
    state, _ = alarmed(replace(ORACLE, has_trials=False))
    assert (state.trial, state.changes, state.dismissed) == ((), 1, 0)


def test_parts_of_a_product_restart_when_the_candidate_of_one_takes_over():
    quiet = Newton(dimension=2, targets=1, ridge=0.3)
    oracle = Product((Newton(dimension=2, targets=1, ridge=0.3, watch=True, has_trials=True), quiet))
    rng = np.random.default_rng(5)
    parts = [outcomes(rng, 500), outcomes(rng, 200, NEW)]
    x, y = (np.concatenate(each) for each in zip(*parts, strict=True))
    state = oracle.update(oracle.init(), x, y)
    assert [part.changes.item() for part in state.parts] == [1, 1]
    assert state.dismissed == 0


def test_a_stationary_world_with_phases_is_seldom_taken_for_one_that_changes():
    """The linear model cannot represent the world. Rules 4 put its alarms on trial, rules 3 restart at each of them."""
    horizon, seeds = 4_000, range(900, 908)
    worlds = [traffic(seed, horizon) for seed in seeds]
    policy = SquareCBwK(
        arms=4, dimension=8, resources=1, horizon=horizon, budget=0.2 * horizon, model="per_arm", rules=4
    )
    restarts, dismissed = {}, {}
    for name, rules in (("trials", 4), ("at once", 3)):
        last = replace(policy, rules=rules)
        spy = _LastState(last)
        run(spy, worlds, horizon=horizon, budget=0.2 * horizon, seeds=seeds)
        restarts[name] = last.changes(spy.state).sum()
        dismissed[name] = last.dismissed_alarms(spy.state).sum()
    assert restarts["trials"] <= restarts["at once"] / 2
    assert dismissed["trials"] > 0
    assert dismissed["at once"] == 0


class _LastState:
    """A policy that remembers the state after its last outcome."""

    def __init__(self, policy):
        self.policy, self.state = policy, None

    def __getattr__(self, name):
        return getattr(self.policy, name)

    def settle(self, state, *rest):
        self.state = self.policy.settle(state, *rest)
        return self.state


def test_a_restart_that_another_oracle_asks_for_ends_the_trial():
    oracle = Newton(dimension=1, targets=1, watch=True, has_trials=True)
    state = with_trial(oracle.init().writable({0}), 0, oracle.ridge, 5.0).frozen()
    assert state.trial
    after = oracle.restart(state, 0)
    assert not after.trial
    assert after.dismissed.item() == 0.0
