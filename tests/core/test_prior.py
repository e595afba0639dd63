"""The prior before the first outcome: the ridge of linear models."""

import numpy as np
import pytest

from cbwk_core import SquareCBwK


def policy_of(**other):
    return SquareCBwK(**({"arms": 3, "resources": 2, "horizon": 500, "budget": 100.0} | other))


@pytest.mark.parametrize("model", ["shared", "per_arm"])
@pytest.mark.parametrize("link", ["identity", "logistic"])
def test_the_ridge_of_practical_grows_with_the_number_of_features_and_that_of_the_paper_does_not(model, link):
    for features, practical in ((3, 0.3), (11, 0.3), (15, 4.0 / 12.0), (99, 10.0 / 12.0)):
        for preset, ridge in (("practical", practical), ("paper", 1.0), ("authors", 1.0)):
            policy = policy_of(dimension=features, preset=preset, model=model, link=link)
            oracle = policy.init().oracle
            newton = oracle if link == "identity" else oracle.parts[0]
            expected = np.eye(features + (preset == "practical")) * ridge
            for gram in newton.gram:
                np.testing.assert_allclose(gram[0], expected, rtol=1e-12)
    few, many = (policy_of(dimension=features, oracle="kernel", model=model).init().oracle for features in (3, 99))
    np.testing.assert_array_equal(few.gram, many.gram)  # the kernel makes its own features
