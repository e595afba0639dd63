import numpy as np
import pytest

from cbwk_core.oracles import Aggregate, Gradient, Kernel, Newton, OnlineToBatch
from tests.core.oracles.cases import arrays_in

BASES = [
    Newton(dimension=2, targets=2, blocks=3),
    Newton(dimension=2, targets=2, blocks=3, radius=1.0),
    Newton(dimension=2, targets=1, blocks=3, link="logistic"),
    Gradient(dimension=2, targets=2, blocks=3),
    Gradient(dimension=2, targets=2, blocks=3, link="logistic"),
    Aggregate(dimension=2, targets=2, blocks=3),
    Kernel(dimension=2, targets=2, blocks=3, features=8),
]


@pytest.mark.parametrize("base", BASES, ids=lambda base: f"{type(base).__name__}-{getattr(base, 'link', '')}")
def test_it_predicts_the_average_of_what_each_block_predicted_with_before_its_updates(base):
    rng = np.random.default_rng(1)
    x, y, block = rng.random((60, 2)), rng.random((60, base.targets)), rng.integers(0, 2, 60)
    probe = rng.random((7, 2))
    state, past = base.init(), {0: [], 1: []}
    for i in range(60):
        past[block[i]].append(base.predict(state, probe)[:, block[i]])
        state = base.update(state, x[i : i + 1], y[i : i + 1], block[i : i + 1])
    oracle = OnlineToBatch(base)
    predictions = oracle.predict(oracle.update(oracle.init(), x, y, block), probe)
    for b in range(2):
        np.testing.assert_allclose(predictions[:, b], np.mean(past[b], axis=0), atol=1e-10)
    np.testing.assert_array_equal(predictions[:, 2], base.predict(base.init(), probe)[:, 2])


@pytest.mark.parametrize("base", BASES, ids=lambda base: f"{type(base).__name__}-{getattr(base, 'link', '')}")
def test_before_any_update_it_predicts_like_the_base(base):
    oracle = OnlineToBatch(base)
    probe = np.random.default_rng(2).random((5, 2))
    np.testing.assert_array_equal(oracle.predict(oracle.init(), probe), base.predict(base.init(), probe))


def test_the_state_of_a_linear_base_does_not_grow():
    oracle = OnlineToBatch(Newton(dimension=2, targets=1))
    x, y = np.full((50, 2), 0.5), np.full((50, 1), 0.5)
    state = oracle.update(oracle.init(), x, y)
    assert state.iterates == ()
    sizes = [array.size for array in arrays_in(state)]
    assert sizes == [array.size for array in arrays_in(oracle.init())]


def test_states_beyond_the_limit_are_refused():
    oracle = OnlineToBatch(Aggregate(dimension=1, targets=1), iterates_max=3)
    state = oracle.update(oracle.init(), np.zeros((3, 1)), np.zeros((3, 1)))
    with pytest.raises(ValueError, match="iterates_max"):
        oracle.update(state, np.zeros((1, 1)), np.zeros((1, 1)))


def test_the_parameters_are_those_of_the_base():
    assert [OnlineToBatch(base).parameters for base in BASES] == [6, 6, 6, 6, 6, 6, 27]


def test_the_bound_is_its_formula():
    base = Newton(dimension=2, targets=1)
    expected = np.e / (np.e - 1) * (base.error_bound(400, 0.025) + np.log(40)) / 400
    assert OnlineToBatch(base).error_bound(400, 0.05) == pytest.approx(expected)
