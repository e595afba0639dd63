import numpy as np
import pytest

from cbwk_core.evaluation import Log, OutcomeModel
from cbwk_core.evaluation.outcome_model import cross_fit, fold_of, predict_rows, with_constant
from cbwk_core.simulation.logged_world import MAX_COST, LoggedWorld

UNIT = np.array([1.0, *MAX_COST])


def shared_log(rng, rounds=120):
    arm = rng.integers(3, size=rounds)
    return Log.of(
        features=rng.random((rounds, 3, 4)),
        eligible=np.ones((rounds, 3), dtype=bool),
        arm=arm,
        propensity=np.full(rounds, 1 / 3),
        reward=rng.random(rounds),
        costs=rng.random((rounds, 2)),
    )


@pytest.mark.parametrize("model", ["per_arm", "shared"])
def test_the_closed_form_is_where_the_oracle_arrives_row_by_row(model):
    rng = np.random.default_rng(1)
    log = shared_log(rng) if model == "shared" else LoggedWorld.of(1).log(200, rng)
    fitted = cross_fit(log, OutcomeModel(folds=3), UNIT)
    fold, played = fold_of(log.rounds, 3), log.played
    for k, state in enumerate(fitted.states):
        oracle = fitted.oracle
        rows = np.flatnonzero(played & (fold != k))
        block = log.arm[rows] if model == "per_arm" else None
        x = with_constant(log.chosen_features()[rows])[:, 0]
        online = oracle.update(oracle.init(), x, log.outcomes[rows] / UNIT, block)
        np.testing.assert_allclose(state.theta, online.theta, atol=1e-9)
        np.testing.assert_allclose(state.inverse, online.inverse, atol=1e-9)
        np.testing.assert_array_equal(state.updates, online.updates)


@pytest.mark.parametrize("model", [OutcomeModel(), OutcomeModel(link="logistic"), OutcomeModel(oracle="gradient")])
def test_a_round_is_predicted_by_a_fit_that_has_not_seen_it(model):
    log = LoggedWorld.of(1).log(100, np.random.default_rng(1))
    row = int(np.flatnonzero(log.played)[7])
    reward = log.reward.copy()
    reward[row] = 1.0 - reward[row]
    changed = Log.of(**{**vars(log), "reward": reward})
    fold = fold_of(100, model.folds)
    before, after = (cross_fit(each, model, UNIT).predict(each.features, fold) for each in (log, changed))
    same = (before == after).all(axis=(1, 2))
    assert same[fold == fold[row]].all()
    assert not same.all()


def test_the_model_learns_the_means_of_the_world_in_its_own_units():
    world = LoggedWorld.of(1)
    log = world.log(20_000, np.random.default_rng(1))
    fitted = cross_fit(log, OutcomeModel(), UNIT)
    predicted = fitted.predict(world.features, np.zeros(len(world.features), dtype=np.int64))
    # The bends of the means, up to 0.2, are not linear; half of them in each direction is what a line leaves.
    assert np.abs(predicted - world.means)[:, :, :2].mean() < 0.05
    assert np.abs(predicted - world.means)[:, :, 2].mean() < 0.1


def test_predictions_are_reduced_to_the_arm_played_and_the_expectation_over_the_target():
    world = LoggedWorld.of(1)
    log = world.log(300, np.random.default_rng(1))
    fitted = cross_fit(log, OutcomeModel(), UNIT)
    ranges = np.array([[0.0, 0.4], [0.0, 1.0], [0.0, 2.0]])
    probabilities = np.full((300, 4), 0.25)
    found = predict_rows(log, fitted, probabilities, ranges)
    every = np.clip(fitted.predict(log.features, fold_of(300, 2)), ranges[:, 0], ranges[:, 1])
    np.testing.assert_allclose(found.expected, every.mean(axis=1))
    for t in range(300):
        expected = every[t, log.arm[t]] if log.arm[t] >= 0 else np.zeros(3)
        np.testing.assert_allclose(found.played[t], expected)


@pytest.mark.parametrize("folds", [2, 3, 5])
@pytest.mark.parametrize("period", [1, 2, 3, 5, 10, 24])
def test_folds_are_even_also_among_rounds_that_recur(folds, period):
    for start in range(period):
        counts = np.bincount(fold_of(6000, folds)[start::period], minlength=folds)
        assert counts.max() - counts.min() <= 12


@pytest.mark.parametrize("folds", [1, 0, True, 2.0])
def test_fewer_than_two_folds_are_refused(folds):
    with pytest.raises(ValueError, match=f"folds must be a whole number of at least 2, got {folds!r}"):
        OutcomeModel(folds=folds)


def test_an_unknown_oracle_is_refused():
    with pytest.raises(ValueError, match="oracle must be one of"):
        OutcomeModel(oracle="forest")
