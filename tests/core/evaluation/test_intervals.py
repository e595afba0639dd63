import numpy as np
import pytest
from scipy import stats

from cbwk_core.evaluation.bernstein import bernstein_radius, dr_radius, ips_radius, snips_radius
from cbwk_core.evaluation.bootstrap import BLOCKS_MAX, bca_interval, blocks, draw_counts, resampled
from cbwk_core.simulation.coverage import Task, measure


def test_intervals_of_a_skewed_mean_are_those_of_scipy():
    sample = np.random.default_rng(1).exponential(size=300)
    drawn = resampled(blocks(sample[:, None]), 20_000, np.random.default_rng(2))
    ours = bca_interval(sample.mean(), drawn[:, 1] / drawn[:, 0], sample - sample.mean(), 0.9)
    theirs = stats.bootstrap(
        (sample,), np.mean, n_resamples=20_000, confidence_level=0.9, method="BCa", rng=np.random.default_rng(3)
    ).confidence_interval
    np.testing.assert_allclose(ours, theirs, atol=0.004)
    plain = np.quantile(drawn[:, 1] / drawn[:, 0], [0.05, 0.95])
    assert abs(plain[1] - theirs[1]) > 0.004


def test_an_interval_of_a_very_skewed_estimate_keeps_its_ends_in_order():
    draws = np.random.default_rng(1).pareto(1.1, size=2000)
    one_heavy = np.append(np.full(50, -0.02), 1.0)
    low, high = bca_interval(float(np.quantile(draws, 0.999)), draws, one_heavy, 0.9999)
    assert low < high == draws.max()


def test_a_constant_has_an_interval_of_no_length():
    assert bca_interval(0.5, np.full(9, 0.5), np.zeros(4), 0.95) == (0.5, 0.5)


def test_drawing_with_replacement_counts_as_the_multinomial_does():
    counts = draw_counts(20, 4000, np.random.default_rng(1))
    assert (counts.sum(axis=1) == 20).all()
    np.testing.assert_allclose(counts.mean(axis=0), 1.0, atol=0.1)
    np.testing.assert_allclose(counts.var(axis=0), 19 / 20, atol=0.1)


def test_draws_in_parts_have_the_sums_of_the_rows_they_name(monkeypatch):
    monkeypatch.setattr("cbwk_core.evaluation.bootstrap.DRAWS_AT_ONCE", 50)
    drawn = resampled(blocks(np.full((20, 1), 3.0)), 7, np.random.default_rng(1))
    assert drawn.tolist() == [[20.0, 60.0]] * 7


def test_long_logs_are_drawn_in_blocks_of_neighbours_that_lose_nothing():
    rows = np.random.default_rng(1).random((BLOCKS_MAX * 3 + 1, 2))
    sums = blocks(rows)
    assert sums.shape == (BLOCKS_MAX, 3)
    assert set(sums[:, 0]) == {3.0, 4.0}
    np.testing.assert_allclose(sums.sum(axis=0)[1:], rows.sum(axis=0))
    np.testing.assert_allclose(sums[0, 1:], rows[:3].sum(axis=0))


def test_the_radius_is_that_of_maurer_and_pontil_worked_out_by_hand():
    # Four numbers of variance 1/3; ln(4/0.05) = 4.382; √(2·4.382/3/4) + 7·4.382/(3·3) = 0.8546 + 3.4083.
    found = bernstein_radius(np.array([[0.0], [1.0], [0.0], [1.0]]), np.array([1.0]), error=0.05)
    assert found == pytest.approx([4.2629], abs=1e-3)
    assert bernstein_radius(np.zeros((1, 1)), np.array([1.0]), 0.05) == np.inf


def test_radii_take_the_largest_weight_and_the_range_for_what_a_round_may_be():
    n, ranges = 100, np.array([[0.0, 2.0]])
    nothing, fold = np.zeros((n, 1)), np.zeros(n, dtype=np.int64)
    tail = 7.0 * np.log(4.0 / 0.05) / (3.0 * (n - 1))
    assert ips_radius(nothing, ranges, 5.0, 0.05) == pytest.approx([5.0 * 2.0 * tail])
    assert dr_radius(nothing, fold, ranges, 5.0, 0.05) == pytest.approx([(1.0 + 2.0 * 5.0) * 2.0 * tail])
    half = 7.0 * np.log(4.0 / 0.025) / (3.0 * (n - 1))
    zeros = np.zeros(n)
    found = snips_radius(zeros, nothing, zeros, np.array([0.0]), ranges, 5.0, 0.05)
    assert found == pytest.approx([5.0 * 2.0 * half])


def test_folds_are_bounded_one_by_one():
    rows, ranges = np.random.default_rng(1).random((101, 1)), np.array([[0.0, 1.0]])
    fold = np.arange(101) % 2
    apart = [bernstein_radius(rows[fold == k], np.array([3.0]), 0.025)[0] for k in (0, 1)]
    assert dr_radius(rows, fold, ranges, 1.0, 0.05) == pytest.approx([(51 * apart[0] + 50 * apart[1]) / 101])


def test_intervals_of_95_percent_hold_the_truth_about_so_often():
    """The short version of `cbwk_core.simulation.coverage`: 40 logs, four standard errors of a binomial share."""
    found = [each for each in measure(Task("fixed", 2000, 40, 2)) if each.row == "leaning"]
    assert min(each.effective for each in found) >= 200
    hits = np.mean([each.hits for each in found], axis=0)
    bootstrap, bernstein, _ = np.moveaxis(hits, 1, 0)
    margin = 4.0 * np.sqrt(0.95 * 0.05 / 40)
    assert (bootstrap > 0.95 - margin).all()
    assert bootstrap.mean() < 1.0
    assert (bernstein == 1.0).all()
