import numpy as np
import pytest

from cbwk_core import SquareCBwK
from cbwk_core.oracles import Gradient, Kernel, Newton, Product


def test_it_is_its_parts_side_by_side():
    rng = np.random.default_rng(1)
    parts = (Newton(dimension=2, targets=1, blocks=3, link="logistic"), Gradient(dimension=2, targets=2, blocks=3))
    x, y, block = rng.random((50, 2)), rng.random((50, 3)), rng.integers(0, 3, 50)
    oracle = Product(parts)
    state = oracle.update(oracle.init(), x, y, block)
    clicks = parts[0].update(parts[0].init(), x, y[:, :1], block)
    costs = parts[1].update(parts[1].init(), x, y[:, 1:], block)
    expected = np.concatenate([parts[0].predict(clicks, x), parts[1].predict(costs, x)], axis=2)
    np.testing.assert_array_equal(oracle.predict(state, x), expected)
    np.testing.assert_array_equal(oracle.spread(state, x), parts[0].spread(clicks, x))


def test_leverage_is_the_largest_that_is_known():
    timid, bold = Newton(dimension=1, targets=1, ridge=4.0), Newton(dimension=1, targets=1, ridge=0.5)
    oracle = Product((timid, bold, Gradient(dimension=1, targets=1)))
    assert oracle.spread(oracle.init(), [[1.0]]).item() == 2.0
    unknowing = Product((Gradient(dimension=1, targets=1),))
    assert unknowing.spread(unknowing.init(), [[1.0]]) is None


def test_the_bound_of_d_copies_is_d_times_that_of_one():
    one = Newton(dimension=3, targets=1)
    assert Product((one,) * 4).error_bound(1000, 0.05) == pytest.approx(4 * one.error_bound(1000, 0.05 / 4))


def test_the_parameters_are_those_of_the_largest_part():
    linear = Newton(dimension=3, targets=4, blocks=2)
    curved = Kernel(dimension=3, targets=1, blocks=2, features=20)
    assert Product((linear, linear)).parameters == 6
    assert Product((linear, curved)).parameters == 42


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (Newton(dimension=1, targets=1), Newton(dimension=2, targets=1)),
        (Newton(dimension=1, targets=1), Newton(dimension=1, targets=1, blocks=2)),
    ],
)
def test_parts_that_do_not_fit_are_refused(parts):
    with pytest.raises(ValueError, match="in common"):
        Product(parts)


@pytest.mark.parametrize(("preset", "links"), [("practical", ["logistic"] * 3), ("paper", ["logistic", "identity"])])
def test_practical_predicts_costs_with_the_rewards_link_and_the_paper_does_not(preset, links):
    policy = SquareCBwK(arms=2, dimension=3, resources=2, horizon=100, budget=50, link="logistic", preset=preset)
    assert [part.link for part in policy.regressor.parts] == links
    first = policy.predict(policy.init(), np.zeros((1, policy.arms, policy.dimension)))
    rate = 1 / (1 + np.exp(3.0))
    np.testing.assert_allclose(first[0, 0], [rate] * 3 if preset == "practical" else [0.5, 0.0, 0.0])
