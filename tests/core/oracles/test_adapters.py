import math

import numpy as np
import pytest
from river import linear_model as river_linear
from river import optim
from sklearn.linear_model import SGDRegressor

from cbwk_core.oracles import RiverOracle, SklearnOracle


def stochastic_gradient():
    return SGDRegressor(learning_rate="constant", eta0=0.05)


def river_regression():
    return river_linear.LinearRegression(optimizer=optim.SGD(0.05))


def rows(seed=1, count=60):
    rng = np.random.default_rng(seed)
    return rng.random((count, 3)), rng.random((count, 2)), rng.integers(0, 2, count)


def test_a_scikit_learn_model_learns_and_predicts_as_it_does_by_itself():
    x, y, block = rows()
    oracle = SklearnOracle(stochastic_gradient, dimension=3, targets=2, blocks=2)
    predictions = oracle.predict(oracle.update(oracle.init(), x, y, block), x)
    for b in range(2):
        for j in range(2):
            model = stochastic_gradient()
            for row, target in zip(x[block == b], y[block == b, j], strict=True):
                model.partial_fit([row], [target])
            np.testing.assert_allclose(predictions[:, b, j], model.predict(x), atol=1e-12)


def test_a_river_model_learns_and_predicts_as_it_does_by_itself():
    x, y, block = rows()
    oracle = RiverOracle(river_regression, dimension=3, targets=2, blocks=2)
    predictions = oracle.predict(oracle.update(oracle.init(), x, y, block), x)
    for b in range(2):
        for j in range(2):
            model = river_regression()
            for row, target in zip(x[block == b], y[block == b, j], strict=True):
                model.learn_one(dict(enumerate(row)), target)
            expected = [model.predict_one(dict(enumerate(row))) for row in x]
            np.testing.assert_allclose(predictions[:, b, j], expected, atol=1e-12)


ADAPTERS = [(SklearnOracle, stochastic_gradient), (RiverOracle, river_regression)]
every_adapter = pytest.mark.parametrize(("adapter", "make"), ADAPTERS, ids=["sklearn", "river"])


@every_adapter
def test_before_its_first_row_a_block_predicts_the_prior(adapter, make):
    x, y, _ = rows()
    oracle = adapter(make, dimension=3, targets=2, blocks=2, prior=0.25)
    assert (oracle.predict(oracle.init(), x) == 0.25).all()
    state = oracle.update(oracle.init(), x, y, np.zeros(60, dtype=int))
    assert (oracle.predict(state, x)[:, 1] == 0.25).all()
    assert (oracle.predict(state, x)[:, 0] != 0.25).all()


@every_adapter
def test_an_update_copies_only_the_models_it_touches(adapter, make):
    x, y, block = rows()
    oracle = adapter(make, dimension=3, targets=2, blocks=2)
    state = oracle.update(oracle.init(), x, y, block)
    after = oracle.update(state, x[:1], y[:1], np.array([1]))
    assert after.models[0][0] is state.models[0][0]
    assert after.models[0][1][0] is not state.models[0][1][0]


@every_adapter
def test_nothing_is_known_of_leverage_or_error(adapter, make):
    oracle = adapter(make, dimension=3, targets=2)
    assert oracle.spread(oracle.init(), np.zeros((1, 3))) is None
    assert math.isinf(oracle.error_bound(1000))


@pytest.mark.parametrize(("adapter", "missing"), [(SklearnOracle, "partial_fit"), (RiverOracle, "learn_one")])
def test_a_model_without_the_methods_is_refused(adapter, missing):
    with pytest.raises(ValueError, match=missing):
        adapter(object, dimension=3, targets=2)
