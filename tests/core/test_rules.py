"""Every scalar twin in `cbwk_core/rules/` computes what its array form computes, and stands directly below it."""

import ast
import inspect
import pkgutil
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cbwk_core import rules
from cbwk_core.presets import (
    BLIND_COUNT,
    ENERGY_KEPT,
    NOISE_MIN,
    PLAUSIBLE_FLOOR,
    PRICE_CEILING,
    PRICE_STEP,
    UNPACED_BUDGET_MAX,
)
from cbwk_core.rules import dear_arms, dual, gamma, inverse_gap, lagrangian, noise, pace

CLOSE = {"rtol": 1e-12, "atol": 1e-12}
TWIN_SUFFIXES = ("_of_one", "_for_one")
# Each scalar twin and its array form; `compares` adds them.
PAIRS = {}


def compares(array_form, twin):
    """Registers the pair that a test compares."""

    def registered(test):
        PAIRS[twin] = array_form
        return test

    return registered


def odd(low, high, *special):
    """Numbers in a range without those so small that they underflow; the special ones come often."""
    numbers = st.floats(low, high).map(lambda number: round(number, 9))
    return st.sampled_from(special) | numbers if special else numbers


@st.composite
def tables(draw, *elements):
    """One array of (lanes, d) for each strategy of elements; one resource and one lane come often."""
    shape = draw(st.tuples(st.integers(1, 3), st.integers(1, 4)))
    return [draw(arrays(np.float64, shape, elements=each)) for each in elements]


positions = odd(0.0, PRICE_CEILING, 0.0, PRICE_CEILING)
energies = odd(0.0, 1e6, 0.0, 1e12, 1e200)
excesses = odd(-100.0, 100.0, 0.0, -1e6, 1e6)
paces_even = odd(1e-6, 100.0, 1.0)
money = odd(0.0, 1e4, 0.0, 1e-9)
noises = odd(1e-6, 10.0, NOISE_MIN, 1e6)
counts = st.integers(0, 10_000).map(float)


@compares(dual.value_prices, dual.value_prices_of_one)
@given(tables(positions, odd(0.0, 10.0, 0.0), paces_even))
def test_prices_of_one_lane_are_those_of_the_lanes(table):
    position, value, rho = table
    found = dual.value_prices(position, value[:, 0], rho)
    for lane, prices in enumerate(found):
        expected = dual.value_prices_of_one(position[lane].tolist(), value[lane, 0].item(), rho[lane].tolist())
        np.testing.assert_array_equal(prices, expected)


@compares(dual.tightness, dual.tightness_of_one)
@given(tables(money, paces_even))
def test_the_tightness_of_one_pace_is_that_of_all(table):
    rho, even = table
    found = dual.tightness(rho[None], even)[0]
    for at in np.ndindex(rho.shape):
        assert dual.tightness_of_one(rho[at].item(), even[at].item()) == found[at] >= 1.0


@given(tables(positions, energies, money, paces_even), st.integers(1, 5), st.data())
def test_paced_price_steps_one_by_one_are_those_of_all_decisions_at_once(table, steps, data):
    position, energy, rho, even = table
    excess = data.draw(arrays(np.float64, (steps, *position.shape), elements=excesses))
    tight = dual.tightness(np.tile(rho, (steps, 1, 1)), even)
    moved, faded = dual.value_steps(position, energy, excess, tight, ENERGY_KEPT)
    for at in np.ndindex(position.shape):
        one = position[at].item(), energy[at].item()
        for step in range(steps):
            one = dual.value_step_of_one(*one, excess[(step, *at)].item(), tight[(step, *at)].item(), ENERGY_KEPT)
        assert one == (moved[at], faded[at])


