"""What an evaluation comes to: the candidates of a request on a campaign's log, in the caller's units."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbwk_core import SquareCBwK
from cbwk_core.evaluation import (
    RESTRICTION,
    Estimate,
    Evaluation,
    FixedArm,
    Flights,
    Log,
    Target,
    Trained,
    Uniform,
    evaluate,
    run_out_sentence,
    what_if_budgets,
)
from cbwk_core.evaluation.parallel import Progress
from service.domain.campaign import Campaign
from service.evaluation.logged import Logged, read_log
from service.money import ONE, amount
from service.store.database import Database

# Share of the progress that reading the log is.
READING = 0.2
# Flights of a what-if: their spread shows what is luck.
FLIGHTS = 2
# Points of a what-if's curves.
POINTS_MAX = 60

Told = Callable[[float], None]


def work_out(database: Database, campaign_id: str, asked: Mapping[str, Any], told: Told) -> dict[str, Any]:
    """The result of a request as the interface shows it; `told` hears of the progress from 0 to 1."""
    found = read_log(
        database,
        campaign_id,
        rounds_max=asked["rounds_max"],
        advanced=lambda done, todo: told(READING * done / max(todo, 1)),
    )
    campaign = _with_budgets(found.campaign, asked["budgets"])
    rng = np.random.default_rng(asked["seed"])
    parts = len(asked["candidates"]) + bool(asked["what_if"])
    result: dict[str, Any] = {
        "rounds": found.log.rounds,
        "left_out": found.left_out,
        "level": asked["level"],
        "budgets": dict(zip(campaign.resources, map(amount, campaign.budgets), strict=True)),
        "restriction": RESTRICTION,
        "logged": _logged(found),
        "candidates": [],
        "what_if": None,
    }
    for index, candidate in enumerate(asked["candidates"]):
        progress = _part(told, index, parts)
        result["candidates"].append(_candidate(found, campaign, candidate, asked["level"], rng, progress))
    if asked["what_if"]:
        result["what_if"] = _what_if(found, campaign, rng, _part(told, parts - 1, parts))
    return result


def _part(told: Told, index: int, parts: int) -> Progress:
    """The reports of one part of the work as reports of the whole."""
    return lambda done, todo: told(READING + (1.0 - READING) * (index + done / max(todo, 1)) / parts)


def _with_budgets(campaign: Campaign, budgets: Mapping[str, float]) -> Campaign:
    """The campaign as it would be with other budgets, in one stage: a log tells nothing of a stage of its own."""
    config = json.loads(json.dumps(campaign.config))
    for resource in config["resources"]:
        resource["budget"] = budgets.get(resource["id"], resource["budget"])
    config["policy"]["two_stage"] = "off"
    return replace(campaign, config=config)


def _logged(found: Logged) -> dict[str, Any]:
    """What happened, to compare with: means per round."""
    log = found.in_callers_rewards
    costs = log.costs.mean(axis=0) / ONE
    names = found.campaign.resources
    return {"reward": float(log.reward.mean()), "costs": dict(zip(names, costs.tolist(), strict=True))}


@dataclass(frozen=True)
class _OnScaled:
    """A target that sees rewards as policies do, whatever the scale it is evaluated on."""

    target: Target
    scaled: Log

    def probabilities(self, log: Log, progress: Progress | None = None) -> NDArray[np.float64]:
        return self.target.probabilities(self.scaled, progress)


def _target(found: Logged, campaign: Campaign, candidate: Mapping[str, Any]) -> Target:
    if candidate["type"] == "fixed":
        return FixedArm(campaign.arm_index[candidate["arm"]])
    if candidate["type"] == "uniform":
        return Uniform()
    config = {**campaign.config, "policy": {**candidate["policy"], "two_stage": "off"}}
    policy = _for_rounds(replace(campaign, config=config).policy, found.log.rounds)
    return _OnScaled(Trained(policy), found.log)


def _for_rounds(policy: SquareCBwK, rounds: int) -> SquareCBwK:
    """A policy does not end before the log does."""
    return replace(policy, horizon=max(policy.horizon, rounds))


def _candidate(
    found: Logged,
    campaign: Campaign,
    candidate: Mapping[str, Any],
    level: float,
    rng: np.random.Generator,
    progress: Progress,
) -> dict[str, Any]:
    log = found.in_callers_rewards
    # Costs above a hold are booked in full, so the largest ever seen may be above the declared ones.
    max_cost = np.maximum(np.array(campaign.max_costs, dtype=np.float64), log.costs.max(axis=0))
    low, high = found.reward_range
    came_to = evaluate(
        log,
        _target(found, campaign, candidate),
        rng=rng,
        reward_range=(low, high),
        max_cost=max_cost,
        budget=np.array(campaign.budgets, dtype=np.float64),
        horizon=campaign.horizon,
        level=level,
        progress=progress,
    )
    return {
        "candidate": dict(candidate),
        "estimates": {name: _estimate(campaign, getattr(came_to, name)) for name in ("ips", "snips", "dr")},
        "effective_sample_size": came_to.overlap.effective,
        "overlap": came_to.overlap._asdict(),
        "weight_max": came_to.weight_max,
        "weight_max_from": came_to.weight_max_from,
        "warnings": [caution._asdict() for caution in came_to.cautions],
        **_run_out(campaign, came_to),
    }


def _estimate(campaign: Campaign, estimate: Estimate) -> dict[str, Any]:
    def one(index: int, unit: float) -> dict[str, Any]:
        return {
            "value": float(estimate.value[index]) / unit,
            "error": float(estimate.error[index]) / unit,
            "bootstrap": (estimate.bootstrap[index] / unit).tolist(),
            "bernstein": (estimate.bernstein[index] / unit).tolist(),
        }

    costs = {name: one(1 + index, float(ONE)) for index, name in enumerate(campaign.resources)}
    return {"reward": one(0, 1.0), "costs": costs}


def _run_out(campaign: Campaign, came_to: Evaluation) -> dict[str, Any]:
    end = came_to.run_out
    assert end is not None, "budgets were given"
    shown = {
        "share": end.share._asdict(),
        "reward": end.reward._asdict(),
        "resource": None if end.resource is None else campaign.resources[end.resource],
        "lasts": end.lasts,
    }
    return {"run_out": shown, "summary": run_out_sentence(end, campaign.resources)}


def _what_if(found: Logged, campaign: Campaign, rng: np.random.Generator, progress: Progress) -> dict[str, Any]:
    """The campaign's own policy flown over its log again, with these budgets and with its own."""
    policy = _for_rounds(_with_budgets(found.campaign, {}).policy, found.log.rounds)
    flown = what_if_budgets(
        found.log,
        policy,
        budget=np.array(campaign.budgets, dtype=np.float64),
        rng=rng,
        runs=FLIGHTS,
        progress=progress,
    )
    kept = np.unique(np.linspace(0, flown.changed.rounds.size - 1, POINTS_MAX).round().astype(np.int64))
    low, high = found.reward_range
    played = found.log.played.cumsum()[flown.changed.rounds - 1]
    actual = {
        "reward": (played * low + flown.actual_reward * (high - low))[kept].tolist(),
        "spent": _by_resource(campaign, flown.actual_spent[kept] / ONE),
    }
    return {
        "assumption": flown.assumption,
        "rounds": flown.changed.rounds[kept].tolist(),
        "changed": _flights(campaign, flown.changed, kept, (low, high)),
        "control": _flights(campaign, flown.control, kept, (low, high)),
        "actual": actual,
    }


def _flights(
    campaign: Campaign, flights: Flights, kept: NDArray[np.int64], reward_range: tuple[float, float]
) -> dict[str, Any]:
    """Means of the flights at some points, and the spread of their ends."""
    low, high = reward_range
    reward = flights.plays * low + flights.reward * (high - low)
    end = reward[:, -1]
    spent, prices = flights.spent / ONE, flights.prices * (ONE * (high - low))
    return {
        "reward": reward.mean(axis=0)[kept].tolist(),
        "reward_at_end": {"value": float(end.mean()), "lower": float(end.min()), "upper": float(end.max())},
        "spent": _by_resource(campaign, spent.mean(axis=0)[kept]),
        "marginal_value": _by_resource(campaign, prices.mean(axis=0)[kept]),
        "matched": float(flights.matched.mean()),
    }


def _by_resource(campaign: Campaign, columns: NDArray[np.float64]) -> dict[str, Sequence[float]]:
    return {name: columns[:, index].tolist() for index, name in enumerate(campaign.resources)}
