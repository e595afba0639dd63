"""The contract that every oracle satisfies."""

import copy
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbwk_core.oracles import OnlineToBatch
from cbwk_core.oracles.build import build_oracle
from cbwk_core.presets import PRESETS
from tests.core.oracles.cases import CASES, DIMENSION, arrays_in, contexts

every_oracle = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def draw(rng, oracle, rows):
    """Features, targets and blocks of that many rows."""
    return contexts(rng, rows), rng.random((rows, oracle.targets)), rng.integers(0, oracle.blocks, rows)


def trained(oracle, rng, rows=40):
    return oracle.update(oracle.init(), *draw(rng, oracle, rows))


@every_oracle
@pytest.mark.parametrize("blocks", [1, 3])
def test_the_parameters_are_counted_for_one_target_and_every_block(case, blocks):
    oracle = case.make(blocks)
    assert oracle.parameters == case.parameters * blocks
    thetas = [part.theta for part in (oracle.init(), *getattr(oracle.init(), "parts", ())) if hasattr(part, "theta")]
    for theta in thetas:  # (lanes, parameters of a block, blocks, targets)
        assert theta[0, ..., 0].size == oracle.parameters


def test_an_oracle_that_does_not_count_its_parameters_is_refused():
    sizes = {"dimension": 2, "targets": 3, "blocks": 1}
    options = {"preset": PRESETS["practical"], "link": "identity", "forgetting": None}
    own = SimpleNamespace(**sizes, parameters=2)
    assert build_oracle(own, **sizes, **options) is own
    for bad in (SimpleNamespace(**sizes), SimpleNamespace(**sizes, parameters=0)):
        with pytest.raises(ValueError, match="parameters"):
            build_oracle(bad, **sizes, **options)


@every_oracle
def test_n_rows_at_once_equal_n_single_rows_in_order(case):
    rng = np.random.default_rng(1)
    oracle = case.make(3)
    x, y, block = draw(rng, oracle, 30)
    at_once = oracle.update(oracle.init(), x, y, block)
    one_by_one = oracle.init()
    for i in range(30):
        one_by_one = oracle.update(one_by_one, x[i : i + 1], y[i : i + 1], block[i : i + 1])
    probe = contexts(rng, 5)
    np.testing.assert_allclose(oracle.predict(at_once, probe), oracle.predict(one_by_one, probe), atol=1e-9)


@every_oracle
def test_no_rows_teach_nothing(case):
    rng = np.random.default_rng(2)
    oracle = case.make(2)
    state = trained(oracle, rng)
    after = oracle.update(state, np.zeros((0, DIMENSION)), np.zeros((0, oracle.targets)))
    probe = contexts(rng, 5)
    np.testing.assert_array_equal(oracle.predict(state, probe), oracle.predict(after, probe))
    assert oracle.predict(state, np.zeros((0, DIMENSION))).shape == (0, 2, oracle.targets)


@every_oracle
@pytest.mark.parametrize("blocks", [1, 3])
def test_a_row_of_weight_zero_teaches_nothing(case, blocks):
    rng = np.random.default_rng(3)
    oracle = case.make(blocks)
    x, y, block = draw(rng, oracle, 30)
    kept = rng.random(30) < 0.5
    with_them = oracle.update(oracle.init(), x, y, block, weight=kept.astype(float))
    without = oracle.update(oracle.init(), x[kept], y[kept], block[kept])
    probe = contexts(rng, 5)
    np.testing.assert_allclose(oracle.predict(with_them, probe), oracle.predict(without, probe), atol=1e-9)