@given(st.lists(odd(-3.0, 3.0, 0.0), min_size=1, max_size=200), odd(1.0, 50.0, 1.0), odd(0.0, 1e6, 0.0))
def test_the_energy_of_paced_steps_is_a_weighted_sum_of_the_squares_so_far(excess, tight, first):
    x = np.array(excess)
    found, energy = dual.value_steps(
        np.array([[tight]]), np.array([[first]]), x[:, None, None], np.full((len(x), 1, 1), tight), ENERGY_KEPT
    )
    position = tight
    for step in range(1, len(x) + 1):
        weights = ENERGY_KEPT ** np.arange(step - 1, -1, -1.0)
        sum_of_squares = weights @ x[:step] ** 2 + ENERGY_KEPT**step * first
        in_paces = position / tight + PRICE_STEP * tight * x[step - 1] / np.sqrt(1.0 + tight**2 * sum_of_squares)
        position = tight * min(max(in_paces, 0.0), PRICE_CEILING)
    np.testing.assert_allclose(energy[0, 0], sum_of_squares, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found[0, 0], position, rtol=1e-9, atol=1e-9)


@compares(dual.value_steps, dual.value_step_of_one)
@given(tables(positions, energies), st.integers(1, 5), st.data())
def test_price_steps_one_by_one_are_those_of_all_decisions_at_once(table, steps, data):
    position, energy = table
    excess = data.draw(arrays(np.float64, (steps, *position.shape), elements=excesses))
    moved, grown = dual.value_steps(position, energy, excess)
    for at in np.ndindex(position.shape):
        one = position[at].item(), energy[at].item()
        for step in range(steps):
            one = dual.value_step_of_one(*one, excess[(step, *at)].item())
        assert one == (moved[at], grown[at])
        assert 0.0 <= one[0] <= PRICE_CEILING


@compares(dual.value_replacements, dual.value_replacement_of_one)
@given(tables(positions, energies), st.integers(1, 5), st.data())
def test_replaced_predictions_one_by_one_move_the_price_as_all_at_once(table, steps, data):
    position, energy = table
    difference = data.draw(arrays(np.float64, (steps, *position.shape), elements=excesses))
    in_own_root = data.draw(st.booleans())
    moved = dual.value_replacements(position, energy, difference, in_own_root=in_own_root)
    for at in np.ndindex(position.shape):
        one = position[at].item()
        for step in range(steps):
            one = dual.value_replacement_of_one(one, energy[at].item(), difference[(step, *at)].item(), in_own_root)
        assert one == moved[at]
        assert 0.0 <= one <= PRICE_CEILING


@compares(gamma.practical_gamma, gamma.practical_gamma_of_one)
@given(
    st.integers(1, 50),
    st.integers(1, 500),
    st.lists(st.tuples(counts, noises, counts, odd(0.0, 20_000.0, 0.0)), min_size=1, max_size=4),
)
def test_gamma_of_one_lane_is_that_of_the_lanes(candidates, parameters, lanes):
    rates = gamma.practical_gamma(candidates, parameters, *(np.array(column) for column in zip(*lanes, strict=True)))
    expected = [[gamma.practical_gamma_of_one(candidates, parameters, *lane)] for lane in lanes]
    np.testing.assert_allclose(rates, expected, rtol=1e-14)


@compares(inverse_gap.inverse_gap_weights, inverse_gap.damped_weights_of_one)
@given(st.integers(1, 20), st.integers(1, 3), odd(1e-3, 1e4, 1e9), noises, st.data())
def test_weights_of_one_request_are_those_of_the_requests(arms, rows, rate, variance, data):
    scores = data.draw(arrays(np.float64, (rows, arms), elements=odd(-2.0, 1.0, 0.0, 0.5, -0.1)))
    leverage = data.draw(arrays(np.float64, (rows, arms), elements=odd(0.0, 5.0, 0.0, -1e-17, 1e6)))
    reach = inverse_gap.widths(leverage, np.array([[variance]]))
    some = data.draw(st.none() | arrays(np.float64, (rows, arms), elements=odd(0.0, 1.0, 0.0, 1.0)))
    with_null = np.column_stack([scores, np.zeros(rows)])
    weights, best = inverse_gap.inverse_gap_weights(
        with_null, np.array([[rate]]), explore_null=False, widths=reach, allowed=None, limits=some
    )
    for row in range(rows):
        limits = None if some is None else some[row].tolist()
        one = inverse_gap.damped_weights_of_one(scores[row].tolist(), leverage[row].tolist(), rate, variance, limits)
        np.testing.assert_allclose(one, weights[row], **CLOSE)
        assert one[best[row]] == max(one)  # a limit of a half makes two of them equal
        assert one[-1] == weights[row, -1] or best[row] == arms  # without exploration of null its weight is exactly 0


