"""Environments with known means: the paper's, linear, logistic with rare clicks, and smooth without parameters."""

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
    bernoulli,
    bounded,
    sampled_optimum,
    split_outcomes,
    unit_rows,
)
from cbwk_core.static_optimum import static_optimum

# Coordinates of a linear context are uniforms to this power: with plain uniforms every context looks like the mean one
# and so does every arm.
CONTRAST = 4
# Standard deviation of the logistic scores over contexts: click rates differ by about e either way.
SCORE_SPREAD = 1.0
# Outcomes of heavy noise come in one round of so many, and are that many times as large.
RARITY = 10.0
# What is left of the rewards of arms that are not good.
POOR = 0.3
BUMP_WIDTHS = (0.15, 0.35)
BUMP_HEIGHTS = (0.3, 0.9)


@dataclass(frozen=True)
class PaperEnvironment:
    """The paper's experiment (section "Experiment Setting"), as its authors' code has it.

    x_a = (e_1 + e_{a+1})/√2; θ_0 = (e_1 + e_2)/√2, θ_1 = (e_1 + e_3)/√2, θ_2 = (e_2 + e_3 + e_4 + e_5)/2 and
    θ_i = e_{i+1} for i >= 3. Outcomes are ⟨x_a, θ_i⟩ plus normal noise, not clipped.

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
        """The same contexts every round."""
        del start
        mean = np.broadcast_to(self.means, (rounds, *self.means.shape))
        outcome = mean + self.noise * rng.standard_normal(mean.shape)
        return split_outcomes(mean, outcome, np.broadcast_to(self.contexts, (rounds, *self.contexts.shape)))

    def optimum(self, rho: ArrayLike) -> float:
        """Exact: there is one context."""
        return static_optimum(self.means[None, :, 0], self.means[None, :, 1:], rho).value


@dataclass(frozen=True)
class LinearEnvironment:
    """Random contexts of length 1, means ⟨x, θ⟩ in [0, 1] with θ >= 0 of length 1.

    model: "shared" draws features for every arm, "per_arm" one context for all and has parameters for each.
    outcomes: "bounded", uniform within `noise` of the mean, "bernoulli", or "rare", RARITY times the mean in one round
        of RARITY and else 0. seed: of the parameters.
    reward_scale: what rewards are multiplied by; a small one makes T·OPT/B small beside T/B.
    good: how many arms of a "per_arm" model earn in full, None for all; the others' rewards are multiplied by POOR.

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
    good: int | None = None

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
        if self.good is None:
            return theta
        scaled = theta.copy()
        scaled[self.good :, 0] *= POOR
        return frozen(scaled)

    def draw(self, rng: np.random.Generator, start: int, rounds: int) -> Draw:
        """Fresh contexts every round."""
        del start
        seen = self.dimension * (self.arms if self.model == "shared" else 1)
        outcomes = self.arms * (1 + self.resources)
        uniforms = rng.random((rounds, seen + outcomes))
        x = unit_rows(uniforms[:, :seen].reshape(rounds, -1, self.dimension) ** CONTRAST)
        mean = np.minimum(np.matmul(x[:, :, None, :], self.theta.swapaxes(1, 2))[:, :, 0], 1.0)
        noise = uniforms[:, seen:].reshape(mean.shape)
        outcome = self._outcome(mean, noise)
        mean[..., 0] *= self.reward_scale
        outcome[..., 0] *= self.reward_scale
        return split_outcomes(mean, outcome, x[:, 0] if self.model == "per_arm" else x)

    def _outcome(self, mean: Array, noise: Array) -> Array:
        if self.outcomes == "bernoulli":
            return bernoulli(mean, noise)
        if self.outcomes == "rare":
            return RARITY * mean * (noise < 1.0 / RARITY)
        return bounded(mean, noise, self.noise)

    def optimum(self, rho: ArrayLike, seed: int = 0, contexts: int = CONTEXTS_SAMPLED) -> float:
        """Over sampled contexts."""
        return sampled_optimum(self, rho, seed, contexts)


