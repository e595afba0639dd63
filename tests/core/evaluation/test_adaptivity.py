import numpy as np
import pytest

from cbwk_core.evaluation import FromFunction, Log, OutcomeModel, evaluate
from cbwk_core.evaluation.adaptivity import ADAPTIVE, FIXED, is_adaptive
from cbwk_core.evaluation.outcome_model import forward_batches, predict_forward
from cbwk_core.simulation.logged_world import MAX_COST, LoggedWorld, campaign_logs, greedy, learner_logs, softmax

WORLD = LoggedWorld.of(7, least=0.12)
UNIT = np.array([1.0, *MAX_COST])
RANGES = np.array([[0.0, 1.0], [0.0, 1.0], [0.0, 2.0]])


def without_probabilities(log):
    return Log.of(**{**vars(log), "probabilities": None})


def jittered(log):
    """The same log with features that never recur."""
    noise = 1e-6 * np.random.default_rng(1).random(log.features.shape)
    return Log.of(**{**vars(log), "features": log.features + noise})


@pytest.mark.parametrize("change", [lambda log: log, without_probabilities, jittered])
def test_a_fixed_policy_is_not_taken_for_one_that_learns(change):
    logs = [WORLD.log(2000, np.random.default_rng(seed)) for seed in range(20)]
    assert not any(is_adaptive(change(log)) for log in logs)


@pytest.mark.parametrize("change", [lambda log: log, without_probabilities, jittered])
@pytest.mark.parametrize("learner", [softmax, greedy])
def test_a_policy_that_learns_is_found_out(learner, change):
    logs = learner_logs(WORLD, learner, runs=5, rounds=1000, seed=1)
    assert all(is_adaptive(change(log)) for log in logs)


def drawn_by(probabilities, features, rng):
    """A log without outcomes that draws by these probabilities."""
    rounds, arms = probabilities.shape
    arm = (rng.random((rounds, 1)) > probabilities.cumsum(axis=1)).sum(axis=1).clip(max=arms - 1)
    return Log.of(
        features=features, eligible=np.ones((rounds, arms), dtype=bool), arm=arm, reward=np.zeros(rounds),
        propensity=probabilities[np.arange(rounds), arm], costs=np.zeros((rounds, 1)), probabilities=probabilities,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["sharper", "turned", "flips"])
def test_a_policy_that_learns_is_found_out_where_the_means_of_its_probabilities_stay(kind):
    rng = np.random.default_rng(1)
    x = rng.uniform(-1.0, 1.0, (2000, 1))
    late = np.linspace(0.0, 1.0, 2000)[:, None]
    first = {
        "sharper": 0.5 + 0.45 * np.sign(x) * late,  # the context decides more and more
        "turned": 0.5 + 0.4 * x * (1.0 - 2.0 * late),  # it decides the other way round in the end
        "flips": np.where(np.arange(2000)[:, None] // 50 % 2, 0.9, 0.1),  # the best arm changes now and then
    }[kind]
    assert is_adaptive(drawn_by(np.concatenate([first, 1.0 - first], axis=1), x, rng))
    fixed = 0.5 + 0.4 * x
    assert not is_adaptive(drawn_by(np.concatenate([fixed, 1.0 - fixed], axis=1), x, rng))


def test_a_campaign_is_found_out():
    assert all(is_adaptive(log) for log in campaign_logs(WORLD, runs=3, rounds=500, share=0.5, seed=1))


def test_the_answer_says_which_estimators_stay_valid():
    fixed = WORLD.log(800, np.random.default_rng(1))
    (learnt,) = learner_logs(WORLD, softmax, runs=1, rounds=800, seed=1)
    target = FromFunction(WORLD.of_context(WORLD.targets()["leaning"]))
    asked = {"rng": np.random.default_rng(1), "max_cost": MAX_COST, "replicates": 50}
    assert evaluate(fixed, target, **asked).validity == FIXED
    found = evaluate(learnt, target, **asked)
    assert (found.adaptive, found.validity) == (True, ADAPTIVE)
    assert "IPS and DR stay unbiased" in ADAPTIVE
    for estimate in (found.ips, found.snips, found.dr):
        assert (estimate.bootstrap[:, 0] <= estimate.sequence[:, 0]).all()
        assert (estimate.bootstrap[:, 1] >= estimate.sequence[:, 1]).all()
    told = evaluate(learnt, target, adaptive=False, **asked)
    assert (
        told.dr.bootstrap[:, 1] - told.dr.bootstrap[:, 0] < found.dr.bootstrap[:, 1] - found.dr.bootstrap[:, 0]
    ).all()


def test_batches_of_a_fit_along_the_log_cover_it_and_grow_with_it():
    batches = forward_batches(10_000)
    rounds = np.concatenate([np.arange(rows.start, rows.stop) for rows in batches])
    np.testing.assert_array_equal(rounds, np.arange(10_000))
    assert all(rows.stop - rows.start <= max(16, rows.start // 4) for rows in batches)


@pytest.mark.parametrize("model", [OutcomeModel(), OutcomeModel(link="logistic"), OutcomeModel(oracle="gradient")])
def test_a_fit_along_the_log_predicts_a_round_from_earlier_rounds_only(model):
    log = WORLD.log(200, np.random.default_rng(1))
    late = 120
    reward = log.reward.copy()
    reward[late:] = log.played[late:] * (1.0 - reward[late:])
    other = Log.of(**{**vars(log), "reward": reward})
    given = np.full((200, 4), 0.25) * log.eligible
    before, after = (predict_forward(each, model, UNIT, given, RANGES) for each in (log, other))
    batch = next(rows for rows in forward_batches(200) if rows.start <= late < rows.stop)
    np.testing.assert_array_equal(before.expected[: batch.stop], after.expected[: batch.stop])
    assert (before.expected[batch.stop :] != after.expected[batch.stop :]).any()


def test_a_fit_along_the_log_is_the_oracle_of_the_rounds_before():
    log = WORLD.log(150, np.random.default_rng(2))
    model = OutcomeModel()
    found = predict_forward(log, model, UNIT, log.eligible / 4.0, RANGES)
    oracle = model.build(dimension=2, targets=3, blocks=4)
    for rows in forward_batches(150):
        learnt = np.flatnonzero(log.played[: rows.start])
        x = np.concatenate([log.features, np.ones((150, 1))], axis=1)
        state = oracle.update(oracle.init(), x[learnt], log.outcomes[learnt] / UNIT, log.arm[learnt])
        predicted = np.clip(oracle.predict(state, x[rows, None]) * UNIT, RANGES[:, 0], RANGES[:, 1])
        expected = np.einsum("na,nat->nt", log.eligible[rows] / 4.0, predicted)
        np.testing.assert_allclose(found.expected[rows], expected, atol=1e-9)