@every_oracle
@pytest.mark.parametrize("blocks", [1, 3])
def test_lanes_learn_and_predict_as_if_each_were_alone(case, blocks):
    rng = np.random.default_rng(4)
    oracle, lanes, rows = case.make(blocks), 3, 20
    x, y, block = draw(rng, oracle, rows * lanes)
    weight = (rng.random(rows * lanes) < 0.8).astype(float)
    probe = contexts(rng, 2 * lanes)
    state = oracle.update(oracle.init(lanes), x, y, block, weight)
    together, spread = oracle.predict(state, probe), oracle.spread(state, probe)
    for lane in range(lanes):
        own = slice(lane, None, lanes)
        alone = oracle.update(oracle.init(), x[own], y[own], block[own], weight[own])
        np.testing.assert_allclose(together[own], oracle.predict(alone, probe[own]), atol=1e-9)
        if spread is not None:
            np.testing.assert_allclose(spread[own], oracle.spread(alone, probe[own]), atol=1e-9)


@every_oracle
def test_a_block_learns_from_its_own_rows(case):
    rng = np.random.default_rng(5)
    oracle, single = case.make(3), case.make(1)
    x, y, block = draw(rng, oracle, 40)
    block[block == 2] = 0
    state = oracle.update(oracle.init(), x, y, block)
    probe = contexts(rng, 5)
    together = oracle.predict(state, probe)
    for b in (2,) if case.couples_blocks else (0, 1, 2):
        alone = single.update(single.init(), x[block == b], y[block == b])
        np.testing.assert_allclose(together[:, b], single.predict(alone, probe)[:, 0], atol=1e-9)


@every_oracle
def test_one_context_gets_a_prediction_from_every_block(case):
    rng = np.random.default_rng(6)
    oracle = case.make(3)
    state = trained(oracle, rng)
    x = contexts(rng, 4, 1)
    predictions = oracle.predict(state, x)
    assert predictions.shape == (4, 3, oracle.targets)
    np.testing.assert_array_equal(oracle.predict(state, x[:, 0]), predictions)
    check_spread(oracle.spread(state, x), (4, 3))


@every_oracle
def test_every_candidate_gets_a_prediction_of_its_own_from_a_single_block(case):
    rng = np.random.default_rng(7)
    oracle = case.make(1)
    state = trained(oracle, rng)
    x = contexts(rng, 4, 5)
    predictions = oracle.predict(state, x)
    assert predictions.shape == (4, 5, oracle.targets)
    check_spread(oracle.spread(state, x), (4, 5))
    for i in range(4):
        for j in range(5):
            alone = oracle.predict(state, x[i : i + 1, j : j + 1])[0, 0]
            np.testing.assert_allclose(predictions[i, j], alone, atol=1e-12)


def check_spread(spread, shape):
    if spread is not None:
        assert spread.shape == shape
        assert (spread > 0).all()


@every_oracle
def test_leverage_falls_where_rows_were_seen(case):
    oracle = case.make(2)
    x = np.array([[0.3, 0.6]])
    state = oracle.update(oracle.init(), np.repeat(x, 50, axis=0), np.full((50, oracle.targets), 0.4))
    before, after = oracle.spread(oracle.init(), x), oracle.spread(state, x)
    if before is None:
        assert after is None
    else:
        assert after[0, 0] < before[0, 0] / 2
        assert after[0, 1] == before[0, 1]


@every_oracle
def test_predicting_and_learning_leave_the_old_state_as_it_was(case):
    rng = np.random.default_rng(8)
    oracle = case.make(2)
    state, probe = trained(oracle, rng), contexts(rng, 5)
    kept, predicted = copy.deepcopy(state), oracle.predict(state, probe)
    oracle.spread(state, probe)
    oracle.resize(state, 3)
    oracle.update(state, *draw(rng, oracle, 20))
    for now, then in zip(arrays_in(state), arrays_in(kept), strict=True):
        np.testing.assert_array_equal(now, then)
    np.testing.assert_array_equal(oracle.predict(state, probe), predicted)


@every_oracle
def test_the_arrays_of_a_state_are_read_only(case):
    rng = np.random.default_rng(9)
    oracle = case.make(2)
    state = trained(oracle, rng)
    for made in (oracle.init(), state, oracle.resize(state, 4)):
        assert all(not array.flags.writeable for array in arrays_in(made))


