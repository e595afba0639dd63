import numpy as np
import pytest

from cbwk_core.evaluation import RESTRICTION, FixedArm, FromFunction, Log, Uniform, evaluate
from cbwk_core.evaluation.weights import effective_sample_size
from cbwk_core.simulation.logged_world import MAX_COST, LoggedWorld

WORLD = LoggedWorld.of(1)
LOG = WORLD.log(500, np.random.default_rng(1))


def ask(log=LOG, target=None, **changed):
    return evaluate(
        log, target or Uniform(), **{"rng": np.random.default_rng(1), "max_cost": MAX_COST, "replicates": 50} | changed
    )


def codes(found):
    return {caution.code for caution in found.cautions}


def two_armed(rounds, share, **changed):
    """A log that plays arm 1 with that probability, arm 0 otherwise."""
    rng = np.random.default_rng(1)
    arm = (rng.random(rounds) < share).astype(np.int64)
    probabilities = np.tile([1.0 - share, share], (rounds, 1))
    good = {
        "features": np.ones((rounds, 1)),
        "eligible": np.ones((rounds, 2), dtype=bool),
        "arm": arm,
        "propensity": probabilities[np.arange(rounds), arm],
        "reward": 0.5 * arm,
        "costs": np.full((rounds, 1), 0.5),
        "probabilities": probabilities,
    }
    return Log.of(**good | changed)


def test_the_same_seed_gives_the_same_answer_and_another_one_other_intervals():
    np.testing.assert_array_equal(ask().dr.bootstrap, ask().dr.bootstrap)
    assert (ask().dr.bootstrap != ask(rng=np.random.default_rng(2)).dr.bootstrap).any()


def test_the_answer_says_that_the_policy_is_restricted_to_the_logged_eligible_arms():
    found = ask(target=FixedArm(1))
    assert found.restriction == RESTRICTION
    assert "restricted to the arms that were eligible" in RESTRICTION
    assert found.overlap.restricted == pytest.approx((~LOG.eligible[:, 1]).mean())
    assert "restricted" in codes(found)
    assert "restricted" not in codes(ask())


def test_effective_rounds_of_equal_weights_are_their_number():
    assert effective_sample_size(np.array([0.0, 3.0, 3.0, 3.0])) == pytest.approx(3.0)
    assert effective_sample_size(np.array([1.0, 1e-9])) == pytest.approx(1.0)


def test_few_effective_rounds_are_cautioned_against():
    assert "effective_sample_size" in codes(ask(two_armed(1000, 0.1), FixedArm(1), max_cost=1.0))
    assert "effective_sample_size" not in codes(ask(two_armed(1000, 0.5), FixedArm(1), max_cost=1.0))


def test_one_heavy_round_is_cautioned_against():
    found = ask(two_armed(1000, 0.01), FixedArm(1), max_cost=1.0)
    assert "largest_weight" in codes(found)
    assert found.overlap.largest_share > 0.05


def test_probabilities_that_cannot_be_true_are_cautioned_against():
    honest = two_armed(4000, 0.5)
    wrong = two_armed(4000, 0.5, propensity=np.full(4000, 0.4), probabilities=None)
    assert "weight_mean" not in codes(ask(honest, FixedArm(1), max_cost=1.0))
    assert "weight_mean" in codes(ask(wrong, FixedArm(1), max_cost=1.0))


def rarely_played(rounds, seed, least=1e-3):
    """A log with right probabilities whose arm 2 is hardly ever played."""
    rng = np.random.default_rng(seed)
    probabilities = np.tile([0.6, 0.4 - least, least], (rounds, 1))
    arm = (rng.random((rounds, 1)) > probabilities.cumsum(axis=1)).sum(axis=1)
    return Log.of(
        features=np.ones((rounds, 1)), eligible=np.ones((rounds, 3), dtype=bool), arm=arm,
        propensity=probabilities[np.arange(rounds), arm], reward=rng.random(rounds) < 0.3,
        costs=np.full((rounds, 1), 0.5), probabilities=probabilities,
    )  # fmt: skip


