"""The trial of an alarm: a restarted model learns beside the old one, and replaces it if it predicts better.

A model that cannot represent the world errs with one sign for as long as one kind of context prevails, and watch.py
takes that for a change. So an alarm starts a trial: a candidate, the model restarted, predicts and learns the outcomes
that follow, and the old model goes on as before. Their squared errors, each before the outcome is learnt, are added up
over all blocks and the oracle's targets, in units of the target's variance. Half the difference is the log likelihood
ratio of two normal predictions. When it exceeds the level that the alarm had to exceed, the candidate replaces the old
model. A candidate that has not done so at the end of the trial is dropped, and the alarm counts as dismissed.

The sum has all blocks, because all of them restart, and charges the candidate for what it must learn again.
"""

from __future__ import annotations

import numpy as np

from cbwk_core.arrays import Array, frozen
from cbwk_core.oracles.newton_state import CHANGES, FORGOTTEN, POOL, NewtonState
from cbwk_core.oracles.watch import LEVERAGE_MAX, UNSEEN_SQUARE

# Outcomes of a trial beyond those that a model needs for a leverage of LEVERAGE_MAX, ten per parameter. Outcomes of 0
# or 1 need about that many before a change of all arms outweighs what learning again costs.
OUTCOMES_COMPARED = 300
# Columns of the record of a trial, `NewtonState.trial[0]`: outcomes until it ends (0 in a lane without a trial), the
# squared errors of the old model minus those of the candidate, the level, and the outcomes before the alarm.
LEFT, GAIN, LEVEL, OUTCOMES_BEFORE, COLUMNS = range(5)


def in_trial(state: NewtonState, lane: int) -> bool:
    """Return whether an alarm of the lane is on trial."""
    return bool(state.trial) and state.trial[0].item(lane, LEFT) > 0.0


def restarted(state: NewtonState, lane: int, ridge: float) -> NewtonState:
    """Return the state after a restart of the lane: what it has learnt becomes the mean of its prior; a trial ends."""
    if in_trial(state, lane):
        record = state.trial[0].copy()
        record[lane, LEFT] = 0.0
        state = state._replace(trial=(record, *state.trial[1:]) if (record[:, LEFT] > 0.0).any() else ())
    m = state.solution.shape[3]
    inverse = np.broadcast_to(np.eye(m) / ridge, state.inverse[lane].shape)
    solution = np.concatenate([inverse, state.solution[lane, :, m:]], axis=1)
    return _replaced(state, lane, solution, np.eye(m) * ridge, state.noticed[lane, POOL])


def with_trial(state: NewtonState, lane: int, ridge: float, level: float) -> NewtonState:
    """Return the state with a trial of the lane: an alarm exceeded this level."""
    lanes, blocks, _, m = state.solution.shape
    new = np.zeros((lanes, COLUMNS)), np.zeros_like(state.solution), np.zeros((lanes, blocks, m, m))
    record, solution, gram = (part.copy() for part in state.trial or new)
    parameters = m * int(np.count_nonzero(state.watch[lane, :, 0]))
    record[lane] = round(parameters / LEVERAGE_MAX) + OUTCOMES_COMPARED, 0.0, level, state.noticed[lane, POOL]
    solution[lane], gram[lane] = state.solution[lane], np.eye(m) * ridge
    solution[lane, :, :m] = np.eye(m) / ridge
    return state._replace(trial=(record, solution, gram))


def after_errors(state: NewtonState, lane: int, old: list[float], new: list[float]) -> NewtonState:
    """Return the state after both models have predicted one outcome, the last of the trial or not.

    old, new: the errors of the old model and of the candidate, (targets,). Changes the record in place.
    """
    record, (seen, *squares) = state.trial[0][lane], state.noticed[lane, POOL:].tolist()
    gain, level = record.item(GAIN), record.item(LEVEL)
    for one, other, total in zip(old, new, squares, strict=True):
        gain += (one * one - other * other) / ((UNSEEN_SQUARE + total) / seen)
    is_proved = gain > 2.0 * level
    record[GAIN], record[LEFT] = gain, 0.0 if is_proved else record[LEFT] - 1.0
    if record[LEFT] > 0.0:
        return state
    _, solution, gram = state.trial
    others = state._replace(trial=state.trial if (state.trial[0][:, LEFT] > 0.0).any() else ())
    if is_proved and np.isfinite(solution[lane]).all():
        return _replaced(others, lane, solution[lane], gram[lane], record[OUTCOMES_BEFORE])
    watch, dismissed = state.watch.copy(), state.dismissed.copy()
    watch[lane] = 0.0
    dismissed[lane] += 1.0
    return others._replace(watch=watch, dismissed=dismissed)


def with_blocks(trial: tuple[Array, ...], more: NewtonState) -> tuple[Array, ...]:
    """Return the trial with the blocks of `more`, which have learnt nothing, in its candidates."""
    if not trial:
        return trial
    record, solution, gram = trial
    added = np.stack(more.gram, axis=1)
    return record, *(frozen(np.concatenate(pair, axis=1)) for pair in ((solution, more.solution), (gram, added)))


def _replaced(state: NewtonState, lane: int, solution: Array, gram: Array, forgotten: float) -> NewtonState:
    """Return the state with another model in the lane, (blocks, m + targets, m) and (blocks or none, m, m)."""
    solutions, watch, noticed = state.solution.copy(), state.watch.copy(), state.noticed.copy()
    grams = tuple(part.copy() for part in state.gram)
    for part, own in zip(grams, np.broadcast_to(gram, state.inverse[lane].shape), strict=True):
        part[lane] = own
    solutions[lane], watch[lane] = solution, 0.0
    noticed[lane, CHANGES] += 1.0
    noticed[lane, FORGOTTEN] = forgotten
    return state._replace(solution=solutions, gram=grams, watch=watch, noticed=noticed)
