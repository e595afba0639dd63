"""Environments with known means: the paper's, linear, logistic with rare clicks, and smooth nonparametric."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit

from cbwk_core.arrays import Array, frozen
from cbwk_core.simulation.environment import (
    CONTEXTS_SAMPLED,
    Draw,
    bernoulli_outcomes,
    bounded_outcomes,
    sampled_optimum,
    split_outcomes,
    unit_rows,
)
from cbwk_core.static_optimum import static_optimum

# Coordinates of a linear context are uniforms raised to this power. With plain uniforms all contexts are close to their
# mean, and the arms hardly differ.
CONTEXT_POWER = 4
# Standard deviation of the logistic scores over contexts: click rates typically differ by a factor of e.
SCORE_SPREAD = 1.0
# A "rare" outcome occurs in one of RARITY rounds and is RARITY times as large as its mean.
RARITY = 10.0
# Rewards of arms that are not good are multiplied by this.
POOR_ARM_FACTOR = 0.3
BUMP_WIDTHS = (0.15, 0.35)
BUMP_HEIGHTS = (0.3, 0.9)


@dataclass(frozen=True)
class PaperEnvironment:
    """The environment of the paper's experiments (section "Experiment Setting"), as the authors' code implements it.

    x_a = (e_1 + e_{a+1})/√2; θ_0 = (e_1 + e_2)/√2, θ_1 = (e_1 + e_3)/√2, θ_2 = (e_2 + e_3 + e_4 + e_5)/2 and
    θ_i = e_{i+1} for i >= 3. The paper's text prints x_a = e_1/√2 + e_{a+1}. Outcomes are ⟨x_a, θ_i⟩ plus normal noise
    with standard deviation `noise`, not clipped.

    >>> PaperEnvironment(m=10, arms=3).optimum(0.25)
    0.5
    """

    m: int
    arms: int
    resources: int = 4
    noise: float = 0.2

    model = "shared"

    def __post_init__(self) -> None:
        if not 1 <= self.arms < self.m or not 1 <= self.resources < self.m or self.m < 5:
            raise ValueError(f"m must be at least 5 and above arms and resources, got {self}")

    @property
    def dimension(self) -> int:
        """The paper's m."""
        return self.m

    @cached_property
    def contexts(self) -> Array:
        """x, (arms, m)."""
        x = np.eye(self.arms, self.m, k=1)
        x[:, 0] = 1.0
        return frozen(x / np.sqrt(2.0))

    @cached_property
    def theta(self) -> Array:
        """θ, (1 + resources, m)."""
        rows = np.zeros((max(1 + self.resources, 3), self.m))
        rows[0, [0, 1]] = rows[1, [0, 2]] = np.sqrt(0.5)
        rows[2, 1:5] = 0.5
        for i in range(3, rows.shape[0]):
            rows[i, i] = 1.0
        return frozen(rows[: 1 + self.resources])

    @cached_property
    def means(self) -> Array:
        """⟨x_a, θ_i⟩, (arms, 1 + resources)."""
        return frozen(self.contexts @ self.theta.T)

    def draw(self, rng: np.random.Generator, start: int, rounds: int) -> Draw:
        """Return rounds that all have the same contexts."""
        del start
        mean = np.broadcast_to(self.means, (rounds, *self.means.shape))
        outcome = mean + self.noise * rng.standard_normal(mean.shape)
        return split_outcomes(mean, outcome, np.broadcast_to(self.contexts, (rounds, *self.contexts.shape)))

    def optimum(self, rho: ArrayLike) -> float:
        """Return the exact static optimum: there is one context."""
        return static_optimum(self.means[None, :, 0], self.means[None, :, 1:], rho).value


