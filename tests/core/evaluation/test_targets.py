import numpy as np
import pytest

from cbwk_core import SquareCBwK
from cbwk_core.evaluation import FixedArm, FromFunction, Log, Trained, Uniform, evaluate
from cbwk_core.evaluation.targets import restrict
from cbwk_core.simulation.logged_world import MAX_COST, LoggedWorld

WORLD = LoggedWorld.of(1)
LOG = WORLD.log(600, np.random.default_rng(1))


def policy(**changed):
    good = {"arms": 4, "dimension": 2, "resources": 2, "horizon": 600, "budget": 600 * 0.15 * MAX_COST}
    return SquareCBwK(**good | {"max_cost": MAX_COST, "model": "per_arm"} | changed)


def test_what_is_on_arms_that_were_not_eligible_goes_to_null():
    kept = restrict(FixedArm(1).probabilities(LOG), LOG)
    assert (kept.probabilities[:, 1] == LOG.eligible[:, 1]).all()
    assert kept.moved == pytest.approx(1.0 - LOG.eligible[:, 1].mean())


def test_uniform_gives_every_eligible_arm_the_same_and_the_others_nothing():
    given = Uniform().probabilities(LOG)
    assert (given[~LOG.eligible] == 0.0).all()
    np.testing.assert_allclose(given.sum(axis=1), 1.0)
    assert all(len(set(row[row > 0].tolist())) == 1 for row in given)


def test_uniform_plays_null_where_nothing_was_eligible():
    log = Log.of(features=[[0.0]], eligible=[[False, False]], arm=[-1], propensity=[1.0], reward=[0.0], costs=[[0.0]])
    assert Uniform().probabilities(log).tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("arm", [-1, 4, 1.0, True])
def test_a_fixed_arm_that_is_none_is_refused(arm):
    with pytest.raises(ValueError, match=rf"the fixed arm must lie in 0\.\.3, got {arm!r}"):
        FixedArm(arm).probabilities(LOG)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.full((600, 4), 0.3), r"a largest sum of 1\.2"),
        (np.full((600, 4), -0.1), r"got a minimum of -0\.1"),
        (np.full((600, 5), 0.1), r"must have shape \(600, 4\), got \(600, 5\)"),
        (np.full((600, 4), np.nan), "must be finite, got nan"),
    ],
)
def test_a_function_that_gives_no_probabilities_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        restrict(FromFunction(lambda features, eligible: given).probabilities(LOG), LOG)


def test_a_function_is_asked_about_some_rounds_at_a_time_and_progress_is_told(monkeypatch):
    monkeypatch.setattr("cbwk_core.evaluation.targets.CHUNK_ROWS", 256)
    asked, told = [], []

    def first(features, eligible):
        asked.append(len(features))
        return np.eye(4)[np.zeros(len(features), dtype=int)]

    given = FromFunction(first).probabilities(LOG, lambda *count: told.append(count))
    assert asked == [256, 256, 88]
    assert told == [(256, 600), (512, 600), (600, 600)]
    assert given.tolist() == FixedArm(0).probabilities(LOG).tolist()


def test_a_trained_policy_knows_nothing_of_the_rounds_to_come():
    reward = LOG.reward.copy()
    reward[300:] = LOG.played[300:] * (1.0 - reward[300:])
    other = Log.of(**{**vars(LOG), "reward": reward})
    before, after = (Trained(policy()).probabilities(log) for log in (LOG, other))
    np.testing.assert_array_equal(before[:301], after[:301])
    assert (before[301:] != after[301:]).any()


def test_a_trained_policy_learns_the_outcomes_of_the_log_as_its_oracle_would_alone():
    """Taught by all rounds but the last, the policy weighs the last one as one taught by hand does."""
    generous = policy(budget=1e9)
    given = Trained(generous).probabilities(LOG)
    oracle = generous.make_oracle(4)
    rows = np.flatnonzero(LOG.played)
    lifted = np.concatenate([LOG.features, np.ones((600, 1))], axis=1)
    state = oracle.update(oracle.init(), lifted[rows], LOG.outcomes[rows] / [1.0, *MAX_COST], LOG.arm[rows])
    predicted = oracle.predict(state, lifted[:, None])[:, :, 0]
    late = slice(500, 600)
    best = np.where(LOG.eligible, predicted, -np.inf)[late].argmax(axis=1)
    assert (given[late].argmax(axis=1) == best).mean() > 0.9


