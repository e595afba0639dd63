"""Logs of a small world whose every mean is known, so that the truth about a policy is a sum and not a sample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cbwk_core import NULL_ARM, SquareCBwK
from cbwk_core.evaluation import Log
from cbwk_core.rules.inverse_gap import sample

CONTEXTS = 24
MAX_COST = np.array([1.0, 2.0])


@dataclass(frozen=True)
class World:
    """Finitely many contexts, each as likely: means of reward and two costs, and how a fixed policy logs.

    Rewards and the second cost are 0 or the most there is, like clicks and what they cost; the first cost is uniform
    around its mean. Not every arm is offered in every context. Means are not linear in the features: a model errs.
    """

    features: np.ndarray  # (contexts, 2)
    means: np.ndarray  # (contexts, arms, 3)
    offered: np.ndarray  # (contexts, arms)
    logging: np.ndarray  # (contexts, arms), null takes the rest

    @classmethod
    def of(cls, seed: int, *, arms: int = 4, least: float = 0.1) -> World:
        """A world; `least` is about the least probability with which the fixed policy plays an offered arm."""
        rng = np.random.default_rng(seed)
        features = rng.random((CONTEXTS, 2))
        slopes, bends = rng.uniform(0.1, 0.5, (arms, 3, 2)), rng.uniform(0.0, 0.2, (arms, 3))
        means = np.einsum("xm,atm->xat", features, slopes) * 0.7 + bends * np.sin(5.0 * features[:, :1, None]) ** 2
        means[:, :, 2] *= MAX_COST[1]
        offered = rng.random((CONTEXTS, arms)) < 0.9
        offered[:, 0] = True
        share = rng.dirichlet(np.ones(arms + 1), size=CONTEXTS) * (1.0 - (arms + 1) * least) + least
        return cls(features, means, offered, share[:, :-1] * offered)

    @property
    def arms(self) -> int:
        return int(self.means.shape[1])

    def outcomes(self, context: np.ndarray, arm: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """(n, 3) for real arms, 0 for null."""
        means = self.means[context, arm]
        uniforms = rng.random(means.shape)
        result = np.where(uniforms * [1.0, 1.0, 2.0] < means, [1.0, 0.0, 2.0], 0.0)
        result[:, 1] = means[:, 1] + (2.0 * uniforms[:, 1] - 1.0) * np.minimum(means[:, 1], 1.0 - means[:, 1])
        return result * (arm != NULL_ARM)[:, None]

    def log(self, rounds: int, rng: np.random.Generator) -> Log:
        """A log of the fixed policy."""
        context = rng.integers(CONTEXTS, size=rounds)
        logging = self.logging[context]
        given = np.concatenate([logging, 1.0 - logging.sum(axis=1, keepdims=True)], axis=1)
        arm = sample(given, np.zeros(rounds, dtype=np.int64), rng.random(rounds))
        propensity = given[np.arange(rounds), arm]
        arm[arm == self.arms] = NULL_ARM
        outcomes = self.outcomes(context, arm, rng)
        return Log.of(
            features=self.features[context],
            eligible=self.offered[context],
            arm=arm,
            propensity=propensity,
            reward=outcomes[:, 0],
            costs=outcomes[:, 1:],
            probabilities=logging,
        )

    def truth(self, target: np.ndarray) -> np.ndarray:
        """(3,), the mean reward and costs per round of a policy (contexts, arms) on the offered arms."""
        return np.einsum("xa,xat->t", target * self.offered, self.means) / CONTEXTS

    def targets(self) -> dict[str, np.ndarray]:
        """Policies (contexts, arms): a fixed arm, every offered arm alike, one that leans on the context."""
        fixed = np.zeros(self.offered.shape)
        fixed[:, 1] = 1.0
        uniform = self.offered / self.offered.sum(axis=1, keepdims=True)
        leaning = np.exp(3.0 * self.means[:, :, 0]) * self.offered
        return {"fixed arm": fixed, "uniform": uniform, "leaning": 0.9 * leaning / leaning.sum(axis=1, keepdims=True)}

    def of_context(self, target: np.ndarray):
        """The same policy as a function of (features, eligible), as a caller would write one."""

        def probabilities(features: np.ndarray, eligible: np.ndarray) -> np.ndarray:
            return target[np.abs(features[:, None] - self.features).sum(axis=2).argmin(axis=1)]

        return probabilities


def adaptive_logs(world: World, *, runs: int, rounds: int, share: float, seed: int) -> list[Log]:
    """Logs of SquareCBwK itself, side by side, with budgets of that share of a max cost per round."""
    policy = SquareCBwK(
        arms=world.arms,
        dimension=2,
        resources=2,
        horizon=rounds,
        budget=share * rounds * MAX_COST,
        max_cost=MAX_COST,
        model="per_arm",
    )
    rng, state = np.random.default_rng(seed), policy.init(runs)
    context = rng.integers(CONTEXTS, size=(rounds, runs))
    eligible = np.empty((rounds, runs, world.arms), dtype=bool)
    probabilities, arm = np.empty((rounds, runs, world.arms + 1)), np.empty((rounds, runs), dtype=np.int64)
    outcomes = np.empty((rounds, runs, 3))
    for now in range(rounds):
        here = context[now]
        left = np.asarray(policy.budget) - state.spent - state.held
        eligible[now] = world.offered[here] & (left >= MAX_COST).all(axis=1)[:, None]
        choice = policy.decide(state, world.features[here], rng.random(runs), exclude=~world.offered[here])
        state = policy.commit(state, choice.ticket)
        probabilities[now], arm[now] = choice.probabilities, choice.arm
        outcomes[now] = world.outcomes(here, choice.arm, rng)
        state = policy.settle(state, choice.ticket, outcomes[now, :, 0], outcomes[now, :, 1:])
    return [
        Log.of(
            features=world.features[context[:, i]],
            eligible=eligible[:, i],
            arm=arm[:, i],
            propensity=probabilities[np.arange(rounds), i, arm[:, i]],
            reward=outcomes[:, i, 0],
            costs=outcomes[:, i, 1:],
            probabilities=probabilities[:, i, :-1],
            offered=world.offered[context[:, i]],
        )
        for i in range(runs)
    ]
