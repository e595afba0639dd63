"""Detection of changes in the outcomes: a test by betting against the model, for every block and target.

If a model is right, the error (prediction minus outcome) has mean 0 given the past, for any distribution of outcomes. A
bet that the next error resembles the mean s of the last errors then gains nothing on average: with variance v and error
e, the bet multiplies the wealth by 1 + s·e/v. The wealth is an e-process (Ramdas et al. 2023). Rare, large errors add
little to its logarithm: a click where 2 % was expected adds its likelihood ratio and no more.

Wealth below 1 is reset to 1 (an e-detector, Shin et al. 2022). It then exceeds a level L at most once in L outcomes on
average. The alarm level is n²·blocks·targets after n outcomes of a block, where `blocks` counts the blocks with
outcomes. Summed over n >= OUTCOMES_MIN, a false alarm occurs in about one of 40 runs of any length. This number is
approximate because the variance v includes the current error.

The state stores the logarithm of the wealth. The limit FACTOR_MIN makes a bet slightly too favourable. To
compensate, v is the larger of the block's variance and that of all blocks; otherwise a block without its first rare
outcome would bet too much against it. Two kinds of error are not bet on: errors up to ridge·leverage, which the prior
explains for parameters of length 1, and errors before the leverage falls to LEVERAGE_MAX, where the model is uncertain.
"""

from __future__ import annotations

from math import log

# Bets start when the leverage is at most this: ten outcomes per parameter.
LEVERAGE_MAX = 0.1
# Outcomes of a block, from then on, that are needed to estimate the mean and the variance of its errors.
OUTCOMES_MIN = 40
# Number of outcomes in the mean s. With 20, a few clicks in close succession raised an alarm. A larger number detects
# changes later; with 100, a shift by one standard deviation is detected after about 50 outcomes.
MEMORY = 100.0
# The smallest factor that a bet applies to the wealth.
FACTOR_MIN = 0.5
# The square of one error that may occur but has not been observed; outcomes are nominally at most 1. It is added to the
# sum of squares of all blocks. Without it, a model that has seen forty outcomes and no click would bet everything.
UNSEEN_SQUARE = 1.0
# The smallest alarm level: that of the first bet in a single series. Smaller wealth needs no further check.
LEVEL_MIN = 2.0 * log(OUTCOMES_MIN + 1.0)


def observe_errors(row: list[float], pool: list[float], errors: list[float], leverage: float, pull: float) -> float:
    """Add the errors of one outcome to `row` and `pool`, in place, and return the largest log wealth of the targets.

    row: the block's count of outcomes, then the means s, the sums of squares and the log wealth, one per target each.
    pool: the count of outcomes of all blocks, then the sums of squares, one per target.
    pull: the size of an error that the prior explains.

    >>> row, pool = [0.0] * 4, [0.0] * 2
    >>> [round(observe_errors(row, pool, [(-1.0) ** i], 0.01, 0.0), 1) for i in range(50)][-1]  # right on average
    0.0
    >>> [round(observe_errors(row, pool, [1.0], 0.01, 0.0), 1) for _ in range(60)][::20]
    [0.0, 3.0, 9.4]
    """
    pool[0] = seen = pool[0] + 1.0
    weight, targets, largest = 1.0 / (1.0 + leverage), len(errors), 0.0
    if leverage > LEVERAGE_MAX:
        for j, error in enumerate(errors, 1):
            pool[j] += weight * error * error
        return 0.0
    before = row[0]
    row[0] = count = before + 1.0
    share, bets = 1.0 / (count if count < MEMORY else MEMORY), count > OUTCOMES_MIN
    for j, error in enumerate(errors, 1):
        at = j + targets
        shift, squares, square = row[j], row[at], weight * error * error
        pool[j] = total = pool[j] + square
        row[j] = shift + (error - shift) * share
        row[at] = squares + square
        if bets:
            stake = shift - pull if shift > pull else shift + pull if shift < -pull else 0.0
            own, all_blocks = squares / before, (UNSEEN_SQUARE + total) / seen
            factor = 1.0 + stake * error / (own if own > all_blocks else all_blocks)
            at += targets
            wealth = row[at] + log(factor if factor > FACTOR_MIN else FACTOR_MIN)
            if wealth < 0.0:
                wealth = 0.0
            elif wealth > largest:
                largest = wealth
            row[at] = wealth
    return largest


def alarm_level(count: float, series: int, dismissed: float = 0.0) -> float:
    """Return the log wealth that signals a change, after `count` outcomes in one of `series` blocks times targets.

    dismissed: the alarms that no trial has confirmed. Each shows that errors reach such a wealth without a change, so
    the next alarm needs as much again.

    >>> round(alarm_level(100.0, 1), 2), round(alarm_level(100.0, 6), 2)
    (9.21, 11.0)
    """
    return (2.0 * log(max(count, 1.0)) + log(series)) * (1.0 + dismissed)