def two_arms_of_different_value(rounds=1500):
    """A log in which arm 0 earns nothing at no cost and arm 1 earns and costs; the budget pays for a fifth of it."""
    rng = np.random.default_rng(3)
    arm = rng.integers(2, size=rounds)
    # Before the first outcome all arms are alike and the first one takes what the others leave: let there be one arm.
    arm[0], eligible = 1, np.ones((rounds, 2), dtype=bool)
    eligible[0, 0] = False
    probabilities = eligible / eligible.sum(axis=1, keepdims=True)
    return Log.of(
        features=rng.random((rounds, 1)),
        eligible=eligible,
        arm=arm,
        propensity=probabilities[np.arange(rounds), arm],
        reward=arm * (rng.random(rounds) < 0.6) + 0.02 * rng.random(rounds),
        costs=arm[:, None] * (0.5 + 0.5 * rng.random((rounds, 1))),
        probabilities=probabilities,
    )


@pytest.mark.parametrize("preset", ["paper", "authors", "practical"])
def test_renumbering_the_arms_changes_nothing_for_a_trained_policy(preset):
    log = two_arms_of_different_value()
    other = Log.of(
        **{**vars(log), "arm": 1 - log.arm, "eligible": log.eligible[:, ::-1], "offered": log.offered[:, ::-1],
           "probabilities": log.probabilities[:, ::-1]}
    )  # fmt: skip
    own = SquareCBwK(
        arms=2, dimension=1, resources=1, horizon=log.rounds, budget=0.1 * log.rounds, model="per_arm", preset=preset
    )
    given, renumbered = (Trained(own).probabilities(each) for each in (log, other))
    np.testing.assert_allclose(given, renumbered[:, ::-1], atol=1e-9)
    ends = [
        evaluate(each, Trained(own), rng=np.random.default_rng(1), reward_range=(0.0, 1.1), budget=0.1 * log.rounds)
        for each in (log, other)
    ]
    assert ends[0].run_out.share.value == pytest.approx(ends[1].run_out.share.value)


def test_a_trained_policy_plays_only_eligible_arms():
    given = Trained(policy()).probabilities(LOG)
    assert (given[~LOG.eligible] == 0.0).all()
    assert given.sum(axis=1).max() <= 1.0 + 1e-9


def test_a_trained_policy_paces_its_own_spend_and_stops_when_it_is_spent():
    tight = policy(budget=600 * 0.1 * MAX_COST)
    given = Trained(tight).probabilities(LOG)
    means = WORLD.means[np.abs(LOG.features[:, None] - WORLD.features).sum(axis=2).argmin(axis=1)]
    spend = np.einsum("na,nat->t", given, means[:, :, 1:])
    assert (spend < 1.3 * np.asarray(tight.budget)).all()
    assert (spend > 0.7 * np.asarray(tight.budget)).any()
    poor = Trained(policy(budget=3 * MAX_COST)).probabilities(LOG)
    assert poor[:3].any()
    assert not poor[300:].any()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"arms": 3, "max_cost": 1.0}, "arms of the policy must be the log's, 4, got 3"),
        ({"dimension": 5}, "dimension of the policy must be the log's, 2, got 5"),
        ({"model": "shared"}, "model of the policy must be the log's, 'per_arm', got 'shared'"),
        ({"preset": "authors", "two_stage": True, "budget": 1e9}, "must have one stage, got two_stage=True"),
    ],
)
def test_a_policy_that_does_not_fit_the_log_is_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        Trained(policy(**changed)).probabilities(LOG)


@pytest.mark.parametrize("preset", ["paper", "authors", "practical"])
def test_every_preset_can_be_trained_along_a_log_and_says_how_far_it_is(preset):
    told = []
    given = Trained(policy(preset=preset)).probabilities(LOG, lambda *count: told.append(count))
    assert given.shape == (600, 4)
    assert given[0].sum() > 0.0
    assert told[0] == (1, 600)
    assert [done for done, _ in told] == sorted({done for done, _ in told})


def test_a_policy_whose_arms_bring_their_own_features_is_trained_on_those_of_the_arm_played():
    """One arm earns by its first feature, and only arm 1 is ever logged: what it teaches holds for arm 0 as well."""
    rng = np.random.default_rng(4)
    features = rng.random((400, 2, 1))
    log = Log.of(
        features=features,
        eligible=np.ones((400, 2), dtype=bool),
        arm=np.ones(400, dtype=np.int64),
        propensity=np.ones(400),
        reward=features[:, 1, 0],
        costs=np.zeros((400, 1)),
    )
    shared = SquareCBwK(arms=2, dimension=1, resources=1, horizon=400, budget=1e9)
    given = Trained(shared).probabilities(log)
    clear = np.abs(features[:, 0, 0] - features[:, 1, 0]) > 0.2
    late = clear & (np.arange(400) >= 100)
    assert (given.argmax(axis=1) == features[:, :, 0].argmax(axis=1))[late].all()
