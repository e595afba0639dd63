"""`cbwk simulate --suite`: every policy in every scenario, and one table of regret, spend and overspend."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from cbwk_core.arrays import Array
from cbwk_core.baselines import Policy
from cbwk_core.simulation import plots
from cbwk_core.simulation.calendar import even_paces, period_prices
from cbwk_core.simulation.dual_regret import dual_regrets, dual_totals
from cbwk_core.simulation.known_means import KnownMeans, Revealed
from cbwk_core.simulation.policies import PARETO_POLICIES, PEERS
from cbwk_core.simulation.runner import Runs, run
from cbwk_core.simulation.scenarios import PRICED_POLICIES, SUITE_POLICIES, Scenario, scenarios
from cbwk_core.simulation.worker_pool import run_tasks

QUICK_SCALE, QUICK_SEEDS = 0.1, 3
# A run that loses more than this share of T·OPT counts in the tail.
TAIL = 0.15
# The column of the policy that knows all means.
KNOWN_MEANS = "known means"
# Largest difference of regret over T·OPT between `practical` and the best policy with the same oracle.
MARGIN = 0.03
# Smallest share of the scarcest budget that `practical` must use if the budget binds.
USED_MIN = 0.97
# Width of the table in characters.
TABLE_WIDTH = 280
# Approximate duration of a round relative to `practical`, used to start the longest task first.
ROUND_DURATIONS = {"thompson": 1.5, "thompson-paced": 1.7, "thompson-priced": 1.7, "resolving": 2.0, "vw": 8.0}


class Task(NamedTuple):
    """One policy in one scenario."""

    scenario: Scenario
    policy: str  # or KNOWN_MEANS
    seeds: int

    @property
    def relative_duration(self) -> float:
        """Estimate of the duration, in an arbitrary unit."""
        environment = self.scenario.environment
        size = environment.dimension * (environment.dimension + environment.arms) * self.seeds / 10.0
        return self.scenario.horizon * ROUND_DURATIONS.get(self.policy, 1.0) * (1.0 + size / 3000.0)


class Cell(NamedTuple):
    """The result of a task. The regret is divided by T·OPT. The fields are the columns of suite.csv."""

    family: str
    scenario: str
    policy: str
    horizon: int
    seeds: int
    regret: float
    error: float  # standard error over the seeds
    used: float  # largest share of a budget, mean over the seeds
    overspend: float  # largest over seeds and resources
    seconds: float
    tail: float = 0.0  # share of the runs that lose more than TAIL of T·OPT
    p95: float = 0.0  # 95th percentile of the regret


class Measured(NamedTuple):
    """A cell and the regret of each of its runs, over T·OPT."""

    cell: Cell
    regrets: Array  # (seeds,)


def measure(task: Task) -> Measured:
    """Run the task and return its result. The regret of a run is that of `dual_regret.py`.

    >>> row = scenarios(0.1)[0]
    >>> measured = measure(Task(row, "practical", 2))
    >>> measured.cell.overspend, measured.cell.seeds, measured.regrets.shape
    (0.0, 2, (2,))
    """
    scenario, started, seeds = task.scenario, perf_counter(), range(task.seeds)
    regret, runs = _played(scenario, task.policy, seeds)
    cell = Cell(
        family=scenario.family,
        scenario=scenario.name,
        policy=task.policy,
        horizon=scenario.horizon,
        seeds=task.seeds,
        regret=float(regret.mean()),
        error=_standard_error(regret),
        used=float((runs.spent / np.array(scenario.budget)).max(axis=1).mean()),
        overspend=float(runs.overspend.max()),
        seconds=perf_counter() - started,
        tail=float((regret > TAIL).mean()),
        p95=float(np.quantile(regret, 0.95)),
    )
    return Measured(cell, regret)


def _played(scenario: Scenario, name: str, seeds: Sequence[int]) -> tuple[Array, Runs]:
    """Return the regret of each run over T·OPT, and the runs."""
    environments, ledger = scenario.environments(seeds), scenario.ledger(seeds, foresight=name == KNOWN_MEANS)
    prices, even, terms = None, None, None
    if ledger is None:
        prices = scenario.prices(seeds)
    else:
        (limits,) = ledger.limits
        terms = period_prices(environments, scenario.budget[0], limits, scenario.horizon)
        prices, even = terms.of_rounds(ledger.limits), even_paces(limits, scenario.budget[0])
    if name == KNOWN_MEANS:
        environments = [Revealed(each) for each in environments]
        problem = scenario.problem(1 + scenario.environment.resources)
        policy: Policy[Any] = KnownMeans(problem=problem, static=prices, even=even, paced=ledger is not None)
    else:
        policy = scenario.policy(name)
    runs = run(
        policy,
        environments,
        horizon=scenario.horizon,
        budget=scenario.budget,
        seeds=seeds,
        delays=scenario.delays,
        burst=scenario.burst,
        prices=prices,
        ledger=ledger,
    )
    if ledger is None or terms is None:
        return dual_regrets(runs, prices, scenario.budget) / dual_totals(runs, prices, scenario.budget), runs
    total = runs.bound + ledger.total_worth(terms, np.array(scenario.budget))
    overrun = np.maximum(runs.overspend, ledger.overrun)
    return (runs.gap + ledger.worth_of_rest(terms)) / total, runs._replace(overspend=overrun)


def _standard_error(values: Array) -> float:
    return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else 0.0


class Pair(NamedTuple):
    """`practical` minus a peer in one scenario, over the same runs. The fields are the columns of suite_pairs.csv."""

    scenario: str
    peer: str
    difference: float  # mean regret over T·OPT of `practical` minus that of the peer
    error: float  # standard error of the paired differences


def pairs(results: dict[str, dict[str, Measured]]) -> list[Pair]:
    """Return the paired differences of every scenario and peer.

    >>> cell = Cell("", "", "practical", 1, 1, 0.0, 0.0, 1.0, 0.0, 0.0)
    >>> ours, theirs = Measured(cell, np.array([0.1, 0.2])), Measured(cell, np.array([0.2, 0.2]))
    >>> pair = pairs({"row": {"practical": ours, "lagrange": theirs}})[0]
    >>> round(pair.difference, 3), round(pair.error, 3)
    (-0.05, 0.05)
    """
    found = []
    for scenario, of_policy in results.items():
        for peer in PEERS:
            if peer in of_policy:
                difference = of_policy["practical"].regrets - of_policy[peer].regrets
                found.append(Pair(scenario, peer, float(difference.mean()), _standard_error(difference)))
    return found


def select_scenarios(only: str | None, *, quick: bool) -> list[Scenario]:
    """Return the scenarios whose name or family contains `only`, or all for None.

    >>> [row.name for row in select_scenarios("budgets", quick=True)]
    ['budgets 100 to 1', 'tight: 2·T^¾', 'tight: 1 % of T', 'generous', 'generous, per arm']
    """
    rows = scenarios(QUICK_SCALE if quick else 1.0)
    selected = [row for row in rows if only is None or only in row.name or only in row.family]
    if not selected:
        families = sorted({row.family for row in rows})
        raise ValueError(f"no scenario has {only!r} in its name or family; families are {', '.join(families)}")
    return selected


class Verdict(NamedTuple):
    """The verdict on `practical` in one scenario."""

    gap: float  # its regret minus that of the best policy with the same oracle
    best: str  # name of the best policy
    passed: bool  # gap within MARGIN, no overspend, and a binding budget used


def verdict(scenario: Scenario, cells: dict[str, Cell]) -> Verdict:
    """Return the verdict on `practical` among the policies in `cells`.

    >>> row = scenarios()[0]
    >>> cell = Cell("", "", "practical", 1, 1, 0.05, 0.0, 0.99, 0.0, 0.0)
    >>> verdict(row, {"practical": cell, "linucb": cell._replace(regret=0.01)}).passed
    False
    """
    ours = cells["practical"]
    regrets = {name: cell.regret for name, cell in cells.items() if name != KNOWN_MEANS and scenario.same_oracle(name)}
    best = min(regrets, key=lambda name: regrets[name])
    gap = ours.regret - regrets[best]
    within_budget = ours.overspend == 0.0 and (ours.used >= USED_MIN or not scenario.budget_binds)
    return Verdict(gap, best, not scenario.must_pass or (gap <= MARGIN and within_budget))


def run_suite(
    rows: Sequence[Scenario],
    *,
    seeds: int,
    worlds: int,
    workers: int,
    out: Path,
    console: Console,
    progress_console: Console,
) -> bool:
    """Run the suite, print its tables, write csv files and plots, and return whether `practical` passed everywhere.

    seeds: runs of a scenario with one environment. worlds: runs of a kind of worlds, each in a world of its own.
    """
    out.mkdir(parents=True, exist_ok=True)
    runs = {row.name: seeds if row.world is None else worlds for row in rows}
    tasks = [Task(row, name, runs[row.name]) for row in rows for name in (*row.policies, KNOWN_MEANS)]
    measured = run_tasks(
        measure, tasks, workers=workers, description=f"{len(rows)} environments", console=progress_console
    )
    results: dict[str, dict[str, Measured]] = {row.name: {} for row in rows}
    for each in measured:
        results[each.cell.scenario][each.cell.policy] = each
    cells = [each.cell for each in measured if each.cell.policy != KNOWN_MEANS]
    _write(out / "suite.csv", Cell._fields, cells)
    _write(
        out / "suite_known_means.csv",
        Cell._fields,
        [each.cell for each in measured if each.cell.policy == KNOWN_MEANS],
    )
    _write(out / "suite_pairs.csv", Pair._fields, pairs(results))
    by_row = {row: {name: each.cell for name, each in of_policy.items()} for row, of_policy in results.items()}
    verdicts = [verdict(row, by_row[row.name]) for row in rows]
    console.print(_table(rows, by_row, verdicts, seeds, worlds))
    console.print(_tails(rows, by_row))
    console.print(_means(by_row), highlight=False, soft_wrap=True)
    for path in draw(out, rows, cells):
        console.print(f"plot: {path}", highlight=False, soft_wrap=True)
    return all(each.passed for each in verdicts)


def _write(path: Path, fields: Sequence[str], rows: Sequence[tuple[object, ...]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(fields)
        writer.writerows(rows)


def _table(
    rows: Sequence[Scenario],
    results: dict[str, dict[str, Cell]],
    verdicts: Sequence[Verdict],
    seeds: int,
    worlds: int,
) -> Table:
    caption = (
        f"regret / T·OPT, mean ± standard error over {seeds} seeds, or {worlds} worlds of a kind; 0 is the static "
        f"optimum with known means. used, over: budget used and overspend of practical; gap: to the best policy with "
        f"the same oracle, at most {MARGIN:g}; ×: target missed"
    )
    table = Table(title="suite", caption=caption)
    table.add_column("environment", no_wrap=True)
    columns = (*SUITE_POLICIES, *PARETO_POLICIES)
    for name in (*columns, "used", "over", "gap", ""):
        table.add_column(name, justify="right", no_wrap=True)
    for row, each in zip(rows, verdicts, strict=True):
        cells = results[row.name]
        regrets = [f"{cells[name].regret:.3f} ± {cells[name].error:.3f}" if name in cells else "–" for name in columns]
        ours = cells["practical"]
        mark = "" if each.passed else "×"
        table.add_row(row.name, *regrets, f"{ours.used:.1%}", f"{ours.overspend:g}", f"{each.gap:+.3f}", mark)
    return table


def _tails(rows: Sequence[Scenario], results: dict[str, dict[str, Cell]]) -> Table:
    """Return the table of tails, and of what a policy loses that knows all means."""
    caption = (
        f"share of the runs that lose more than {TAIL:.0%} of T·OPT, and the 95th percentile of the regret; "
        f"{KNOWN_MEANS}: mean regret of a policy that knows all means and prices"
    )
    table = Table(title="tails", caption=caption)
    table.add_column("environment", no_wrap=True)
    for name in (*PRICED_POLICIES, KNOWN_MEANS):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        cells = results[row.name]
        shown = [f"{cells[name].tail:.0%}, {cells[name].p95:.3f}" for name in PRICED_POLICIES]
        known = cells[KNOWN_MEANS]
        table.add_row(row.name, *shown, f"{known.regret:.3f} ± {known.error:.3f}")
    return table


def _means(results: dict[str, dict[str, Cell]]) -> str:
    """Return a line with the unweighted mean over the rows of each policy that knows prices."""
    means = {name: np.mean([cells[name].regret for cells in results.values()]) for name in PRICED_POLICIES}
    return "mean over the rows: " + ", ".join(f"{name} {mean:.4f}" for name, mean in means.items())


def draw(out: Path, rows: Sequence[Scenario], cells: Sequence[Cell]) -> list[Path]:
    """Draw one plot of all scenarios and one per family, and return their paths."""
    paths = []
    for family in ("", *dict.fromkeys(row.family for row in rows)):
        selected = [cell for cell in cells if family in ("", cell.family)]
        path = out / ("suite.png" if not family else f"suite_{family}.png")
        marks = [plots.Mark(cell.scenario, cell.policy, cell.regret, cell.error) for cell in selected]
        plots.draw_marks(path, f"regret / T·OPT{': ' + family if family else ''}", marks)
        paths.append(path)
    return paths