BAD_ROWS = {
    "features": [
        {"features": np.zeros((2, DIMENSION + 1))},
        {"features": np.zeros(DIMENSION)},
        {"features": np.array([[0.1, np.nan], [0.1, 0.2]])},
        {"features": [["a", "b"], ["c", "d"]]},
    ],
    "targets": [
        {"targets": lambda q: np.zeros((2, q + 1))},
        {"targets": lambda q: np.zeros((3, q))},
        {"targets": lambda q: np.full((2, q), np.inf)},
    ],
    "block": [{"block": [0, 2]}, {"block": [-1, 0]}, {"block": [0]}, {"block": [0.0, 1.0]}],
    "weight": [{"weight": [1.0]}, {"weight": [1.0, np.nan]}, {"weight": [1.0, 0.5]}, {"weight": [1.0, -1.0]}],
    "rows": [{"lanes": 3}],
}


@every_oracle
@pytest.mark.parametrize(("name", "bad"), [(name, bad) for name, bads in BAD_ROWS.items() for bad in bads])
def test_a_bad_row_is_refused_by_name(case, name, bad):
    oracle = case.make(2)
    state = oracle.init(bad.get("lanes", 1))
    rows = {"features": np.full((2, DIMENSION), 0.5), "targets": np.full((2, oracle.targets), 0.5)}
    rows.update({key: value(oracle.targets) if callable(value) else value for key, value in bad.items()})
    rows.pop("lanes", None)
    with pytest.raises(ValueError, match=name):
        oracle.update(state, **rows)


@every_oracle
@pytest.mark.parametrize(
    "features",
    [
        np.zeros((2, DIMENSION + 1)),
        np.zeros((2, 2, DIMENSION)),
        np.zeros(DIMENSION),
        np.full((1, DIMENSION), np.nan),
        [["a", "b"]],
    ],
    ids=["too long", "candidates beside blocks", "no row", "nan", "letters"],
)
def test_a_bad_context_is_refused_by_name(case, features):
    oracle = case.make(2)
    with pytest.raises(ValueError, match="features"):
        oracle.predict(oracle.init(), features)


@every_oracle
def test_contexts_that_do_not_share_out_among_the_lanes_are_refused(case):
    oracle = case.make(1)
    with pytest.raises(ValueError, match="lanes"):
        oracle.predict(oracle.init(3), np.zeros((4, DIMENSION)))


