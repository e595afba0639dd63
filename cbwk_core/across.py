"""One request of each of several policies, in the calls that one of them takes.

Who serves a thousand campaigns is asked for a few dozen of them at a time, and each by itself takes dozens of calls
into numpy for vectors of ten numbers (plain.py). Policies of one shape differ in their numbers only: here they are
rows, and the product with each one's own matrix is the only call that is made for each. The rules are those of
plain.py, and what it passes on is not fit here, nor are late outcomes; the tests hold them together.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cbwk_core.arrays import Array, Integers
from cbwk_core.plain import BECAUSE_OF_POLICY, Plain, weights_of_several
from cbwk_core.presets import (
    BLIND_COUNT,
    GAMMA_FACTOR,
    NOISE_MIN,
    PRICE_CEILING,
    PRICE_STEP,
    RESIDUAL_PRIOR_COUNT,
    WIDTHS,
)
from cbwk_core.problem import NULL_ARM, Choice, Thought, Ticket
from cbwk_core.rules.inverse_gap import sample
from cbwk_core.rules.pace import DELAY_SHARE_MIN
from cbwk_core.state import State, layout

if TYPE_CHECKING:
    from cbwk_core.policy import SquareCBwK

Shape = tuple[int, int, int]


def shape_of(policy: SquareCBwK) -> Shape | None:
    """What policies must have in common to be asked together: arms, dimension, resources. None if one cannot be."""
    return None if policy._plain is None else policy._plain.shape


class Across:
    """n policies of one shape, each with its state of one lane."""

    def __init__(self, policies: Sequence[SquareCBwK], states: Sequence[State]) -> None:
        self._plains: list[Plain] = [policy._plain for policy in policies if policy._plain is not None]
        self._states = states
        self._arms, self._dimension, d = self._plains[0].arms, self._plains[0].dimension, self._plains[0].resources
        self._where = layout(d)
        self._books: Array = np.concatenate([state.books for state in states])
        declared = np.concatenate([plain.declared for plain in self._plains])
        self._horizon = declared[:, 0]
        self._budgets, self._unit, self._rho = (declared[:, 1 + at * d : 1 + (at + 1) * d] for at in range(3))

    @property
    def rounds(self) -> list[int]:
        """How many rounds each has had."""
        return [int(number) for number in self._books[:, 0].tolist()]

    @property
    def learnt(self) -> list[int]:
        """From how many outcomes each has learnt."""
        return [int(number) for number in self._books[:, 3].tolist()]

    def fit(self, free: NDArray[Any]) -> NDArray[np.bool_]:
        """(n,): which can be asked here, if (n, d) is what their callers' ledgers have left."""
        rounds, opened, settled = self._books[:, 0], self._books[:, 1], self._books[:, 2]
        waited, left = self._part("slack")[:, 0], np.maximum(self._horizon - rounds, 1.0)
        late = waited / np.maximum(settled, 1.0) > DELAY_SHARE_MIN * left
        blind = (opened >= BLIND_COUNT) & (settled < BLIND_COUNT)
        return np.asarray(
            (rounds + 1.0 <= self._horizon) & ~blind & ~late & (free >= self._unit).all(axis=1), dtype=np.bool_
        )

    def decide(self, features: Array, uniforms: Array) -> Choice | None:
        """Features (n, dimension) and uniforms (n,), a row for each; all must be fit. None if a number is not sound.

        Prices and γ of the thought are a row each, too.
        """
        rows, m = len(features), self._dimension + 1
        if not isfinite(np.vdot(features, features)):
            return None
        lifted = np.ones((rows, m))
        lifted[:, :-1] = features
        width = self._states[0].oracle.solution.size // m
        images = np.empty((rows, width))
        for state, phi, image in zip(self._states, lifted, images, strict=True):
            np.dot(state.oracle.solution.reshape(width, m), phi, out=image)
        images = images.reshape(rows, self._arms, -1)
        leverage = np.vecdot(images[..., :m], lifted[:, None])
        if not (leverage.min() >= 0.0 and isfinite(leverage.sum())):
            return None
        predictions = images[..., m:].copy()
        direction, gamma, noise = self._quotes()
        # By the product that plain.py has: another may tell apart arms that are equal to the last bit there.
        values = np.array([image[:, m:].dot(u) for image, u in zip(images, direction, strict=True)])
        weights, best = weights_of_several(values, leverage, gamma, WIDTHS * np.sqrt(noise))
        arm = sample(weights, best, uniforms)
        arm[arm == self._arms] = NULL_ARM
        probability, prices = weights[np.arange(rows), arm], -direction[:, 1:]
        ticket = self._ticket(features, predictions, arm)
        for array in (arm, probability, weights, predictions, prices, gamma):
            array.setflags(write=False)
        return Choice(arm, probability, weights, BECAUSE_OF_POLICY * rows, ticket, Thought(predictions, prices, gamma))

    def commit(self, ticket: Ticket) -> list[State]:
        """The states after these decisions, one of each."""
        books, numbers, d = self._books.copy(), ticket.numbers, ticket.resources
        costs, pace, hold = (numbers[:, 3 + at * d : 3 + (at + 1) * d] for at in range(3))
        excess = (costs - pace) / self._rho
        where = self._where
        books[:, 0] += 1.0
        books[:, 1] += ticket.arm != NULL_ARM
        books[:, 4] += numbers[:, 1]
        energy = books[:, where["energy"]]
        energy += excess * excess
        moved = books[:, where["position"]] + PRICE_STEP * excess / np.sqrt(1.0 + energy)
        books[:, where["position"]] = np.minimum(np.maximum(moved, 0.0), PRICE_CEILING)
        books[:, where["held"]] += hold
        books[:, where["predicted"]] += costs
        result = []
        for state, row in zip(self._states, books, strict=True):
            own = row[None].copy()  # a view would keep the books of all for as long as one of them lives
            own.setflags(write=False)
            result.append(State(own, state.oracle, state.residuals, state.stage))
        return result

    def _part(self, name: str) -> Array:
        return self._books[:, self._where[name]]

    def _quotes(self) -> tuple[Array, Array, Array]:
        """u = (1, -λ) with λ = p·R̂/ρ (n, 1 + d), γ and the noise uᵀΣ̂u (n, 1)."""
        rounds, learnt = self._books[:, 0], self._books[:, 3]
        mean = self._books[:, 4] / np.maximum(rounds, 1.0)
        direction = np.ones((len(rounds), 1 + self._rho.shape[1]))
        direction[:, 1:] = -self._part("position") * (mean[:, None] / self._rho)
        residuals = np.concatenate([state.residuals for state in self._states])
        spread = np.vecdot(np.matvec(residuals, direction), direction)
        noise = np.maximum(spread / (learnt + RESIDUAL_PRIOR_COUNT), NOISE_MIN)
        gone = np.array([state.oracle.noticed.item(1) for state in self._states])
        counted = (rounds + 1.0) * ((learnt + 1.0 - np.minimum(gone, learnt)) / (learnt + 1.0))
        gamma = GAMMA_FACTOR * np.sqrt((self._arms + 1) * counted / (noise * self._plains[0].parameters))
        return direction, gamma[:, None], noise[:, None]

    def _ticket(self, features: Array, predictions: Array, arm: Integers) -> Ticket:
        rows, d = len(arm), self._rho.shape[1]
        index, null = np.arange(rows), arm == NULL_ARM
        picked, numbers, chosen = predictions[index, arm], np.empty((rows, 3 + 3 * d)), features.copy()
        numbers[:, 0] = picked[:, 0]
        np.maximum(picked[:, 0], 0.0, out=numbers[:, 1])
        np.maximum(picked[:, 1:], 0.0, out=numbers[:, 3 : 3 + d])
        numbers[:, 3 + 2 * d :] = [plain.hold[at] for plain, at in zip(self._plains, arm.tolist(), strict=True)]
        if null.any():
            numbers[null] = 0.0
            chosen[null] = 0.0
        numbers[:, 2] = self._books[:, 0]
        left = np.maximum(self._budgets - self._part("spent") / self._unit - self._part("predicted"), 0.0)
        numbers[:, 3 + d : 3 + 2 * d] = left / np.maximum(self._horizon - self._books[:, 0], 1.0)[:, None]
        for array in (chosen, numbers):
            array.setflags(write=False)
        return Ticket(arm, chosen, numbers)
