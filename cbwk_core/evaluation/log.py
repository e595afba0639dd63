"""The log of a campaign as arrays that are checked once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arguments import checked_arms
from cbwk_core.arrays import Array, Integers, Mask, as_array, finite, frozen, numbers
from cbwk_core.ticket import NULL_ARM

# The tolerance for rounding of probabilities: the service stores them as 32-bit floats.
ROUNDING = 1e-5


@dataclass(frozen=True)
class Log:
    """n decided rounds in time order with their outcomes. `Log.of` makes one; all arrays are read-only.

    The caller leaves out rounds without an outcome. Estimates are biased if the missing rounds are not random.

    >>> log = Log.of(features=[[0.1], [0.7]], eligible=[[True, True], [True, False]], arm=[1, -1],
    ...              propensity=[0.5, 1.0], reward=[1.0, 0.0], costs=[[0.2], [0.0]])
    >>> log.rounds, log.arms, log.resources, log.model
    (2, 2, 1, 'per_arm')
    """

    features: Array  # (n, arms, m) for "shared", (n, m) for "per_arm"
    eligible: Mask  # (n, arms), arms that the policy could play: requested, not retired, affordable
    arm: Integers  # (n,), NULL_ARM for null
    propensity: Array  # (n,), the probability with which the policy drew the arm
    reward: Array  # (n,)
    costs: Array  # (n, d), in the caller's units
    probabilities: Array | None  # (n, arms), of every real arm; null gets the rest
    offered: Mask  # (n, arms), arms that the policy could play with unlimited budgets

    @classmethod
    def of(
        cls,
        *,
        features: ArrayLike,
        eligible: ArrayLike,
        arm: ArrayLike,
        propensity: ArrayLike,
        reward: ArrayLike,
        costs: ArrayLike,
        probabilities: ArrayLike | None = None,
        offered: ArrayLike | None = None,
    ) -> Log:
        """Return a checked copy of the arrays; a ValueError names the expected and the found values.

        offered: None if every eligible arm was offered and no other.
        """
        playable = _mask("eligible", eligible)
        rows, arms = playable.shape
        if rows < 1 or arms < 1:
            raise ValueError(f"eligible must have at least one round and one arm, got shape {playable.shape}")
        log = cls(
            features=frozen(_features(features, rows, arms)),
            eligible=frozen(playable),
            arm=frozen(_arms(arm, playable)),
            propensity=frozen(finite("propensity", propensity, (rows,)).copy()),
            reward=frozen(finite("reward", reward, (rows,)).copy()),
            costs=frozen(finite("costs", costs, (rows, None)).copy()),
            probabilities=None if probabilities is None else frozen(_probabilities(probabilities, playable)),
            offered=frozen(playable if offered is None else _offered(offered, playable)),
        )
        _check_numbers(log)
        return log

    @property
    def rounds(self) -> int:
        """The number of rounds, n."""
        return int(self.arm.shape[0])

    @property
    def arms(self) -> int:
        """The number of arms, without the null arm."""
        return int(self.eligible.shape[1])

    @property
    def resources(self) -> int:
        """The number of resources, d."""
        return int(self.costs.shape[1])

    @property
    def dimension(self) -> int:
        """The number of feature coordinates, m."""
        return int(self.features.shape[-1])

    @property
    def model(self) -> str:
        """ "shared" or "per_arm", which follows from the shape of the features."""
        return "shared" if self.features.ndim == 3 else "per_arm"

    @property
    def played(self) -> Mask:
        """Whether each round has a real arm: (n,)."""
        return np.asarray(self.arm != NULL_ARM)

    @property
    def outcomes(self) -> Array:
        """The reward, then the costs of each round: (n, 1 + d)."""
        return self.outcomes_of(slice(None))

    def outcomes_of(self, rows: slice) -> Array:
        """Return the reward, then the costs of some rounds: (rows, 1 + d)."""
        return np.concatenate([self.reward[rows, None], self.costs[rows]], axis=1)

    def chosen_features(self) -> Array:
        """Return the features of the logged arms: (n, m). The rows of null rounds have no meaning."""
        if self.model == "per_arm":
            return self.features
        return self.features[np.arange(self.rounds), np.maximum(self.arm, 0)]


def _mask(name: str, values: ArrayLike) -> Mask:
    mask = as_array(name, values)
    if mask.dtype != np.bool_ or mask.ndim != 2:
        raise ValueError(f"{name} must be booleans of shape (n, arms), got {mask.dtype} of shape {mask.shape}")
    return mask.copy()


def _offered(values: ArrayLike, eligible: Mask) -> Mask:
    offered = _mask("offered", values)
    if offered.shape != eligible.shape:
        raise ValueError(f"offered must have the shape of eligible, {eligible.shape}, got {offered.shape}")
    if (eligible & ~offered).any():
        row = int(np.flatnonzero((eligible & ~offered).any(axis=1))[0])
        raise ValueError(f"every eligible arm must be offered, got an eligible arm that is not offered in round {row}")
    return offered


def _features(values: ArrayLike, rows: int, arms: int) -> Array:
    given = numbers("features", values)
    shape = (rows, arms, None) if given.ndim == 3 else (rows, None)
    return finite("features", given, shape).copy()


def _arms(values: ArrayLike, eligible: Mask) -> Integers:
    rows, arms = eligible.shape
    arm = checked_arms(values, rows, arms - 1).copy()
    barred = (arm != NULL_ARM) & ~eligible[np.arange(rows), arm]
    if barred.any():
        row = int(np.flatnonzero(barred)[0])
        raise ValueError(f"the arm of a round must be eligible, got arm {arm[row]} in round {row}")
    return arm


def _probabilities(values: ArrayLike, eligible: Mask) -> Array:
    given = finite("probabilities", values, eligible.shape).copy()
    if given.min() < 0.0 or given.sum(axis=1).max() > 1.0 + ROUNDING:
        raise ValueError(
            f"probabilities must not be negative and sum to at most 1 in a round, "
            f"got a minimum of {given.min()} and a largest sum of {given.sum(axis=1).max()}"
        )
    if (given[~eligible] > 0.0).any():
        row = int(np.flatnonzero((given * ~eligible).any(axis=1))[0])
        raise ValueError(f"probabilities must be 0 for arms that are not eligible, got a positive one in round {row}")
    return given


def _check_numbers(log: Log) -> None:
    if log.resources < 1:
        raise ValueError(f"costs must have at least one resource, got shape {log.costs.shape}")
    if log.propensity.min() <= 0.0 or log.propensity.max() > 1.0:
        raise ValueError(f"propensity must lie in (0, 1], got {log.propensity.min()}..{log.propensity.max()}")
    odd = ~log.played & (log.outcomes != 0.0).any(axis=1)
    if odd.any():
        row = int(np.flatnonzero(odd)[0])
        raise ValueError(f"a null round must have zero outcomes, got {log.outcomes[row].tolist()} in round {row}")
    if log.probabilities is not None:
        rows = np.flatnonzero(log.played)
        difference = np.abs(log.probabilities[rows, log.arm[rows]] - log.propensity[rows])
        if difference.max(initial=0.0) > ROUNDING:
            row = int(rows[difference.argmax()])
            raise ValueError(
                f"propensity must be the probability of the arm of the round, got {log.propensity[row]} and "
                f"{log.probabilities[row, log.arm[row]]} in round {row}"
            )
