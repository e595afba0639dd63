"""TwoStage-SquareCBwK (Algorithm 2) during a run: where the stages stand, and what they change in a round.

Stage one plays every real arm for T0 rounds, then takes T0 rounds that only collect contexts. The paper counts the
null arm among its K arms; the T0 rounds for it would teach nothing, so there are none. Algorithm 2 lets the last T0
pull any arm; here they pull the null arm, because rounds are plentiful and budget is scarce. When all decisions of
stage one are settled or cancelled, `stage_estimate.py` finds the radius Z, and Algorithm 1 runs with it on what is
left. Between the last decision of stage one and its last outcome Algorithm 1 runs with Z = T/B.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cbwk_core.arrays import Array, Integers, Mask, frozen
from cbwk_core.configuration import Configuration
from cbwk_core.problem import Problem
from cbwk_core.rules import dual
from cbwk_core.rules.gamma import gamma_of_notebook_gradient, gamma_of_notebook_newton, gamma_of_theorem
from cbwk_core.state import Stage, State
from cbwk_core.ticket import NULL_ARM, Ticket

MODES = ("auto", "off", "paper", "measured")
# How stage one draws, and whether the state collects it: with "logged" the caller does, see `gathered`.
STAGE_ONE = ("auto", "uniform", "logged")
# `auto` has two stages from this horizon on, where stage one can spend at most this share of the smallest budget.
AUTO_HORIZON_MIN = 10_000
AUTO_SHARE_MAX = 0.2
# The least that is left of a budget where it divides.
BUDGET_MIN = 1e-9


def check(policy: Configuration) -> None:
    """Raises a ValueError for what two stages cannot do."""
    mode = policy.two_stage
    if not isinstance(mode, bool) and mode not in MODES:
        raise ValueError(f"two_stage must be a boolean or one of {MODES}, got {mode!r}")
    if policy.stage_one not in STAGE_ONE:
        raise ValueError(f"stage_one must be one of {STAGE_ONE}, got {policy.stage_one!r}")
    if mode in (False, "off", "auto"):
        return
    if policy.preset == "practical":
        raise ValueError(
            "two_stage sets the radius of the paper's dual; the practical preset has none: use auto or off"
        )
    if policy.arms < 1:
        raise ValueError("two_stage explores the policy's arms, got none")
    # An oracle given by the caller must fit stage one, too.
    policy.make_oracle(policy.arms if mode == "paper" else policy.regressor.blocks)
    needed = (paper_arms(policy.problem, policy.rules) + 2) * theory_length(policy.problem, policy.rules)
    if policy.problem.budgets.min() <= needed:
        raise ValueError(
            f"two_stage needs a budget above (K + 2)·T0 = {needed} max costs, got {policy.problem.budgets.min():g}"
        )


def mode_of(policy: Configuration) -> str:
    """ "off", "paper" or "measured", with "auto" decided."""
    if policy.two_stage == "auto":
        if policy.rules == 1:
            return "measured" if _pays(policy) else "off"
        return "paper" if _is_proven(policy) else "off"
    if policy.two_stage in (False, "off"):
        return "off"
    return "paper" if policy.two_stage == "paper" else "measured"


def _is_proven(policy: Configuration) -> bool:
    """Whether Algorithm 2 is the paper's choice: `paper` with a linear class, where thm-finer-regret applies."""
    if policy.preset != "paper" or policy.arms < 1:
        return False
    if (policy.oracle, policy.link, policy.gamma, policy.z) != ("newton", "identity", "auto", "auto"):
        return False
    return unmet_condition(policy.problem, policy.rules) is None


def unmet_condition(problem: Problem, rules: int) -> str | None:
    """What thm-finer-regret (theorem 4.2) asks of the budget and does not get, in one sentence; None if it is met.

    >>> unmet_condition(Problem.of(arms=1, dimension=1, resources=1, horizon=1000, budget=900), rules=2)
    'theorem 4.2 needs a budget above T·M(T0) = 1550.1 max costs, got 900: its bound does not hold'
    """
    least = float(problem.budgets.min())
    stage_one = (paper_arms(problem, rules) + 2) * theory_length(problem, rules)
    margin = problem.horizon * paper_margin(problem, rules)
    for name, needed in (("(K + 2)·T0", float(stage_one)), ("T·M(T0)", margin)):
        if least <= needed:
            return (
                f"theorem 4.2 needs a budget above {name} = {needed:.1f} max costs, got {least:g}: "
                "its bound does not hold"
            )
    return None