@compares(dear_arms.try_limits, dear_arms.try_limits_of_one)
@given(st.integers(1, 5), st.integers(1, 3), st.data())
def test_limits_of_one_request_are_those_of_the_requests(arms, resources, data):
    holds = data.draw(arrays(np.float64, (1, arms, resources), elements=odd(0.0, 100.0, 0.0, 1.0)))
    free = data.draw(arrays(np.float64, (1, resources), elements=odd(-10.0, 1e5, 0.0, 100.0)))
    unknown = data.draw(arrays(np.float64, (1, arms), elements=odd(0.0, 2.0, 0.0, 1.0)))
    rest = data.draw(odd(1.0, 1e6, 1.0))
    found = dear_arms.try_limits(free, holds, None, unknown, np.array([rest]))
    one = dear_arms.try_limits_of_one(free[0].tolist(), holds[0].tolist(), unknown[0].tolist(), rest)
    np.testing.assert_allclose(one, found[0], **CLOSE)
    assert max(one) == 1.0 or (free <= 0.0).any()


def test_an_arm_is_tried_more_often_the_more_often_the_budget_pays_it_and_the_better_it_is_known():
    holds, rest = np.array([[[1.0], [101.0]]]), np.array([1000.0])
    limits = [
        dear_arms.try_limits(np.array([[free]]), holds, None, np.array([[1.0, unknown]]), rest)[0].tolist()
        for free, unknown in ((700.0, 1.0), (10_000.0, 1.0), (10_000.0, 0.5), (10_000.0, 0.0))
    ]
    assert limits == [[1.0, 49 / 400_000], [1.0, 0.025], [1.0, 0.1], [1.0, 1.0]]


def test_an_exhausted_resource_limits_no_arm_that_does_not_need_it():
    holds, one = np.array([[[1.0, 0.0], [0.0, 1.0]]]), np.ones((1, 2))
    limits = dear_arms.try_limits(np.array([[0.0, 500.0]]), holds, None, one, np.array([1000.0]))
    assert limits.tolist() == [[0.0, 1.0]]


def test_a_cost_above_the_max_cost_of_a_cheap_arm_does_not_count_as_noise_of_a_dear_one():
    found = noise.in_ranges(np.array([0.0, 0.1]), np.array([0.5, 0.1]), np.array([1.0, 0.002]))
    np.testing.assert_allclose(found, [0.0, 1.0])


def test_a_dear_arm_has_no_limit_where_a_cheaper_one_is_not_allowed():
    holds, one = np.array([[[1.0], [101.0]]]), np.ones((1, 2))
    limits = dear_arms.try_limits(np.array([[700.0]]), holds, np.array([[False, True]]), one, np.array([1000.0]))
    assert limits[0, 1] == 1.0


@given(st.data())
def test_a_limited_arm_is_never_the_best_and_never_above_its_limit(data):
    scores = data.draw(arrays(np.float64, (1, 4), elements=odd(-2.0, 1.0, 0.0, 0.5)))
    limits = data.draw(arrays(np.float64, (1, 3), elements=odd(0.0, 1.0, 0.0, 1.0)))
    one, wide, rate = np.ones(1), np.ones((1, 4)), np.array([[10.0]])
    options = {"left": 1000 * one, "share": one, "parameters": 6}
    for weights, best in (
        inverse_gap.inverse_gap_weights(scores, rate, explore_null=False, widths=wide, limits=limits),
        inverse_gap.plausible_weights(scores, wide[:, 1:], rate, wide[:, :1], limits=limits, **options),
    ):
        assert (weights >= 0.0).all()
        np.testing.assert_allclose(weights.sum(), 1.0)
        assert best[0] == 3 or limits[0, best[0]] == 1.0
        assert (weights[0, :3] <= limits[0] + 1e-12).all()


