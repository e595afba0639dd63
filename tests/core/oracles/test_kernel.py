import numpy as np
import pytest

from cbwk_core.oracles import Kernel
from cbwk_core.oracles.kernel import normal_points


def gaussian(x, y, bandwidth):
    return np.exp(-np.sum((x - y) ** 2, axis=-1) / (2 * bandwidth**2))


@pytest.mark.parametrize(
    ("dimension", "bandwidth", "features", "error"),
    [(1, 0.2, 100, 0.03), (2, 0.5, 100, 0.08), (2, 0.5, 2000, 0.01), (4, 1.0, 1000, 0.05), (20, 2.0, 2000, 0.06)],
)
def test_inner_products_of_lifted_contexts_approximate_the_gaussian_kernel(dimension, bandwidth, features, error):
    rng = np.random.default_rng(1)
    x, y = rng.random((500, dimension)), rng.random((500, dimension))
    oracle = Kernel(dimension=dimension, targets=1, features=features, bandwidth=bandwidth)
    product = np.sum(oracle.lift(x) * oracle.lift(y), axis=-1)
    exact = gaussian(x, y, bandwidth)
    assert np.sqrt(np.mean((2 * product - 1 - exact) ** 2)) < error


def test_even_frequencies_approximate_better_than_chance():
    rng = np.random.default_rng(2)
    x, y = rng.random((500, 2)), rng.random((500, 2))

    def error(frequencies):
        return np.mean((np.cos((x - y) @ frequencies.T / 0.4).mean(axis=1) - gaussian(x, y, 0.4)) ** 2)

    assert np.mean([error(normal_points(2, 50, seed)) for seed in range(10)]) < 0.5 * np.mean(
        [error(rng.standard_normal((50, 2))) for _ in range(10)]
    )


def test_lifted_contexts_have_norm_one():
    rng = np.random.default_rng(3)
    oracle = Kernel(dimension=3, targets=1, features=20)
    lifted = oracle.lift(rng.standard_normal((5, 4, 3)) * 10)
    assert lifted.shape == (5, 4, 21)
    np.testing.assert_allclose(np.linalg.norm(lifted, axis=-1), 1.0, atol=1e-12)


def test_the_points_are_those_of_a_standard_normal_distribution():
    points = normal_points(3, 2000)
    np.testing.assert_allclose(points.mean(axis=0), 0.0, atol=0.01)
    np.testing.assert_allclose(points.var(axis=0), 1.0, atol=0.01)
    np.testing.assert_allclose(np.corrcoef(points.T), np.eye(3), atol=0.06)
    assert not points.flags.writeable


def test_seeds_take_one_stretch_of_the_sequence_after_the_other():
    together = normal_points(2, 30)
    for seed in range(3):
        np.testing.assert_array_equal(normal_points(2, 10, seed), together[10 * seed : 10 * seed + 10])
    assert np.isfinite(normal_points(2, 10, 10**30)).all()


def test_it_learns_what_no_line_can_express():
    rng = np.random.default_rng(4)
    x = rng.random((600, 1))
    y = 0.5 + 0.4 * np.sin(6 * x) + 0.1 * rng.standard_normal((600, 1))
    oracle = Kernel(dimension=1, targets=1, bandwidth=0.2, ridge=0.1, features=60)
    probe = np.linspace(0.05, 0.95, 20)[:, None]
    learnt = oracle.predict(oracle.update(oracle.init(), x, y), probe)[:, 0]
    np.testing.assert_allclose(learnt, 0.5 + 0.4 * np.sin(6 * probe), atol=0.06)


def test_it_is_ridge_regression_with_the_lifted_kernel():
    rng = np.random.default_rng(5)
    x, y, probe = rng.random((80, 2)), rng.random((80, 1)), rng.random((10, 2))
    oracle = Kernel(dimension=2, targets=1, ridge=0.3)
    kernel = oracle.lift(x) @ oracle.lift(x).T
    dual = np.linalg.solve(kernel + 0.3 * np.eye(80), y)
    expected = oracle.lift(probe) @ oracle.lift(x).T @ dual
    state = oracle.update(oracle.init(), x, y)
    np.testing.assert_allclose(oracle.predict(state, probe)[:, 0], expected, atol=1e-9)


def test_a_constant_last_coordinate_changes_nothing():
    rng = np.random.default_rng(6)
    x, y = rng.random((30, 2)), rng.random((30, 1))
    with_one = np.concatenate([x, np.ones((30, 1))], axis=1)
    plain, lifted = Kernel(dimension=2, targets=1), Kernel(dimension=3, targets=1, constant=True)
    np.testing.assert_array_equal(plain.lift(x), lifted.lift(with_one))
    np.testing.assert_array_equal(
        plain.predict(plain.update(plain.init(), x, y), x),
        lifted.predict(lifted.update(lifted.init(), with_one, y), with_one),
    )


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"features": 7}, "features"),
        ({"features": 0}, "features"),
        ({"bandwidth": 0.0}, "bandwidth"),
        ({"constant": True}, "constant"),
        ({"seed": -1}, "seed"),
        ({"ridge": 0.0}, "ridge"),
        ({"targets": 0}, "targets"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(options, named):
    with pytest.raises(ValueError, match=named):
        Kernel(**{"dimension": 1, "targets": 1, **options})
