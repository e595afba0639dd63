"""Kinds of worlds: each is a generator of fresh random worlds of one kind from a seed.

Worlds of one kind have the same sizes, budgets and max costs, so that all of them run as lanes of one simulation; what
differs is drawn. No policy may be tuned on them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from cbwk_core.arrays import Array
from cbwk_core.simulation.environment import Environment
from cbwk_core.simulation.worlds import COST_FACTOR_MAX, LinearWorld, ModelMenu, SegmentEnvironment, TrafficWorld

# A generator: the environment of a seed and a horizon.
Generator = Callable[[int, int], Environment]
# Numbers of the kinds in the seeds of their worlds, so that no two kinds share one.
LOCK_IN, CLICKS, FIVE, MENU, SEGMENTS, LATE, TRAFFIC = range(7)
# The mean costs of the three models, and the features of a request.
MENU_COSTS, MENU_DIMENSION = (1.0, 18.0, 520.0), 24
MENU_COST_MAX = tuple((cost * ModelMenu.DIFFICULT * COST_FACTOR_MAX,) for cost in MENU_COSTS)
# Attributes of a request in the misspecified world, and the values of each.
ATTRIBUTES, VALUES = 3, 4
# Phases of the traffic, and the rounds of each.
PHASES, PHASE_ROUNDS = 16, 250


def _rng(kind: int, seed: int) -> np.random.Generator:
    return np.random.default_rng([kind, seed])


def _without_contexts(rewards: Array, costs: Array, rng: np.random.Generator) -> SegmentEnvironment:
    """Return 0/1 arms with these means, in random order."""
    order = rng.permutation(len(rewards))
    means = np.stack([rewards, costs], axis=1)[order]
    return SegmentEnvironment((1.0,), ((1.0,),), (_nested(means),))


def _nested(array: Array) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in array.tolist())


def three_arms(seed: int, horizon: int) -> Environment:
    """Return an arm that earns next to nothing, an efficient one and a dear one: the optimum mixes the last two or one.

    >>> three_arms(1, 100) == three_arms(1, 100), three_arms(1, 100) == three_arms(2, 100)
    (True, False)
    """
    del horizon
    rng = _rng(LOCK_IN, seed)
    low, high = np.array([[0.01, 0.4, 0.8], [0.2, 0.3, 0.8]]), np.array([[0.05, 0.6, 0.95], [0.4, 0.5, 0.95]])
    rewards, costs = rng.uniform(low, high)
    return _without_contexts(rewards, costs, rng)


def click_arms(seed: int, horizon: int) -> Environment:
    """Return two arms with clicks of a few percent, one of which pays twice as much per cost.

    >>> click_arms(0, 100).arms
    2
    """
    del horizon
    rng = _rng(CLICKS, seed)
    rewards = rng.uniform([0.08, 0.045], [0.12, 0.075])
    return _without_contexts(rewards, rewards * rng.uniform([0.85, 0.4], [1.15, 0.65]), rng)


def five_arms(seed: int, horizon: int) -> Environment:
    """Return five arms whose rewards grow with their costs, up to chance.

    >>> five_arms(0, 100).arms
    5
    """
    del horizon
    rng = _rng(FIVE, seed)
    costs = np.array([0.15, 0.2, 0.4, 0.5, 0.75]) * rng.uniform(0.85, 1.15, 5)
    rewards = np.clip(np.sqrt(costs) * rng.uniform(0.3, 1.1, 5), 0.02, 0.95)
    return _without_contexts(rewards, costs, rng)


def model_menu(seed: int, horizon: int) -> Environment:
    """Return three models whose mean costs are 1 : 18 : 520.

    >>> model_menu(0, 100).resources
    1
    """
    del horizon
    rng = _rng(MENU, seed)
    qualities = np.sort(rng.uniform([0.6, 0.7, 0.85], [0.85, 0.9, 0.97]))
    slopes = rng.uniform(0.0, 0.25, 3)
    return ModelMenu(MENU_COSTS, tuple(qualities.tolist()), tuple(slopes.tolist()), MENU_DIMENSION)


def misspecified(seed: int, horizon: int) -> Environment:
    """Return a stationary world of 64 segments that a linear model of their attributes cannot represent.

    >>> misspecified(0, 100).dimension
    12
    """
    del horizon
    rng, arms, segments = _rng(SEGMENTS, seed), 6, VALUES**ATTRIBUTES
    digits = np.stack(np.unravel_index(np.arange(segments), (VALUES,) * ATTRIBUTES), axis=1)
    rows = np.eye(VALUES)[digits].reshape(segments, -1)
    additive = sum(
        rng.standard_normal((VALUES, arms, 2))[digits[:, attribute]] for attribute in range(ATTRIBUTES)
    ) / np.sqrt(ATTRIBUTES)
    score = 0.8 * additive + 0.5 * rng.standard_normal((segments, arms, 2)) + np.array([-2.0, -1.0])
    means = 1.0 / (1.0 + np.exp(-score))
    weights = rng.dirichlet(np.full(segments, 2.0))
    return SegmentEnvironment(tuple(weights.tolist()), _nested(rows), tuple(_nested(each) for each in means))


def traffic(seed: int, horizon: int) -> Environment:
    """Return a stationary world that a linear model cannot represent, and whose traffic has phases.

    Clicks and costs depend on three attributes and on how they combine. The features have only two of the attributes.
    In every phase other segments prevail, so that errors of the model keep one sign for a while, as after a change.

    >>> traffic(0, 100).dimension
    8
    """
    del horizon
    rng, arms, segments = _rng(TRAFFIC, seed), 4, VALUES**ATTRIBUTES
    digits = np.stack(np.unravel_index(np.arange(segments), (VALUES,) * ATTRIBUTES), axis=1)
    rows = np.eye(VALUES)[digits[:, 1:]].reshape(segments, -1) / np.sqrt(ATTRIBUTES - 1)
    additive = sum(
        rng.standard_normal((VALUES, arms, 2))[digits[:, attribute]] for attribute in range(ATTRIBUTES)
    ) / np.sqrt(ATTRIBUTES)
    score = 0.8 * additive + 0.4 * rng.standard_normal((segments, arms, 2)) + np.array([-2.5, -1.5])
    means = 1.0 / (1.0 + np.exp(-score))
    tilt = sum(rng.standard_normal((PHASES, VALUES))[:, digits[:, attribute]] for attribute in range(ATTRIBUTES))
    shares = rng.dirichlet(np.full(segments, 2.0)) * np.exp(1.5 * tilt)
    shares /= shares.sum(axis=1, keepdims=True)
    return TrafficWorld(
        tuple(shares.mean(axis=0).tolist()),
        _nested(rows),
        tuple(_nested(each) for each in means),
        _nested(shares),
        PHASE_ROUNDS,
    )


def late_conversions(seed: int, horizon: int) -> Environment:
    """Return conversions of a few percent in eight segments, with costs that a linear model can represent.

    In the suite the costs are known at once, as clicks are, and the conversions late.

    >>> late_conversions(0, 100).arms
    4
    """
    del horizon
    rng, arms, segments = _rng(LATE, seed), 4, 8
    score = rng.standard_normal((1, arms, 2)) * 0.5 + rng.standard_normal((segments, arms, 2)) * 0.7
    means = 1.0 / (1.0 + np.exp(-(score + np.array([-3.0, -1.5]))))
    rows, weights = np.eye(segments), np.full(segments, 1.0 / segments)
    return SegmentEnvironment(tuple(weights.tolist()), _nested(rows), tuple(_nested(each) for each in means))


def eight_resources(seed: int, horizon: int) -> Environment:
    """Return a linear world with eight resources, the last of which is used in less than one round of a hundred.

    >>> eight_resources(0, 100).resources
    8
    """
    del horizon
    return LinearWorld(
        arms=5, dimension=6, scales=(1.0,) * 8 + (0.01,), rarities=(0.0,) * 8 + (1.0,), seed=seed, model="per_arm"
    )


def rare_rewards(seed: int, horizon: int) -> Environment:
    """Return a linear world whose rewards come in one round of fifty and are fifty times as large.

    >>> rare_rewards(0, 100).arms
    5
    """
    del horizon
    return LinearWorld(arms=5, dimension=6, scales=(0.02, 1.0, 1.0), rarities=(50.0, 0.0, 0.0), seed=seed)


def one_resource(seed: int, horizon: int) -> Environment:
    """Return a linear world with one resource.

    >>> one_resource(0, 100).resources
    1
    """
    del horizon
    return LinearWorld(arms=5, dimension=8, scales=(1.0, 1.0), rarities=(0.0, 0.0), seed=seed)


def linear_world(seed: int, horizon: int, *, arms: int = 5, waves: float = 0.0, model: str = "shared") -> Environment:
    """Return a linear world with two resources, with seasons in its contexts if there are waves.

    >>> linear_world(0, 100, waves=7.0).resources
    2
    """
    return LinearWorld(
        arms=arms,
        dimension=8,
        scales=(1.0, 1.0, 1.0),
        rarities=(0.0, 0.0, 0.0),
        seed=seed,
        model=model,
        waves=waves,
        swing=1.0 if waves else 0.0,
        horizon=horizon,
    )


seasons: Generator = partial(linear_world, waves=8.0)
many_arms: Generator = partial(linear_world, arms=200)
