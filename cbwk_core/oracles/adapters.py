"""Oracles made of models of other libraries: scikit-learn's (`partial_fit`, `predict`) and river's (`learn_one`,
`predict_one`). Neither library is imported here; any object with these methods will do.

Every lane, block and target has a model of its own. An update copies the models it touches, deeply, so that old states
stay what they were. The states hold objects, which cannot be turned into bytes: a policy on such an oracle has no
snapshots.
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
from cbwk_core.oracles.oracle import checked_block, checked_candidates, checked_growth, checked_rows, checked_weight

Models = tuple[Any, ...]  # one for each target; none before the first update


class ModelState(NamedTuple):
    """The models, by lane and block."""

    models: tuple[tuple[Models, ...], ...]


@dataclass(frozen=True)
class _ModelOracle(ABC):
    """What the adapters share; `make_model` returns a new model, `prior` is predicted before its first row."""

    make_model: Callable[[], Any]
    dimension: int
    targets: int
    blocks: int = 1
    prior: float = 0.0

    methods: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        if min(self.dimension, self.targets, self.blocks) < 1:
            raise ValueError(
                f"dimension, targets and blocks must be at least 1, got {self.dimension}, {self.targets}, {self.blocks}"
            )
        model = self.make_model()
        missing = [name for name in self.methods if not hasattr(model, name)]
        if missing:
            raise ValueError(f"make_model must return a model with {missing}, got {type(model).__name__}")

    @abstractmethod
    def _learn(self, model: Any, x: Array, y: float) -> None:
        """Teach the model one row, in place."""

    @abstractmethod
    def _predictions(self, model: Any, x: Array) -> Array:
        """What the model predicts for rows x (n, dimension): (n,)."""

    def init(self, lanes: int = 1) -> ModelState:
        """No models yet."""
        return ModelState((((),) * self.blocks,) * lanes)

    def predict(self, state: ModelState, features: ArrayLike) -> Array:
        """Every block's models for every candidate: (n, k * blocks, targets)."""
        lanes = len(state.models)
        x = checked_candidates(self, features, lanes)
        n, k = x.shape[:2]
        predictions = np.full((n, k, self.blocks, self.targets), self.prior)
        for lane, block, models in _learnt(state):
            rows = x[lane::lanes]
            for j, model in enumerate(models):
                flat = self._predictions(model, rows.reshape(-1, self.dimension))
                predictions[lane::lanes, :, block, j] = flat.reshape(-1, k)
        return predictions.reshape(n, k * self.blocks, self.targets)

    def spread(self, state: ModelState, features: ArrayLike) -> None:
        """None: the models do not say how sure they are."""
        del state, features

    def update(
        self,
        state: ModelState,
        features: ArrayLike,
        targets: ArrayLike,
        block: ArrayLike | None = None,
        weight: ArrayLike | None = None,
    ) -> ModelState:
        """Teach copies of the models the rows, one at a time and in order."""
        lanes = len(state.models)
        x, y = checked_rows(self, lanes, features, targets)
        index = checked_block(self, block, x.shape[0])
        teaches = checked_weight(weight, x.shape[0]) > 0
        models = [list(blocks) for blocks in state.models]
        touched = set()
        for row in np.flatnonzero(teaches):
            lane, at = int(row) % lanes, int(index[row])
            if (lane, at) not in touched:
                touched.add((lane, at))
                old = models[lane][at] or tuple(self.make_model() for _ in range(self.targets))
                models[lane][at] = copy.deepcopy(old)
            for model, value in zip(models[lane][at], y[row], strict=True):
                self._learn(model, x[row], float(value))
        return ModelState(tuple(tuple(blocks) for blocks in models))

    def error_bound(self, rounds: int, delta: float = 0.05) -> float:
        """inf: nothing is known."""
        del rounds, delta
        return math.inf

    def resize(self, state: ModelState, blocks: int) -> ModelState:
        """Append blocks without models."""
        added = checked_growth(self, blocks)
        return ModelState(tuple((*own, *((),) * added) for own in state.models))


def _learnt(state: ModelState) -> Iterator[tuple[int, int, Models]]:
    """Lane, block and models of every block that has learnt something."""
    for lane, blocks in enumerate(state.models):
        for block, models in enumerate(blocks):
            if models:
                yield lane, block, models


class SklearnOracle(_ModelOracle):
    """A regressor of scikit-learn with `partial_fit`.

    >>> class Mean:
    ...     total, rows = 0.0, 0
    ...     def partial_fit(self, x, y):
    ...         self.total, self.rows = self.total + y[0], self.rows + 1
    ...     def predict(self, x):
    ...         return [self.total / self.rows] * len(x)
    >>> oracle = SklearnOracle(Mean, dimension=2, targets=1, blocks=2, prior=0.5)
    >>> state = oracle.update(oracle.init(), [[1.0, 0.0], [0.0, 1.0]], [[1.0], [0.0]], block=[1, 1])
    >>> oracle.predict(state, np.array([[1.0, 1.0]])).round(1)  # the first arm has seen nothing
    array([[[0.5],
            [0.5]]])
    """

    methods: ClassVar[tuple[str, ...]] = ("partial_fit", "predict")

    def _learn(self, model: Any, x: Array, y: float) -> None:
        model.partial_fit(x[None, :], np.array([y]))

    def _predictions(self, model: Any, x: Array) -> Array:
        return np.asarray(model.predict(x), dtype=np.float64) if x.shape[0] else np.zeros(0)


class RiverOracle(_ModelOracle):
    """A regressor of river; the features are named x0, x1, and so on.

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
        model.learn_one(_named(x), y)

    def _predictions(self, model: Any, x: Array) -> Array:
        return np.array([model.predict_one(_named(row)) for row in x], dtype=np.float64)


def _named(x: Array) -> dict[str, float]:
    return {f"x{i}": value for i, value in enumerate(x.tolist())}
