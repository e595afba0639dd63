import math

import numpy as np
import pytest
from scipy import integrate, optimize

from cbwk_core.evaluation.sequences import (
    LAMBDA_COUNT,
    LAMBDA_MAX,
    TUNED_VARIANCE,
    asymptotic_radius,
    bernstein_sequence,
    mixture_bound,
)


def wealth(rows, mean, guesses):
    """The mixture, round by round: what a gambler owns that bets each share λ of its wealth against the mean."""
    owned = [1.0 / ((k + 1) * (k + 2)) for k in range(LAMBDA_COUNT)]
    for row, guess in zip(rows, guesses, strict=True):
        for k in range(LAMBDA_COUNT):
            rate = LAMBDA_MAX / 2**k
            cost = -math.log(1.0 - rate) - rate
            owned[k] *= math.exp(rate * (row - mean) - cost * (row - guess) ** 2)
    return sum(owned)


def slow_lower_end(rows, low, length, unit, error):
    """The smallest mean against which the gambler does not get 1/error, by a root search over whole games."""
    scaled, guesses, seen = [(row - low) / unit for row in rows], [], 0.0
    for t, row in enumerate(scaled):
        guesses.append(min(max(seen / (t + 1), 0.0), length / unit))
        seen += row

    def excess(mean):
        return math.log(wealth(scaled, mean, guesses)) - math.log(1.0 / error)

    return low + unit * optimize.brentq(excess, -50.0, max(scaled) + 1.0, xtol=1e-13)


@pytest.mark.parametrize("heavy", [1.0, 8.0])
def test_the_bernstein_sequence_is_what_a_gambler_finds_who_plays_round_by_round(heavy):
    rng = np.random.default_rng(1)
    rows = heavy * (rng.random(60) < 0.4 / heavy) - 0.5
    ranges, unit = np.array([[-0.5, 0.5]]), np.array([1.0])
    found = bernstein_sequence(rows[:, None], -rows[:, None], np.array([[-9.0, 9.0]]), np.array([18.0]), 0.05)
    assert found[0, 0] == pytest.approx(-found[0, 1]), "the upper end is the lower one of the negative"
    lower = slow_lower_end(rows.tolist(), -9.0, 18.0, 18.0, 0.025)
    assert found[0, 0] == pytest.approx(max(lower, -9.0), abs=1e-9)
    short = bernstein_sequence(rows[:, None], rows[:, None], ranges, unit, 0.05)
    expected = slow_lower_end(rows.tolist(), -0.5, 1.0, 1.0, 0.025)
    assert short[0, 0] == pytest.approx(max(expected, -0.5), abs=1e-9)


def test_each_factor_of_the_mixture_has_an_expectation_of_at_most_one():
    """The lemma of Fan, Grama and Liu by brute force: two-point rows, every guess, every λ."""
    for rate in LAMBDA_MAX * 0.5 ** np.arange(6):
        cost = -np.log1p(-rate) - rate
        for top in (0.5, 1.0, 4.0, 100.0):
            for chance in (0.001, 0.1, 0.5, 0.9):
                mean = top * chance
                for guess in np.linspace(0.0, 1.0, 11):
                    rows, shares = np.array([0.0, top]), np.array([1.0 - chance, chance])
                    factors = np.exp(rate * (rows - mean) - cost * np.square(rows - guess))
                    assert shares @ factors <= 1.0 + 1e-12


def test_the_bound_grows_like_the_root_of_the_energy_and_shrinks_with_the_level():
    energy = np.array([1e2, 1e4, 1e6, 1e8])
    strict, loose = mixture_bound(energy, 0.01), mixture_bound(energy, 0.1)
    assert (strict > loose).all()
    assert (strict / np.sqrt(energy) < 5.0).all()
    assert (np.diff(strict) > 0.0).all()


def test_the_asymptotic_radius_is_where_the_normal_mixture_reaches_its_level():
    for variance in (3.0, 50.0, 4000.0):
        for error in (0.05, 0.2):
            best = -2.0 * math.log(error) + math.log(1.0 - 2.0 * math.log(error))
            rho = math.sqrt(best / (TUNED_VARIANCE * 4.0))
            total = asymptotic_radius(np.array([variance]), np.array([[-1.0, 1.0]]), 1, error)[0]

            def mixed(rate, total=total, variance=variance, rho=rho):
                normal = math.exp(-0.5 * (rate / rho) ** 2) / (rho * math.sqrt(2.0 * math.pi))
                return normal * math.exp(rate * total - 0.5 * rate**2 * variance)

            found, _ = integrate.quad(mixed, -20.0 * rho, 20.0 * rho, points=[0.0, total / variance], limit=500)
            assert found == pytest.approx(1.0 / error, rel=1e-6)


def test_sequences_hold_at_all_rounds_at_once_on_a_log_that_adapts():
    """The weight of a round is large after bad luck; the interval is looked at after every tenth round."""
    missed = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        rows, mean = np.empty(400), 0.3
        for t in range(400):
            share = 0.1 if t and rows[:t].mean() < mean else 0.8
            rows[t] = (rng.random() < share) * (rng.random() < mean) / share
        ends = [
            bernstein_sequence(rows[:n, None], rows[:n, None], np.array([[0.0, 1.0]]), np.array([11.0]), 0.1)[0]
            for n in range(10, 401, 10)
        ]
        missed += any(not low <= mean <= high for low, high in ends)
    assert missed <= 10


def test_a_large_weight_does_not_lengthen_the_end_that_it_cannot_move():
    """The lower end of rows that are never negative needs no bound on weights: the unit is that of the outcome."""
    rng = np.random.default_rng(1)
    rows = 100.0 * (rng.random((5000, 1)) < 0.004)
    ranges = np.array([[0.0, 1.0]])
    known = bernstein_sequence(rows, rows, ranges, np.ones(1), 0.05)[0, 0]
    bounded = bernstein_sequence(rows, rows, ranges, np.array([101.0]), 0.05)[0, 0]
    assert known >= bounded
    assert known == pytest.approx(
        rows.mean() - mixture_bound(np.square(rows - 0.0).sum(axis=0), 0.025)[0] / 5000, abs=0.05
    )
