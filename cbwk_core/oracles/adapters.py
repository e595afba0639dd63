"""Oracles that wrap models of scikit-learn (`partial_fit`, `predict`) and river (`learn_one`, `predict_one`).

This module imports neither library; any object with these methods works.

Every lane, block and target has its own model. An update deep-copies the models that it changes, so old states stay
valid. A state contains Python objects, which cannot be encoded as bytes: a policy with such an oracle has no snapshots.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cbwk_core.arrays import Array
from cbwk_core.oracles.oracle import check_sizes, checked_candidates, checked_growth, checked_update

Models = tuple[Any, ...]  # one model per target; empty before the first update


class ModelState(NamedTuple):
    """The models by lane and block.

    >>> ModelState(models=(((), ()),)).models[0]  # one lane with two blocks that have learnt nothing
    ((), ())
    """

    models: tuple[tuple[Models, ...], ...]


@dataclass(frozen=True)
class _ModelOracle(ABC):
    """The shared part of the adapters: `make_model` returns a new model, `prior` is the prediction before any row."""

    make_model: Callable[[], Any]
    dimension: int
    targets: int
    blocks: int = 1
    prior: float = 0.0

    methods: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        check_sizes(self)
        model = self.make_model()
        missing = [name for name in self.methods if not hasattr(model, name)]
        if missing:
            raise ValueError(f"make_model must return a model with {missing}, got {type(model).__name__}")

    @property
    def parameters(self) -> int:
        """The dimension times the blocks: the number for linear models, assumed because any model may be wrapped."""
        return self.dimension * self.blocks

    @abstractmethod
    def _learn(self, model: Any, x: Array, y: float) -> None:
        """Update the model in place by one row."""

    @abstractmethod
    def _predictions(self, model: Any, x: Array) -> Array:
        """Return the predictions (n,) of the model for rows x (n, dimension)."""

    def init(self, lanes: int = 1) -> ModelState:
        """Return a state without models."""
        return ModelState((((),) * self.blocks,) * lanes)

    def predict(self, state: ModelState, features: ArrayLike) -> Array:
        """Return the prediction of every block for every candidate, shape (n, k * blocks, targets)."""
        lanes = len(state.models)
        x = checked_candidates(self, features, lanes)
        n, k = x.shape[:2]
        predictions = np.full((n, k, self.blocks, self.targets), self.prior)
        for lane, block, models in _trained_blocks(state):
            rows = x[lane::lanes]
            for j, model in enumerate(models):
                flat = self._predictions(model, rows.reshape(-1, self.dimension))
                predictions[lane::lanes, :, block, j] = flat.reshape(-1, k)
        return predictions.reshape(n, k * self.blocks, self.targets)

    def spread(self, state: ModelState, features: ArrayLike) -> None:
        """Return None: the models report no uncertainty."""
        del state, features

    def update(
        self,
        state: ModelState,
        features: ArrayLike,
        targets: ArrayLike,
        block: ArrayLike | None = None,
        weight: ArrayLike | None = None,
    ) -> ModelState:
        """Return copies of the models that have learnt the rows in order, one row at a time."""
        lanes = len(state.models)
        x, y, index, w = checked_update(self, lanes, features, targets, block, weight)
        models = [list(blocks) for blocks in state.models]
        copied = set()
        for row in np.flatnonzero(w):
            lane, at = int(row) % lanes, int(index[row])
            if (lane, at) not in copied:
                copied.add((lane, at))
                old = models[lane][at] or tuple(self.make_model() for _ in range(self.targets))
                models[lane][at] = copy.deepcopy(old)
            for model, value in zip(models[lane][at], y[row], strict=True):
                self._learn(model, x[row], float(value))
        return ModelState(tuple(tuple(blocks) for blocks in models))

    def error_bound(self, rounds: int, delta: float = 0.05) -> float:
        """Return inf: no bound is known."""
        del rounds, delta
        return math.inf

    def resize(self, state: ModelState, blocks: int) -> ModelState:
        """Return the state with blocks appended that have no models."""
        added = checked_growth(self, blocks)
        return ModelState(tuple((*lane, *((),) * added) for lane in state.models))


def _trained_blocks(state: ModelState) -> Iterator[tuple[int, int, Models]]:
    """Yield the lane, block and models of every block that has learnt a row."""
    for lane, blocks in enumerate(state.models):
        for block, models in enumerate(blocks):
            if models:
                yield lane, block, models


class SklearnOracle(_ModelOracle):
    """An oracle of scikit-learn regressors with `partial_fit`.

    >>> class Mean:
    ...     total, rows = 0.0, 0
    ...     def partial_fit(self, x, y):
    ...         self.total, self.rows = self.total + y[0], self.rows + 1
    ...     def predict(self, x):
    ...         return [self.total / self.rows] * len(x)
    >>> oracle = SklearnOracle(Mean, dimension=2, targets=1, blocks=2, prior=0.5)
    >>> state = oracle.update(oracle.init(), [[1.0, 0.0], [0.0, 1.0]], [[1.0], [0.0]], block=[1, 1])
    >>> oracle.predict(state, np.array([[1.0, 1.0]])).round(1)  # the first block has learnt nothing
    array([[[0.5],
            [0.5]]])
    """

    methods: ClassVar[tuple[str, ...]] = ("partial_fit", "predict")

    def _learn(self, model: Any, x: Array, y: float) -> None:
        model.partial_fit(x[None, :], np.array([y]))

    def _predictions(self, model: Any, x: Array) -> Array:
        return np.asarray(model.predict(x), dtype=np.float64) if x.shape[0] else np.zeros(0)


class RiverOracle(_ModelOracle):
    """An oracle of river regressors; the features are named x0, x1, and so on.

    >>> class Last:
    ...     def learn_one(self, x, y):
    ...         self.last = y
    ...     def predict_one(self, x):
    ...         return self.last * x["x0"]
    >>> oracle = RiverOracle(Last, dimension=1, targets=1)
    >>> state = oracle.update(oracle.init(), [[1.0], [1.0]], [[0.2], [0.6]])
    >>> oracle.predict(state, np.array([[0.5]]))
    array([[[0.3]]])
    """

    methods: ClassVar[tuple[str, ...]] = ("learn_one", "predict_one")

    def _learn(self, model: Any, x: Array, y: float) -> None:
        model.learn_one(_feature_dict(x), y)

    def _predictions(self, model: Any, x: Array) -> Array:
        return np.array([model.predict_one(_feature_dict(row)) for row in x], dtype=np.float64)


def _feature_dict(x: Array) -> dict[str, float]:
    return {f"x{i}": value for i, value in enumerate(x.tolist())}
