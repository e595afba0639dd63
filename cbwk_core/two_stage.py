"""TwoStage-SquareCBwK (Algorithm 2): estimate OPT first, then run Algorithm 1 with a radius Z that fits it.

Stage one takes (K + 1)·T0 rounds: T0 for each arm, then T0 that only collect contexts. Algorithm 2 lets those last ones
pull any arm; we pull the null arm, because rounds are plentiful and budget is what is short. When all its decisions are
settled or cancelled the linear program (eq-Z-est-LP) gives ÔPT and

    Z = min(T/B, (T/B)·(ÔPT + M(T0))).

M(T0) is either the paper's formula, which at practical sizes exceeds 1 so that Z is T/B, or measured from the outcomes.
Between the last decision of stage one and its last outcome Algorithm 1 runs with Z = T/B.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbwk_core.arrays import Array, Integers, frozen
from cbwk_core.oracles.online_to_batch import OnlineToBatch
from cbwk_core.problem import NULL_ARM, Problem, Ticket
from cbwk_core.rules import gamma as schedules
from cbwk_core.static_optimum import static_optimum

if TYPE_CHECKING:
    from cbwk_core.policy import SquareCBwK
    from cbwk_core.state import State

MODES = ("auto", "off", "paper", "measured")
# How stage one draws, and whether the state collects it: "logged" leaves that to the caller, see `gathered`.
STAGE_ONE = ("auto", "uniform", "logged")
# Confidence of the measured margin: it is meant to hold in 95 of 100 campaigns.
MARGIN_DELTA = 0.05
# Groups of the jackknife: with nine degrees of freedom the 99 % quantile is a fifth above the normal one, and eleven
# fits are affordable.
GROUPS = 10
# `auto` has two stages from this horizon on, where stage one can spend at most this share of the least budget.
AUTO_HORIZON_MIN = 10_000
AUTO_SHARE_MAX = 0.2
# What is left of a budget counts as at least this where it divides.
BUDGET_MIN = 1e-9


class Stage(NamedTuple):
    """Where the two stages stand; with one stage Algorithm 1 is running from round 0 and nothing is collected."""

    running: NDArray[np.bool_]  # (lanes,), Algorithm 1 runs with its final radius
    radius: Array  # (lanes,), Z
    start: Integers  # (lanes,), the round in which it started to
    granted: Array  # (lanes, d), what was left then, in max costs
    issued: Integers  # (lanes,), decisions of stage one for a real arm
    returned: Integers  # (lanes,), those of them that are settled or cancelled
    features: Array  # (samples, lanes, dimension), outcomes of stage one in the order they came
    arms: Integers  # (samples, lanes)
    targets: Array  # (samples, lanes, 1 + d)
    weights: Array  # (samples, lanes), 0 where a lane has no outcome
    contexts: Array  # (T0, lanes, candidates, dimension)


class Estimate(NamedTuple):
    """What stage one found out, per lane."""

    optimum: Array  # (lanes,), ÔPT
    margin: Array  # (lanes,), M(T0)
    radius: Array  # (lanes,), Z


def check(policy: SquareCBwK) -> None:
    """Refuse what two stages cannot do."""
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
    # An oracle that was given must serve stage one, too.
    policy.make_oracle(policy.arms if mode == "paper" else _blocks(policy))
    needed = (policy.arms + 2) * theory_length(policy.problem)
    if policy.problem.budgets.min() <= needed:
        raise ValueError(
            f"two_stage needs a budget above (K + 2)·T0 = {needed} max costs, got {policy.problem.budgets.min():g}"
        )


def mode_of(policy: SquareCBwK) -> str:
    """ "off", "paper" or "measured", with "auto" decided."""
    if policy.two_stage == "auto":
        return "measured" if _pays(policy) else "off"
    if policy.two_stage in (False, "off"):
        return "off"
    return "paper" if policy.two_stage == "paper" else "measured"


def _pays(policy: SquareCBwK) -> bool:
    """Whether two stages had less regret in nearly every row measured: DESIGN.md, "Two stages".

    With `authors` that depends on OPT, which nobody knows beforehand; other oracles and rates were not measured.
    """
    problem = policy.problem
    if policy.preset != "paper" or problem.horizon < AUTO_HORIZON_MIN or problem.arms < 1:
        return False
    if (policy.oracle, policy.link, policy.gamma, policy.z) != ("newton", "identity", "auto", "auto"):
        return False
    return bool(problem.arms * theory_length(problem) <= AUTO_SHARE_MAX * problem.budgets.min())


def length(policy: SquareCBwK) -> int:
    """T0, 0 with one stage."""
    return 0 if mode_of(policy) == "off" else theory_length(policy.problem)


def theory_length(problem: Problem) -> int:
    """T0 = ⌈(m·d)^⅓·√(T/K)⌉ (appendix, "Result in Linear CBwK"): the least with T0⁶·K³ >= (m·d)²·T³, exactly.

    A root in floats may lie just above a whole number, and on some machines only.

    >>> theory_length(Problem.of(arms=1, dimension=27, resources=1, horizon=100, budget=1.0))
    30
    """
    volume = problem.dimension * problem.resources
    wanted, share = volume**2 * problem.horizon**3, problem.arms**3
    t0 = max(math.ceil(math.cbrt(volume) * math.sqrt(problem.horizon / problem.arms)) - 1, 1)
    while t0**6 * share < wanted:
        t0 += 1
    return t0


def first_stage(policy: SquareCBwK, lanes: int) -> Stage:
    """The stage before the first round."""
    problem = policy.problem
    d = problem.resources
    stage = Stage(
        running=np.full(lanes, length(policy) == 0),
        radius=frozen(np.full(lanes, _widest(policy) if policy.z == "auto" else float(policy.z))),
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


def _widest(policy: SquareCBwK) -> float:
    """Z = T/B: OPT is at most 1."""
    return float(policy.horizon / policy.problem.budgets.min())


class Terms(NamedTuple):
    """What a stage fixes for all of its rounds."""

    scale: Array  # (lanes, d), B'_min / B'_j of what the stage started with
    pace: Array  # (lanes, d), rho
    gamma: Array  # (lanes, 1)
    dual_rate: Array  # (lanes, 1), η


def terms(policy: SquareCBwK, stage: Stage) -> Terms:
    """The stage's terms, remembered for the last stage asked about: they stand for thousands of rounds."""
    known: tuple[Stage, Terms] | None = policy.__dict__.get("_terms")
    if known is None or known[0] is not stage:
        found = Terms(scale(stage), pace(policy, stage), gamma(policy, stage), dual_rate(policy, stage))
        known = stage, Terms(*map(frozen, found))
        policy.__dict__["_terms"] = known
    return known[1]


