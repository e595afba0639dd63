"""One campaign in two forms: the body of a request, and a loop of the library alone, without the service."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np

from cbwk_core import NULL_ARM, SquareCBwK

SEED = 23
ARMS = ("left", "middle", "right")
RESOURCES = ("usd", "impressions")
MAX_COSTS = (0.5, 1.0)
# The middle arm has a lower limit than the resource.
MIDDLE_USD = 0.25
CONTEXT_DIMENSION, ARM_DIMENSION = 3, 2
ONE = 1_000_000


def uniform(seed: int, number: int) -> float:
    """Return the uniform of a round as the interface defines it."""
    digest = blake2b(f"{seed}:{number}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) * 2.0**-53


@dataclass(frozen=True)
class World:
    """Contexts, and the reward and costs of every arm in each round; costs in whole millionths.

    The campaign has the name of its model, so that one server can have both.
    """

    model: str
    rounds: int
    pace: tuple[float, float] = (0.12, 0.35)  # budget per round

    @cached_property
    def contexts(self) -> Any:
        """(rounds, 3)."""
        return np.random.default_rng(1).random((self.rounds, CONTEXT_DIMENSION))

    @cached_property
    def arm_features(self) -> Any:
        """(arms, 2), for a shared model."""
        return np.random.default_rng(2).random((len(ARMS), ARM_DIMENSION)).round(3)

    @cached_property
    def rewards(self) -> Any:
        """(rounds, arms), noisy."""
        rng = np.random.default_rng(3)
        means = self.contexts @ rng.random((CONTEXT_DIMENSION, len(ARMS))) / CONTEXT_DIMENSION
        return np.clip(means + rng.normal(0, 0.2, means.shape), 0, 1)

    @cached_property
    def costs_micros(self) -> Any:
        """(rounds, arms, resources), noisy, never above the hold."""
        rng = np.random.default_rng(4)
        limits = np.full((len(ARMS), len(RESOURCES)), MAX_COSTS)
        limits[1, 0] = MIDDLE_USD
        share = self.contexts @ rng.random((CONTEXT_DIMENSION, len(ARMS))) / CONTEXT_DIMENSION
        noisy = np.clip(share[..., None] + rng.normal(0, 0.2, (*share.shape, len(RESOURCES))), 0, 1)
        return np.round(noisy * limits * ONE).astype(np.int64)

    @property
    def budgets(self) -> list[float]:
        """The budget of each resource, in units."""
        return [round(pace * self.rounds, 6) for pace in self.pace]

    def campaign(self, **changes: Any) -> dict[str, Any]:
        """Return the body of `POST /campaigns`."""
        arms: list[dict[str, Any]] = [{"id": arm} for arm in ARMS]
        arms[1]["max_cost"] = {"usd": MIDDLE_USD}
        shared: dict[str, Any] = {}
        if self.model == "shared":
            shared = {"arm_features": {"dimension": ARM_DIMENSION}}
            for arm, features in zip(arms, self.arm_features.tolist(), strict=True):
                arm["features"] = features
        resources = [
            {"id": name, "budget": budget, "max_cost": limit}
            for name, budget, limit in zip(RESOURCES, self.budgets, MAX_COSTS, strict=True)
        ]
        return {
            "id": self.model,
            "model": self.model,
            "arms": arms,
            "resources": resources,
            "horizon": self.rounds,
            "context": {"dimension": CONTEXT_DIMENSION},
            "seed": SEED,
            **shared,
            **changes,
        }

    def features(self, start: int, end: int) -> Any:
        """Return the features of rounds: a context, or for each arm the context, the arm and their products."""
        if self.model == "per_arm":
            return self.contexts[start:end]
        return np.array(
            [
                [np.concatenate([context, arm, np.outer(context, arm).ravel()]) for arm in self.arm_features]
                for context in self.contexts[start:end]
            ]
        )

    def report(self, number: int, arm: int) -> dict[str, Any]:
        """Return the body of `POST /feedback` for an arm in a round, whose decision is named after its number."""
        costs = dict(zip(RESOURCES, (self.costs_micros[number, arm] / ONE).tolist(), strict=True))
        return {
            "campaign_id": self.model,
            "decision_id": f"d{number}",
            "reward": float(self.rewards[number, arm]),
            "costs": costs,
        }


@dataclass
class LibraryLoop:
    """Plays rounds with the library, in units, and keeps accounts in whole millionths."""

    world: World
    spent: Any = field(default_factory=lambda: np.zeros(len(RESOURCES), dtype=np.int64))
    held: Any = field(default_factory=lambda: np.zeros(len(RESOURCES), dtype=np.int64))
    round: int = 0
    tickets: dict[int, tuple[Any, int]] = field(default_factory=dict)  # by round: ticket and arm

    def __post_init__(self) -> None:
        holds = np.full((len(ARMS), len(RESOURCES)), MAX_COSTS)
        holds[1, 0] = MIDDLE_USD
        self.holds_micros = np.round(holds * ONE).astype(np.int64)
        per_arm = self.world.model == "per_arm"
        products = ARM_DIMENSION + CONTEXT_DIMENSION * ARM_DIMENSION
        self.policy = SquareCBwK(
            arms=len(ARMS),
            dimension=CONTEXT_DIMENSION + (0 if per_arm else products),
            resources=len(RESOURCES),
            horizon=self.world.rounds,
            budget=self.world.budgets,
            max_cost=holds,
            model=self.world.model,
            two_stage=False,
        )
        self.state = self.policy.init()

    @property
    def prices(self) -> list[float]:
        """λ of the next decision, per unit of each resource."""
        prices: list[float] = (self.policy.quote(self.state).prices[0] / np.array(MAX_COSTS)).tolist()
        return prices

    def decide(self, rounds: int = 1) -> tuple[list[int], list[float]]:
        """Decide the next rounds in one call; returns the arms and their probabilities."""
        numbers = range(self.round, self.round + rounds)
        granted = np.round(np.array(self.world.budgets) * ONE).astype(np.int64)
        choice = self.policy.decide(
            self.state,
            self.world.features(numbers.start, numbers.stop),
            [uniform(SEED, number) for number in numbers],
            free=np.maximum(granted - self.spent - self.held, 0) / ONE,
        )
        self.state = self.policy.commit(self.state, choice.ticket)
        self.round += rounds
        for row, number in enumerate(numbers):
            arm = int(choice.arm[row])
            ticket = type(choice.ticket)(*(None if part is None else part[row : row + 1] for part in choice.ticket))
            self.tickets[number] = ticket, arm
            if arm != NULL_ARM:
                self.held += self.holds_micros[arm]
        return choice.arm.tolist(), choice.probability.tolist()

    def settle(self, number: int) -> None:
        """Report the reward and the costs of a round's arm."""
        ticket, arm = self.tickets[number]
        costs = self.world.costs_micros[number, arm]
        self.held -= self.holds_micros[arm]
        self.spent += costs
        self.state = self.policy.settle(self.state, ticket, [self.world.rewards[number, arm]], costs[None] / ONE)