@every_oracle
@settings(max_examples=10)
@given(rows=st.integers(1, 6), place=st.integers(0, 10**6), poison=st.sampled_from([np.nan, np.inf, -np.inf]))
def test_one_number_that_is_not_finite_refuses_all_rows(case, rows, place, poison):
    oracle = case.make(2)
    x, y = np.full((rows, DIMENSION), 0.5), np.full((rows, oracle.targets), 0.5)
    everything = [x, y]
    chosen = everything[place % 2]
    chosen.flat[place // 2 % chosen.size] = poison
    state = oracle.init()
    probe = np.full((1, DIMENSION), 0.3)
    before = oracle.predict(state, probe)
    with pytest.raises(ValueError, match=["features", "targets"][place % 2]):
        oracle.update(state, x, y)
    np.testing.assert_array_equal(oracle.predict(state, probe), before)


@every_oracle
def test_new_blocks_know_nothing_and_old_ones_keep_what_they_know(case):
    rng = np.random.default_rng(10)
    oracle, larger = case.make(2), case.make(5)
    x, y, block = draw(rng, oracle, 40)
    state, probe = oracle.update(oracle.init(), x, y, block), contexts(rng, 5)
    grown = oracle.resize(state, 5)
    predictions = larger.predict(grown, probe)
    np.testing.assert_array_equal(predictions[:, :2], oracle.predict(state, probe))
    np.testing.assert_array_equal(predictions[:, 2:], larger.predict(larger.init(), probe)[:, 2:])
    taught = larger.update(grown, x[:5], y[:5], np.full(5, 4))
    always_large = larger.update(larger.update(larger.init(), x, y, block), x[:5], y[:5], np.full(5, 4))
    np.testing.assert_allclose(larger.predict(taught, probe), larger.predict(always_large, probe), atol=1e-12)


@every_oracle
def test_blocks_cannot_be_taken_away(case):
    oracle = case.make(2)
    state = oracle.init()
    np.testing.assert_array_equal(
        oracle.predict(oracle.resize(state, 2), np.zeros((1, DIMENSION))),
        oracle.predict(state, np.zeros((1, DIMENSION))),
    )
    with pytest.raises(ValueError, match="blocks"):
        oracle.resize(state, 1)


@every_oracle
def test_a_constant_is_learnt(case):
    oracle = case.make(1)
    rows = 500
    x = np.repeat([[0.6, 0.6]], rows, axis=0)
    state = oracle.update(oracle.init(), x, np.full((rows, oracle.targets), 0.65))
    np.testing.assert_allclose(oracle.predict(state, x[:1])[0, 0], 0.65, atol=0.03)


def online_errors(oracle, truths, x, y, block):
    """Σ (prediction - truth)² of every lane's worst target, predicting before each row."""
    lanes, rows = x.shape[:2]
    state, total, every = oracle.init(lanes), np.zeros((lanes, oracle.targets)), np.arange(lanes)
    for t in range(rows):
        predicted = oracle.predict(state, x[:, t])[every, block[:, t]]
        total += (predicted - truths[every, block[:, t], t]) ** 2
        state = oracle.update(state, x[:, t], y[:, t], block[:, t])
    return total.max(axis=-1)


def batch_errors(oracle, truths, x, y, block, rows):
    """The mean squared error of every lane's worst target on the contexts after the first `rows`."""
    lanes = x.shape[0]
    state = oracle.init(lanes)
    for t in range(rows):
        state = oracle.update(state, x[:, t], y[:, t], block[:, t])
    probes = x[:, rows:].swapaxes(0, 1).reshape(-1, DIMENSION)
    predicted = oracle.predict(state, probes).reshape(-1, lanes, oracle.blocks, oracle.targets)
    squares = (predicted - truths[:, :, rows:].transpose(2, 0, 1, 3)) ** 2
    return squares.mean(axis=0).max(axis=(1, 2))


@every_oracle
@pytest.mark.parametrize(("blocks", "rounds"), [(1, 200), (3, 60)])
def test_the_error_of_realizable_runs_stays_under_its_bound(case, blocks, rounds):
    oracle = case.make(blocks)
    bound = oracle.error_bound(rounds, delta=0.05)
    if math.isinf(bound):
        return
    rng, lanes, probes = np.random.default_rng(11), 100, 50
    x = contexts(rng, lanes, rounds + probes)
    truths = case.truths(rng, oracle, x)
    assert truths.min() >= 0
    assert truths.max() <= 1
    block = np.tile(np.arange(rounds + probes) % blocks, (lanes, 1))
    played = np.take_along_axis(truths, block[:, None, :, None], axis=1)[:, 0]
    y = (rng.random(played.shape) < played).astype(float)
    if isinstance(oracle, OnlineToBatch):
        bound = oracle.error_bound(rounds // blocks, delta=0.05)
        errors = batch_errors(oracle, truths, x, y, block, rounds)
    else:
        errors = online_errors(oracle, truths, x[:, :rounds], y, block)
    assert np.count_nonzero(errors <= bound) >= 95


@every_oracle
def test_a_bound_is_wider_the_surer_it_must_be(case):
    oracle = case.make(2)
    assert oracle.error_bound(1000, delta=0.01) >= oracle.error_bound(1000, delta=0.1) > 0


@every_oracle
def test_the_bound_per_round_falls(case):
    oracle = case.make(2)
    bound = oracle.error_bound(10**6)
    forgets = getattr(oracle, "forgetting", None) is not None
    assert math.isinf(bound) or forgets or bound / 10**6 < oracle.error_bound(10**3) / 10**3
