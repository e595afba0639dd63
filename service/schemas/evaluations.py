"""Bodies of `/admin/campaigns/{id}/evaluations`."""

from __future__ import annotations

import secrets
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from service.limits import CANDIDATES_MAX, EVALUATED_ROUNDS_MAX, RESOURCES_MAX, SEED_MAX
from service.schemas.base import Amounts, Answered, Body, Id, Page, PositiveAmount, example
from service.schemas.campaign import Policy

_ASKED: dict[str, Any] = {
    "candidates": [{"type": "fixed", "arm": "banner-a"}, {"type": "uniform"}],
    "budgets": {"usd": 100},
    "what_if": False,
    "level": 0.95,
    "rounds_max": 1000000,
    "seed": 7,
}
_STANDS: dict[str, Any] = {
    "id": "0197f0c4-8a00-7000-8000-5d1c2f0b9e11",
    "campaign_id": "summer-sale",
    "status": "done",
    "progress": 1.0,
    "error": None,
    "created_at": "2026-11-16T09:00:00Z",
    "started_at": "2026-11-16T09:00:00Z",
    "finished_at": "2026-11-16T09:00:07Z",
    "request": _ASKED,
}


class FixedCandidate(Body):
    """Always the same arm."""

    type: Literal["fixed"]
    arm: Id


class UniformCandidate(Body):
    """Every eligible arm alike."""

    type: Literal["uniform"]


class PolicyCandidate(Body):
    """Another configuration of the policy, which learns along the log; in one stage."""

    type: Literal["policy"]
    policy: Policy


Candidate = Annotated[FixedCandidate | UniformCandidate | PolicyCandidate, Field(discriminator="type")]


class EvaluationRequest(Body):
    """What would other policies have earned and spent, when would they have run out?"""

    model_config = ConfigDict(json_schema_extra=example(_ASKED))

    candidates: Annotated[list[Candidate], Field(max_length=CANDIDATES_MAX)] = Field(default=[])
    budgets: Annotated[dict[Id, PositiveAmount], Field(max_length=RESOURCES_MAX)] = Field(
        default={}, description="by resource; one that is missing has the campaign's own"
    )
    what_if: bool = Field(
        default=False, description="fly the campaign's own policy over its log again, with these budgets"
    )
    level: Annotated[float, Field(ge=0.5, le=0.999)] = Field(default=0.95, description="of the intervals")
    rounds_max: Annotated[int, Field(ge=2, le=EVALUATED_ROUNDS_MAX)] = Field(
        default=EVALUATED_ROUNDS_MAX, description="take the newest so many rounds; fewer where they would not fit"
    )
    seed: Annotated[int, Field(ge=0, le=SEED_MAX)] = Field(
        default_factory=lambda: secrets.randbelow(SEED_MAX),
        description="the same seed on the same log, the same result",
    )

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        if not self.candidates and not self.what_if:
            raise ValueError("must have candidates, or what_if: true")
        return self


class EvaluationStarted(Answered):
    """An evaluation that will be worked on."""

    model_config = ConfigDict(
        json_schema_extra=example({"id": _STANDS["id"], "campaign_id": "summer-sale", "status": "queued"})
    )

    id: str
    campaign_id: str
    status: Literal["queued"]


class EvaluationError(Answered):
    """Why there is no result."""

    code: str = Field(description="interrupted, nothing-logged, took-too-long, too-large or internal")
    message: str


class EvaluationSummary(Answered):
    """An evaluation in a list."""

    id: str
    campaign_id: str
    status: Literal["queued", "running", "done", "failed"]
    progress: float = Field(ge=0, le=1)
    error: EvaluationError | None
    created_at: str
    started_at: str | None
    finished_at: str | None
    request: dict[str, Any]


class EvaluationPage(Page):
    """Evaluations, newest first."""

    model_config = ConfigDict(json_schema_extra=example({"items": [_STANDS], "next_cursor": None}))

    items: list[EvaluationSummary]


class EstimatedMean(Answered):
    """A mean per round with two intervals of the asked level."""

    value: float
    error: float = Field(description="standard error")
    bootstrap: list[float | None] = Field(description="lower and upper end")
    bernstein: list[float | None] = Field(description="lower and upper end, valid at any number of rounds")


class Estimated(Answered):
    """What one estimator says."""

    reward: EstimatedMean
    costs: dict[str, EstimatedMean]


class Estimators(Answered):
    """Inverse propensity score, self-normalised, doubly robust."""

    ips: Estimated
    snips: Estimated
    dr: Estimated


