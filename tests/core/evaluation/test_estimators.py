import csv
import json
from pathlib import Path

import numpy as np
import pytest

from cbwk_core.evaluation import FixedArm, FromFunction, Log, evaluate
from cbwk_core.simulation.logged_world import MAX_COST, LoggedWorld

HERE = Path(__file__).parent
OPEN_BANDIT = json.loads((HERE / "open_bandit.json").read_text(encoding="utf-8"))
POSITIONS = 3


def open_bandit(policy):
    with (HERE / f"open_bandit_{policy}.csv").open(encoding="utf-8") as file:
        rows = np.array([[float(each) for each in row.values()] for row in csv.DictReader(file)])
    return rows[:, 0].astype(np.int64), rows[:, 1].astype(np.int64), rows[:, 2], rows[:, 3]


@pytest.mark.parametrize("policy", ["random", "bts"])
@pytest.mark.parametrize("estimator", ["ips", "snips", "dr"])
def test_estimates_of_reward_and_cost_on_the_open_bandit_logs_are_those_of_obp(policy, estimator):
    item, position, click, propensity = open_bandit(policy)
    known = OPEN_BANDIT["logs"][policy]
    target = np.array(OPEN_BANDIT["target"])[:, position].T
    rates, price = np.array(known["predicted"]), (1.0 + np.arange(POSITIONS)) / POSITIONS
    log = Log.of(
        features=np.zeros((item.size, 1)),
        eligible=np.ones((item.size, 34), dtype=bool),
        arm=item,
        propensity=propensity,
        reward=click,
        costs=(click * price[position])[:, None],
    )
    found = evaluate(
        log,
        FromFunction(lambda features, eligible: target),
        rng=np.random.default_rng(1),
        model=np.stack([rates[:, position].T, (rates * price)[:, position].T], axis=2),
        replicates=10,
    )
    theirs = [known["figures"][outcome][estimator] for outcome in ("reward", "cost")]
    np.testing.assert_allclose(getattr(found, estimator).value, theirs, rtol=0, atol=1e-8)


def test_estimates_are_the_sums_of_the_textbook_taken_round_by_round():
    world = LoggedWorld.of(2)
    log = world.log(300, np.random.default_rng(4))
    q = np.random.default_rng(5).random((300, 4, 3))
    found = evaluate(log, FixedArm(1), rng=np.random.default_rng(1), model=q, max_cost=MAX_COST, replicates=10)
    ips, weights, mass, dr = np.zeros(3), 0.0, 0.0, np.zeros(3)
    for t in range(300):
        plays = log.eligible[t, 1]
        matches = plays and log.arm[t] == 1
        outcome = np.array([log.reward[t], *log.costs[t]])
        w = 1.0 / log.propensity[t] if matches else 0.0
        ips += w * outcome
        weights += w
        mass += plays
        dr += plays * q[t, 1] + w * (outcome - q[t, 1])
    np.testing.assert_allclose(found.ips.value, ips / 300)
    np.testing.assert_allclose(found.snips.value, ips / weights * mass / 300)
    np.testing.assert_allclose(found.dr.value, dr / 300)


def test_playing_as_the_log_did_earns_what_the_log_earned():
    world = LoggedWorld.of(2)
    log = world.log(500, np.random.default_rng(4))
    found = evaluate(
        log,
        FromFunction(world.of_context(world.logging)),
        rng=np.random.default_rng(1),
        max_cost=MAX_COST,
        replicates=10,
    )
    np.testing.assert_allclose(found.ips.value, log.outcomes.mean(axis=0))
    assert found.overlap.effective == log.rounds, "Σ_a π²/p is the mass, at most 1"
    assert found.cautions == ()


@pytest.mark.parametrize("estimator", ["ips", "snips", "dr"])
def test_the_mean_over_many_logs_is_the_truth(estimator):
    world = LoggedWorld.of(6)
    target = world.targets()["leaning"]
    answers = []
    for seed in range(60):
        log = world.log(1000, np.random.default_rng(seed))
        policy = FromFunction(world.of_context(target))
        found = evaluate(log, policy, rng=np.random.default_rng(1), max_cost=MAX_COST, replicates=2)
        answers.append(getattr(found, estimator).value)
    error = np.std(answers, axis=0) / np.sqrt(60)
    assert (np.abs(np.mean(answers, axis=0) - world.truth(target)) < 4.0 * error).all()


def test_the_standard_error_is_the_spread_over_many_logs():
    world = LoggedWorld.of(6)
    target = world.targets()["fixed arm"]
    answers = {"ips": [], "snips": [], "dr": []}
    errors = {"ips": [], "snips": [], "dr": []}
    for seed in range(100):
        log = world.log(1000, np.random.default_rng(seed))
        policy = FromFunction(world.of_context(target))
        found = evaluate(log, policy, rng=np.random.default_rng(1), max_cost=MAX_COST, replicates=2)
        for name, values in answers.items():
            values.append(getattr(found, name).value)
            errors[name].append(getattr(found, name).error)
    for name, values in answers.items():
        np.testing.assert_allclose(np.mean(errors[name], axis=0), np.std(values, axis=0), rtol=0.25)
