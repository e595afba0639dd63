"""Logs of small worlds whose means are all known, so the truth about a policy is a sum and not a sample."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from cbwk_core.arrays import Array, Integers, Mask
from cbwk_core.evaluation import Log
from cbwk_core.policy import SquareCBwK
from cbwk_core.rules.inverse_gap import sample
from cbwk_core.ticket import NULL_ARM

CONTEXTS = 24
# The largest costs: the first resource is the budget of impressions, the others are paid like clicks.
MAX_COST = np.array([1.0, 2.0])


@dataclass(frozen=True)
class LoggedWorld:
    """Finitely many contexts, each as likely: the means of the reward and of d costs, and a fixed policy that logs.

    Rewards and all costs but the first are 0 or the largest value, like clicks and their price; the first cost is
    uniform around its mean. Not every arm is offered in every context. The means are not linear in the features, so
    every linear model has an error.

    >>> world = LoggedWorld.of(1)
    >>> log = world.log(100, np.random.default_rng(1))
    >>> log.rounds, log.arms, world.truth(np.zeros((CONTEXTS, 4)))
    (100, 4, array([0., 0., 0.]))
    """

    features: Array  # (contexts, 2)
    means: Array  # (contexts, arms, 1 + d)
    offered: Mask  # (contexts, arms)
    logging: Array  # (contexts, arms), null takes the rest
    max_cost: Array  # (d,)

    @classmethod
    def of(
        cls, seed: int, *, arms: int = 4, least: float = 0.1, max_cost: Array = MAX_COST, reward_scale: float = 1.0
    ) -> LoggedWorld:
        """Return a world; `least` is about the smallest probability with which the fixed policy plays an offered arm.

        reward_scale: a factor of all mean rewards; 0.05 makes them as rare as clicks.
        """
        rng, d = np.random.default_rng(seed), len(max_cost)
        features = rng.random((CONTEXTS, 2))
        slopes, bends = rng.uniform(0.1, 0.5, (arms, 1 + d, 2)), rng.uniform(0.0, 0.2, (arms, 1 + d))
        means = np.einsum("xm,atm->xat", features, slopes) * 0.7 + bends * np.sin(5.0 * features[:, :1, None]) ** 2
        means *= np.concatenate([[reward_scale], max_cost])
        offered = rng.random((CONTEXTS, arms)) < 0.9
        offered[:, 0] = True
        share = rng.dirichlet(np.ones(arms + 1), size=CONTEXTS) * (1.0 - (arms + 1) * least) + least
        return cls(features, means, offered, share[:, :-1] * offered, np.array(max_cost, dtype=np.float64))

    @classmethod
    def alike(cls, seed: int) -> LoggedWorld:
        """Return a world with two arms of the same means, always offered: what a policy learns there is chance."""
        world = cls.of(seed, arms=2)
        means = np.repeat(world.means[:, :1], 2, axis=1)
        return replace(world, means=means, offered=np.ones_like(world.offered), logging=np.full((CONTEXTS, 2), 0.3))

    @property
    def arms(self) -> int:
        """The number of arms, without the null arm."""
        return int(self.means.shape[1])

    def outcomes(self, context: Integers, arm: Integers, rng: np.random.Generator) -> Array:
        """Return the reward, then the costs (n, 1 + d) of real arms, and 0 for null."""
        means, largest = self.means[context, arm], np.append(1.0, self.max_cost)
        uniforms = rng.random(means.shape)
        result = np.where(uniforms * largest < means, largest, 0.0)
        spread = np.minimum(means[:, 1], self.max_cost[0] - means[:, 1])
        result[:, 1] = means[:, 1] + (2.0 * uniforms[:, 1] - 1.0) * spread
        return np.asarray(result * (arm != NULL_ARM)[:, None])

    def log(self, rounds: int, rng: np.random.Generator) -> Log:
        """Return a log of the fixed policy."""
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

    def truth(self, target: Array) -> Array:
        """Return the mean reward and costs per round of a policy (contexts, arms) on the offered arms: (1 + d,)."""
        return np.asarray(np.einsum("xa,xat->t", target * self.offered, self.means) / CONTEXTS)

    def truth_on(self, log: Log, probabilities: Array) -> Array:
        """Return the mean over the rounds of Σ_a π(a)·mean of the arm, for π (n, arms) on the eligible arms: (1 + d,).

        The contexts are those of the log: for a policy that learns along the log no other truth has a closed form.
        """
        context = self.context_of(log.features)
        return np.asarray(np.einsum("na,nat->t", probabilities * log.eligible, self.means[context]) / log.rounds)

    def context_of(self, features: Array) -> Integers:
        """Return the context of each round: (n,)."""
        return np.asarray(np.abs(features[:, None] - self.features).sum(axis=2).argmin(axis=1))

    def targets(self) -> dict[str, Array]:
        """Return policies (contexts, arms): one arm, every offered arm alike, one that leans to high rewards."""
        fixed = np.zeros(self.offered.shape)
        fixed[:, 1] = self.offered[:, 1]
        uniform = self.offered / self.offered.sum(axis=1, keepdims=True)
        scale = self.means[:, :, 0].max()
        leaning = np.exp(2.0 * self.means[:, :, 0] / scale) * self.offered
        return {"fixed arm": fixed, "uniform": uniform, "leaning": 0.9 * leaning / leaning.sum(axis=1, keepdims=True)}

    def of_context(self, target: Array) -> Callable[[Array, Mask], Array]:
        """Return the policy as a function of (features, eligible)."""
        return lambda features, eligible: target[self.context_of(features)]


# A policy that logs: from the plays (runs, arms), the mean rewards (runs, arms), the round and the offered arms
# (runs, arms) to the probabilities of the real arms (runs, arms).
Learner = Callable[[Array, Array, int, Mask], Array]


def greedy(plays: Array, means: Array, now: int, offered: Mask, *, floor: float = 0.1) -> Array:
    """Return ε-greedy probabilities on mean rewards, ε = floor + 0.9·(now + 1)^(-⅓), without features."""
    epsilon = min(1.0, floor + 0.9 * (now + 1.0) ** (-1.0 / 3.0))
    given = epsilon * offered / offered.sum(axis=1, keepdims=True)
    best = np.where(offered, np.where(plays > 0, means, np.inf), -np.inf).argmax(axis=1)
    given[np.arange(len(given)), best] += 1.0 - epsilon
    return np.asarray(given)


def softmax(plays: Array, means: Array, now: int, offered: Mask, *, floor: float = 0.03) -> Array:
    """Return softmax probabilities on mean rewards, sharper with time, with a floor for each offered arm."""
    shown = np.where(plays > 0, means, means.max(axis=1, keepdims=True))
    sharpness = np.sqrt(now + 1.0) / np.maximum(means.max(axis=1, keepdims=True), 1e-3) / 4.0
    share = np.exp(sharpness * (shown - shown.max(axis=1, keepdims=True))) * offered
    share /= share.sum(axis=1, keepdims=True)
    return np.asarray((1.0 - floor * offered.sum(axis=1, keepdims=True)) * share + floor * offered)


def learner_logs(world: LoggedWorld, learner: Learner, *, runs: int, rounds: int, seed: int) -> list[Log]:
    """Return logs of a policy without budgets that adapts its probabilities to the rewards it has seen."""
    rng = np.random.default_rng(seed)
    context = rng.integers(CONTEXTS, size=(rounds, runs))
    plays, sums = np.zeros((runs, world.arms)), np.zeros((runs, world.arms))
    probabilities, arm = np.empty((rounds, runs, world.arms)), np.empty((rounds, runs), dtype=np.int64)
    outcomes = np.empty((rounds, runs, world.means.shape[2]))
    lanes, first = np.arange(runs), np.zeros(runs, dtype=np.int64)
    for now in range(rounds):
        offered = world.offered[context[now]]
        probabilities[now] = learner(plays, sums / np.maximum(plays, 1.0), now, offered)
        arm[now] = sample(probabilities[now], first, rng.random(runs))
        outcomes[now] = world.outcomes(context[now], arm[now], rng)
        plays[lanes, arm[now]] += 1.0
        sums[lanes, arm[now]] += outcomes[now, :, 0]
    eligible = world.offered[context]
    return _logs(world, context, eligible, eligible, arm, probabilities, outcomes)


def campaign_logs(world: LoggedWorld, *, runs: int, rounds: int, share: float, seed: int) -> list[Log]:
    """Return logs of SquareCBwK itself, with budgets of that share of a max cost per round.

    An arm that the budget cannot pay is not eligible.
    """
    policy = SquareCBwK(
        arms=world.arms,
        dimension=2,
        resources=len(world.max_cost),
        horizon=rounds,
        budget=share * rounds * world.max_cost,
        max_cost=world.max_cost,
        model="per_arm",
    )
    rng, state = np.random.default_rng(seed), policy.init(runs)
    context = rng.integers(CONTEXTS, size=(rounds, runs))
    eligible = np.empty((rounds, runs, world.arms), dtype=bool)
    probabilities, arm = np.empty((rounds, runs, world.arms + 1)), np.empty((rounds, runs), dtype=np.int64)
    outcomes = np.empty((rounds, runs, world.means.shape[2]))
    for now in range(rounds):
        here = context[now]
        left = np.asarray(policy.budget) - state.spent - state.held
        eligible[now] = world.offered[here] & np.asarray((left >= world.max_cost).all(axis=1))[:, None]
        choice = policy.decide(state, world.features[here], rng.random(runs), exclude=~world.offered[here])
        state = policy.commit(state, choice.ticket)
        probabilities[now], arm[now] = choice.probabilities, choice.arm
        outcomes[now] = world.outcomes(here, choice.arm, rng)
        state = policy.settle(state, choice.ticket, outcomes[now, :, 0], outcomes[now, :, 1:])
    return _logs(world, context, eligible, world.offered[context], arm, probabilities, outcomes)


def _logs(
    world: LoggedWorld,
    context: Integers,
    eligible: Mask,
    offered: Mask,
    arm: Integers,
    probabilities: Array,
    outcomes: Array,
) -> list[Log]:
    """Return one log per run from arrays (rounds, runs, ...)."""
    rounds, runs = arm.shape
    return [
        Log.of(
            features=world.features[context[:, i]],
            eligible=eligible[:, i],
            arm=arm[:, i],
            propensity=probabilities[np.arange(rounds), i, arm[:, i]],
            reward=outcomes[:, i, 0],
            costs=outcomes[:, i, 1:],
            probabilities=probabilities[:, i, : world.arms],
            offered=offered[:, i],
        )
        for i in range(runs)
    ]