def scale(stage: Stage) -> Array:
    """B'_min / B'_j of what the stage started with, (lanes, d): brings all budgets to the least one."""
    granted = np.maximum(stage.granted, BUDGET_MIN)
    return np.asarray(granted.min(axis=1, keepdims=True) / granted)


def pace(policy: SquareCBwK, stage: Stage) -> Array:
    """rho = B'/T of the stage, (lanes, d)."""
    return np.asarray(stage.granted / np.maximum(policy.horizon - stage.start, 1)[:, None])


def dual_rate(policy: SquareCBwK, stage: Stage) -> Array:
    """η of the stage's rounds, (lanes, 1)."""
    return np.asarray(
        schedules.entropic_step(policy.resources, 1) / np.sqrt(np.maximum(policy.horizon - stage.start, 1.0))[:, None]
    )


def gamma(policy: SquareCBwK, stage: Stage) -> Array:
    """γ of Algorithm 1 in this stage, (lanes, 1)."""
    lanes = stage.radius.shape[0]
    if policy.gamma != "auto":
        return np.full((lanes, 1), float(policy.gamma))
    if policy.notebook_gamma:
        if policy.oracle == "gradient":
            rate = schedules.gamma_of_notebook_gradient(policy.arms, policy.horizon)
        else:
            rate = schedules.gamma_of_notebook_newton(policy.arms, policy.horizon, policy.dimension)
        return np.full((lanes, 1), rate)
    rates = []
    for start, radius in zip(stage.start, stage.radius, strict=True):
        rounds = max(policy.horizon - int(start), 1)
        first = start == 0 and policy.z == "auto"  # not by `length`: `auto` may have changed its mind since
        factor = _widest(policy) + 1.0 if first else float(radius)
        regrets = policy.oracle_regrets(rounds)
        rates.append(schedules.gamma_of_theorem(policy.arms + 1, rounds, *regrets, cost_factor=factor))
    return np.array(rates)[:, None]


