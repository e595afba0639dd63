"""Environments of random worlds: arms without contexts, segments, linear worlds with waves, costs of different size."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import Array, frozen
from cbwk_core.simulation.environment import Draw, bernoulli_outcomes, bounded_outcomes, split_outcomes, unit_rows
from cbwk_core.simulation.environments import CONTEXT_POWER
from cbwk_core.static_optimum import static_optimum

# A realised cost is its mean times this factor times a squared uniform: skewed to the right, and the mean is exact.
COST_FACTOR_MAX = 3.0


@dataclass(frozen=True)
class SegmentEnvironment:
    """Finitely many contexts with any means, and outcomes of 0 or 1. One context is a world without contexts.

    weights: the probability of each segment. rows: the features of each segment. means: reward and costs of each
    segment and arm.

    >>> arms = SegmentEnvironment(weights=(1.0,), rows=((1.0,),), means=(((0.5, 0.4), (0.9, 0.9)),))
    >>> round(arms.optimum(0.25), 4)
    0.3125
    """

    weights: tuple[float, ...]
    rows: tuple[tuple[float, ...], ...]
    means: tuple[tuple[tuple[float, ...], ...], ...]

    model = "per_arm"

    @property
    def arms(self) -> int:
        """Number of arms, without the null arm."""
        return len(self.means[0])

    @property
    def dimension(self) -> int:
        """Length of a feature vector."""
        return len(self.rows[0])

    @property
    def resources(self) -> int:
        """Number of resources."""
        return len(self.means[0][0]) - 1

    @cached_property
    def _arrays(self) -> tuple[Array, Array, Array]:
        return frozen(np.cumsum(self.weights)), frozen(np.array(self.rows)), frozen(np.array(self.means))

    def draw(self, rng: np.random.Generator, start: int, rounds: int) -> Draw:
        """Return rounds with independent segments."""
        del start
        cumulated, rows, means = self._arrays
        uniforms = rng.random((rounds, 1 + self.arms * (1 + self.resources)))
        segment = np.minimum(np.searchsorted(cumulated, uniforms[:, 0], side="right"), len(rows) - 1)
        mean = means[segment]
        return split_outcomes(mean, bernoulli_outcomes(mean, uniforms[:, 1:].reshape(mean.shape)), rows[segment])

    def optimum(self, rho: ArrayLike) -> float:
        """Return the exact static optimum."""
        means = self._arrays[2]
        return static_optimum(means[..., 0], means[..., 1:], rho, np.array(self.weights)).value


@dataclass(frozen=True)
class TrafficWorld(SegmentEnvironment):
    """Segments whose shares of the traffic change from phase to phase, while the means of each segment never do.

    phases: the probability of each segment in each phase; `weights` is their mean. A phase lasts `phase_rounds` rounds,
    and the first follows the last. Rewards are 0 or 1, costs within COST_NOISE of their means.

    >>> phases = ((1.0, 0.0), (0.0, 1.0))
    >>> world = TrafficWorld((0.5, 0.5), ((1.0,), (2.0,)), (((0.5, 0.4),), ((0.9, 0.9),)), phases, phase_rounds=2)
    >>> world.draw(np.random.default_rng(0), 1, 5).features[:, 0]
    array([1., 2., 2., 1., 1.])
    """

    phases: tuple[tuple[float, ...], ...] = ()
    phase_rounds: int = 1

    COST_NOISE = 0.05

    @cached_property
    def _cumulated_phases(self) -> Array:
        return frozen(np.cumsum(self.phases, axis=1))

    def draw(self, rng: np.random.Generator, start: int, rounds: int) -> Draw:
        """Return rounds with independent segments, by the shares of their phase."""
        _, rows, means = self._arrays
        uniforms = rng.random((rounds, 1 + self.arms * (1 + self.resources)))
        phase = np.arange(start, start + rounds) // self.phase_rounds % len(self.phases)
        reached = self._cumulated_phases[phase] <= uniforms[:, :1]
        segment = np.minimum(reached.sum(axis=1), len(rows) - 1)
        mean = means[segment]
        noise = uniforms[:, 1:].reshape(mean.shape)
        outcome = bounded_outcomes(mean, noise, self.COST_NOISE)
        outcome[..., 0] = bernoulli_outcomes(mean[..., 0], noise[..., 0])
        return split_outcomes(mean, outcome, rows[segment])


@dataclass(frozen=True)
class LinearWorld:
    """Linear means ⟨x, θ⟩ as in LinearEnvironment, with a scale and a kind of outcomes for each target.

    scales: factors of the mean reward and the mean costs.
    rarities: per target, 0 for outcomes within 0.2 of the mean, 1 for outcomes of 0 or 1, and n > 1 for outcomes of n
        times the mean in one of n rounds.
    waves: the number of seasons in the horizon. Each coordinate of the contexts grows and shrinks by a factor of up to
        e^swing in a season of its own. So rewards and costs of the traffic have seasons, and the means stay linear.

    >>> world = LinearWorld(arms=3, dimension=4, scales=(1.0, 0.5), rarities=(20.0, 0.0), seed=1)
    >>> draw = world.draw(np.random.default_rng(0), 0, 100)
    >>> draw.features.shape, float(draw.costs.max()) <= 0.5
    ((100, 3, 4), True)
    """

    arms: int
    dimension: int
    scales: tuple[float, ...]
    rarities: tuple[float, ...]
    seed: int
    model: str = "shared"
    waves: float = 0.0
    swing: float = 0.0
    horizon: int = 1

    @property
    def resources(self) -> int:
        """Number of resources."""
        return len(self.scales) - 1

    @cached_property
    def theta(self) -> Array:
        """θ, (1 or arms, 1 + resources, dimension)."""
        blocks = self.arms if self.model == "per_arm" else 1
        raw = np.random.default_rng(self.seed).exponential(size=(blocks, 1 + self.resources, self.dimension))
        return unit_rows(raw)

    @cached_property
    def phases(self) -> Array:
        """The phase of each coordinate's season, (dimension,)."""
        return frozen(np.random.default_rng([self.seed, 1]).random(self.dimension))

    def draw(self, rng: np.random.Generator, start: int, rounds: int) -> Draw:
        """Return rounds with independent contexts."""
        coordinates = self.dimension * (self.arms if self.model == "shared" else 1)
        uniforms = rng.random((rounds, coordinates + self.arms * (1 + self.resources)))
        raw = uniforms[:, :coordinates].reshape(rounds, -1, self.dimension) ** CONTEXT_POWER
        if self.swing:
            turns = self.waves * np.arange(start, start + rounds)[:, None] / self.horizon + self.phases
            raw = raw * np.exp(self.swing * np.cos(2.0 * np.pi * turns))[:, None, :]
        x = unit_rows(raw)
        share = np.minimum(np.matmul(x[:, :, None, :], self.theta.swapaxes(1, 2))[:, :, 0], 1.0)
        noise = uniforms[:, coordinates:].reshape(share.shape)
        mean = share * np.array(self.scales)
        outcome = np.empty_like(mean)
        for target, (scale, rarity) in enumerate(zip(self.scales, self.rarities, strict=True)):
            at = ..., target
            if rarity == 0.0:
                outcome[at] = scale * bounded_outcomes(share[at], noise[at], 0.2)
            elif rarity == 1.0:
                outcome[at] = bernoulli_outcomes(mean[at], noise[at])
            else:
                outcome[at] = rarity * mean[at] * (noise[at] < 1.0 / rarity)
        return split_outcomes(mean, outcome, x[:, 0] if self.model == "per_arm" else x)

    def optimum(self, rho: ArrayLike) -> float:
        """Return the static optimum over contexts of the whole horizon."""
        rng, rounds = np.random.default_rng(self.seed), 100
        starts = np.linspace(0, max(self.horizon - rounds, 0), 100).astype(np.int64)
        draws = [self.draw(rng, int(start), rounds) for start in starts]
        rewards = np.concatenate([draw.mean_reward for draw in draws])
        return static_optimum(rewards, np.concatenate([draw.mean_costs for draw in draws]), rho).value


