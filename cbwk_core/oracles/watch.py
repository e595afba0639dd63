"""Has the world changed? A bet against the model, in every block and on every target.

If a model is right, outcome minus prediction has mean 0 given all that went before, whatever its distribution. Who bets
on it turning out like the mean of the last ones gains nothing on average then: with the shift s, the variance v and
the error e, the stake 1 becomes 1 + s·e/v. The wealth is an e-process (Ramdas et al. 2023), and log(1 + s·e/v) is
tempered where errors are rare and large: a click where 2 % were expected is worth its likelihood ratio and no more.
Wealth that has fallen below 1 starts again at 1 (an e-detector, Shin et al. 2022): a level of L is then passed once in
L outcomes at most. With the level n²·blocks·targets after n outcomes of a block, where blocks are those heard of, that
is, from the FEWEST on, about one false alarm in forty lives; about, because the variance that is bet with knows the
error already.

The wealth is kept in the logarithm. A stake is not quite safe where a loss larger than it is cut off, so the variance
is the larger one of the block's and of all blocks together: a block that has not seen its rare outcome yet would else
bet too much against it. Errors that the prior's pull explains, ridge·leverage for parameters of length 1, are not bet
on, nor is anything before the model claims to know: what it says of the first outcomes is wrong, and it says so.
"""

from __future__ import annotations

from math import log

# A model claims to know from this leverage on: ten outcomes per parameter.
LEVERAGE_MAX = 0.1
# Outcomes of a block, after that, before its mean and variance are bet on.
FEWEST = 40
# Outcomes over which the shift is a mean. A short memory bets more on less: that of 20 outcomes took a few clicks that
# came together for a change. A long one is late: a shift by one deviation is seen after about 50 outcomes.
MEMORY = 100.0
# What is left of the stake at worst.
LOSS_MAX = 0.5
# The square of an error that may be out there and was not seen yet, though one in as many outcomes as there were could
# have it: outcomes are nominally at most 1. Without it forty outcomes and no click are a sure thing to bet on.
UNSEEN = 1.0
# No level is below that of the first bet in the only series, so most wealth is too little whatever the level is.
LEVEL_MIN = 2.0 * log(FEWEST + 1.0)


def watched(row: list[float], pool: list[float], errors: list[float], leverage: float, pull: float) -> float:
    """Count one outcome's errors in its block's row and in the pool of all blocks; the largest wealth, as logarithm.

    row: outcomes, then for every target the shift, the sum of squares and the wealth; pool: outcomes, sums of squares.

    >>> row, pool = [0.0] * 4, [0.0] * 2
    >>> [round(watched(row, pool, [(-1.0) ** i], 0.01, 0.0), 1) for i in range(50)][-1]  # right on average
    0.0
    >>> [round(watched(row, pool, [1.0], 0.01, 0.0), 1) for _ in range(60)][::20]
    [0.0, 3.0, 9.4]
    """
    pool[0] = seen = pool[0] + 1.0
    weight, targets, richest = 1.0 / (1.0 + leverage), len(errors), 0.0
    if leverage > LEVERAGE_MAX:
        for j, error in enumerate(errors, 1):
            pool[j] += weight * error * error
        return 0.0
    before = row[0]
    row[0] = count = before + 1.0
    share, bets = 1.0 / (count if count < MEMORY else MEMORY), count > FEWEST
    for j, error in enumerate(errors, 1):
        at = j + targets
        shift, squares, square = row[j], row[at], weight * error * error
        pool[j] = total = pool[j] + square
        row[j] = shift + (error - shift) * share
        row[at] = squares + square
        if bets:
            stake = shift - pull if shift > pull else shift + pull if shift < -pull else 0.0
            own, all_blocks = squares / before, (UNSEEN + total) / seen
            kept = 1.0 + stake * error / (own if own > all_blocks else all_blocks)
            at += targets
            wealth = row[at] + log(kept if kept > LOSS_MAX else LOSS_MAX)
            if wealth < 0.0:
                wealth = 0.0
            elif wealth > richest:
                richest = wealth
            row[at] = wealth
    return richest


def level(count: float, series: int) -> float:
    """The logarithm of the wealth that says the world has changed, in one of so many series of that many outcomes."""
    return 2.0 * log(max(count, 1.0)) + log(series)