@compares(inverse_gap.played_share, inverse_gap.played_share_of_one)
@given(st.lists(st.tuples(counts, counts), min_size=1, max_size=4))
def test_the_share_of_one_lane_is_that_of_the_lanes_and_a_probability_above_0(lanes):
    found = inverse_gap.played_share(*(np.array(column) for column in zip(*lanes, strict=True)))
    assert found.tolist() == [inverse_gap.played_share_of_one(*lane) for lane in lanes]
    assert (found > 0.0).all()
    assert (found <= 1.0).all()


@st.composite
def plausibilities(draw):
    """Scores with null last, leverages, and the numbers that `plausible_weights` takes."""
    arms, rows = draw(st.integers(1, 20)), draw(st.integers(1, 3))
    scores = draw(arrays(np.float64, (rows, arms), elements=odd(-2.0, 1.0, 0.0, 0.5, -0.1)))
    leverage = draw(arrays(np.float64, (rows, arms), elements=odd(0.0, 5.0, 0.0, -1e-17, 1e6)))
    variance = draw(arrays(np.float64, (1, draw(st.sampled_from([1, arms]))), elements=noises))
    rate, left, share = (draw(each) for each in (odd(1e-3, 1e4, 1e9), odd(0.0, 1e5, 0.0, 1.0), odd(1e-4, 1.0, 1.0)))
    numbers = rate, variance, left, share
    return np.column_stack([scores, np.zeros(rows)]), leverage, numbers, draw(st.integers(1, 500))


def plausible(scores, leverage, numbers, parameters, allowed=None, limits=None):
    rate, variance, left, share = numbers
    options = {"left": np.array([left]), "share": np.array([share]), "parameters": parameters, "limits": limits}
    return inverse_gap.plausible_weights(scores, leverage, np.array([[rate]]), variance, allowed, **options)


@compares(inverse_gap.plausible_weights, inverse_gap.plausible_weights_of_one)
@given(plausibilities(), st.data())
def test_plausible_weights_of_one_request_are_those_of_the_requests(case, data):
    scores, leverage, (rate, variance, *rest), parameters = case
    some = data.draw(st.none() | arrays(np.float64, leverage.shape, elements=odd(0.0, 1.0, 0.0, 1.0)))
    weights, best = plausible(*case, limits=some)
    by_arm = np.broadcast_to(variance[0], leverage.shape[1]).tolist()
    for row, one_row in enumerate(scores[:, :-1].tolist()):
        limits = None if some is None else some[row].tolist()
        one = inverse_gap.plausible_weights_of_one(
            one_row, leverage[row].tolist(), rate, by_arm, *rest, parameters, limits
        )
        np.testing.assert_allclose(one, weights[row], **CLOSE)
        assert one[best[row]] == max(one)  # a limit of a half makes two of them equal


@compares(inverse_gap.worth_variances, inverse_gap.worth_variances_of_one)
@given(plausibilities())
def test_the_variances_of_one_request_are_those_of_the_requests(case):
    _, leverage, (_, variance, left, _), parameters = case
    found = inverse_gap.worth_variances(leverage, variance, np.array([left / parameters]))
    by_arm = np.broadcast_to(variance[0], leverage.shape[1]).tolist()
    for row, one_row in enumerate(leverage.tolist()):
        one = inverse_gap.worth_variances_of_one(one_row, by_arm, left / parameters)
        np.testing.assert_allclose(one, found[row], **CLOSE)


@compares(inverse_gap.optimistic_weights, inverse_gap.optimistic_weights_of_one)
@given(plausibilities(), st.data())
def test_optimistic_weights_of_one_request_are_those_of_the_requests(case, data):
    scores, leverage, (rate, variance, left, _), parameters = case
    some = data.draw(st.none() | arrays(np.float64, leverage.shape, elements=odd(0.0, 1.0, 0.0, 1.0)))
    options = {"limits": some, "left": np.array([left]), "parameters": parameters}
    weights, best = inverse_gap.optimistic_weights(scores, leverage, np.array([[rate]]), variance, **options)
    by_arm = np.broadcast_to(variance[0], leverage.shape[1]).tolist()
    for row, one_row in enumerate(scores[:, :-1].tolist()):
        limits = None if some is None else some[row].tolist()
        one = inverse_gap.optimistic_weights_of_one(
            one_row, leverage[row].tolist(), rate, by_arm, left, parameters, limits
        )
        np.testing.assert_allclose(one, weights[row], **CLOSE)
        np.testing.assert_allclose(sum(one), 1.0)
        assert one[best[row]] == max(one)


