"""How often the 95 % intervals of `cbwk_core.evaluation` hold the truth, on logs of worlds with known means.

python -m cbwk_core.simulation.coverage --logs 400
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from rich.console import Console

from cbwk_core.arrays import Array, Mask
from cbwk_core.evaluation import Estimate, Evaluation, FromFunction, Log, Target, Trained, evaluate
from cbwk_core.policy import SquareCBwK
from cbwk_core.simulation.logged_world import LoggedWorld, campaign_logs, greedy, learner_logs, softmax
from cbwk_core.simulation.worker_pool import run_tasks

ESTIMATORS = ("ips", "snips", "dr")
INTERVALS = ("bootstrap", "bernstein", "sequence")
REPLICATES = 1000
# The logs of one task.
PART = 25
# The bars: coverage where no caution is printed, and logs without a caution among those with enough effective rounds.
COVERED_MIN = 0.92
QUIET_MIN = 0.90
EFFECTIVE_ENOUGH = 200.0
# With fewer quiet logs the share says nothing.
QUIET_LOGS_MIN = 40
# All three budgets of the run-out rows end here, or the first one does and the others later.
ENDS = {"at once": (0.9, 0.9, 0.9), "one by one": (0.6, 0.75, 1.5)}
THREE_COSTS = np.array([1.0, 2.0, 0.5])

# From a number of logs and a seed to the logs.
Logger = Callable[[int, int], list[Log]]


class Kind(NamedTuple):
    """One kind of log.

    >>> kinds()["fixed"].targets
    ('fixed arm', 'uniform', 'leaning', 'trained')
    """

    world: LoggedWorld
    logs: Logger
    targets: tuple[str, ...] = ("fixed arm", "uniform", "leaning")
    ends: tuple[str, ...] = ()  # names in ENDS, for the rows that ask when the budgets run out


def _fixed(world: LoggedWorld, rounds: int, logs: int, seed: int) -> list[Log]:
    return [world.log(rounds, np.random.default_rng([seed, run])) for run in range(logs)]


def kinds(rounds: int = 2000) -> dict[str, Kind]:
    """Return the kinds of logs: of a fixed policy, of policies that learn, and of campaigns with budgets."""
    usual, rare = LoggedWorld.of(7, least=0.12), LoggedWorld.of(7, least=0.12, reward_scale=0.06)
    seldom, alike = LoggedWorld.of(7, least=0.02), LoggedWorld.alike(3)
    three = LoggedWorld.of(7, least=0.12, max_cost=THREE_COSTS)

    def learner(world: LoggedWorld, learns: Callable[..., Array]) -> Logger:
        return lambda logs, seed: learner_logs(world, learns, runs=logs, rounds=rounds, seed=seed)

    def campaign(share: float) -> Logger:
        return lambda logs, seed: campaign_logs(usual, runs=logs, rounds=rounds, share=share, seed=seed)

    def fixed(world: LoggedWorld, length: int = rounds) -> Logger:
        return partial(_fixed, world, length)

    return {
        "fixed": Kind(usual, fixed(usual), ("fixed arm", "uniform", "leaning", "trained")),
        "fixed, rare rewards": Kind(rare, fixed(rare)),
        "fixed, 2 % least": Kind(seldom, fixed(seldom, 2 * rounds)),
        "softmax": Kind(usual, learner(usual, softmax), ("fixed arm", "uniform", "leaning", "trained")),
        "softmax, rare rewards": Kind(rare, learner(rare, softmax)),
        "softmax, equal arms": Kind(alike, learner(alike, softmax)),
        "ε-greedy": Kind(usual, learner(usual, greedy)),
        "ε-greedy, equal arms": Kind(alike, learner(alike, greedy)),
        "campaign, budget 1·T": Kind(usual, campaign(1.0)),
        "campaign, budget 0.2·T": Kind(usual, campaign(0.2)),
        "fixed, three budgets": Kind(three, fixed(three), ("leaning",), tuple(ENDS)),
        "softmax, three budgets": Kind(three, learner(three, softmax), ("leaning",), tuple(ENDS)),
    }


@dataclass(frozen=True)
class Task:
    """Some logs of one kind."""

    kind: str
    rounds: int
    logs: int
    seed: int

    @property
    def relative_duration(self) -> float:
        """The number of logs."""
        return float(self.logs)


class Found(NamedTuple):
    """What was found on one log with one target."""

    row: str  # the target, or the name of the ends of the budgets
    effective: float
    quiet: bool  # whether no caution was printed
    hits: Mask  # (estimators, intervals, 1 + d)
    lengths: Array  # (estimators, intervals), of the reward
    run_out: tuple[bool, bool, float] | None  # share held, reward held, share


def measure(task: Task) -> list[Found]:
    """Evaluate each target of the kind on each log of the task."""
    kind = kinds(task.rounds)[task.kind]
    found: list[Found] = []
    for number, log in enumerate(kind.logs(task.logs, task.seed)):
        for name in kind.targets:
            asked = partial(_found, kind.world, log, *_target(kind.world, name, log), name, [task.seed, number])
            found.extend(asked(end) for end in kind.ends or (None,))
    return found


def _target(world: LoggedWorld, name: str, log: Log) -> tuple[Target, Array]:
    """Return the target and the truth about it: the mean over the rounds, with the arms that could be paid in each."""
    if name == "trained":
        d = len(world.max_cost)
        policy = SquareCBwK(
            arms=world.arms,
            dimension=log.dimension,
            resources=d,
            horizon=log.rounds,
            budget=0.25 * log.rounds * world.max_cost,
            max_cost=world.max_cost,
            model="per_arm",
        )
        given = Trained(policy).probabilities(log)
        return FromFunction(lambda features, eligible: given), world.truth_on(log, given)
    given = world.targets()[name]
    # Whether arms can be paid is all or nothing here, and known before the context of the round is.
    paid = (log.eligible == log.offered).all(axis=1).mean()
    return FromFunction(world.of_context(given)), np.asarray(paid * world.truth(given))


def _found(
    world: LoggedWorld, log: Log, target: Target, truth: Array, name: str, seed: list[int], end: str | None
) -> Found:
    budget = None if end is None else np.array(ENDS[end]) * truth[1:] * log.rounds
    evaluation = evaluate(
        log,
        target,
        rng=np.random.default_rng(seed),
        max_cost=world.max_cost,
        budget=budget,
        replicates=REPLICATES,
    )
    estimates: list[Estimate] = [getattr(evaluation, each) for each in ESTIMATORS]
    intervals = np.array([[getattr(each, kind) for kind in INTERVALS] for each in estimates])
    hits = (intervals[..., 0] <= truth) & (truth <= intervals[..., 1])
    lengths = intervals[:, :, 0, 1] - intervals[:, :, 0, 0]
    ended = None if end is None else _run_out_hits(evaluation, min(ENDS[end]), min(ENDS[end]) * truth[0] * log.rounds)
    return Found(end or name, evaluation.overlap.effective, not evaluation.cautions, hits, lengths, ended)


def _run_out_hits(evaluation: Evaluation, share: float, reward: float) -> tuple[bool, bool, float]:
    end = evaluation.run_out
    assert end is not None
    held = end.share.lower <= share <= end.share.upper, end.reward.lower <= reward <= end.reward.upper
    return (*held, end.share.value)


class Coverage(NamedTuple):
    """Shares over the logs of one row. Coverage is that of the logs without a caution.

    >>> found = Found("uniform", 300.0, True, np.ones((3, 3, 2), dtype=bool), np.ones((3, 3)), None)
    >>> coverage("fixed", "uniform", [found] * 50).meets
    True
    """

    kind: str
    row: str
    logs: int
    effective: float  # median
    quiet: float  # share of logs without a caution
    quiet_enough: float | None  # the same of those with an exact effective size of at least 200
    covered: Array | None  # (estimators, intervals), the worst of reward and costs; None with too few quiet logs
    lengths: Array  # (estimators, intervals), of the reward
    run_out: Array | None  # share held, reward held, mean share

    @property
    def meets(self) -> bool:
        """Whether the row reaches both bars."""
        shares = [] if self.covered is None else [float(self.covered.min())]
        shares += [] if self.run_out is None else self.run_out[:2].tolist()
        quiet = self.quiet_enough is None or self.quiet_enough >= QUIET_MIN
        return quiet and all(share >= COVERED_MIN for share in shares)


def coverage(kind: str, row: str, found: Sequence[Found]) -> Coverage:
    """Return the shares of one row."""
    quiet = np.array([each.quiet for each in found])
    enough = np.array([each.effective >= EFFECTIVE_ENOUGH for each in found])
    hits = np.array([each.hits for each in found])
    ended = [each.run_out for each in found if each.run_out is not None]
    return Coverage(
        kind,
        row,
        len(found),
        float(np.median([each.effective for each in found])),
        float(quiet.mean()),
        float(quiet[enough].mean()) if enough.any() else None,
        hits[quiet].mean(axis=0).min(axis=-1) if quiet.sum() >= min(QUIET_LOGS_MIN, len(found)) else None,
        np.mean([each.lengths for each in found], axis=0),
        np.array(ended).mean(axis=0) if ended else None,
    )


def study(
    names: Sequence[str], *, logs: int, rounds: int = 2000, seed: int = 0, workers: int = 1, console: Console
) -> list[Coverage]:
    """Return the coverage of each row of these kinds, from that many logs a row."""
    tasks = [
        Task(name, rounds, min(PART, logs - start), seed + 1000 * place + start)
        for place, name in enumerate(names)
        for start in range(0, logs, PART)
    ]
    results = run_tasks(measure, tasks, workers=workers, description=f"{len(names)} kinds of logs", console=console)
    by_row: dict[tuple[str, str], list[Found]] = {}
    for task, found in zip(tasks, results, strict=True):
        for each in found:
            by_row.setdefault((task.kind, each.row), []).append(each)
    return [coverage(kind, row, found) for (kind, row), found in by_row.items()]


def lines(row: Coverage) -> str:
    """Return the row as lines of a Markdown table: one per estimator, or one for the time of running out."""
    quiet = f"{100 * row.quiet:.0f}" + ("" if row.quiet_enough is None else f", {100 * row.quiet_enough:.0f}")
    head = f"| {row.kind} | {row.row} | {row.effective:.0f} | {quiet} |"
    if row.run_out is not None:
        share, reward, value = row.run_out
        return f"{head} run-out | {100 * share:.1f} (share), {100 * reward:.1f} (reward) | mean share {value:.3f} |"
    result = []
    for estimator, name in enumerate(ESTIMATORS):
        covered = "–" if row.covered is None else " / ".join(f"{100 * each:.1f}" for each in row.covered[estimator])
        lengths = " / ".join(f"{each:.3f}" for each in row.lengths[estimator])
        result.append(f"{head} {name.upper()} | {covered} | {lengths} |")
    return "\n".join(result)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 1 if a row misses a bar."""
    parser = argparse.ArgumentParser(description="Measure how often the intervals of the evaluation hold the truth.")
    parser.add_argument("--logs", type=int, default=400, help="logs per row")
    parser.add_argument("--rounds", type=int, default=2000, help="rounds per log")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first log")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--kinds", nargs="+", choices=list(kinds()), default=list(kinds()), help="kinds of logs")
    options = parser.parse_args(arguments)
    if min(options.logs, options.rounds, options.workers) < 1:
        parser.error("--logs, --rounds and --workers must be at least 1")
    rows = study(
        options.kinds,
        logs=options.logs,
        rounds=options.rounds,
        seed=options.seed,
        workers=options.workers,
        console=Console(stderr=True),
    )
    print("| log | target | ESS | no caution | estimator | bootstrap / Bernstein / sequence | lengths |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        print(lines(row))
    missed = [f"{row.kind}, {row.row}" for row in rows if not row.meets]
    print(f"Rows that miss a bar: {'; '.join(missed) or 'none'}")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