@dataclass(frozen=True)
class ModelMenu:
    """Requests for one of several models of very different cost, such as LLMs: a made-up twin of such a log.

    The mean reward of a model is its quality plus a slope times the difficulty of the request; a harder request costs
    more. `dimension` features follow: the difficulty, and others that say nothing. Rewards are 0 or 1. A realised cost
    is at most COST_FACTOR_MAX times its mean, and its mean at most DIFFICULT times that of the model.

    >>> menu = ModelMenu(costs=(1.0, 18.0, 520.0), qualities=(0.8, 0.85, 0.95), slopes=(0.3, 0.2, 0.1), dimension=24)
    >>> draw = menu.draw(np.random.default_rng(0), 0, 1000)
    >>> (draw.costs.mean(axis=0)[:, 0] / np.array(menu.costs)).round(1)
    array([1., 1., 1.])
    """

    costs: tuple[float, ...]
    qualities: tuple[float, ...]
    slopes: tuple[float, ...]
    dimension: int

    model = "per_arm"
    resources = 1
    DIFFICULT = 1.5

    @property
    def arms(self) -> int:
        """Number of models."""
        return len(self.costs)

    def draw(self, rng: np.random.Generator, start: int, rounds: int) -> Draw:
        """Return rounds with independent requests."""
        del start
        uniforms = rng.random((rounds, self.dimension + 2 * self.arms))
        features = 2.0 * uniforms[:, : self.dimension] - 1.0
        difficulty = features[:, :1]
        noise = uniforms[:, self.dimension :].reshape(rounds, self.arms, 2)
        mean = np.empty((rounds, self.arms, 2))
        mean[..., 0] = np.clip(np.array(self.qualities) - np.array(self.slopes) * difficulty, 0.0, 1.0)
        mean[..., 1] = np.array(self.costs) * (1.0 + (self.DIFFICULT - 1.0) * difficulty)
        outcome = np.empty_like(mean)
        outcome[..., 0] = bernoulli_outcomes(mean[..., 0], noise[..., 0])
        outcome[..., 1] = COST_FACTOR_MAX * noise[..., 1] ** 2 * mean[..., 1]
        return split_outcomes(mean, outcome, features * np.sqrt(3.0 / self.dimension))

    def optimum(self, rho: ArrayLike) -> float:
        """Return the static optimum over sampled contexts."""
        draw = self.draw(np.random.default_rng(0), 0, 10_000)
        return static_optimum(draw.mean_reward, draw.mean_costs, rho).value
