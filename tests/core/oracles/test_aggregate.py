import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbwk_core.oracles import Aggregate
from cbwk_core.oracles.aggregate import mixture

CUBE = st.sampled_from([0.0, 0.1, 0.24, 0.25, 0.26, 0.5, 0.74, 0.99, 1.0, -3.0, 7.0])


class SlowExperts:
    """Regressograms in dictionaries, one number at a time."""

    def __init__(self, levels):
        self.levels = levels
        self.cells = {}  # (level, block, cell) -> [prior, targets]

    def predictions(self, x, block):
        found = [0.5]
        for level in range(self.levels + 1):
            cell = self.cells.get(self.name(x, block, level))
            found.append(found[-1] if cell is None else sum(cell) / len(cell))
        return found[1:]

    def learn(self, x, block, y):
        parents = [0.5, *self.predictions(x, block)]
        for level in range(self.levels + 1):
            self.cells.setdefault(self.name(x, block, level), [parents[level]]).append(y)

    @staticmethod
    def name(x, block, level):
        parts = 2**level
        return level, block, tuple(min(int(min(max(v, 0.0), 1.0) * parts), parts - 1) for v in x)


def slow_run(oracle, rows):
    """Predictions of the aggregate by its formula, its loss and each expert's, for rows of (x, block, y)."""
    experts, levels = SlowExperts(oracle.experts - 1), oracle.experts
    weights, predicted, loss, losses = [1.0 / levels] * levels, [], 0.0, [0.0] * levels
    for x, block, y in rows:
        advice = experts.predictions(x, block)
        parts = [
            -0.5 * math.log(sum(w * math.exp(-2 * (z - p) ** 2) for w, p in zip(weights, advice, strict=True)))
            for z in (0, 1)
        ]
        predicted.append(0.5 + (parts[0] - parts[1]) / 2)
        loss += (predicted[-1] - y) ** 2
        losses = [known + (p - y) ** 2 for known, p in zip(losses, advice, strict=True)]
        weights = [w * math.exp(-2 * (p - y) ** 2) for w, p in zip(weights, advice, strict=True)]
        weights = [w / sum(weights) for w in weights]
        experts.learn(x, block, y)
    return predicted, loss, losses


def online_predictions(oracle, rows):
    state, predicted = oracle.init(), []
    for x, block, y in rows:
        predicted.append(oracle.predict(state, np.array([x]))[0, block, 0])
        state = oracle.update(state, [x], [[y]], [block])
    return predicted


SEQUENCES = st.lists(
    st.tuples(st.tuples(CUBE, CUBE), st.integers(0, 1), st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0.0, 1.0))),
    min_size=1,
    max_size=40,
)


@settings(max_examples=60)
@given(SEQUENCES)
def test_on_any_sequence_it_follows_its_formula_and_loses_at_most_half_a_logarithm_to_the_best_expert(rows):
    oracle = Aggregate(dimension=2, targets=1, blocks=2, levels=3)
    predicted = online_predictions(oracle, rows)
    expected, _, losses = slow_run(oracle, rows)
    np.testing.assert_allclose(predicted, expected, atol=1e-10)
    loss = sum((p - y) ** 2 for p, (_, _, y) in zip(predicted, rows, strict=True))
    assert loss <= min(losses) + 0.5 * math.log(oracle.experts) + 1e-9


@settings(max_examples=20)
@given(st.lists(st.tuples(CUBE, CUBE), min_size=1, max_size=60))
def test_an_adversary_who_sees_the_prediction_wins_no_more(contexts):
    oracle = Aggregate(dimension=2, targets=1, levels=3)
    state, rows, loss = oracle.init(), [], 0.0
    for x in contexts:
        predicted = oracle.predict(state, np.array([x])).item()
        y = float(predicted < 0.5)
        loss += (predicted - y) ** 2
        rows.append((x, 0, y))
        state = oracle.update(state, [x], [[y]])
    assert loss <= min(slow_run(oracle, rows)[2]) + 0.5 * math.log(oracle.experts) + 1e-9