def _pays(policy: Configuration) -> bool:
    """Rules 1: whether two stages had less regret in nearly every measured case (docs/benchmarks.md, "Two stages").

    With `authors` that depends on OPT, which is unknown beforehand; other oracles and rates were not measured.
    """
    problem = policy.problem
    if policy.preset != "paper" or problem.horizon < AUTO_HORIZON_MIN or problem.arms < 1:
        return False
    if (policy.oracle, policy.link, policy.gamma, policy.z) != ("newton", "identity", "auto", "auto"):
        return False
    return bool(problem.arms * theory_length(problem, rules=1) <= AUTO_SHARE_MAX * problem.budgets.min())


def length(policy: Configuration) -> int:
    """T0, 0 with one stage."""
    return 0 if mode_of(policy) == "off" else theory_length(policy.problem, policy.rules)


def paper_arms(problem: Problem, rules: int) -> int:
    """K as the paper counts it, with the null arm; rules 1 counted without it."""
    return problem.arms if rules == 1 else problem.arms + 1


def paper_margin(problem: Problem, rules: int) -> float:
    """M(T0) = √(K·(E(F) + d·E(G)) + 4 ln(T·d)/T0), E(F) = m ln T/T0 and E(G) = m·d ln T/T0, constants 1."""
    t0, d = theory_length(problem, rules), problem.resources
    error = problem.dimension * math.log(problem.horizon) / t0
    return math.sqrt(paper_arms(problem, rules) * (error + d * d * error) + 4.0 * math.log(problem.horizon * d) / t0)


def theory_length(problem: Problem, rules: int) -> int:
    """T0 = ⌈(m·d)^⅓·√(T/K)⌉ (appendix, "Result in Linear CBwK"): the least with T0⁶·K³ >= (m·d)²·T³, exactly.

    Whole numbers decide, because a root in floats may lie just above a whole number on some machines.

    >>> theory_length(Problem.of(arms=3, dimension=27, resources=1, horizon=400, budget=1.0), rules=2)
    30
    """
    volume, arms = problem.dimension * problem.resources, paper_arms(problem, rules)
    wanted, share = volume**2 * problem.horizon**3, arms**3
    t0 = max(math.ceil(math.cbrt(volume) * math.sqrt(problem.horizon / arms)) - 1, 1)
    while t0**6 * share < wanted:
        t0 += 1
    return t0


def first_stage(policy: Configuration, lanes: int) -> Stage:
    """The stage before the first round."""
    problem = policy.problem
    d = problem.resources
    stage = Stage(
        running=np.full(lanes, length(policy) == 0),
        radius=frozen(np.full(lanes, widest(policy) if policy.z == "auto" else float(policy.z))),
        start=np.zeros(lanes, dtype=np.int64),
        granted=frozen(np.tile(problem.budgets, (lanes, 1))),
        issued=np.zeros(lanes, dtype=np.int64),
        returned=np.zeros(lanes, dtype=np.int64),
        features=np.zeros((0, lanes, problem.dimension)),
        arms=np.zeros((0, lanes), dtype=np.int64),
        targets=np.zeros((0, lanes, 1 + d)),
        weights=np.zeros((0, lanes)),
        contexts=np.zeros((0, lanes, 1 if policy.model == "per_arm" else problem.arms, problem.dimension)),
    )
    return _closed(stage)


def _closed(stage: Stage) -> Stage:
    """The same stage, its arrays read-only."""
    for part in stage:
        part.setflags(write=False)
    return stage


def widest(policy: Configuration) -> float:
    """Z = T/B: OPT is at most 1."""
    return float(policy.horizon / policy.problem.budgets.min())


class Terms(NamedTuple):
    """What a stage fixes for all of its rounds."""

    scale: Array  # (lanes, d), B'_min / B'_j of what the stage started with
    pace: Array  # (lanes, d), rho = B'/T of what the stage started with
    gamma: Array  # (lanes, 1)
    dual_rate: Array  # (lanes, 1), η