@dataclass(frozen=True)
class LogisticEnvironment:
    """Clicks: reward 1 with probability σ(φᵀθ); money is paid per click, an impression per play.

    The first feature is 1 and carries the rate; the others have mean 0 and together length about 1. Resource 0 is money
    (the arm's price per click, at most 1), resource 1 impressions (always 1). Where arms are `named` a feature for each
    arm follows: without them a shared model cannot know which arm's clicks are cheap.

    >>> draw = LogisticEnvironment(arms=3, dimension=4, rate=0.02).draw(np.random.default_rng(0), 0, 5)
    >>> draw.costs[0, 0, 1]
    np.float64(1.0)
    """

    arms: int
    dimension: int
    rate: float = 0.2
    seed: int = 0
    named: bool = False

    model = "shared"
    resources = 2

    def __post_init__(self) -> None:
        if self.free < 1:
            raise ValueError(f"dimension must be at least 2, the constant and one more, got {self.dimension}")
        if not 0 < self.rate < 1:
            raise ValueError(f"rate must lie in (0, 1), got {self.rate}")

    @property
    def free(self) -> int:
        """Features that vary."""
        return self.dimension - 1 - (self.arms if self.named else 0)

    @cached_property
    def theta(self) -> Array:
        """θ, (dimension,): the logit of the rate, a direction of length √m that spreads the scores by 1, and zeros."""
        direction = np.random.default_rng(self.seed).standard_normal(self.free)
        length = SCORE_SPREAD * np.sqrt(self.free)
        named = np.zeros(self.arms if self.named else 0)
        return frozen(np.concatenate([[logit(self.rate)], length * unit_rows(direction), named]))

    @cached_property
    def click_prices(self) -> Array:
        """Money per click, (arms,)."""
        return frozen(np.random.default_rng([self.seed, 1]).uniform(0.2, 1.0, self.arms))

    def draw(self, rng: np.random.Generator, start: int, rounds: int) -> Draw:
        """Fresh features for every arm and round."""
        del start
        free = self.free
        uniforms = rng.random((rounds, self.arms, free + 1))
        x = np.ones((rounds, self.arms, self.dimension))
        if self.named:
            x[..., free + 1 :] = np.eye(self.arms)
        x[..., 1 : free + 1] = (2.0 * uniforms[..., :free] - 1.0) * np.sqrt(3.0 / free)  # variance 1/free each
        rate = expit(x @ self.theta)
        click = bernoulli(rate, uniforms[..., free])
        return Draw(x, rate, self._costs(rate), click, self._costs(click))

    def _costs(self, clicks: Array) -> Array:
        return np.stack([clicks * self.click_prices, np.ones(clicks.shape)], axis=-1)

    def optimum(self, rho: ArrayLike, seed: int = 0, contexts: int = CONTEXTS_SAMPLED) -> float:
        """Over sampled contexts."""
        return sampled_optimum(self, rho, seed, contexts)


@dataclass(frozen=True)
class BumpEnvironment:
    """Smooth reward and costs over the cube, for which no finite set of parameters is right: 1 - Π(1 - bump).

    The context is a uniform point of the cube, seen by all arms; outcomes are uniform within `noise` of the mean.

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
        """Reward, then costs, of every arm at points (n, m): (n, arms, 1 + d)."""
        centres, widths, heights = self._shapes
        offset = points[:, None, None, None, :] - centres
        bump = heights * np.exp(-np.vecdot(offset, offset) / (2.0 * widths**2))
        return np.asarray(1.0 - np.prod(1.0 - bump, axis=-1))

    def draw(self, rng: np.random.Generator, start: int, rounds: int) -> Draw:
        """A fresh point every round."""
        del start
        uniforms = rng.random((rounds, self.dimension + self.arms * (1 + self.resources)))
        points = np.ascontiguousarray(uniforms[:, : self.dimension])
        mean = self.means(points)
        outcome = bounded(mean, uniforms[:, self.dimension :].reshape(mean.shape), self.noise)
        return split_outcomes(mean, outcome, points)

    def optimum(self, rho: ArrayLike, seed: int = 0, contexts: int = CONTEXTS_SAMPLED) -> float:
        """Over sampled contexts."""
        return sampled_optimum(self, rho, seed, contexts)