def test_a_right_log_is_not_accused_of_wrong_probabilities():
    """Most of these logs never play arm 2, so their weights alone seem to prove that their mean is wrong."""
    accused = absent = 0
    for seed in range(60):
        log = rarely_played(300, seed)
        absent += not (log.arm == 2).any()
        accused += "weight_mean" in codes(ask(log, Uniform(), max_cost=1.0, replicates=2))
    assert absent > 30
    assert accused == 0


def test_wrong_probabilities_are_found_out_although_every_arm_has_some():
    honest = two_armed(4000, 0.5)
    told = np.tile([0.6, 0.4], (4000, 1))
    wrong = Log.of(**{**vars(honest), "probabilities": told, "propensity": told[np.arange(4000), honest.arm]})
    assert "weight_mean" in codes(ask(wrong, FixedArm(1), max_cost=1.0, replicates=2))


def test_the_effective_size_counts_weights_that_were_never_drawn():
    logs = (rarely_played(3000, seed, least=2e-4) for seed in range(20))
    log, target = next(log for log in logs if not (log.arm == 2).any()), [1 / 3, 1 / 3, 1 / 3]
    found = ask(log, Uniform(), max_cost=1.0, replicates=2)
    p = log.probabilities[0]
    assert found.overlap.effective == pytest.approx(3000 / sum(t * t / q for t, q in zip(target, p, strict=True)))
    weights = np.array(target)[log.arm] / log.propensity
    assert effective_sample_size(weights) > 2000 > 200 > found.overlap.effective
    assert "effective_sample_size" in codes(found)


def test_the_effective_size_is_the_mean_of_many_draws_of_the_log():
    """n·E[w]²/E[w²] by brute force, with the arms of every round drawn again many times."""
    rng, log = np.random.default_rng(2), WORLD.log(400, np.random.default_rng(5))
    given = np.concatenate([log.probabilities, 1.0 - log.probabilities.sum(axis=1, keepdims=True)], axis=1)
    uniform = Uniform().probabilities(log)
    squares = []
    for _ in range(300):
        arm = (rng.random((400, 1)) > given.cumsum(axis=1)).sum(axis=1)
        real = np.flatnonzero(arm < 4)
        squares.append((np.square(uniform[real, arm[real]] / given[real, arm[real]])).sum() / 400)
    assert ask(replicates=2, log=log).overlap.effective == pytest.approx(400 / np.mean(squares), rel=0.02)


def test_estimates_are_cut_to_what_is_possible():
    rng = np.random.default_rng(4)
    log = two_armed(40, 0.55, reward=np.ones(40), costs=np.full((40, 1), 0.9 + 0.1 * rng.random()))
    weights = (log.arm == 1) / 0.55
    assert weights.mean() > 1.0, "uncut, the mean reward would be more than 1"
    found = ask(log, FixedArm(1), max_cost=1.0, replicates=50)
    for estimate in (found.ips, found.snips, found.dr):
        assert estimate.value.max() <= 1.0
        for ends in (estimate.bootstrap, estimate.bernstein, estimate.sequence):
            assert (ends[:, 0] <= estimate.value).all()
            assert (estimate.value <= ends[:, 1]).all()
            assert ends.min() >= 0.0
            assert ends.max() <= 1.0


def test_a_policy_the_log_never_plays_is_cautioned_against_and_the_mass_is_told():
    log = two_armed(500, 0.0)
    found = ask(log, Uniform(), max_cost=1.0)
    assert found.overlap.unsupported == pytest.approx(0.5)
    assert "unsupported" in codes(found)
    unknown = ask(two_armed(500, 0.0, probabilities=None), Uniform(), max_cost=1.0)
    assert unknown.overlap.unsupported is None
    assert "weight_mean" in codes(unknown)


