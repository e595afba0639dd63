"""The policies of the simulations by name."""

from __future__ import annotations

from typing import Any

from cbwk_core.baselines import (
    EpsilonGreedy,
    LagrangeCBwK,
    LinUCB,
    Policy,
    PricedThompson,
    PricedUCB,
    Resolving,
    Thompson,
    Throttle,
)
from cbwk_core.policy import SquareCBwK
from cbwk_core.presets import PRESETS
from cbwk_core.problem import Problem
from cbwk_core.simulation import pareto, vw

# A name with this suffix is the policy before the suffix, throttled to an even spend.
PACED = "-paced"
# The peers that know prices. They have the oracle of `practical`.
PEERS: dict[str, Any] = {
    "thompson-priced": PricedThompson,
    "ucb-priced": PricedUCB,
    "resolving": Resolving,
    "lagrange": LagrangeCBwK,
}
# The policy for one resource and max costs that differ, if the package is installed. It does not fit elsewhere.
PARETO = "paretobandit"
PARETO_POLICIES = (PARETO,) if pareto.IS_INSTALLED else ()
POLICIES = (
    "practical",
    "paper",
    "authors",
    "linucb",
    "egreedy",
    "thompson",
    "egreedy" + PACED,
    "thompson" + PACED,
    *PEERS,
    *(["vw"] if vw.IS_INSTALLED else []),
)


def build_policy(
    name: str,
    problem: Problem,
    *,
    model: str = "shared",
    oracle: str = "newton",
    link: str = "identity",
    two_stage: str = "auto",
) -> Policy[Any]:
    """Return the policy of this name. `oracle`, `link` and `two_stage` apply to SquareCBwK; the baselines are linear.

    >>> problem = Problem.of(arms=3, dimension=5, resources=4, horizon=100, budget=25)
    >>> [type(build_policy(name, problem)).__name__ for name in ("practical", "linucb", "egreedy-paced")]
    ['SquareCBwK', 'LinUCB', 'Throttle']
    """
    if name in PARETO_POLICIES:
        return pareto.ParetoBandit(problem=problem)
    if name not in POLICIES:
        raise ValueError(f"policy must be one of {', '.join(POLICIES)}, got {name!r}")
    if name in PRESETS:
        return _squarecbwk(name, problem, model, oracle, link, two_stage)
    if name == "linucb":
        return LinUCB(problem=problem, model=model)
    if name in PEERS:
        peer: Policy[Any] = PEERS[name](problem=problem, model=model)
        return peer
    if name == "vw":
        return vw.VowpalSquareCB(problem=problem, model=model)
    unpaced = name.removesuffix(PACED)
    policy: Policy[Any] = (EpsilonGreedy if unpaced == "egreedy" else Thompson)(problem=problem, model=model)
    return Throttle(policy=policy, problem=problem) if name.endswith(PACED) else policy


def _squarecbwk(preset: str, problem: Problem, model: str, oracle: str, link: str, two_stage: str) -> Policy[Any]:
    floor = problem.floor_arm if preset == "practical" else None
    return SquareCBwK(
        arms=problem.arms,
        dimension=problem.dimension,
        resources=problem.resources,
        horizon=problem.horizon,
        budget=problem.budget,
        max_cost=problem.max_cost,
        model=model,
        preset=preset,
        oracle=oracle,
        link=link,
        two_stage=two_stage,
        must_play=floor is not None,
        floor_arm=floor,
    )
