"""How often intervals of 95 % hold the truth, the tables of docs/benchmarks.md.

`python -m tests.core.evaluation.coverage` prints them. It takes some minutes on two cores; `make test` runs less.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import joblib
import numpy as np

from cbwk_core.evaluation import FromFunction, Log, evaluate
from tests.core.evaluation.worlds import MAX_COST, World, adaptive_logs

ESTIMATORS = ("ips", "snips", "dr")
RUNS = 400
ROUNDS = 2000
REPLICATES = 1000
# What issue and design ask for, on logs of a fixed policy with an effective sample size of at least 200.
BOOTSTRAP_RANGE = (0.925, 0.975)
BERNSTEIN_MIN = 0.95


class Hits(NamedTuple):
    """Of one log: whether each interval holds the truth, and how long it is."""

    effective: float
    bootstrap: np.ndarray  # (estimators, 3)
    bernstein: np.ndarray  # (estimators, 3)
    lengths: np.ndarray  # (2, estimators), of bootstrap and Bernstein, for the reward


def hits(log: Log, world: World, target: np.ndarray, truth: np.ndarray, seed: int) -> Hits:
    """Evaluate a target on one log."""
    found = evaluate(
        log,
        FromFunction(world.of_context(target)),
        rng=np.random.default_rng(seed),
        max_cost=MAX_COST,
        replicates=REPLICATES,
    )
    estimates = [getattr(found, name) for name in ESTIMATORS]

    def held(intervals: list[np.ndarray]) -> np.ndarray:
        return np.array([(ends[:, 0] <= truth) & (truth <= ends[:, 1]) for ends in intervals])

    bootstrap, bernstein = [e.bootstrap for e in estimates], [e.bernstein for e in estimates]
    lengths = np.array([[ends[0, 1] - ends[0, 0] for ends in kind] for kind in (bootstrap, bernstein)])
    return Hits(found.overlap.effective, held(bootstrap), held(bernstein), lengths)


class Coverage(NamedTuple):
    """Shares over the runs."""

    effective: float  # the least of all runs
    effective_median: float
    bootstrap: np.ndarray  # (estimators, 3)
    bernstein: np.ndarray  # (estimators, 3)
    lengths: np.ndarray  # (2, estimators)


def coverage(found: list[Hits]) -> Coverage:
    """From single logs to shares."""
    return Coverage(
        min(each.effective for each in found),
        float(np.median([each.effective for each in found])),
        np.mean([each.bootstrap for each in found], axis=0),
        np.mean([each.bernstein for each in found], axis=0),
        np.mean([each.lengths for each in found], axis=0),
    )


def fixed_coverage(world: World, target: np.ndarray, *, runs: int, rounds: int, seed: int, jobs: int = 1) -> Coverage:
    """On logs of the world's fixed policy."""
    truth = world.truth(target)

    def one(run: int) -> Hits:
        return hits(world.log(rounds, np.random.default_rng([seed, run])), world, target, truth, run)

    return coverage(joblib.Parallel(n_jobs=jobs)(joblib.delayed(one)(run) for run in range(runs)))


def adaptive_coverage(world: World, target: np.ndarray, logs: list[Log], jobs: int = 1) -> Coverage:
    """On logs of SquareCBwK: the truth is the mean over the rounds, with the arms that could be paid for in each."""
    offered = world.truth(target)

    def one(log: Log, run: int) -> Hits:
        # Whether arms can be paid for is all or nothing here, and known before the context of the round is.
        paid = (log.eligible == log.offered).all(axis=1).mean()
        return hits(log, world, target, paid * offered, run)

    return coverage(joblib.Parallel(n_jobs=jobs)(joblib.delayed(one)(log, run) for run, log in enumerate(logs)))


def line(name: str, target: str, found: Coverage) -> str:
    """One row for each estimator."""
    rows = []
    for i, estimator in enumerate(ESTIMATORS):
        shares = " / ".join(f"{100 * share:.1f}" for share in found.bootstrap[i])
        sizes = f"{found.effective:.0f}, {found.effective_median:.0f}"
        rows.append(
            f"| {name} | {target} | {sizes} | {estimator.upper()} | {shares} "
            f"| {found.lengths[0, i]:.3f} | {100 * found.bernstein[i].min():.1f} | {found.lengths[1, i]:.3f} |"
        )
    return "\n".join(rows)


def meets(found: Coverage) -> bool:
    """Whether it is what was asked for."""
    low, high = BOOTSTRAP_RANGE
    inside = (found.bootstrap >= low) & (found.bootstrap <= high)
    return bool(inside.all() and (found.bernstein >= BERNSTEIN_MIN).all())


def main() -> int:
    """Print the tables; 1 where a fixed policy's log with enough overlap misses its mark."""
    print("| log | target | ESS | estimator | bootstrap, reward / cost 0 / cost 1 | length | Bernstein | length |")
    print("|---|---|---|---|---|---|---|---|")
    missed = 0
    world = World.of(7)
    for share in (1.0, 0.2):
        logs = adaptive_logs(world, runs=RUNS, rounds=ROUNDS, share=share, seed=5)
        for label, target in world.targets().items():
            found = adaptive_coverage(world, target, logs, jobs=2)
            print(line(f"adaptive, budget {share:g}·T", label, found), flush=True)
    for name, least, rounds in (("fixed, n = 2,000", 0.12, ROUNDS), ("fixed, n = 5,000", 0.05, 5000)):
        world = World.of(7, least=least)
        for label, target in world.targets().items():
            found = fixed_coverage(world, target, runs=RUNS, rounds=rounds, seed=11, jobs=2)
            missed += found.effective >= 200 and not meets(found)
            print(line(name, label, found), flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