@dataclass(frozen=True)
class LinearEnvironment:
    """Random contexts x >= 0 of length 1 and means ⟨x, θ⟩ in [0, 1], where θ >= 0 has length 1.

    model: "shared" draws one feature vector per arm, and all arms share θ. "per_arm" draws one context per round, and
        every arm has its own θ.
    outcomes: "bounded" (uniform within `noise` of the mean), "bernoulli", or "rare" (RARITY times the mean in one of
        RARITY rounds, otherwise 0).
    seed: the seed of θ.
    reward_scale: the factor of all rewards. A small factor makes T·OPT/B much smaller than T/B.
    good_arms: the number of arms with full rewards in a "per_arm" model, None for all. The rewards of the other arms
        are multiplied by POOR_ARM_FACTOR.

    >>> draw = LinearEnvironment(arms=3, dimension=5, resources=2).draw(np.random.default_rng(0), 0, 10)
    >>> draw.features.shape, draw.costs.shape
    ((10, 3, 5), (10, 3, 2))
    """

    arms: int
    dimension: int
    resources: int
    model: str = "shared"
    outcomes: str = "bounded"
    noise: float = 0.2
    seed: int = 0
    reward_scale: float = 1.0
    good_arms: int | None = None

    def __post_init__(self) -> None:
        if self.model not in ("shared", "per_arm"):
            raise ValueError(f"model must be 'shared' or 'per_arm', got {self.model!r}")
        if self.outcomes not in ("bounded", "bernoulli", "rare"):
            raise ValueError(f"outcomes must be 'bounded', 'bernoulli' or 'rare', got {self.outcomes!r}")
        if not 0 < self.reward_scale <= 1:
            raise ValueError(f"reward_scale must lie in (0, 1], got {self.reward_scale}")

    @cached_property
    def theta(self) -> Array:
        """θ, (1 or arms, 1 + resources, dimension)."""
        blocks = self.arms if self.model == "per_arm" else 1
        raw = np.random.default_rng(self.seed).exponential(size=(blocks, 1 + self.resources, self.dimension))
        theta = unit_rows(raw)
        if self.good_arms is None:
            return theta
        scaled = theta.copy()
        scaled[self.good_arms :, 0] *= POOR_ARM_FACTOR
        return frozen(scaled)

    def draw(self, rng: np.random.Generator, start: int, rounds: int) -> Draw:
        """Return rounds with independent contexts."""
        del start
        coordinates = self.dimension * (self.arms if self.model == "shared" else 1)
        outcomes = self.arms * (1 + self.resources)
        uniforms = rng.random((rounds, coordinates + outcomes))
        x = unit_rows(uniforms[:, :coordinates].reshape(rounds, -1, self.dimension) ** CONTEXT_POWER)
        mean = np.minimum(np.matmul(x[:, :, None, :], self.theta.swapaxes(1, 2))[:, :, 0], 1.0)
        noise = uniforms[:, coordinates:].reshape(mean.shape)
        outcome = self._realised(mean, noise)
        mean[..., 0] *= self.reward_scale
        outcome[..., 0] *= self.reward_scale
        return split_outcomes(mean, outcome, x[:, 0] if self.model == "per_arm" else x)

    def _realised(self, mean: Array, noise: Array) -> Array:
        if self.outcomes == "bernoulli":
            return bernoulli_outcomes(mean, noise)
        if self.outcomes == "rare":
            return RARITY * mean * (noise < 1.0 / RARITY)
        return bounded_outcomes(mean, noise, self.noise)

    def optimum(self, rho: ArrayLike, seed: int = 0, contexts: int = CONTEXTS_SAMPLED) -> float:
        """Return the static optimum over sampled contexts."""
        return sampled_optimum(self, rho, seed, contexts)