def override(
    policy: SquareCBwK,
    stage: Stage,
    rounds: Integers,
    allowed: NDArray[np.bool_] | None,
    weights: Array,
    best: Integers,
) -> None:
    """In stage one, replace the probabilities in place: the arm whose turn it is, or one at random; then null.

    The order of arms is fixed in Algorithm 2 (`paper`); elsewhere arms are drawn uniformly, for the propensities.
    """
    t0, arms = length(policy), policy.arms
    if t0 == 0:
        return
    running = np.broadcast_to(stage.running, rounds.shape)
    concerned = np.flatnonzero(~running & (rounds < (arms + 1) * t0))
    if concerned.size and weights.shape[1] != arms + 1:
        raise ValueError(f"features must be of the {arms} arms during stage one, got {weights.shape[1] - 1} candidates")
    for row in concerned:
        open_ = np.ones(arms, dtype=bool) if allowed is None else allowed[row, :-1]
        turn = rounds[row] // t0
        weights[row] = 0.0
        if turn == arms or not open_.any():
            weights[row, -1] = 1.0
        elif policy.preset == "paper" and policy.stage_one == "auto":
            weights[row, turn if open_[turn] else -1] = 1.0
        else:
            weights[row, :-1] = open_ / open_.sum()
        best[row] = weights[row].argmax()


def context(policy: SquareCBwK, rounds: Integers, x: Array) -> Array | None:
    """The contexts of these rounds where stage one collects them, else None."""
    t0 = _collected_length(policy)
    if t0 == 0 or not ((rounds >= policy.arms * t0) & (rounds < (policy.arms + 1) * t0)).any():
        return None
    return frozen(x.copy())


def committed(policy: SquareCBwK, stage: Stage, ticket: Ticket) -> Stage:
    """Count a decision of stage one, one row per lane, and keep its context where that is what the round is for."""
    t0 = _collected_length(policy)
    if t0 == 0 or stage.running.all() or ticket.round[0] >= (policy.arms + 1) * t0:
        return stage
    if ticket.round[0] < policy.arms * t0:
        return _closed(stage._replace(issued=stage.issued + (ticket.arm != NULL_ARM)))
    if ticket.context is None:
        raise ValueError("a ticket of the rounds that collect contexts must carry its context")
    return _closed(stage._replace(contexts=np.concatenate([stage.contexts, ticket.context[None]])))


def returned(policy: SquareCBwK, stage: Stage, ticket: Ticket, targets: Array, weight: Array) -> Stage:
    """Count outcomes of stage one, one row per lane; a cancelled or untaught one has weight 0."""
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


def _collected_length(policy: SquareCBwK) -> int:
    """T0 where the state collects stage one, else 0."""
    return 0 if policy.stage_one == "logged" else length(policy)