def terms(policy: Configuration, stage: Stage) -> Terms:
    """The terms of the stage; those of the last stage are cached, because they hold for thousands of rounds."""
    known: tuple[Stage, Terms] | None = policy.__dict__.get("_terms")
    if known is None or known[0] is not stage:
        rounds = np.maximum(policy.horizon - stage.start, 1.0)[:, None]
        rate = dual.entropic_rate(policy.resources, 1) / np.sqrt(rounds)
        known = stage, Terms(*map(frozen, (scale(stage), stage.granted / rounds, _gamma(policy, stage), rate)))
        policy.__dict__["_terms"] = known
    return known[1]


def scale(stage: Stage) -> Array:
    """B'_min / B'_j of what the stage started with, (lanes, d): brings all budgets to the smallest one."""
    granted = np.maximum(stage.granted, BUDGET_MIN)
    return np.asarray(granted.min(axis=1, keepdims=True) / granted)


def _gamma(policy: Configuration, stage: Stage) -> Array:
    """γ of Algorithm 1 in this stage, (lanes, 1)."""
    lanes = stage.radius.shape[0]
    if policy.gamma != "auto":
        return np.full((lanes, 1), float(policy.gamma))
    if policy.variant.notebook_gamma:
        if policy.oracle == "gradient":
            rate = gamma_of_notebook_gradient(policy.arms, policy.horizon)
        else:
            rate = gamma_of_notebook_newton(policy.arms, policy.horizon, policy.dimension)
        return np.full((lanes, 1), rate)
    rates = []
    for start, radius in zip(stage.start, stage.radius, strict=True):
        rounds = max(policy.horizon - int(start), 1)
        first = start == 0 and policy.z == "auto"  # not by `length`: `auto` may decide otherwise after `adopt`
        factor = widest(policy) + 1.0 if first else float(radius)
        regrets = policy.oracle_regrets(rounds)
        rates.append(gamma_of_theorem(policy.arms + 1, rounds, *regrets, cost_factor=factor))
    return np.array(rates)[:, None]


def override(
    policy: Configuration, stage: Stage, rounds: Array, allowed: Mask | None, weights: Array, best: Integers
) -> None:
    """Replaces the probabilities of stage one in place: the next arm in order, or a uniform arm; then null.

    Algorithm 2 (`paper`) fixes the order of the arms; elsewhere arms are drawn uniformly, so that propensities are
    positive.
    """
    t0, arms = length(policy), policy.arms
    if t0 == 0:
        return
    running = np.broadcast_to(stage.running, rounds.shape)
    concerned = np.flatnonzero(~running & (rounds < (arms + 1) * t0))
    if concerned.size and weights.shape[1] != arms + 1:
        raise ValueError(f"features must be of the {arms} arms during stage one, got {weights.shape[1] - 1} candidates")
    for row in concerned:
        payable = np.ones(arms, dtype=bool) if allowed is None else allowed[row, :-1]
        turn = int(rounds[row]) // t0
        weights[row] = 0.0
        if turn == arms or not payable.any():
            weights[row, -1] = 1.0
        elif policy.preset == "paper" and policy.stage_one == "auto":
            weights[row, turn if payable[turn] else -1] = 1.0
        else:
            weights[row, :-1] = payable / payable.sum()
        best[row] = weights[row].argmax()


def context(policy: Configuration, rounds: Array | Integers, x: Array) -> Array | None:
    """The contexts of these rounds where stage one collects them, else None."""
    t0 = _collected_length(policy)
    if t0 == 0 or not ((rounds >= policy.arms * t0) & (rounds < (policy.arms + 1) * t0)).any():
        return None
    return frozen(x.copy())


def committed(policy: Configuration, stage: Stage, ticket: Ticket) -> Stage:
    """The stage after a decision, one row per lane: counted, and its context kept in the rounds that collect them."""
    t0 = _collected_length(policy)
    if t0 == 0 or stage.running.all() or ticket.round[0] >= (policy.arms + 1) * t0:
        return stage
    if ticket.round[0] < policy.arms * t0:
        return _closed(stage._replace(issued=stage.issued + (ticket.arm != NULL_ARM)))
    if ticket.context is None:
        raise ValueError("a ticket of the rounds that collect contexts must carry its context")
    return _closed(stage._replace(contexts=np.concatenate([stage.contexts, ticket.context[None]])))


