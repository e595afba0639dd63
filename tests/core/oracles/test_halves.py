"""Reward and costs that are learnt apart: every oracle that can be split, against one oracle for each half."""

from dataclasses import replace

import numpy as np
import pytest

from cbwk_core.oracles import Newton, NewtonState, Product, ProductState
from cbwk_core.oracles.halves import halves_of, split
from tests.core.oracles.cases import CASES, arrays_in, contexts

SPLIT = ("newton", "newton_projected", "newton_forgetting", "newton_watching", "gradient", "aggregate", "kernel")
split_oracles = pytest.mark.parametrize("case", [case for case in CASES if case.name in SPLIT], ids=lambda c: c.name)


def rows_of(rng, oracle, count):
    """Features, targets, blocks, and for each row whether its reward and its costs are taught."""
    halves = rng.random((count, 2)) < 0.6
    return contexts(rng, count), rng.random((count, oracle.targets)), rng.integers(0, oracle.blocks, count), halves


def weights(halves, targets):
    return np.repeat(halves, [1, targets - 1], axis=1).astype(float)


def test_the_oracles_that_can_be_split_are_those_of_the_service_and_products_with_a_reward_of_their_own():
    splitting = {case.name for case in CASES if case.make(1).targets > 1 and halves_of(case.make(1)) is not None}
    assert splitting == {*SPLIT, "gradient_logistic", "product"}
    linear = Newton(dimension=2, targets=2)
    assert halves_of(Product((linear, linear))) is None
    assert halves_of(replace(linear, targets=1)) is None
    rewards_apart = Product((replace(linear, targets=1), linear))
    assert halves_of(rewards_apart) is rewards_apart
    state = rewards_apart.init()
    assert split(state) is state


@split_oracles
def test_a_split_state_predicts_and_goes_on_learning_as_the_whole_one(case):
    rng = np.random.default_rng(1)
    oracle = case.make(3)
    x, y, block, _ = rows_of(rng, oracle, 60)
    whole = oracle.update(oracle.init(2), x[:40], y[:40], block[:40])
    halves, apart = halves_of(oracle), split(whole)
    probe = contexts(rng, 4)
    np.testing.assert_allclose(halves.predict(apart, probe), oracle.predict(whole, probe), rtol=1e-12)
    apart, whole = halves.update(apart, x[40:], y[40:], block[40:]), oracle.update(whole, x[40:], y[40:], block[40:])
    np.testing.assert_allclose(halves.predict(apart, probe), oracle.predict(whole, probe), atol=1e-9)
    assert all(not array.flags.writeable for array in arrays_in(split(whole)))


@split_oracles
def test_each_half_learns_its_own_rows_and_no_others(case):
    rng = np.random.default_rng(2)
    oracle = case.make(3)
    x, y, block, halves = rows_of(rng, oracle, 80)
    product, probe = halves_of(oracle), contexts(rng, 5)
    state = product.update(split(oracle.init()), x, y, block, weights(halves, oracle.targets))
    targets = slice(0, 1), slice(1, None)
    for part, own, columns, rows in zip(product.parts, state.parts, targets, halves.T, strict=True):
        alone = part.update(part.init(), x[rows], y[rows][:, columns], block[rows])
        np.testing.assert_allclose(part.predict(own, probe), part.predict(alone, probe), atol=1e-9)


@split_oracles
def test_rows_of_both_halves_at_once_equal_single_rows_in_order(case):
    rng = np.random.default_rng(3)
    oracle = case.make(2)
    x, y, block, halves = rows_of(rng, oracle, 50)
    product, weight = halves_of(oracle), weights(halves, oracle.targets)
    at_once = product.update(product.init(), x, y, block, weight)
    one_by_one = product.init()
    for i in range(50):
        row = slice(i, i + 1)
        one_by_one = product.update(one_by_one, x[row], y[row], block[row], weight[row])
    probe = contexts(rng, 5)
    np.testing.assert_allclose(product.predict(at_once, probe), product.predict(one_by_one, probe), atol=1e-9)


@pytest.mark.parametrize("weight", [np.ones((2, 3)), np.ones((3, 2)), np.full((2, 2), 0.5), np.ones(())])
def test_weights_of_halves_that_do_not_fit_are_refused(weight):
    product = halves_of(Newton(dimension=2, targets=2))
    with pytest.raises(ValueError, match="weight"):
        product.update(product.init(), np.ones((2, 2)), np.ones((2, 2)), weight=weight)


def changing_rows(rng, rows):
    """Outcomes whose last target falls by a half after two thirds of the rows."""
    x = np.concatenate([rng.random((rows, 1)), np.ones((rows, 1))], axis=1)
    y = rng.normal([0.5, 0.4, 0.8], 0.1, (rows, 3))
    y[2 * rows // 3 :, 2] -= 0.5
    return x, y


def test_a_split_oracle_notices_a_change_after_the_same_row_as_a_whole_one():
    """The false alarms are shared among all targets, also where the targets are apart."""
    x, y = changing_rows(np.random.default_rng(4), 900)
    oracle = Newton(dimension=2, targets=3, watch=True, ridge=0.3)
    halves = halves_of(oracle)
    whole, apart, noticed = oracle.init(), halves.init(), []
    for i in range(900):
        row = slice(i, i + 1)
        whole, apart = oracle.update(whole, x[row], y[row]), halves.update(apart, x[row], y[row])
        noticed.append((whole.changes.item(), apart.changes.item()))
    assert noticed[-1] == (1.0, 1.0)
    assert all(one == other for one, other in noticed)
    np.testing.assert_allclose(apart.parts[0].theta[..., 0], whole.theta[..., 0], atol=1e-9)


def test_a_change_of_the_costs_restarts_the_reward_too():
    x, y = changing_rows(np.random.default_rng(5), 900)
    halves = halves_of(Newton(dimension=2, targets=3, watch=True, ridge=0.3))
    costs_alone = np.tile([0.0, 1.0, 1.0], (900, 1))
    rewards = halves.update(halves.init(), x[:50], y[:50])
    state = halves.update(rewards, x, y, weight=costs_alone)
    assert [part.changes.item() for part in state.parts] == [1.0, 1.0]
    assert state.parts[0].forgotten.item() == 50
    np.testing.assert_array_equal(state.parts[0].inverse[0, 0], np.eye(2) / 0.3)


def test_the_halves_of_a_split_state_begin_with_copies_of_one_gram_matrix():
    oracle = Newton(dimension=2, targets=3)
    state = oracle.update(oracle.init(), np.eye(2), np.ones((2, 3)))
    parts = split(state).parts
    assert isinstance(split(state), ProductState)
    assert all(isinstance(part, NewtonState) for part in parts)
    for part in parts:
        np.testing.assert_array_equal(part.inverse, state.inverse)
    moved = halves_of(oracle).update(split(state), np.eye(2), np.ones((2, 3)), weight=[[0, 1, 1], [0, 1, 1]])
    np.testing.assert_array_equal(moved.parts[0].gram[0], state.gram[0])
    np.testing.assert_array_equal(moved.parts[1].gram[0][0], 3.0 * np.eye(2))
