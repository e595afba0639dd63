"""How long the evaluation of a million rounds takes: 10 arms, 20 features, 3 costs. Exit code 1 above a minute.

    python -m tests.benchmarks.bench_evaluation [rounds]

CPU seconds are printed beside those of the clock, which on a busy machine say more about the neighbours.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import joblib
import numpy as np
from threadpoolctl import threadpool_limits

from cbwk_core import SquareCBwK
from cbwk_core.evaluation import FixedArm, Log, OutcomeModel, Target, Trained, Uniform, evaluate, what_if_budgets

ARMS, DIMENSION, RESOURCES = 10, 20, 3
SECONDS_MAX = 60.0


def make_log(rounds: int, rng: np.random.Generator) -> Log:
    """Return a log of clicks and costs with linear means, drawn with probabilities that change in each round."""
    features = rng.random((rounds, DIMENSION))
    probabilities = np.maximum(rng.dirichlet(np.full(ARMS, 2.0), size=rounds), 0.01)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    arm = np.minimum((probabilities.cumsum(axis=1) < rng.random((rounds, 1))).sum(axis=1), ARMS - 1)
    mean = np.vecdot(features, rng.random((ARMS, DIMENSION))[arm]) / DIMENSION
    return Log.of(
        features=features,
        eligible=np.ones((rounds, ARMS), dtype=bool),
        arm=arm,
        propensity=probabilities[np.arange(rounds), arm],
        reward=rng.random(rounds) < mean,
        costs=rng.random((rounds, RESOURCES)) * mean[:, None],
        probabilities=probabilities,
    )


def timed(name: str, work: Callable[[], object]) -> float:
    """Run it, print its duration, and return the smaller of wall time and CPU time."""
    clock, cpu = time.perf_counter(), time.process_time()
    work()
    clock, cpu = time.perf_counter() - clock, time.process_time() - cpu
    print(f"{name}: {clock:.1f} s by the clock, {cpu:.1f} s of CPU", flush=True)
    return min(clock, cpu)


def main(rounds: int) -> int:
    """Time every kind of target, and one flight with other budgets together with its control."""
    rng = np.random.default_rng(1)
    log = make_log(rounds, rng)
    budget = 0.1 * rounds
    policy = SquareCBwK(
        arms=ARMS, dimension=DIMENSION, resources=RESOURCES, horizon=rounds, budget=budget, model="per_arm"
    )

    def evaluation_of(target: Target, model: OutcomeModel | None = None) -> Callable[[], object]:
        return lambda: evaluate(log, target, rng=rng, budget=budget, model=model)

    with threadpool_limits(limits=1), joblib.parallel_config(n_jobs=2):
        seconds = [
            timed("fixed arm", evaluation_of(FixedArm(3))),
            timed("uniform", evaluation_of(Uniform())),
            timed("SquareCBwK trained along the log", evaluation_of(Trained(policy))),
            timed("uniform, logistic model of the reward", evaluation_of(Uniform(), OutcomeModel(link="logistic"))),
        ]
    with threadpool_limits(limits=1), joblib.parallel_config(n_jobs=1):  # in this process, whose time is measured
        flown = {"budget": budget / 2, "rng": rng, "runs": 1}
        seconds.append(timed("what if half the budget", lambda: what_if_budgets(log, policy, **flown)))
    return int(max(seconds) > SECONDS_MAX)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000))