def test_rounds_in_which_nothing_was_eligible_are_counted_as_null_and_told():
    eligible = np.ones((100, 2), dtype=bool)
    eligible[60:] = False
    played = np.arange(100) < 60
    log = two_armed(
        100, 0.5, eligible=eligible, arm=np.where(played, 1, -1), propensity=np.where(played, 0.5, 1.0),
        reward=0.5 * played, costs=0.5 * played[:, None], probabilities=None,
    )  # fmt: skip
    found = ask(log, FixedArm(1), max_cost=1.0)
    assert found.overlap.unplayable == pytest.approx(0.4)
    assert "unplayable" in codes(found)
    assert found.snips.value == pytest.approx([0.5 * 0.6, 0.5 * 0.6])


def test_a_policy_that_only_plays_null_earns_and_costs_nothing():
    found = ask(target=FromFunction(lambda features, eligible: np.zeros(eligible.shape)))
    for estimate in (found.ips, found.snips, found.dr):
        assert estimate.value.tolist() == [0.0, 0.0, 0.0]
        assert estimate.bootstrap.tolist() == [[0.0, 0.0]] * 3
    assert "effective_sample_size" not in codes(found)


def test_intervals_surround_their_estimate_and_bernstein_stays_in_the_range():
    found = ask(replicates=500, budget=[50.0, 1e9])
    for estimate in (found.ips, found.snips, found.dr):
        for ends in (estimate.bootstrap, estimate.bernstein):
            assert (ends[:, 0] <= estimate.value).all()
            assert (estimate.value <= ends[:, 1]).all()
        assert (estimate.bernstein[:, 0] >= 0.0).all()
        assert (estimate.bernstein[:, 1] <= [1.0, *MAX_COST]).all()
    assert found.run_out.resource == 0


def test_bootstrap_intervals_are_as_long_as_the_standard_errors_say():
    rng = np.random.default_rng(2)
    log = two_armed(3000, 0.3, reward=0.8 + 0.2 * rng.random(3000), costs=0.3 + 0.1 * rng.random((3000, 1)))
    found = ask(log, FixedArm(1), max_cost=1.0, replicates=2000)
    assert found.snips.error[0] < 0.2 * found.ips.error[0]
    for estimate in (found.ips, found.snips, found.dr):
        lengths = estimate.bootstrap[:, 1] - estimate.bootstrap[:, 0]
        np.testing.assert_allclose(lengths, 2.0 * 1.96 * estimate.error, rtol=0.08)


def test_the_bound_on_weights_is_the_callers_or_the_logs_or_the_largest_seen():
    assert (ask(weight_max=50.0).weight_max, ask(weight_max=50.0).weight_max_from) == (50.0, "given")
    known = ask()
    allowed = LOG.eligible & (LOG.probabilities > 0)
    ratios = (LOG.eligible / LOG.eligible.sum(axis=1, keepdims=True))[allowed] / LOG.probabilities[allowed]
    assert known.weight_max == pytest.approx(ratios.max())
    assert known.weight_max_from == "probabilities"
    seen = ask(Log.of(**{**vars(LOG), "probabilities": None}))
    assert (seen.weight_max, seen.weight_max_from) == (seen.overlap.weight_largest, "seen")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"level": 1.0}, r"level must lie between 0 and 1, got 1\.0"),
        ({"replicates": 0}, "replicates must be a whole number of at least 1, got 0"),
        ({"horizon": 1.5}, r"horizon must be a whole number of at least 1, got 1\.5"),
        ({"budget": -1.0}, r"budget must not be negative, got -1\.0"),
        ({"budget": [1.0, 2.0, 3.0]}, r"budget must be one finite number or have shape \(2,\)"),
        ({"max_cost": 0.0}, "reward_range and max_cost must not be empty"),
        ({"max_cost": [1.0, 1.0]}, r"cost 1 must lie in 0\.\.1, got 0\.\.2"),
        ({"reward_range": (0.0, 0.5)}, r"reward must lie in 0\.\.0\.5, got 0\.\.1"),
        ({"weight_max": 0.1}, "weight_max must be finite and at least the largest weight"),
        ({"model": np.zeros((500, 4, 2))}, r"predictions must have shape \(500, 4, 3\), got \(500, 4, 2\)"),
    ],
)
def test_an_argument_that_cannot_be_is_refused_with_what_was_found(changed, message):
    with pytest.raises(ValueError, match=message):
        ask(**changed)
