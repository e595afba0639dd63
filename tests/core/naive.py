"""Algorithms 1 and 2 of the paper, line by line and slowly, as an independent reference.

Nothing is shared with the library: inverses and projections are computed again every round, weights are kept as
weights, sampling walks a list.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import brentq, linprog


def project(theta, gram, radius=1.0):
    """argmin over the ball of the distance in the norm of `gram`, by its eigenvectors and a root finder."""
    if np.linalg.norm(theta) <= radius:
        return theta
    values, vectors = np.linalg.eigh(gram)
    inner = vectors.T @ theta

    def at(mu):
        return values * inner / (values + mu)

    high = 1.0
    while np.linalg.norm(at(high)) > radius:
        high *= 2.0
    mu = brentq(lambda mu: np.linalg.norm(at(mu)) - radius, 0.0, high, xtol=1e-15, rtol=1e-15, maxiter=500)
    return vectors @ at(mu)


@dataclass
class Glmtron:
    """Newtonized GLMtron with the identity link for one target."""

    dimension: int
    gram: np.ndarray = field(init=False)
    theta: np.ndarray = field(init=False)

    def __post_init__(self):
        self.gram = np.eye(self.dimension)
        self.theta = np.zeros(self.dimension)

    def predict(self, x):
        return float(x @ self.theta)

    def learn(self, x, y):
        gradient = (x @ self.theta - y) * x
        self.gram = self.gram + np.outer(x, x)
        self.theta = project(self.theta - np.linalg.inv(self.gram) @ gradient, self.gram)


@dataclass
class Round:
    """What one round of the loop saw."""

    arm: int  # -1 for null
    probabilities: list
    prices: list


def algorithm_1(x, uniforms, outcomes, budgets, horizon, *, z=None, first=0, rounds=None, cost_factor=None, end=None):
    """Algorithm 1 with K real arms and the null arm last; `outcomes[t][arm]` is (reward, costs…) in max costs.

    x: (T, K, m). Returns the list of rounds until exit. Stage two of Algorithm 2 starts at round `first` with `budgets`
    left for `rounds` rounds.
    """
    arms, m = x.shape[1], x.shape[2]
    d = len(budgets)
    rounds = horizon if rounds is None else rounds
    least = min(budgets)
    rho = least / rounds
    scale = [least / b for b in budgets]
    radius = horizon / least if z is None else z
    log_t = math.log(rounds)
    factor = horizon / least + 1.0 if cost_factor is None else cost_factor
    gamma = math.sqrt((arms + 1) * rounds / (m * log_t + factor**2 * d * m * log_t + 4 * math.log(2 * rounds)))
    eta = math.sqrt(math.log(d + 1) / rounds)
    weights = [1.0 / (d + 1)] * (d + 1)
    oracles = [Glmtron(m) for _ in range(d + 1)]
    spent = [0.0] * d
    history = []
    for t in range(first, first + rounds if end is None else end):
        prices = [radius * w for w in weights[:-1]]
        scores = []
        for a in range(arms):
            reward, *costs = (oracle.predict(x[t, a]) for oracle in oracles)
            pairs = zip(prices, scale, costs, strict=True)
            scores.append(reward + sum(p * (rho - s * c) for p, s, c in pairs))
        scores.append(sum(p * rho for p in prices))
        best = max(range(arms + 1), key=lambda a: (scores[a], -a))
        probabilities = [1.0 / (arms + 1 + gamma * (scores[best] - scores[a])) for a in range(arms + 1)]
        probabilities[best] = 0.0
        probabilities[best] = 1.0 - sum(probabilities)
        total, arm = 0.0, best
        for a in range(arms + 1):
            total += probabilities[a]
            if uniforms[t] < total:
                arm = a
                break
        outcome = outcomes[t][arm] if arm < arms else [0.0] * (d + 1)
        history.append(
            Round(arm if arm < arms else -1, probabilities, [p * s for p, s in zip(prices, scale, strict=True)])
        )
        spent = [used + cost for used, cost in zip(spent, outcome[1:], strict=True)]
        if any(used >= budget - 1.0 for used, budget in zip(spent, budgets, strict=True)):
            return history
        if arm < arms:
            for oracle, y in zip(oracles, outcome, strict=True):
                oracle.learn(x[t, arm], y)
        steps = [math.exp(eta * s * (c - b / rounds)) for s, c, b in zip(scale, outcome[1:], budgets, strict=True)]
        weights = [w * step for w, step in zip(weights, [*steps, 1.0], strict=True)]
        weights = [w / sum(weights) for w in weights]
    return history


def algorithm_2(x, uniforms, outcomes, budgets, horizon, end=None):
    """Algorithm 2 with the paper's M(T0), equal budgets; contexts are collected while the null arm is played.

    K counts the null arm, as in the paper; its own rounds of stage one teach nothing and are left out. `end`: the round
    before which to stop, where x has fewer rows than the horizon.
    """
    arms, m = x.shape[1], x.shape[2]
    d, budget = len(budgets), budgets[0]
    K = arms + 1
    t0 = math.ceil((m * d) ** (1 / 3) * math.sqrt(horizon / K))
    history, spent = [], np.zeros(d)
    estimates = []
    for a in range(arms):
        oracles = [Glmtron(m) for _ in range(d + 1)]
        iterates = []
        for t in range(a * t0, (a + 1) * t0):
            iterates.append([oracle.theta for oracle in oracles])
            history.append(Round(a, [float(b == a) for b in range(arms)] + [0.0], []))
            spent += outcomes[t][a][1:]
            for oracle, y in zip(oracles, outcomes[t][a], strict=True):
                oracle.learn(x[t, a], y)
        estimates.append(np.mean(iterates, axis=0))  # (d + 1, m)
    contexts = range(arms * t0, (arms + 1) * t0)
    history += [Round(-1, [0.0] * arms + [1.0], []) for _ in contexts]
    error = m * math.log(horizon) / t0
    margin = math.sqrt(K * (error + d * d * error) + 4 * math.log(horizon * d) / t0)
    rewards = [estimates[a][0] @ x[t, a] / t0 for t in contexts for a in range(arms)]
    costs = [[estimates[a][j + 1] @ x[t, a] / t0 for t in contexts for a in range(arms)] for j in range(d)]
    simplex = np.kron(np.eye(t0), np.ones(arms))
    program = linprog(
        -np.array(rewards),
        A_ub=np.vstack([costs, simplex]),
        b_ub=[budget / horizon + 2 * margin] * d + [1.0] * t0,
        bounds=(0, None),
    )
    z = min(horizon / budget, horizon / budget * (-program.fun + margin))
    start = (arms + 1) * t0
    left = [budget - used for used in spent]
    rest = horizon - start
    history += algorithm_1(x, uniforms, outcomes, left, horizon, z=z, first=start, rounds=rest, cost_factor=z, end=end)
    return history, z, margin