@given(
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6),
    st.lists(st.floats(-800.0, 0.0), min_size=6, max_size=6),
    st.floats(0.0, 1.0),
)
def test_the_mixture_is_mixable_for_every_target_between_zero_and_one(predictions, logs, y):
    log_weights = np.array(logs[: len(predictions)])
    log_weights = log_weights - np.logaddexp.reduce(log_weights)
    p = np.array(predictions)
    mixed = mixture(log_weights, p)
    assert p.min() - 1e-9 <= mixed <= p.max() + 1e-9
    assert (y - mixed) ** 2 <= -0.5 * np.logaddexp.reduce(log_weights - 2 * (y - p) ** 2) + 1e-9


def test_every_target_has_weights_of_its_own():
    rng = np.random.default_rng(1)
    x = rng.random((400, 1))
    y = np.concatenate([x > 0.5, rng.random((400, 1)) < 0.5], axis=1).astype(float)
    both = Aggregate(dimension=1, targets=2)
    state = both.update(both.init(), x, y)
    for j in range(2):
        alone = Aggregate(dimension=1, targets=1)
        own = alone.update(alone.init(), x, y[:, j : j + 1])
        np.testing.assert_allclose(both.predict(state, x[:20])[..., j], alone.predict(own, x[:20])[..., 0], atol=1e-12)
    assert state.log_weights[0, 0].argmax() > 0  # a step needs more than one cell
    assert state.log_weights[0, 1].argmax() == 0  # a coin does not


@pytest.mark.slow
def test_a_hundred_thousand_rounds_leave_every_number_finite_and_the_weights_normalised():
    rng = np.random.default_rng(2)
    x = rng.random((100_000, 1))
    oracle = Aggregate(dimension=1, targets=1, levels=2)
    state = oracle.update(oracle.init(), x, (x > 0.5).astype(float))
    assert np.isfinite(state.log_weights).all()
    assert np.exp(state.log_weights).sum() == pytest.approx(1.0, abs=1e-12)
    assert state.log_weights.min() < -1e4  # its exponential is 0
    predictions = oracle.predict(state, np.array([[0.2], [0.7]]))[:, 0, 0]
    np.testing.assert_allclose(predictions, [0.0, 1.0], atol=1e-3)


@pytest.mark.parametrize("levels", [2, 3])
def test_the_error_falls_to_the_approximation_error_of_the_finest_cells_and_no_further(levels):
    def truth(x):
        return 0.5 + 0.4 * np.sin(3.0 * x)

    rng, oracle = np.random.default_rng(5), Aggregate(dimension=1, targets=1, levels=levels)
    grid = (np.arange(4_096) + 0.5) / 4_096
    floor = truth(grid).reshape(2**levels, -1).var(axis=1).mean()  # the best constant of a cell is its mean
    state, errors = oracle.init(), []
    for rows in (100, 1_000, 10_000, 10_000):
        x = rng.random((rows, 1))
        state = oracle.update(state, x, (rng.random((rows, 1)) < truth(x)).astype(float))
        errors.append(np.mean((oracle.predict(state, grid[:, None])[:, 0, 0] - truth(grid)) ** 2))
    assert min(errors) >= floor
    assert errors[0] > 1.5 * floor  # the noise of 100 clicks adds about 0.2 · cells / 100
    assert errors[-1] < 1.25 * floor


def test_one_more_level_divides_the_floor_of_a_smooth_function_by_about_four():
    x = ((np.arange(4_096) + 0.5) / 4_096)[:, None]
    errors = []
    for levels in (3, 4, 5):
        oracle = Aggregate(dimension=1, targets=1, levels=levels)
        state = oracle.update(oracle.init(), x, x)
        errors.append(np.mean((oracle.predict(state, x)[:, 0, 0] - x[:, 0]) ** 2))
    np.testing.assert_allclose(errors, [4.0**-levels / 12 for levels in (3, 4, 5)], rtol=0.05)


