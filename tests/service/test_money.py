import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.money import AMOUNT_MAX, MICROS_MAX, amount, micros, micros_rounded_up

# Neighbouring millionths are different floats up to here.
DISTINCT_MICROS_MAX = 2**32 * 10**6


def exact_millionths(value: float) -> Fraction:
    """Return the value of a JSON number: the shortest decimal that parses as this float."""
    return Fraction(repr(value)) * 10**6


@given(st.integers(0, DISTINCT_MICROS_MAX))
def test_an_amount_comes_back_as_the_same_millionths(millionths):
    assert micros(amount(millionths)) == millionths
    assert micros(-amount(millionths)) == -millionths


@given(st.integers(0, MICROS_MAX))
def test_an_amount_of_any_size_comes_back_within_one_millionth(millionths):
    assert abs(micros_rounded_up(amount(millionths))[0] - millionths) <= 1


@given(st.integers(0, 10**15), st.integers(0, 6))
@example(5, 2)
@example(10**15, 6)
def test_an_amount_of_at_most_six_decimals_and_fifteen_digits_is_exact(digits, decimals):
    text = str(Decimal(digits).scaleb(-decimals))
    value = float(text)
    if value <= AMOUNT_MAX:
        assert micros(value) == Fraction(text) * 10**6
        assert micros_rounded_up(value) == (Fraction(text) * 10**6, False)


@given(st.floats(0, AMOUNT_MAX))
@example(5e-324)
@example(0.1 + 0.2)
@example(0.0000001)
def test_a_reported_cost_is_rounded_up_to_the_next_millionth_and_rounding_is_reported(value):
    wanted = exact_millionths(value)
    whole = math.ceil(wanted)
    assert micros_rounded_up(value) == (whole, whole != wanted)


@given(st.floats(-AMOUNT_MAX, AMOUNT_MAX))
def test_more_than_six_decimals_are_refused_and_never_rounded(value):
    wanted = exact_millionths(value)
    if wanted.denominator == 1:
        assert micros(value) == wanted
    else:
        with pytest.raises(ValueError, match="at most 6 decimals"):
            micros(value)


@given(st.decimals(-AMOUNT_MAX, AMOUNT_MAX, allow_nan=False))
def test_decimals_of_any_length_are_exact(value):
    wanted = Fraction(value) * 10**6
    assert micros_rounded_up(value) == (math.ceil(wanted), math.ceil(wanted) != wanted)


@given(st.integers(-AMOUNT_MAX, AMOUNT_MAX))
def test_whole_amounts_are_integers_in_responses(value):
    assert micros(value) == value * 10**6
    assert type(amount(micros(value))) is int


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), -float("inf"), True, "1", None, Decimal("NaN"), Decimal("Infinity")],
)
def test_an_amount_must_be_a_finite_number(value):
    with pytest.raises(ValueError, match="number"):
        micros(value)


@pytest.mark.parametrize("value", [AMOUNT_MAX + 1, 9e9 + 0.001, 1e300, -1e300, 10**400, Decimal("1e999999999")])
def test_an_amount_above_nine_thousand_million_is_refused(value):
    with pytest.raises(ValueError, match="at most 9000000000"):
        micros_rounded_up(value)


def test_a_tiny_decimal_is_rounded_up_without_computing_its_power_of_ten():
    assert micros_rounded_up(Decimal("1e-999999999")) == (1, True)
    assert micros_rounded_up(Decimal("-1e-999999999")) == (0, True)
