import numpy as np
import pytest

from cbwk_core.evaluation import FromFunction, Interval, RunOut, evaluate, run_out_sentence
from cbwk_core.evaluation.run_out import run_out
from cbwk_core.simulation.logged_world import MAX_COST, LoggedWorld


def end(rows, budget, horizon=None, replicates=200):
    rng = np.random.default_rng(1)
    return run_out(rows, np.array(budget), horizon or len(rows), level=0.95, replicates=replicates, rng=rng)


def walked(rows, budget):
    """The share of the rounds and the reward before the first that would overspend, one round after another."""
    spent, reward = np.zeros(len(budget)), 0.0
    for t, (earned, *costs) in enumerate(rows):
        if (spent + costs > budget).any():
            return t / len(rows), reward
        spent, reward = spent + costs, reward + earned
    return 1.0, reward


@pytest.mark.parametrize("budget", [[90.0, 500.0], [300.0, 60.0], [250.0, 249.0], [1e9, 1e9]])
def test_the_end_is_where_walking_round_by_round_arrives(budget):
    rows = np.random.default_rng(2).random((1000, 3)) * np.linspace(0.2, 1.0, 1000)[:, None]
    share, reward = walked(rows, np.array(budget))
    found = end(rows, budget)
    assert found.share.value == pytest.approx(share, abs=0.003)
    assert found.reward.value == pytest.approx(reward, abs=2.0)
    assert found.share.lower <= share <= found.share.upper


def test_the_resource_that_ends_first_is_named():
    rows = np.tile([1.0, 0.5, 0.25], (1000, 1))
    assert end(rows, [400.0, 100.0]).resource == 1
    assert end(rows, [100.0, 400.0]).resource == 0
    lasting = end(rows, [600.0, 600.0])
    assert (lasting.resource, lasting.lasts, lasting.share.value, lasting.reward.value) == (None, 1.0, 1.0, 1000.0)


def test_a_short_log_stands_for_the_whole_flight():
    rows = np.tile([1.0, 0.5], (100, 1))
    found = end(rows, [250.0], horizon=1000)
    assert found.share.value == pytest.approx(0.5)
    assert found.reward.value == pytest.approx(500.0)


def test_the_reward_is_one_that_the_flight_can_earn():
    rng = np.random.default_rng(3)
    rows = np.stack([rng.normal(1.5, 3.0, 40), np.full(40, 0.5)], axis=1)  # as weights of few rounds give them
    found = run_out(
        rows, np.array([10.0]), 40, level=0.95, replicates=200, rng=rng, reward_range=(0.0, 1.0)
    )  # fmt: skip
    assert found.share.value == pytest.approx(0.5)
    assert found.reward.value == pytest.approx(20.0)
    assert 0.0 <= found.reward.lower <= found.reward.value <= found.reward.upper <= 40.0


def test_no_budget_ends_at_once():
    assert end(np.tile([1.0, 0.5], (100, 1)), [0.0]).share.value == pytest.approx(0.0)


def test_intervals_hold_the_true_end_about_as_often_as_they_say():
    world = LoggedWorld.of(5)
    target = world.targets()["leaning"]
    reward, first, _ = world.truth(target)
    budget = 0.6 * first * 1000
    hits = []
    for seed in range(40):
        log = world.log(1000, np.random.default_rng(seed))
        found = evaluate(
            log, FromFunction(world.of_context(target)), rng=np.random.default_rng(seed), max_cost=MAX_COST,
            budget=[budget, 1e9], replicates=300,
        ).run_out  # fmt: skip
        truth = {"share": 0.6, "reward": 0.6 * reward * 1000}
        hits.append(
            [getattr(found, name).lower <= value <= getattr(found, name).upper for name, value in truth.items()]
        )
    assert (np.mean(hits, axis=0) > 0.95 - 4.0 * np.sqrt(0.95 * 0.05 / 40)).all()


def test_the_answer_says_when_and_what_until_then():
    spent = RunOut(Interval(0.62, 0.58, 0.66), Interval(812.0, 790.0, 835.0), 0, 0.0)
    assert run_out_sentence(spent) == (
        "Under these budgets this policy would have run out of resource 0 at 62 % (58–66 %) of the flight; "
        "expected reward until then: 812 (790–835)."
    )
    lasting = RunOut(Interval(1.0, 0.97, 1.0), Interval(900.0, 850.0, 950.0), None, 0.8)
    assert run_out_sentence(lasting) == (
        "Under these budgets this policy would have lasted the flight; expected reward: 900 (850–950)."
    )
