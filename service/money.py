"""Amounts: numbers with at most six decimals in the interface, integers of millionths inside.

A JSON number is parsed as a float. Its shortest decimal form is what the caller wrote if that has at most fifteen
digits, so all arithmetic here uses that form and never the binary value of the float.
"""

from decimal import Decimal
from math import isfinite

DECIMALS = 6
ONE = 1_000_000  # a unit in millionths
AMOUNT_MAX = 9_000_000_000
MICROS_MAX = AMOUNT_MAX * ONE

# Below this, neighbouring millionths are different floats, so a float stands for at most one of them.
_DISTINCT_BELOW = 2.0**32


def micros(value: float | Decimal) -> int:
    """Return the amount in millionths; raise a ValueError if it is not a whole number of them.

    >>> micros(0.05), micros(250), micros(-1.5)
    (50000, 250000000, -1500000)
    >>> micros(0.0000001)
    Traceback (most recent call last):
    ValueError: must have at most 6 decimals
    """
    whole, rest = _divided(value)
    if rest:
        raise ValueError(f"must have at most {DECIMALS} decimals")
    return whole


def micros_rounded_up(value: float | Decimal) -> tuple[int, bool]:
    """Return the amount in millionths, rounded up, and whether rounding changed it.

    >>> micros_rounded_up(0.031), micros_rounded_up(0.0000001)
    ((31000, False), (1, True))
    """
    whole, rest = _divided(value)
    return whole + rest, rest


def amount(micros: int) -> float:
    """Return an amount in millionths as a number for a response: an int if it is whole.

    >>> amount(1_000_000), amount(50_000)
    (1, 0.05)
    """
    whole, rest = divmod(micros, ONE)
    return micros / ONE if rest else whole


def _divided(value: float | Decimal) -> tuple[int, bool]:
    """Return whole millionths, rounded down, and whether rounding changed the value."""
    kind = type(value)
    if kind is int:
        return _limited(int(value) * ONE), False
    if kind is float:
        if not isfinite(value):
            raise ValueError("must be a finite number")
        if -_DISTINCT_BELOW < value < _DISTINCT_BELOW:
            near = round(value * ONE)
            if near / ONE == value:
                return near, False
        return _of_decimal(Decimal(repr(value)))
    if isinstance(value, Decimal):
        return _of_decimal(value)
    raise ValueError("must be a number")


def _of_decimal(value: Decimal) -> tuple[int, bool]:
    if not value.is_finite():
        raise ValueError("must be a finite number")
    if not value:
        return 0, False
    # These two checks bound the integers below; the exponent of a Decimal has no bound.
    if value.adjusted() > 10:
        raise ValueError(f"must be at most {AMOUNT_MAX}")
    if value.adjusted() < -DECIMALS:
        return (-1 if value < 0 else 0), True
    numerator, denominator = value.as_integer_ratio()
    whole, rest = divmod(numerator * ONE, denominator)
    return _limited(whole), rest != 0


def _limited(micros: int) -> int:
    if not -MICROS_MAX <= micros <= MICROS_MAX:
        raise ValueError(f"must be at most {AMOUNT_MAX}")
    return micros