def test_only_visited_cells_are_stored():
    rng = np.random.default_rng(3)
    oracle = Aggregate(dimension=4, targets=1, blocks=1000, levels=8)
    x, block = rng.random((50, 4)), rng.integers(0, 1000, 50)
    state = oracle.update(oracle.init(), x, np.ones((50, 1)), block)
    assert state.keys.size <= 50 * oracle.experts
    assert (np.diff(state.keys) > 0).all()
    again = oracle.update(state, x, np.ones((50, 1)), block)
    np.testing.assert_array_equal(again.keys, state.keys)
    assert again.visits.sum() == 100 * oracle.experts


def test_a_constant_last_coordinate_changes_nothing():
    rng = np.random.default_rng(4)
    x, y = rng.random((100, 4)), rng.random((100, 1))
    plain, lifted = Aggregate(dimension=4, targets=1), Aggregate(dimension=5, targets=1, constant=True)
    with_one = np.concatenate([x, np.ones((100, 1))], axis=1)
    np.testing.assert_array_equal(
        plain.predict(plain.update(plain.init(), x, y), x),
        lifted.predict(lifted.update(lifted.init(), with_one, y), with_one),
    )
    alone = Aggregate(dimension=1, targets=1, constant=True)
    state = alone.update(alone.init(), np.ones((3, 1)), np.ones((3, 1)))
    assert alone.predict(state, np.ones((1, 1))).item() == pytest.approx((0.5 + 3) / 4)


def test_targets_are_clipped_to_the_unit_interval():
    oracle = Aggregate(dimension=1, targets=1)
    x = np.full((5, 1), 0.3)
    wild = oracle.update(oracle.init(), x, np.array([[9.0], [-2.0], [0.5], [1.0], [7.0]]))
    tame = oracle.update(oracle.init(), x, np.array([[1.0], [0.0], [0.5], [1.0], [1.0]]))
    np.testing.assert_array_equal(oracle.predict(wild, x), oracle.predict(tame, x))


def test_leverage_is_that_of_the_trusted_resolution():
    oracle = Aggregate(dimension=1, targets=1, levels=1)
    x = np.concatenate([np.full((300, 1), 0.2), np.full((100, 1), 0.8)])
    state = oracle.update(oracle.init(), x, (x > 0.5).astype(float))
    assert oracle.spread(oracle.init(), [[0.2]]).item() == pytest.approx(1.0)
    np.testing.assert_allclose(oracle.spread(state, [[0.2], [0.8]])[:, 0], [1 / 301, 1 / 101], rtol=1e-3)


def test_the_bound_is_its_formula():
    oracle = Aggregate(dimension=1, targets=1, blocks=3, levels=2)
    by_hand = math.log(3) + 2 * 12 * (1 + math.log(1 + 5000 / 12)) + 2 * math.log(20)
    assert oracle.error_bound(5000, delta=0.05) == pytest.approx(by_hand)
    assert oracle.error_bound(5) == 5


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"dimension": 5}, "dimension must be at most 4"),
        ({"dimension": 6, "constant": True}, "dimension must be at most 4"),
        ({"dimension": 0}, "at least 1"),
        ({"levels": -1}, "levels"),
        ({"dimension": 4, "levels": 16}, "cells"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(options, named):
    with pytest.raises(ValueError, match=named):
        Aggregate(**{"dimension": 1, "targets": 1, **options})


def test_more_lanes_or_blocks_than_keys_are_refused():
    oracle = Aggregate(dimension=4, targets=1, levels=12)
    with pytest.raises(ValueError, match="lanes"):
        oracle.init(lanes=10**6)
    with pytest.raises(ValueError, match="blocks"):
        oracle.resize(oracle.init(), 10**6)
