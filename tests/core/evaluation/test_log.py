import numpy as np
import pytest

from cbwk_core.evaluation import Log


def rounds(**changed):
    """Three good rounds of two arms and one resource, but for what is changed."""
    good = {
        "features": [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]],
        "eligible": np.array([[True, True], [True, False], [False, False]]),
        "arm": [1, 0, -1],
        "propensity": [0.25, 0.5, 1.0],
        "reward": [1.0, 0.0, 0.0],
        "costs": [[0.5], [0.25], [0.0]],
    }
    return Log.of(**good | changed)


def test_sizes_follow_from_the_arrays():
    log = rounds()
    assert (log.rounds, log.arms, log.resources, log.dimension, log.model) == (3, 2, 1, 2, "per_arm")
    assert rounds(features=np.zeros((3, 2, 5))).model == "shared"


def test_features_of_the_arm_played_are_those_of_its_row():
    features = np.arange(12.0).reshape(3, 2, 2)
    assert rounds(features=features).chosen_features()[:2].tolist() == [[2.0, 3.0], [4.0, 5.0]]


def test_arrays_are_copies_that_nobody_can_write():
    reward = np.array([1.0, 0.0, 0.0])
    log = rounds(reward=reward, probabilities=[[0.5, 0.25], [0.5, 0.0], [0.0, 0.0]])
    reward[0] = 9.0
    assert log.reward[0] == 1.0
    arrays = [value for value in vars(log).values() if isinstance(value, np.ndarray)]
    assert len(arrays) == 8
    assert not any(array.flags.writeable for array in arrays)


def test_what_was_offered_is_what_was_eligible_unless_said():
    assert rounds().offered.tolist() == rounds().eligible.tolist()
    assert rounds(offered=np.ones((3, 2), dtype=bool)).offered.all()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"eligible": np.zeros((0, 2), dtype=bool)}, r"at least one round and one arm, got shape \(0, 2\)"),
        ({"eligible": np.ones((3, 2))}, r"eligible must be booleans of shape \(n, arms\), got float64"),
        ({"features": np.zeros((3, 7, 2))}, r"features must have shape \(3, 2, n\), got \(3, 7, 2\)"),
        ({"features": np.zeros((2, 2))}, r"features must have shape \(3, n\), got \(2, 2\)"),
        ({"features": [[np.nan, 0]] * 3}, "features must be finite, got nan"),
        ({"arm": [1.0, 0.0, -1.0]}, "arm must be one integer per row"),
        ({"arm": [2, 0, -1]}, r"arm must lie in -1\.\.1, got -1\.\.2"),
        ({"arm": [1, 1, -1]}, "the arm of a round must be eligible, got arm 1 in round 1"),
        ({"propensity": [0.0, 0.5, 1.0]}, r"propensity must lie in \(0, 1\], got 0\.0\.\.1\.0"),
        ({"propensity": [0.5, 0.5, 1.5]}, r"propensity must lie in \(0, 1\], got 0\.5\.\.1\.5"),
        ({"reward": [1.0, 0.0]}, r"reward must have shape \(3\), got \(2,\)"),
        ({"reward": [1.0, 0.0, 0.5]}, r"a null round must have zero outcomes, got \[0\.5, 0\.0\] in round 2"),
        ({"costs": np.zeros((3, 0))}, r"at least one resource, got shape \(3, 0\)"),
        ({"costs": [0.5, 0.25, 0.0]}, r"costs must have shape \(3, n\), got \(3,\)"),
        ({"probabilities": [[0.9, 0.25], [0.5, 0], [0, 0]]}, r"a largest sum of 1\.15"),
        (
            {"probabilities": [[0.5, 0.25], [0.5, 0.2], [0, 0]]},
            "not eligible, got a positive one in round 1",
        ),
        ({"probabilities": [[0.5, 0.2], [0.5, 0], [0, 0]]}, r"got 0\.25 and 0\.2 in round 0"),
        ({"offered": np.ones((3, 3), dtype=bool)}, r"offered must have the shape of eligible, \(3, 2\), got \(3, 3\)"),
        (
            {"offered": np.zeros((3, 2), dtype=bool)},
            "every eligible arm must be offered, got an eligible arm that is not offered in round 0",
        ),
    ],
)
def test_a_log_that_cannot_be_is_refused_with_what_was_found(changed, message):
    with pytest.raises(ValueError, match=message):
        rounds(**changed)
