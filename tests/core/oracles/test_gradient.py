import numpy as np
import pytest

from cbwk_core.oracles import Gradient


@pytest.mark.parametrize("link", ["identity", "logistic"])
def test_it_follows_the_formula_of_projected_gradient_descent(link):
    rng = np.random.default_rng(1)
    x, y, block = rng.standard_normal((200, 3)), rng.random((200, 2)) * 3, rng.integers(0, 2, 200)
    oracle = Gradient(dimension=3, targets=2, blocks=2, link=link, radius=0.7)
    state = oracle.update(oracle.init(), x, y, block)
    for b in range(2):
        for j in range(2):
            theta = np.zeros(3)
            for t, (row, target) in enumerate(zip(x[block == b], y[block == b, j], strict=True), start=1):
                score = row @ theta
                mean = score if link == "identity" else 1 / (1 + np.exp(-score))
                theta = theta - (mean - target) * row / np.sqrt(t)
                if np.linalg.norm(theta) > 0.7:
                    theta = theta * 0.7 / np.linalg.norm(theta)
            np.testing.assert_allclose(state.theta[0, :, b, j], theta, atol=1e-12)


def test_the_bound_is_its_formula():
    assert Gradient(dimension=9, targets=1).error_bound(10_000, delta=0.05) == pytest.approx(1200 + 0.5 * np.log(20))
    logistic = Gradient(dimension=9, targets=1, blocks=4, link="logistic", radius=2.0)
    slope = np.exp(2) / (1 + np.exp(2)) ** 2
    assert logistic.error_bound(10_000, delta=0.05) == pytest.approx(18 * 200 + np.log(20) / (2 * slope))


@pytest.mark.parametrize(
    ("options", "named"), [({"link": "probit"}, "link"), ({"radius": 0.0}, "radius"), ({"blocks": 0}, "blocks")]
)
def test_a_configuration_that_makes_no_sense_is_refused(options, named):
    with pytest.raises(ValueError, match=named):
        Gradient(**{"dimension": 2, "targets": 1, **options})