def test_optimistic_weights_play_an_arm_below_null_until_it_is_known():
    scores, one = np.array([[-0.1, -0.4, 0.0]]), np.ones((1, 1))
    found = [
        inverse_gap.optimistic_weights(scores, leverage * np.ones((1, 2)), one, one, left=1e3 * one[0], parameters=2)
        for leverage in (1.0, 0.02, 0.0001)
    ]
    assert [best.tolist() for _, best in found] == [[0], [0], [2]]
    least = 1.0 / (3.0 * PLAUSIBLE_FLOOR + 1.0)
    assert all((weights[0, :2] > least).all() for weights, _ in found), "every arm keeps a part of an equal share"


@given(plausibilities(), st.data())
def test_plausible_weights_are_probabilities_of_the_allowed_candidates(case, data):
    allowed = data.draw(arrays(bool, case[0].shape))
    allowed[:, -1] = True
    weights, best = plausible(*case, allowed)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-12)
    assert (weights[allowed][weights[allowed] != 0.0] > 0.0).all()
    assert (weights[~allowed] == 0.0).all()
    assert allowed[np.arange(len(best)), best].all()


@given(plausibilities(), st.data())
def test_plausible_weights_keep_the_lemma_of_inverse_gap_weighting(case, data):
    """Whatever the true worths are, null's apart, which is known: see the docstring of `plausible_weights`."""
    scores, _, (rate, _, _, share), _ = case
    weights, best = plausible(*case)
    true = scores.copy()
    true[:, :-1] += data.draw(arrays(np.float64, (len(scores), scores.shape[1] - 1), elements=odd(-3.0, 3.0, 0.0)))
    gap = scores.max(axis=1, keepdims=True) - scores
    tries = np.where(best == scores.shape[1] - 1, share, 1.0)
    regret = true.max(axis=1) - np.vecdot(weights, true)
    floor = (PLAUSIBLE_FLOOR * scores.shape[1] / tries + 1.0) / rate
    bound = np.vecdot(weights, gap) + floor + rate / 2.0 * np.vecdot(weights, (scores - true) ** 2)
    assert (regret <= bound * (1.0 + 1e-9) + 1e-9).all()


def test_an_arm_is_tried_less_the_surer_it_is_worse_and_the_fewer_plays_are_left():
    scores, known = np.array([[0.5, 0.3, 0.0]]), np.array([[0.001, 0.01]])
    tried = [plausible(scores, known * more, (100.0, np.ones((1, 1)), left, 1.0), 2)[0][0, 1] for more, left in
             ((0.1, 1e3), (1.0, 1e3), (1.0, 1e5))]  # fmt: skip
    assert tried == sorted(tried)
    assert tried[0] < tried[2] / 5


@compares(inverse_gap.sample, inverse_gap.sample_of_one)
@given(st.lists(odd(0.0, 1.0, 0.0), min_size=1, max_size=8), st.integers(0, 7), odd(0.0, 0.999999, 0.0, 1.0 - 2**-53))
def test_the_draw_of_one_request_is_that_of_the_requests(others, best, uniform):
    """The best candidate has the largest probability; rounding may leave the total below 1."""
    best %= len(others)
    others[best] = 0.0
    odds = [each / (3.0 * sum(others) or 1.0) for each in others]
    for total in (1.0, 1.0 - 2**-52):
        odds[best] = 0.0
        odds[best] = total - sum(odds)
        arm = inverse_gap.sample(np.array([odds] * 2), np.array([best] * 2), np.array([uniform] * 2))
        assert arm.tolist() == [inverse_gap.sample_of_one(odds, uniform)] * 2


@compares(lagrangian.direction, lagrangian.direction_of_one)
@given(tables(odd(0.0, 1e4, 0.0)))
def test_the_direction_of_one_lane_is_that_of_the_lanes(table):
    for prices, u in zip(table[0], lagrangian.direction(table[0]), strict=True):
        np.testing.assert_array_equal(lagrangian.direction_of_one(prices.tolist()), u)


