"""Newtonized GLMtron (Foster & Rakhlin 2020, Proposition 3), for any number of targets on one Gram matrix.

    g = (σ(φᵀθ) - y) φ,   A += φφᵀ,   θ ← Proj_A(θ - A⁻¹g / c)

With local curvature, for the logistic link, the step is implicit instead: θ minimises the loss of the row plus half the
squared distance to the old θ in the norm of A, and A += σ'(φᵀθ)φφᵀ at the new θ. The length of an explicit Newton step
depends on the slope at its start: where 2 % is predicted, a click would move θ fifty times too far.

A⁻¹ follows by Sherman-Morrison and is computed again from A after every `REFACTOR_EVERY` updates of a block.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isfinite

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import FLOAT, Array, Floats, Integers, add_outer, folded, freeze, frozen
from cbwk_core.oracles.ellipsoid import project_onto_ball
from cbwk_core.oracles.links import LINKS, Link, implicit_scores
from cbwk_core.oracles.newton_state import NewtonState, add_row, leverages, linear_scores, predicted_with_leverage
from cbwk_core.oracles.oracle import check_sizes, checked_candidates, checked_growth, checked_update
from cbwk_core.oracles.trial import after_errors, in_trial, restarted, with_blocks, with_trial
from cbwk_core.oracles.watch import LEVEL_MIN, alarm_level, observe_errors

# Sherman-Morrison loses about one unit in the last place per update. A thousand updates stay far below 1e-9, and the
# cubic cost of one factorisation is negligible beside a thousand quadratic updates.
REFACTOR_EVERY = 1000
# From this dimension on, one rank-one update per lane is faster than all lanes at once, which needs a temporary array.
LANES_APART_MIN = 16
# Local curvature below this makes a Newton step longer than the data can justify (a click rate of 0.1 %).
SLOPE_FLOOR = 1e-3


@dataclass(frozen=True)
class Newton:
    """Configuration of the oracle.

    radius: projection of each target's θ onto the ball of that radius; None leaves θ alone.
    local_curvature: for the logistic link, A += σ'(φᵀθ)φφᵀ and an implicit step, instead of the least slope c.
    watch: whether the oracle restarts when its errors show that the world has changed (watch.py): A = ridge · I in
        every block, and θ stays as the mean of the prior. Every block restarts, because a change of one arm suggests
        changes of others, and arms that are not played give no evidence.
    has_trials: whether a restarted model first learns beside the old one, and replaces it if it is better (trial.py).
    start: θ of the last coordinate before any data, the mean of the prior that `ridge` weighs.
    forgetting: the weight that old data keep at every update of a block; None keeps everything.
    watched: how many targets share the false alarms, those of other oracles included; None: these targets.

    >>> oracle = Newton(dimension=2, targets=1)
    >>> state = oracle.update(oracle.init(), [[1.0, 0.0], [1.0, 0.0]], [[1.0], [1.0]])
    >>> oracle.predict(state, np.array([[[1.0, 0.0]]])).round(3)  # ridge with weight 1: 2 / (1 + 2)
    array([[[0.667]]])
    """

    dimension: int
    targets: int
    blocks: int = 1
    link: str = "identity"
    ridge: float = 1.0
    radius: float | None = None
    local_curvature: bool = True
    forgetting: float | None = None
    watch: bool = False
    has_trials: bool = field(default=False, repr=False)
    start: float = 0.0
    watched: int | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.link not in LINKS:
            raise ValueError(f"link must be one of {sorted(LINKS)}, got {self.link!r}")
        check_sizes(self)
        if not self.ridge > 0 or (self.radius is not None and not self.radius > 0):
            raise ValueError(f"ridge and radius must be positive, got {self.ridge} and {self.radius}")
        if not isfinite(self.start):
            raise ValueError(f"start must be finite, got {self.start}")
        if self.forgetting is not None and not 0.5 <= self.forgetting < 1:
            raise ValueError(f"forgetting must lie in [0.5, 1), got {self.forgetting}")
        if self.link == "logistic" and self.targets != 1:
            raise ValueError(f"a logistic oracle has a Gram matrix of its own: 1 target, got {self.targets}")

    @property
    def sigma(self) -> Link:
        """The link function."""
        return LINKS[self.link]

    @property
    def parameters(self) -> int:
        """The number of parameters of one target: θ of every block."""
        return self.dimension * self.blocks

    def init(self, lanes: int = 1) -> NewtonState:
        """A = ridge · I and θ = (0, …, 0, start) in every lane and block."""
        m = self.dimension
        solution = np.zeros((lanes, self.blocks, m + self.targets, m))
        solution[:, :, :m] = np.eye(m) / self.ridge
        solution[:, :, m:, -1] = self.start
        gram = frozen(np.tile(np.eye(m) * self.ridge, (lanes, 1, 1)))
        updates = frozen(np.zeros((lanes, self.blocks), dtype=np.int64))
        watch = frozen(np.zeros((lanes, self.blocks, 1 + 3 * self.targets)))
        noticed = frozen(np.zeros((lanes, 3 + self.targets)))
        return NewtonState(frozen(solution), (gram,) * self.blocks, updates, watch, noticed, frozen(np.zeros(lanes)))

    def predict(self, state: NewtonState, features: ArrayLike) -> Array:
        """σ(φᵀθ) for every candidate: (n, k * blocks, targets)."""
        return self.predict_unchecked(state, checked_candidates(self, features, state.solution.shape[0]))

    def predict_unchecked(self, state: NewtonState, x: Array) -> Array:
        """`predict` for features that the caller has checked."""
        scores = linear_scores(state.theta, x)
        return scores if self.link == "identity" else self.sigma.mean(scores)

    def spread(self, state: NewtonState, features: ArrayLike) -> Array:
        """φᵀA⁻¹φ for every candidate: (n, k * blocks); times the variance of a residual, the variance of a prediction.

        With local curvature A = Σ σ'φφᵀ, so that φᵀA⁻¹φ alone is the variance of φᵀθ and σ'²φᵀA⁻¹φ that of σ(φᵀθ). The
        residual of a click has variance σ', so the leverage that gives σ'²φᵀA⁻¹φ when multiplied by it is σ'φᵀA⁻¹φ.
        """
        return self.spread_unchecked(state, checked_candidates(self, features, state.solution.shape[0]))

    def spread_unchecked(self, state: NewtonState, x: Array) -> Array:
        """`spread` for features that the caller has checked."""
        leverage = leverages(state.inverse, x)
        if self.link == "logistic" and self.local_curvature:
            leverage = leverage * self.sigma.slope(linear_scores(state.theta, x)[..., 0])
        return leverage

    def predict_with_leverage(self, state: NewtonState, x: Array) -> tuple[Array, Array]:
        """Return `predict` and `spread` of checked features, by one product where that is possible."""
        if self.link != "identity" or len(state.solution) > 1:
            return self.predict_unchecked(state, x), self.spread_unchecked(state, x)
        return predicted_with_leverage(state, x)

    def update(
        self,
        state: NewtonState,
        features: ArrayLike,
        targets: ArrayLike,
        block: ArrayLike | None = None,
        weight: ArrayLike | None = None,
    ) -> NewtonState:
        """Return the state after the rows in order, by the formula of the module."""
        lanes = state.solution.shape[0]
        return self.update_unchecked(state, *checked_update(self, lanes, features, targets, block, weight))

    def update_unchecked(
        self, state: NewtonState, x: Array, y: Array, block: Integers | None, weight: Array
    ) -> NewtonState:
        """`update` for rows that the caller has checked."""
        lanes = state.solution.shape[0]
        touched = {0} if block is None or self.blocks == 1 else set(block[weight > 0].tolist())
        new = state.writable(touched)
        if lanes > 1 and self.blocks == 1:
            for rows in folded(x.shape[0], lanes):
                new = self._update_lanes(new, x[rows], y[rows], weight[rows])
        else:
            for row in range(x.shape[0]):
                if weight[row]:
                    new = self._update_row(new, row % lanes, 0 if block is None else int(block[row]), x[row], y[row])
        return new.frozen()

    def _update_lanes(self, new: NewtonState, x: Array, y: Array, weight: Array) -> NewtonState:
        """Learn one row in every lane at once, in place; a row of weight 0 becomes a row of zeros."""
        keep = None
        if self.forgetting is not None:
            keep = np.where(weight > 0, self.forgetting, 1.0)[:, None, None]
        errors, leverage = self._step(new.solution[:, 0], new.gram[0], x * weight[:, None], y, keep)
        before, after = new.updates[:, 0].tolist(), new.updates[:, 0]
        after += weight > 0
        for lane, (old, count) in enumerate(zip(before, after.tolist(), strict=True)):
            if count == old:
                continue
            if count % self._period == 0:
                self._refactor(new.solution[lane, 0], new.gram[0][lane])
            new = self._watched(new, lane, 0, x[lane], y[lane], errors[lane].tolist(), leverage[lane].item())
        return new

    def _update_row(self, new: NewtonState, lane: int, block: int, x: Array, y: Array) -> NewtonState:
        """Learn one row in one block of one lane, in place."""
        solution, gram = new.solution[lane, block], new.gram[block][lane]
        if self._is_least_squares:
            images = solution.dot(x)
            errors = images[self.dimension :]
            predicted = errors.copy() if new.trial else errors
            errors -= y
            if new.trial:
                y = predicted - errors  # with the rounding of `update_row`
            leverage = add_row(gram, solution, x, images)
        else:
            errors, known = self._step(solution, gram, x, y, self.forgetting)
            leverage = known.item()
        new.updates[lane, block] += 1
        if new.updates[lane, block] % self._period == 0:
            self._refactor(solution, gram)
        return self._watched(new, lane, block, x, y, errors.tolist(), leverage)

    def _watched(
        self, new: NewtonState, lane: int, block: int, x: Array, y: Array, errors: list[float], leverage: float
    ) -> NewtonState:
        """Return the state after the watch has seen the errors of a row that was learnt; it may raise an alarm."""
        if not self.watch:
            return new
        row, pool = new.watch[lane, block].tolist(), new.noticed[lane, 2:].tolist()
        wealth = observe_errors(row, pool, errors, leverage, self.ridge * leverage)
        new.watch[lane, block], new.noticed[lane, 2:] = row, pool
        if in_trial(new, lane):
            return self._tried(new, lane, block, x, y, errors)
        return self._alarmed(new, lane, wealth, row[0])

    def _tried(self, new: NewtonState, lane: int, block: int, x: Array, y: Array, errors: list[float]) -> NewtonState:
        """Let the candidate predict and learn the row, in place, and return the state after this step of the trial."""
        solution, gram = (part[lane, block] for part in new.trial[1:])
        own, _ = self._step(solution, gram, x, y, self.forgetting)
        if new.updates[lane, block] % self._period == 0:
            self._refactor(solution, gram)
        return after_errors(new, lane, errors, own.tolist())

    def _alarmed(self, new: NewtonState, lane: int, wealth: float, count: float) -> NewtonState:
        """Return the state after this wealth of a block with `count` outcomes: the same, on trial, or restarted."""
        if wealth <= LEVEL_MIN:
            return new
        # Blocks with outcomes, not all blocks: arms may be added before or after the same outcomes are learnt.
        series = int(np.count_nonzero(new.watch[lane, :, 0])) * (self.watched or self.targets)
        level = alarm_level(count, series, new.dismissed.item(lane))
        if wealth <= level:
            return new
        return with_trial(new, lane, self.ridge, level) if self.has_trials else restarted(new, lane, self.ridge)

    def restart(self, state: NewtonState, lane: int) -> NewtonState:
        """Return the state after a restart in the lane, for a change that another oracle has noticed."""
        return restarted(state, lane, self.ridge).frozen()

    def update_row(self, state: NewtonState, block: int, x: Array, images: Array, errors: list[float]) -> NewtonState:
        """Return `update` by one row of the only lane, for the identity link: the same bits.

        images: A⁻¹φ, then the errors φᵀθ - y, (m + targets,). errors: the same errors in plain floats.
        """
        if not self._is_least_squares:
            y = linear_scores(state.theta, x[None, None])[0, block] - images[self.dimension :]
            return self.update_unchecked(state, x[None], y[None], np.array([block]), np.ones(1))
        gram, solution = state.gram[block].copy(), state.solution.copy()
        leverage = add_row(gram[0], solution[0, block], x, images)
        grams = [*state.gram]
        grams[block] = gram
        updates, count = state.updates.copy(), state.updates.item(block) + 1
        updates[0, block] = count
        watch, noticed, wealth, seen = state.watch, state.noticed, 0.0, 0.0
        if self.watch:
            row, (changes, gone, *pool) = watch[0, block].tolist(), noticed.tolist()[0]
            wealth = observe_errors(row, pool, errors, leverage, self.ridge * leverage)
            noticed = np.ndarray(noticed.shape, FLOAT, self._noticed_row.pack(changes, gone, *pool))
            watch = watch.copy()
            # An array is a buffer, but its type says so only from Python 3.12 on.
            self._watch_row.pack_into(watch, block * watch.strides[1], *row)  # type: ignore[arg-type]
            seen = row[0]
        if count % self._period == 0:
            self._refactor(solution[0, block], gram[0])
        for part in (solution, gram, updates, watch):
            freeze(part)
        new = NewtonState(solution, tuple(grams), updates, watch, noticed, state.dismissed, state.trial)
        if state.trial:
            y = state.solution[0, block].dot(x)[self.dimension :] - images[self.dimension :]
            tried = new._replace(trial=tuple(part.copy() for part in state.trial))
            return self._tried(tried, 0, block, x, y, errors).frozen()
        return self._alarmed(new, 0, wealth, seen).frozen() if wealth > LEVEL_MIN else new

    def _step(
        self, solution: Array, gram: Array, x: Array, y: Array, keep: Array | float | None
    ) -> tuple[Array, Array]:
        """Learn one row per lane, in place: solution (..., m + targets, m), gram (..., m, m), x (..., m), y (..., q).

        A row of zeros changes nothing; `keep` is the weight that old data keep. With a = A⁻¹φ before the step, κ the
        curvature and v = a / (1 + κφᵀa), the new A⁻¹φ: A⁻¹ -= κ·a·vᵀ and θ -= v·error/c. Where the step is implicit,
        the error is that of the new θ and θ -= a·error.
        Returns prediction minus outcome, and the leverage, both before the step.
        """
        m = x.shape[-1]
        if keep is not None:
            gram *= keep
            solution[..., :m, :] /= keep
        alone = x.ndim == 1
        images = solution.dot(x) if alone else np.matmul(solution, x[..., None])[..., 0]
        direction, score = images[..., :m], images[..., m:]
        leverage = direction.dot(x) if alone else np.vecdot(direction, x)[:, None]
        known, growth = leverage, 1.0 + leverage
        bend: Array | float = 1.0
        errors = score
        if self.link == "identity":
            score -= y
        elif self.local_curvature:
            mean = self.sigma.mean(score)
            errors, known = mean - y, leverage * (mean * (1.0 - mean))
            mean = self.sigma.mean(implicit_scores(score, leverage, y))
            bend = np.maximum(mean * (1.0 - mean), SLOPE_FLOOR)
            growth = 1.0 + bend * leverage
            score[:] = (mean - y) * growth
        else:
            errors = self.sigma.mean(score) - y
            score[:] = errors / self._least_slope
        step = direction / growth
        if self.link != "identity":
            direction *= bend
        if alone:
            add_outer(gram, x * bend, x, 1.0)
            add_outer(solution, images, step, -1.0)
        elif m >= LANES_APART_MIN:
            for lane, bent in enumerate(x * bend):
                add_outer(gram[lane], bent, x[lane], 1.0)
                add_outer(solution[lane], images[lane], step[lane], -1.0)
        else:
            gram += (x * bend)[..., None] * x[..., None, :]
            solution -= images[..., None] * step[..., None, :]
        if self.radius is not None:
            project_onto_ball(solution[..., m:, :].swapaxes(-1, -2), solution[..., :m, :], self.radius)
        return errors, known

    @cached_property
    def _is_least_squares(self) -> bool:
        """Whether a row is one rank-one step: identity link, nothing is forgotten, θ is not projected."""
        return self.link == "identity" and self.forgetting is None and self.radius is None

    @cached_property
    def _watch_row(self) -> Floats:
        return Floats(f"{1 + 3 * self.targets}d")

    @cached_property
    def _noticed_row(self) -> Floats:
        return Floats(f"{3 + self.targets}d")

    @cached_property
    def _least_slope(self) -> float:
        return self.sigma.least_slope(self.radius or 1.0)

    @cached_property
    def _period(self) -> int:
        """Updates of a block between two factorisations; 1 / (1 - forgetting) leaves old data 1/e of their weight."""
        if self.forgetting is None:
            return REFACTOR_EVERY
        return max(1, min(REFACTOR_EVERY, round(1.0 / (1.0 - self.forgetting))))

    @cached_property
    def _ridge_restored(self) -> float:
        return 0.0 if self.forgetting is None else self.ridge * (1.0 - self.forgetting**self._period)

    def _refactor(self, solution: Array, gram: Array) -> None:
        """Compute A⁻¹ of a block again, in place; with forgetting, first add the ridge that was forgotten."""
        if self.forgetting is not None:
            diagonal = np.einsum("ii->i", gram)
            diagonal += self._ridge_restored
        fresh = np.linalg.inv(gram)
        solution[: self.dimension] = (fresh + fresh.T) / 2.0

    def error_bound(self, rounds: int, delta: float = 0.05) -> float:
        """2·(c·blocks·ridge·R² + (z²·M·ln(1 + T/(M·ridge)) + ln(1/δ))/c) with M = m·blocks, with probability 1 - δ.

        With e the error of a prediction, s = φᵀ(θ_t - θ*) and residual z = e - ξ, the step gives
        Σ (2zs/c - s²) <= Σ_blocks ridge·‖θ*‖² + Σ (z/c)² φᵀA⁻¹φ. The slope is at least c, so s² <= es/c and the left
        side is at least Σ (es - 2ξs)/c. As ‖φ‖ <= 1, the last sum is at most z²/c² times ln det(A_T)/det(A_0). The
        noise ξ lies within an interval of length 1 (variance proxy ¼) and adds Σ 2ξs/c <= ½ Σ es/c + ln(1/δ)/c². What
        remains is Σ es/(2c), and e² <= es because the slope is at most 1. A prediction in [-R, R] and a target in
        [0, 1] have |z| <= 1 + R, a logistic one |z| <= 1. Without a projection R = 1 is assumed. The local curvature
        has no such proof: for it this is what the least slope would guarantee.

        For an oracle that watches, the bound holds from its last restart, with ‖θ* - θ‖ for ‖θ*‖.

        Forgetting lets the bound grow with T: every update of a block adds m·ln(1/forgetting) to the logarithm, and
        each restored ridge adds at most its (2R)².
        """
        radius, cells = self.radius or 1.0, self.dimension * self.blocks
        slope = self.sigma.least_slope(radius)
        residual = 1.0 if self.link == "logistic" else 1.0 + radius
        log_det = cells * np.log1p(rounds / (cells * self.ridge))
        size = self.blocks * self.ridge * radius**2
        if self.forgetting is not None:
            log_det += rounds * self.dimension * np.log(1.0 / self.forgetting)
            size += rounds / self._period * self._ridge_restored * (2.0 * radius) ** 2
        return float(2.0 * (slope * size + (residual**2 * log_det + np.log(1.0 / delta)) / slope))

    def resize(self, state: NewtonState, blocks: int) -> NewtonState:
        """Return the state with new blocks that know nothing."""
        added = checked_growth(self, blocks)
        if not added:
            return state
        more = replace(self, blocks=added).init(state.solution.shape[0])
        return NewtonState(
            solution=frozen(np.concatenate([state.solution, more.solution], axis=1)),
            gram=state.gram + more.gram,
            updates=frozen(np.concatenate([state.updates, more.updates], axis=1)),
            watch=frozen(np.concatenate([state.watch, more.watch], axis=1)),
            noticed=state.noticed,
            dismissed=state.dismissed,
            trial=with_blocks(state.trial, more),
        )
