"""Computes the result of an evaluation: the candidates of a request on a campaign's log, in the caller's units."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbwk_core import SquareCBwK, evaluation
from cbwk_core.evaluation.parallel import Progress
from service.domain.campaign import Campaign
from service.evaluation.campaign_log import CampaignLog, read_log
from service.money import ONE, amount
from service.store.database import Database

# Share of the progress that is reading the log.
READING_SHARE = 0.2
# Flights of a what-if; their spread shows the part of chance.
FLIGHTS = 2
# With fewer effective rounds an estimate of a whole flight says nothing.
EFFECTIVE_ROUNDS_MIN = 100
# Points of a what-if's curves.
POINTS_MAX = 60

Report = Callable[[float], None]


def evaluation_result(
    database: Database, campaign_id: str, request: Mapping[str, Any], report: Report
) -> dict[str, Any]:
    """Returns the result of a request as the interface shows it; calls `report` with the progress from 0 to 1."""
    found = read_log(
        database,
        campaign_id,
        rounds_max=request["rounds_max"],
        advanced=lambda done, todo: report(READING_SHARE * done / max(todo, 1)),
    )
    campaign = _with_budgets(found.campaign, request["budgets"])
    rng = np.random.default_rng(request["seed"])
    steps = len(request["candidates"]) + bool(request["what_if"])

    def step(index: int) -> Progress:
        """Converts the progress of one step to that of the whole."""
        return lambda done, todo: report(READING_SHARE + (1.0 - READING_SHARE) * (index + done / max(todo, 1)) / steps)

    return {
        "rounds": found.log.rounds,
        "left_out": found.left_out,
        "level": request["level"],
        "budgets": dict(zip(campaign.resources, map(amount, campaign.budgets), strict=True)),
        "restriction": evaluation.RESTRICTION,
        "logged": _logged_means(found),
        "candidates": [
            _candidate(found, campaign, candidate, request["level"], rng, step(index))
            for index, candidate in enumerate(request["candidates"])
        ],
        "what_if": _what_if(found, campaign, rng, step(steps - 1)) if request["what_if"] else None,
    }


def _with_budgets(campaign: Campaign, budgets: Mapping[str, float]) -> Campaign:
    """Returns the campaign with other budgets, in one stage: a log has no stage of its own."""
    config = json.loads(json.dumps(campaign.config))
    for resource in config["resources"]:
        resource["budget"] = budgets.get(resource["id"], resource["budget"])
    config["policy"]["two_stage"] = "off"
    return replace(campaign, config=config)


def _logged_means(found: CampaignLog) -> dict[str, Any]:
    """Returns the means per round of the log itself, for comparison."""
    log = found.in_callers_rewards
    costs = log.costs.mean(axis=0) / ONE
    names = found.campaign.resources
    return {"reward": float(log.reward.mean()), "costs": dict(zip(names, costs.tolist(), strict=True))}


@dataclass(frozen=True)
class _ScaledTarget:
    """A target that learns from scaled rewards, whatever the scale of the evaluation."""

    target: evaluation.Target
    scaled: evaluation.Log

    def probabilities(self, log: evaluation.Log, progress: Progress | None = None) -> NDArray[np.float64]:
        return self.target.probabilities(self.scaled, progress)


def _target(found: CampaignLog, campaign: Campaign, candidate: Mapping[str, Any]) -> evaluation.Target:
    if candidate["type"] == "fixed":
        return evaluation.FixedArm(campaign.arm_index[candidate["arm"]])
    if candidate["type"] == "uniform":
        return evaluation.Uniform()
    config = {**campaign.config, "policy": {**candidate["policy"], "two_stage": "off"}}
    policy = _for_rounds(replace(campaign, config=config).policy, found.log.rounds)
    return _ScaledTarget(evaluation.Trained(policy), found.log)


def _for_rounds(policy: SquareCBwK, rounds: int) -> SquareCBwK:
    """Extends the horizon to the length of the log."""
    return replace(policy, horizon=max(policy.horizon, rounds))


def _candidate(
    found: CampaignLog,
    campaign: Campaign,
    candidate: Mapping[str, Any],
    level: float,
    rng: np.random.Generator,
    progress: Progress,
) -> dict[str, Any]:
    log = found.in_callers_rewards
    # Costs above a hold are booked in full, so logged costs may exceed the configured maxima.
    max_cost = np.maximum(np.array(campaign.max_costs, dtype=np.float64), log.costs.max(axis=0))
    estimates = evaluation.evaluate(
        log,
        _target(found, campaign, candidate),
        rng=rng,
        reward_range=found.reward_range,
        max_cost=max_cost,
        budget=np.array(campaign.budgets, dtype=np.float64),
        horizon=campaign.horizon,
        level=level,
        adaptive=True,  # the policy of a campaign learns
        progress=progress,
    )
    end = estimates.run_out
    assert end is not None, "evaluate was given budgets"
    return {
        "candidate": dict(candidate),
        "estimates": {name: _estimate(campaign, getattr(estimates, name)) for name in ("ips", "snips", "dr")},
        "effective_sample_size": estimates.overlap.effective,
        "overlap": estimates.overlap._asdict(),
        "weight_max": estimates.weight_max,
        "weight_max_from": estimates.weight_max_from,
        "validity": estimates.validity,
        "warnings": [caution._asdict() for caution in estimates.cautions],
        "run_out": {
            "share": end.share._asdict(),
            "reward": end.reward._asdict(),
            "resource": None if end.resource is None else campaign.resources[end.resource],
            "lasts": end.lasts,
        },
        "summary": _summary(estimates, log.rounds, evaluation.run_out_sentence(end, campaign.resources)),
    }


def _summary(estimates: evaluation.Evaluation, rounds: int, sentence: str) -> str:
    """Returns the result as a sentence; one without figures if too few rounds of the log bear on it."""
    effective = estimates.overlap.effective
    if effective >= EFFECTIVE_ROUNDS_MIN:
        return sentence
    return (
        f"Not enough data: {effective:.0f} effective rounds of {rounds} in the log, "
        f"and at least {EFFECTIVE_ROUNDS_MIN} are needed."
    )


def _estimate(campaign: Campaign, estimate: evaluation.Estimate) -> dict[str, Any]:
    def mean(index: int, unit: float) -> dict[str, Any]:
        return {
            "value": float(estimate.value[index]) / unit,
            "error": float(estimate.error[index]) / unit,
            "bootstrap": (estimate.bootstrap[index] / unit).tolist(),
            "bernstein": (estimate.bernstein[index] / unit).tolist(),
            "sequence": (estimate.sequence[index] / unit).tolist(),
        }

    costs = {name: mean(1 + index, float(ONE)) for index, name in enumerate(campaign.resources)}
    return {"reward": mean(0, 1.0), "costs": costs}


def _what_if(found: CampaignLog, campaign: Campaign, rng: np.random.Generator, progress: Progress) -> dict[str, Any]:
    """Runs the campaign's own policy over its log again, with the requested and with its own budgets."""
    policy = _for_rounds(_with_budgets(found.campaign, {}).policy, found.log.rounds)
    budget = np.array(campaign.budgets, dtype=np.float64)
    flights = evaluation.what_if_budgets(found.log, policy, budget=budget, rng=rng, runs=FLIGHTS, progress=progress)
    points = np.unique(np.linspace(0, flights.changed.rounds.size - 1, POINTS_MAX).round().astype(np.int64))
    low, high = found.reward_range
    played = found.log.played.cumsum()[flights.changed.rounds - 1]
    return {
        "assumption": flights.assumption,
        "rounds": flights.changed.rounds[points].tolist(),
        "changed": _flights(found, flights.changed, points),
        "control": _flights(found, flights.control, points),
        "actual": {
            "reward": (played * low + flights.actual_reward * (high - low))[points].tolist(),
            "spent": _by_resource(campaign, flights.actual_spent[points] / ONE),
        },
    }


def _flights(found: CampaignLog, flights: evaluation.Flights, points: NDArray[np.int64]) -> dict[str, Any]:
    """Returns the means of the flights at the given points, and the spread of their ends."""
    campaign, (low, high) = found.campaign, found.reward_range
    reward = flights.plays * low + flights.reward * (high - low)
    end = reward[:, -1]
    spent, prices = flights.spent / ONE, flights.prices * (ONE * (high - low))
    return {
        "reward": reward.mean(axis=0)[points].tolist(),
        "reward_at_end": {"value": float(end.mean()), "lower": float(end.min()), "upper": float(end.max())},
        "spent": _by_resource(campaign, spent.mean(axis=0)[points]),
        "marginal_value": _by_resource(campaign, prices.mean(axis=0)[points]),
        "matched": float(flights.matched.mean()),
    }


def _by_resource(campaign: Campaign, columns: NDArray[np.float64]) -> dict[str, Sequence[float]]:
    return {name: columns[:, index].tolist() for index, name in enumerate(campaign.resources)}