@compares(lagrangian.scores, lagrangian.scores_of_one)
@given(tables(odd(0.0, 10.0, 0.0)), st.integers(1, 9), st.booleans(), st.data())
def test_scores_of_one_request_are_those_of_the_requests(table, arms, same_prices, data):
    u = lagrangian.direction(table[0])
    rows = len(u)
    predictions = data.draw(arrays(np.float64, (rows, arms, u.shape[1]), elements=odd(-1.0, 2.0, 0.0)))
    u = u[:1] if same_prices else u
    found = lagrangian.scores(predictions, u)
    assert not found[:, -1].any()
    for row in range(rows):
        one = lagrangian.scores_of_one(predictions[row], u[0 if same_prices else row])
        np.testing.assert_allclose(one, found[row, :-1], **CLOSE)


@compares(noise.summed_residuals, noise.summed_residuals_of_one)
@given(tables(excesses, excesses, excesses))
def test_residuals_summed_one_by_one_are_those_of_all_outcomes_at_once(table):
    surprises = np.stack(table)
    lanes, targets = table[0].shape
    start = noise.first_residuals(lanes, targets)
    together = noise.summed_residuals(start, surprises)
    for lane in range(lanes):
        alone = start[lane : lane + 1]
        for surprise in surprises[:, lane]:
            alone = noise.summed_residuals_of_one(alone, surprise)
        products = surprises[:, lane, :, None] * surprises[:, lane, None]
        rounding = 1e-14 * np.abs(products).sum(axis=0).max()
        np.testing.assert_allclose(alone[0], start[lane] + products.sum(axis=0), rtol=1e-12, atol=rounding)
        np.testing.assert_allclose(alone[0], together[lane], rtol=1e-12, atol=rounding)
        at_once = noise.summed_residuals(start[lane : lane + 1], surprises[:, lane : lane + 1])
        np.testing.assert_array_equal(alone, at_once)


@compares(noise.noise, noise.noise_of_one)
@compares(noise.noise, noise.noises_of_one)
@given(tables(odd(0.0, 10.0, 0.0)), st.integers(0, 6), counts, st.data())
def test_the_noise_of_one_lane_is_that_of_the_lanes(table, outcomes, learnt, data):
    u = lagrangian.direction(table[0])
    lanes, targets = u.shape
    errors = data.draw(arrays(np.float64, (lanes, outcomes, targets), elements=odd(-2.0, 2.0, 0.0)))
    residuals = errors.transpose(0, 2, 1) @ errors + data.draw(st.sampled_from([0.0, 1.0])) * np.eye(targets)
    both = np.stack([u, 0.5 * u], axis=1)
    found = noise.noise(residuals, np.full(lanes, learnt), both)
    assert (found >= NOISE_MIN).all()
    for lane in range(lanes):
        one = noise.noise_of_one(residuals[lane], learnt, u[lane])
        rounding = 1e-14 * np.abs(u[lane]) @ np.abs(residuals[lane]) @ np.abs(u[lane])
        np.testing.assert_allclose(one, found[lane, 0], rtol=1e-12, atol=rounding)
        several = noise.noises_of_one(residuals[lane], learnt, both[lane])
        np.testing.assert_allclose(several, found[lane], rtol=1e-12, atol=rounding)


delays = odd(0.0, 1e4, 0.0, 1.0, 1e6)
rests = st.integers(1, 10_000).map(float) | st.just(1.0)


@compares(pace.is_late, pace.is_late_for_one)
@given(st.lists(st.tuples(delays, rests) | rests.map(lambda rest: (0.001 * rest, rest)), min_size=1, max_size=4))
def test_one_lane_is_late_where_the_lanes_are(lanes):
    delay, rest = (np.array(column) for column in zip(*lanes, strict=True))
    assert pace.is_late(delay, rest).tolist() == [pace.is_late_for_one(*lane) for lane in lanes]