@dataclass(frozen=True)
class LogisticEnvironment:
    """Clicks: the reward is 1 with probability σ(φᵀθ). A click costs money, every play costs one impression.

    The first feature is 1 and its parameter sets the click rate. The other features have mean 0 and together a length
    of about 1. Resource 0 is money (the arm's price per click, at most 1), resource 1 is impressions (always 1).
    arm_indicators: whether one indicator feature per arm follows. Without them a shared model cannot learn which arm
        has cheap clicks.

    >>> draw = LogisticEnvironment(arms=3, dimension=4, rate=0.02).draw(np.random.default_rng(0), 0, 5)
    >>> draw.costs[0, 0, 1]
    np.float64(1.0)
    """

    arms: int
    dimension: int
    rate: float = 0.2
    seed: int = 0
    arm_indicators: bool = False

    model = "shared"
    resources = 2

    def __post_init__(self) -> None:
        if self.varying_features < 1:
            raise ValueError(f"dimension must be at least 2, the constant and one more, got {self.dimension}")
        if not 0 < self.rate < 1:
            raise ValueError(f"rate must lie in (0, 1), got {self.rate}")

    @property
    def varying_features(self) -> int:
        """Number of features that vary from round to round."""
        return self.dimension - 1 - (self.arms if self.arm_indicators else 0)

    @cached_property
    def theta(self) -> Array:
        """θ, (dimension,): the logit of the rate, a random direction, and zeros for the arm indicators.

        The direction has length √(varying features), so the scores have standard deviation SCORE_SPREAD.
        """
        direction = np.random.default_rng(self.seed).standard_normal(self.varying_features)
        length = SCORE_SPREAD * np.sqrt(self.varying_features)
        indicators = np.zeros(self.arms if self.arm_indicators else 0)
        return frozen(np.concatenate([[logit(self.rate)], length * unit_rows(direction), indicators]))

    @cached_property
    def click_prices(self) -> Array:
        """Money per click, (arms,)."""
        return frozen(np.random.default_rng([self.seed, 1]).uniform(0.2, 1.0, self.arms))

    def draw(self, rng: np.random.Generator, start: int, rounds: int) -> Draw:
        """Return rounds with independent features for every arm."""
        del start
        varying = self.varying_features
        uniforms = rng.random((rounds, self.arms, varying + 1))
        x = np.ones((rounds, self.arms, self.dimension))
        if self.arm_indicators:
            x[..., varying + 1 :] = np.eye(self.arms)
        x[..., 1 : varying + 1] = (2.0 * uniforms[..., :varying] - 1.0) * np.sqrt(3.0 / varying)  # variance 1/varying
        rate = expit(x @ self.theta)
        click = bernoulli_outcomes(rate, uniforms[..., varying])
        return Draw(x, rate, self._costs(rate), click, self._costs(click))

    def _costs(self, clicks: Array) -> Array:
        return np.stack([clicks * self.click_prices, np.ones(clicks.shape)], axis=-1)

    def optimum(self, rho: ArrayLike, seed: int = 0, contexts: int = CONTEXTS_SAMPLED) -> float:
        """Return the static optimum over sampled contexts."""
        return sampled_optimum(self, rho, seed, contexts)


@dataclass(frozen=True)
class BumpEnvironment:
    """Smooth mean rewards and costs on the unit cube, 1 - Π(1 - bump): a nonparametric class.

    The context is a uniform point of the cube, the same for all arms. Outcomes are uniform within `noise` of the mean.

    >>> draw = BumpEnvironment(arms=2, dimension=1, resources=1).draw(np.random.default_rng(0), 0, 5)
    >>> draw.features.shape, draw.mean_reward.shape
    ((5, 1), (5, 2))
    """

    arms: int
    dimension: int
    resources: int
    bumps: int = 3
    noise: float = 0.2
    seed: int = 0

    model = "per_arm"

    def __post_init__(self) -> None:
        if not 1 <= self.dimension <= 3:
            raise ValueError(f"dimension must be 1, 2 or 3, got {self.dimension}")

    @cached_property
    def _shapes(self) -> tuple[Array, Array, Array]:
        """Centres (arms, 1 + d, bumps, m), widths and heights (arms, 1 + d, bumps)."""
        rng = np.random.default_rng(self.seed)
        shape = (self.arms, 1 + self.resources, self.bumps)
        centres = rng.random((*shape, self.dimension))
        return frozen(centres), frozen(rng.uniform(*BUMP_WIDTHS, shape)), frozen(rng.uniform(*BUMP_HEIGHTS, shape))

    def means(self, points: Array) -> Array:
        """Return the mean reward and costs of every arm at points (n, m): (n, arms, 1 + d)."""
        centres, widths, heights = self._shapes
        offset = points[:, None, None, None, :] - centres
        bump = heights * np.exp(-np.vecdot(offset, offset) / (2.0 * widths**2))
        return np.asarray(1.0 - np.prod(1.0 - bump, axis=-1))

    def draw(self, rng: np.random.Generator, start: int, rounds: int) -> Draw:
        """Return rounds with independent points."""
        del start
        uniforms = rng.random((rounds, self.dimension + self.arms * (1 + self.resources)))
        points = np.ascontiguousarray(uniforms[:, : self.dimension])
        mean = self.means(points)
        outcome = bounded_outcomes(mean, uniforms[:, self.dimension :].reshape(mean.shape), self.noise)
        return split_outcomes(mean, outcome, points)

    def optimum(self, rho: ArrayLike, seed: int = 0, contexts: int = CONTEXTS_SAMPLED) -> float:
        """Return the static optimum over sampled contexts."""
        return sampled_optimum(self, rho, seed, contexts)
