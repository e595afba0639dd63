"""Every oracle, with realizable truths for it. A new oracle needs one more case here."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from river import linear_model as river_linear
from river import optim
from sklearn.linear_model import SGDRegressor

from cbwk_core.oracles import (
    Aggregate,
    Gradient,
    Kernel,
    Newton,
    OnlineToBatch,
    Product,
    RiverOracle,
    SklearnOracle,
)

DIMENSION = 2


@dataclass(frozen=True)
class Case:
    """An oracle as a function of its number of blocks, and a draw of truths (lanes, blocks, n, targets) at contexts."""

    name: str
    make: Callable[[int], Any]
    truths: Callable[[np.random.Generator, Any, np.ndarray], np.ndarray]
    parameters: int = DIMENSION  # of one target in one block
    couples_blocks: bool = False  # whether an update of one block changes the predictions of another


def contexts(rng, *shape):
    """Points of the square [0, 1]² that lie in the unit disc."""
    return rng.random((*shape, DIMENSION)) / np.sqrt(DIMENSION)


def unit_vectors(rng, *shape):
    vectors = rng.standard_normal(shape)
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def linear_truths(rng, oracle, x):
    """φᵀθ* with θ* of norm at most 1 in the positive quadrant, at contexts x (lanes, n, m)."""
    theta = np.abs(unit_vectors(rng, x.shape[0], oracle.blocks, oracle.targets, DIMENSION))
    return np.einsum("lnm,lbqm->lbnq", x, theta * rng.random((*theta.shape[:-1], 1)))


def logistic_truths(rng, oracle, x):
    theta = unit_vectors(rng, x.shape[0], oracle.blocks, oracle.targets, DIMENSION)
    return 1.0 / (1.0 + np.exp(-np.einsum("lnm,lbqm->lbnq", x, theta)))


def step_truths(rng, oracle, x):
    """One value for each of the 4 x 4 squares of the finest expert."""
    values = rng.random((x.shape[0], oracle.blocks, oracle.targets, 4, 4))
    corner = np.minimum((x * 4).astype(int), 3)
    return np.stack([values[i][..., c[:, 0], c[:, 1]] for i, c in enumerate(corner)]).transpose(0, 1, 3, 2)


def lifted_truths(rng, oracle, x):
    """φᵀθ* of the lifted contexts: about ½ by the constant coordinate, and a wave of any shape of norm 0.6."""
    theta = 0.6 * unit_vectors(rng, x.shape[0], oracle.blocks, oracle.targets, oracle.features)
    theta = np.concatenate([np.full((*theta.shape[:-1], 1), 0.5 * np.sqrt(2.0)), theta], axis=-1)
    return np.einsum("lnf,lbqf->lbnq", oracle.lift(x), theta)


def mixed_truths(rng, oracle, x):
    logistic, linear = oracle.parts
    return np.concatenate([logistic_truths(rng, logistic, x), linear_truths(rng, linear, x)], axis=-1)


def _newton(blocks, targets=2, **options):
    return Newton(dimension=DIMENSION, targets=targets, blocks=blocks, **options)


def _gradient(blocks, link="identity"):
    return Gradient(dimension=DIMENSION, targets=2, blocks=blocks, link=link)


def _aggregate(blocks):
    return Aggregate(dimension=DIMENSION, targets=2, blocks=blocks, levels=2)


def _kernel(blocks):
    return Kernel(dimension=DIMENSION, targets=2, blocks=blocks, features=10, bandwidth=0.5)


def _product(blocks):
    return Product((_newton(blocks, targets=1, link="logistic", radius=1.0), _newton(blocks)))


def _stochastic_gradient():
    return SGDRegressor(learning_rate="constant", eta0=0.1)


def _river_regression():
    return river_linear.LinearRegression(optimizer=optim.SGD(0.1), intercept_lr=0.1)


def _sklearn(blocks):
    return SklearnOracle(_stochastic_gradient, dimension=DIMENSION, targets=2, blocks=blocks)


def _river(blocks):
    return RiverOracle(_river_regression, dimension=DIMENSION, targets=2, blocks=blocks)


CASES = [
    Case("newton", _newton, linear_truths),
    Case("newton_projected", partial(_newton, radius=1.0), linear_truths),
    Case("newton_logistic", partial(_newton, targets=1, link="logistic"), logistic_truths),
    Case(
        "newton_logistic_least_slope",
        partial(_newton, targets=1, link="logistic", radius=1.0, local_curvature=False),
        logistic_truths,
    ),
    Case("newton_forgetting", partial(_newton, forgetting=0.98), linear_truths),
    Case("newton_watching", partial(_newton, watch=True), linear_truths),
    Case("gradient", _gradient, linear_truths),
    Case("gradient_logistic", partial(_gradient, link="logistic"), logistic_truths),
    Case("aggregate", _aggregate, step_truths, couples_blocks=True),
    Case("kernel", _kernel, lifted_truths, parameters=11),
    Case("product", _product, mixed_truths),
    Case("online_to_batch_newton", lambda blocks: OnlineToBatch(_newton(blocks)), linear_truths),
    Case(
        "online_to_batch_aggregate",
        lambda blocks: OnlineToBatch(_aggregate(blocks)),
        step_truths,
        couples_blocks=True,
    ),
    Case("sklearn", _sklearn, linear_truths),
    Case("river", _river, linear_truths),
]


def arrays_in(state) -> Iterator[np.ndarray]:
    """Every array of a state, however deep."""
    if isinstance(state, np.ndarray):
        yield state
    elif isinstance(state, tuple):
        for part in state:
            yield from arrays_in(part)