def gathered(
    policy: SquareCBwK, tickets: Ticket, rewards: Array, costs: Array, weights: Array, contexts: Array
) -> Stage:
    """Stage one of a single lane from what a caller kept of it, for `estimate`.

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


def due(policy: SquareCBwK, stage: Stage, rounds: Integers) -> bool:
    """All decisions of stage one are made and none is open, in every lane."""
    if stage.running.all() or policy.stage_one == "logged":
        return False
    handed_out = rounds >= (policy.arms + 1) * length(policy)
    return bool((handed_out & (stage.returned == stage.issued)).all())


def refresh(policy: SquareCBwK, state: State) -> State:
    """Stage two: the radius from the linear program, the pace from what is really left, Algorithm 1 from its beginning.

    `paper` starts with new oracles, as Algorithm 2 does; `authors` keeps what stage one taught them.
    """
    if not due(policy, state.stage, state.round):
        raise ValueError("refresh is for when refresh_due says so: stage one is not over")
    return second_stage(policy, state, estimate(policy, state.stage, mode_of(policy)).radius)


def second_stage(policy: SquareCBwK, state: State, radius: Array) -> State:
    """The state with which stage two starts, the radius (lanes,) being found."""
    blank = policy.init(state.books.shape[0])
    left = policy.problem.budgets - state.spent / policy.problem.unit - state.predicted
    stage = blank.stage._replace(
        running=np.ones_like(state.stage.running),
        radius=frozen(radius.copy()),
        start=state.round,
        granted=frozen(np.maximum(left, 0.0)),
    )
    oracle = blank.oracle if policy.preset == "paper" else state.oracle
    return state.booked(dual=blank.dual)._replace(stage=_closed(stage), oracle=oracle)


def estimate(policy: SquareCBwK, stage: Stage, mode: str) -> Estimate:
    """ÔPT, M(T0) and Z from the outcomes and contexts of stage one.

    `paper` predicts by online-to-batch averages, each arm by its own outcomes, as Algorithm 2 does. `measured` takes
    the policy's own oracle after all outcomes, which is the better fit: the average still contains the first guess.
    """
    lanes = stage.running.shape[0]
    if mode == "paper":
        predictions = _averaged_fit(policy, stage)
        margin = np.full(lanes, paper_margin(policy.problem))
    else:
        fits = _jackknife_fits(policy, stage)
        predictions = fits[0]
        margin = measured_margin(policy, stage, fits)
    rho = policy.problem.rho.min()
    optimum = np.array(
        [
            static_optimum(
                predictions[:, lane, :, 0],
                predictions[:, lane, :, 1:] * policy.problem.scale,
                np.full(policy.resources, rho + 2.0 * margin[lane]),
            ).value
            for lane in range(lanes)
        ]
    )
    return Estimate(optimum, margin, np.minimum(1.0, optimum + margin) * _widest(policy))


def _averaged_fit(policy: SquareCBwK, stage: Stage) -> Array:
    """f̂_0 and ĝ_0 of every arm in every context: (contexts, lanes, arms, 1 + d), each arm by its own outcomes."""
    x, y, arms, weights = _rows(policy, stage)
    oracle = OnlineToBatch(policy.make_oracle(policy.arms), iterates_max=max(stage.arms.shape[0], 1))
    fitted = oracle.update(oracle.init(stage.running.shape[0]), x, y, arms, weights)
    seen = policy.lifted(stage.contexts.reshape(-1, *stage.contexts.shape[2:]))
    if policy.model == "per_arm":
        predictions = oracle.predict(fitted, seen)
    else:
        own = [oracle.predict(fitted, seen[:, [arm]])[:, arm] for arm in range(policy.arms)]
        predictions = np.stack(own, axis=1)
    return predictions.reshape(*stage.contexts.shape[:2], policy.arms, 1 + policy.resources)


def _jackknife_fits(policy: SquareCBwK, stage: Stage) -> Array:
    """Predictions (1 + GROUPS, contexts, lanes, arms, 1 + d) after all outcomes, then after all but those of a group.

    Outcomes take turns in belonging to a group, so that every group has its share of every arm.
    """
    x, y, arms, weights = _rows(policy, stage)
    samples, lanes = stage.arms.shape
    oracle = policy.make_oracle(_blocks(policy))
    block = arms if oracle.blocks > 1 else None
    group = np.repeat(np.arange(samples) % GROUPS, lanes)
    seen = policy.lifted(stage.contexts.reshape(-1, *stage.contexts.shape[2:]))
    shape = (*stage.contexts.shape[:2], policy.arms, 1 + policy.resources)
    fits = np.empty((1 + GROUPS, *shape))
    for fit in range(1 + GROUPS):
        fitted = oracle.update(oracle.init(lanes), x, y, block, weights * (group != fit - 1))
        fits[fit] = oracle.predict(fitted, seen).reshape(shape)
    return fits


def _rows(policy: SquareCBwK, stage: Stage) -> tuple[Array, Array, Integers, Array]:
    """The outcomes of stage one as an oracle learns them: features, targets, arms and weights."""
    rows = stage.arms.size
    return (
        policy.lifted(stage.features.reshape(rows, policy.dimension)),
        stage.targets.reshape(rows, 1 + policy.resources),
        stage.arms.reshape(-1),
        stage.weights.reshape(-1),
    )


def _blocks(policy: SquareCBwK) -> int:
    """Parameter blocks of the policy's own oracle."""
    return policy.arms if policy.model == "per_arm" else 1