@compares(pace.paces, pace.pace_of_one)
@example(table=[np.full((1, 1), each) for each in (1.0, 1.5e-9, 1.5e-9, 5.0, 10.0)], closed=False)
@given(table=tables(odd(-10.0, 1e4, 0.0, 1e-9), money, money, delays, rests), closed=st.booleans())
def test_the_pace_of_one_resource_is_that_of_the_lanes(table, closed):
    """Lanes that are late and lanes that are not stand side by side; where `closed`, no decision is open."""
    unspent, held, predicted, delay, rest = table
    delay, rest = delay[:, :1], rest[:, :1]
    if closed:
        held, predicted = 0.0 * held, 0.0 * predicted
    rho, blocking = pace.paces(unspent, held, predicted, delay, rest)
    assert (blocking is None) == (not pace.is_late(delay, rest).any())
    for lane, j in np.ndindex(unspent.shape):
        amounts = [each[lane, j].item() for each in (unspent, held, predicted)]
        one = pace.pace_of_one(*amounts, delay[lane, 0].item(), rest[lane, 0].item())
        found = rho[lane, j], np.nan if blocking is None else blocking[lane, j]
        np.testing.assert_allclose(one, found, **CLOSE)


@compares(pace.window_paces, pace.window_pace_of_one)
@given(tables(paces_even, odd(-10.0, 1e4, 0.0), odd(0.0, 1.0, 0.0), odd(0.0, 1e6, 0.0), rests))
def test_the_pace_of_one_window_is_that_of_all(table):
    found = pace.window_paces(*table)
    for at in np.ndindex(found.shape):
        assert pace.window_pace_of_one(*(each[at].item() for each in table)) == found[at] >= 0.0


@compares(pace.blocked, pace.blocked_of_one)
@given(tables(odd(-1.0, 2.0, 0.0), odd(0.0, 1.0, 0.0), odd(0.0, 1.0, 0.0)))
def test_the_blocked_cost_of_one_resource_is_that_of_the_rows(table):
    found = pace.blocked(*table)
    for at in np.ndindex(found.shape):
        assert pace.blocked_of_one(*(each[at].item() for each in table)) == found[at]


@compares(pace.blind_share, pace.blind_share_of_one)
@given(
    st.lists(st.tuples(*[st.sampled_from([0.0, BLIND_COUNT - 1.0, BLIND_COUNT + 0.0, 500.0])] * 2), min_size=1),
    st.lists(st.sampled_from([1.0, UNPACED_BUDGET_MAX, UNPACED_BUDGET_MAX + 1.0, 1e6]), min_size=1, max_size=4),
)
def test_one_lane_plays_with_the_probability_of_the_lanes_while_blind(lanes, budgets):
    opened, settled = (np.array(column) for column in zip(*lanes, strict=True))
    granted, rho = np.tile(budgets, (len(lanes), 1)), [each / 500.0 for each in budgets]
    found = pace.blind_share(opened, settled, granted, granted / 500.0)
    expected = [pace.blind_share_of_one(*lane, budgets, rho) for lane in lanes]
    assert expected == ([1.0] * len(lanes) if found is None else found.tolist())


def modules():
    return [import_module(f"{rules.__name__}.{found.name}") for found in pkgutil.iter_modules(rules.__path__)]


def is_twin(name):
    return name.endswith(TWIN_SUFFIXES) and not name.startswith("_")


def test_every_scalar_twin_is_compared_with_an_array_form_of_its_module():
    twins = {
        function
        for module in modules()
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if is_twin(name) and function.__module__ == module.__name__
    }
    assert PAIRS.keys() == twins
    for twin, array_form in PAIRS.items():
        assert twin.__module__ == array_form.__module__
        assert not is_twin(array_form.__name__)
        assert noun(twin.__name__) == noun(array_form.__name__)


def noun(name):
    """The last word of a function's name in the singular, without the suffix of a twin."""
    for suffix in TWIN_SUFFIXES:
        name = name.removesuffix(suffix)
    return name.split("_")[-1].removesuffix("s")


def test_every_scalar_twin_stands_directly_below_its_array_form_or_another_twin_of_it():
    array_forms = {twin.__name__: array_form.__name__ for twin, array_form in PAIRS.items()}
    for module in modules():
        tree = ast.parse(Path(inspect.getfile(module)).read_text(encoding="utf-8"))
        names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        for above, name in pairwise(["", *names]):
            if is_twin(name):
                assert array_forms.get(above, above) == array_forms[name]