class EstimatedInterval(Answered):
    """A value and its interval."""

    value: float
    lower: float
    upper: float


class RunOutView(Answered):
    """When the budgets would have been spent, by the doubly robust estimate."""

    share: EstimatedInterval = Field(description="of the flight; 1 where they last")
    reward: EstimatedInterval = Field(description="in all, until then")
    resource: str | None = Field(description="the one that runs out first")
    lasts: float = Field(description="share of the resampled flights in which all budgets last")


class Warned(Answered):
    """A reason to doubt an estimate."""

    code: str = Field(
        description="effective_sample_size, largest_weight, weight_mean, unsupported, restricted or unplayable"
    )
    text: str


class CandidateResult(Answered):
    """What is known of one candidate."""

    candidate: dict[str, Any]
    estimates: Estimators
    effective_sample_size: float
    overlap: dict[str, float | None]
    weight_max: float
    weight_max_from: str = Field(
        description="where the bound on weights comes from: probabilities, or the largest seen"
    )
    warnings: list[Warned]
    run_out: RunOutView
    summary: str = Field(description="the same as a sentence")


class FlightView(Answered):
    """Means over a few flights, at the rounds told."""

    reward: list[float]
    reward_at_end: EstimatedInterval = Field(description="the mean of the flights, the least and the largest")
    spent: dict[str, list[float]]
    marginal_value: dict[str, list[float]] = Field(description="what one more unit was worth, in reward")
    matched: float = Field(description="share of rounds with the arm that was played in the log")


class ActualView(Answered):
    """What happened, at the same rounds."""

    reward: list[float]
    spent: dict[str, list[float]]


class WhatIfView(Answered):
    """The campaign's own policy over its log, with other budgets and, to see the model's error, with its own."""

    assumption: str
    rounds: list[int]
    changed: FlightView
    control: FlightView
    actual: ActualView


class LoggedMeans(Answered):
    """Means per round of what happened."""

    reward: float
    costs: Amounts


class EvaluationResult(Answered):
    """What an evaluation came to."""

    rounds: int
    left_out: dict[str, int] = Field(
        description="decisions that say nothing here: unsettled, untaught, with actions of their own, older, pruned"
    )
    level: float
    budgets: Amounts
    restriction: str
    logged: LoggedMeans
    candidates: list[CandidateResult]
    what_if: WhatIfView | None


def _estimated(value: float) -> dict[str, Any]:
    ends = [round(value * 0.9, 6), round(value * 1.1, 6)]
    return {"value": value, "error": round(value / 20, 6), "bootstrap": ends, "bernstein": [0.0, round(2 * value, 6)]}


_ESTIMATED = {"reward": _estimated(0.04), "costs": {"usd": _estimated(0.02), "impressions": _estimated(0.9)}}
_RESULT: dict[str, Any] = {
    "rounds": 16020,
    "left_out": {"unsettled": 130, "untaught": 0, "actions": 0, "older": 0, "pruned": 0},
    "level": 0.95,
    "budgets": {"usd": 100, "impressions": 50000},
    "restriction": "The policy is restricted to the arms that were eligible in each logged round: "
    "where it would have played another arm, it plays null.",
    "logged": {"reward": 0.041, "costs": {"usd": 0.024, "impressions": 0.97}},
    "candidates": [
        {
            "candidate": {"type": "uniform"},
            "estimates": {"ips": _ESTIMATED, "snips": _ESTIMATED, "dr": _ESTIMATED},
            "effective_sample_size": 5210.4,
            "overlap": {"effective": 5210.4, "weight_mean": 1.002, "mass": 1.0, "unsupported": 0.0},
            "weight_max": 21.7,
            "weight_max_from": "probabilities",
            "warnings": [],
            "run_out": {
                "share": {"value": 0.62, "lower": 0.58, "upper": 0.66},
                "reward": {"value": 2480.0, "lower": 2310.0, "upper": 2650.0},
                "resource": "usd",
                "lasts": 0.0,
            },
            "summary": "Under these budgets this policy would have run out of usd at 62 % (58–66 %) of the flight; "
            "expected reward until then: 2480 (2310–2650).",
        }
    ],
    "what_if": None,
}


class EvaluationView(EvaluationSummary):
    """An evaluation with its result, null until it is there."""

    model_config = ConfigDict(json_schema_extra=example({**_STANDS, "result": _RESULT}))

    result: EvaluationResult | None