def paper_margin(problem: Problem) -> float:
    """M(T0) = √(K·(E(F) + d·E(G)) + 4 ln(T·d)/T0), E(F) = m ln T/T0 and E(G) = m·d ln T/T0, constants 1."""
    t0, d = theory_length(problem), problem.resources
    error = problem.dimension * math.log(problem.horizon) / t0
    return math.sqrt(problem.arms * (error + d * d * error) + 4.0 * math.log(problem.horizon * d) / t0)


def measured_margin(policy: SquareCBwK, stage: Stage, fits: Array) -> Array:
    """M(T0) from what was seen, (lanes,): max(D_0, D_1/2, …, D_d/2, L/n), to hold with probability 1 - MARGIN_DELTA.

    For Z >= T·OPT/B the proof of lem-opt-error needs that the program's reward is off by at most M and each of its
    costs by at most 2M, the slack in eq-Z-est-LP. By duality ÔPT is the minimum over λ of λᵀ(ρ + 2M) + mean_x h(x, λ)
    with h = max(0, max_a f - λᵀg), so it is enough that this mean is off by at most D_0 + Σ λ_j·D_j, where

        D_j = t·√(mean_x max_a (v_j + b_j²)(x, a) + V_j/T0)

    and t is the quantile of Student's distribution for 1 + d statements at once. v_j and b_j are variance and bias of
    the fit by the jackknife, leaving out one group of outcomes at a time: every oracle has them, and they need no
    constant of a theorem. V_j = ½·mean max_a (f̂_j(x, a) - f̂_j(x', a))² over successive contexts x, x'; a maximum moves
    no more than its terms, so the deviation of h over contexts is at most √V_0 + Σ λ_j·√V_j.
    L/n with L = ln((1 + d)/MARGIN_DELTA) is what n outcomes cannot show: a reward that rare may never have been seen.
    Where an arm has fewer outcomes than there are groups nothing is measured: M = 1, and Z is T/B.
    """
    contexts, groups = fits.shape[1], fits.shape[0] - 1
    of_arm = stage.arms == np.arange(policy.arms)[:, None, None]
    fewest = (of_arm * stage.weights).sum(axis=1).min(axis=0)
    if contexts < 2 or fewest.max() < groups:
        return np.ones(fewest.shape)
    whole, parts = fits[0], fits[1:]
    centre = parts.mean(axis=0)
    variance = ((parts - centre) ** 2).sum(axis=0) * (groups - 1) / groups
    bias = (centre - whole) * (groups - 1)
    error = (variance + bias**2).max(axis=2).mean(axis=0)
    sampling = (np.diff(whole, axis=0) ** 2).max(axis=2).mean(axis=0) / (2.0 * contexts)
    share = MARGIN_DELTA / (1 + policy.resources)
    # Takes long to import, and few end a stage.
    from scipy.special import stdtrit  # noqa: PLC0415

    deviation = stdtrit(groups - 1, 1.0 - share) * np.sqrt(error + sampling)
    deviation[:, 1:] *= policy.problem.scale / 2.0
    unseen = math.log(1.0 / share) / np.maximum(fewest, 1.0)
    return np.where(fewest < groups, 1.0, np.maximum(deviation.max(axis=1), unseen))


def adopt(policy: SquareCBwK, older: SquareCBwK, stage: Stage) -> Stage:
    """The stage under changed budgets: a radius found by stage one stays, T/B follows the new budget and horizon."""
    if length(policy) != length(older) and not stage.running.all():
        raise ValueError("budget, horizon and arms cannot change while stage one is under way")
    grown = stage.granted + (policy.problem.budgets - older.problem.budgets)
    fresh = first_stage(policy, stage.radius.shape[0])
    return stage._replace(
        radius=fresh.radius if length(older) == 0 else stage.radius,
        granted=frozen(np.maximum(grown, 0.0)),
        contexts=fresh.contexts if stage.running.all() else stage.contexts,
    )