def returned(policy: Configuration, stage: Stage, ticket: Ticket, targets: Array, weight: Array) -> Stage:
    """The stage after outcomes, one row per lane; one that is cancelled or teaches nothing has weight 0."""
    t0 = _collected_length(policy)
    if t0 == 0 or stage.running.all() or ticket.round[0] >= policy.arms * t0:
        return stage
    return _closed(
        stage._replace(
            returned=stage.returned + (ticket.arm != NULL_ARM),
            features=np.concatenate([stage.features, ticket.features[None]]),
            arms=np.concatenate([stage.arms, np.maximum(ticket.arm, 0)[None]]),
            targets=np.concatenate([stage.targets, targets[None]]),
            weights=np.concatenate([stage.weights, weight[None]]),
        )
    )


def _collected_length(policy: Configuration) -> int:
    """T0 where the state collects stage one, else 0."""
    return 0 if policy.stage_one == "logged" else length(policy)


def gathered(
    policy: Configuration, tickets: Ticket, rewards: Array, costs: Array, weights: Array, contexts: Array
) -> Stage:
    """Stage one of a single lane from the outcomes that a caller kept, for `stage_estimate.estimate`.

    tickets, rewards (n,), costs (n, d) in the caller's units: its outcomes in the order they came, the weights (n,) 0
    for those that taught nothing. contexts: (T0, candidates, dimension), those of the rounds that only collect them.
    """
    targets = np.column_stack([rewards, costs / policy.problem.unit])
    return _closed(
        first_stage(policy, 1)._replace(
            features=tickets.features[:, None].copy(),
            arms=np.maximum(tickets.arm, 0)[:, None],
            targets=targets[:, None],
            weights=weights[:, None].copy(),
            contexts=contexts[:, None].copy(),
        )
    )


def due(policy: Configuration, stage: Stage, rounds: Integers) -> bool:
    """Whether all decisions of stage one are made and none is open, in every lane."""
    if stage.running.all() or policy.stage_one == "logged":
        return False
    handed_out = rounds >= (policy.arms + 1) * length(policy)
    return bool((handed_out & (stage.returned == stage.issued)).all())


def second_stage(policy: Configuration, state: State, radius: Array) -> State:
    """The state at the start of stage two: the given radius (lanes,), the pace of what is really left, equal prices.

    `paper` starts with new oracles, as Algorithm 2 does; `authors` keeps what stage one taught them.
    """
    lanes = len(state.books)
    left = policy.problem.budgets - state.spent / policy.problem.unit - state.predicted
    stage = first_stage(policy, lanes)._replace(
        running=np.ones_like(state.stage.running),
        radius=frozen(radius.copy()),
        start=state.round,
        granted=frozen(np.maximum(left, 0.0)),
    )
    oracle = policy.regressor.init(lanes) if policy.preset == "paper" else state.oracle
    start = dual.entropic_start(lanes, policy.resources)
    return state.replaced(log_weights=start)._replace(stage=_closed(stage), oracle=oracle)


def adopt(policy: Configuration, older: Configuration, stage: Stage) -> Stage:
    """The stage under changed budgets: a radius found by stage one stays, T/B follows the new budget and horizon.

    During stage one max costs stay: a budget above (K + 2)·T0 of them was the condition for two stages.
    """
    if length(policy) != length(older) and not stage.running.all():
        raise ValueError("budget, horizon and arms cannot change while stage one is under way")
    if policy.max_cost[: older.arms] != older.max_cost and not stage.running.all():
        raise ValueError("max costs cannot change while stage one is under way")
    grown = stage.granted + (policy.problem.budgets - older.problem.budgets)
    fresh = first_stage(policy, stage.radius.shape[0])
    return stage._replace(
        radius=fresh.radius if length(older) == 0 else stage.radius,
        granted=frozen(np.maximum(grown, 0.0)),
        contexts=fresh.contexts if stage.running.all() else stage.contexts,
    )
