"""Bodies of `/admin/campaigns/{id}/evaluations` and `/admin/campaigns/{id}/uplift`."""

import secrets
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from service.limits import CANDIDATES_MAX, EVALUATED_ROUNDS_MAX, RESOURCES_MAX, SEED_MAX
from service.schemas.body import Body, Id, PositiveAmount
from service.schemas.campaign import Policy
from service.schemas.view import Amounts, At, CampaignName, DecisionName, View, example, page, shown

_REQUEST: dict[str, Any] = {
    "candidates": [{"type": "fixed", "arm": "banner-a"}, {"type": "uniform"}],
    "budgets": {"usd": 100},
    "what_if": False,
    "level": 0.95,
    "rounds_max": 1000000,
    "seed": 7,
}


class FixedCandidate(Body):
    """Always the same arm."""

    type: Literal["fixed"] = Field(description="one arm")
    arm: Id = Field(description="id of the arm")


class UniformCandidate(Body):
    """Every eligible arm with the same probability."""

    type: Literal["uniform"] = Field(description="a random arm")


class PolicyCandidate(Body):
    """Another configuration of the policy; it learns from the log, in one stage."""

    type: Literal["policy"] = Field(description="a policy that learns")
    policy: Policy = Field(description="its configuration, as in a campaign")


Candidate = Annotated[FixedCandidate | UniformCandidate | PolicyCandidate, Field(discriminator="type")]


class EvaluationRequest(Body):
    """What other policies, or other budgets, would have earned and spent, and when they would have run out."""

    model_config = example(_REQUEST)

    candidates: Annotated[list[Candidate], Field(max_length=CANDIDATES_MAX)] = Field(
        default=[], description="policies to compare; may be empty with what_if"
    )
    budgets: Annotated[dict[Id, PositiveAmount], Field(max_length=RESOURCES_MAX)] = Field(
        default={}, description="by resource; the campaign's own for a resource that is missing"
    )
    what_if: bool = Field(default=False, description="simulate the campaign's own policy on its log with these budgets")
    level: Annotated[float, Field(ge=0.5, le=0.999)] = Field(
        default=0.95, description="confidence level of the intervals"
    )
    rounds_max: Annotated[int, Field(ge=2, le=EVALUATED_ROUNDS_MAX)] = Field(
        default=EVALUATED_ROUNDS_MAX, description="number of newest rounds to use; fewer if memory does not allow them"
    )
    seed: Annotated[int, Field(ge=0, le=SEED_MAX)] = Field(
        default_factory=lambda: secrets.randbelow(SEED_MAX),
        description="the same seed and log give the same result",
    )

    @model_validator(mode="after")
    def _has_a_question(self) -> Self:
        if not self.candidates and not self.what_if:
            raise ValueError("must have candidates, or what_if: true")
        return self


class EvaluationStarted(View):
    """An evaluation that waits for its start."""

    id: DecisionName = Field(description="id of the evaluation")
    campaign_id: CampaignName = Field(description="id of the campaign")
    status: Literal["queued"] = Field(description="always queued")


class EvaluationError(View):
    """The reason why there is no result."""

    code: str = shown("internal", "interrupted, nothing-logged, took-too-long, too-large or internal")
    message: str = shown("the evaluation failed", "the reason in words")


class EvaluationSummary(View):
    """An evaluation in a list."""

    id: DecisionName = Field(description="id of the evaluation")
    campaign_id: CampaignName = Field(description="id of the campaign")
    status: Literal["queued", "running", "done", "failed"] = shown("done", "queued, running, done or failed")
    progress: float = Field(ge=0, le=1, examples=[1.0], description="share of the work that is done, from 0 to 1")
    error: EvaluationError | None = Field(description="why it failed; null unless it did")
    created_at: At = Field(description="when it was asked for")
    started_at: str | None = shown("2026-11-16T09:00:00Z", "when its process began; null before")
    finished_at: str | None = shown("2026-11-16T09:00:07Z", "when it ended; null before")
    request: dict[str, Any] = shown(_REQUEST, "the request with its defaults")


class EstimatedMean(View):
    """A mean per round, cut to what is possible, with intervals of the requested level."""

    value: float = shown(0.04, "the estimate")
    error: float = shown(0.002, "standard error")
    bootstrap: list[float | None] = shown([0.034, 0.046], "lower and upper end; it contains the sequence")
    bernstein: list[float | None] = shown([0.0, 0.08], "lower and upper end, valid at any number of rounds")
    sequence: list[float | None] | None = Field(
        default=None,
        examples=[[0.034, 0.046]],
        description="asymptotic confidence sequence, valid however often it is looked at; not in results of 0.1",
    )


class Estimated(View):
    """The estimates of one estimator."""

    reward: EstimatedMean = Field(description="mean reward per round")
    costs: dict[str, EstimatedMean] = shown({"usd": EstimatedMean.example()}, "by resource, mean cost per round")


class Estimators(View):
    """Inverse propensity score, self-normalised, doubly robust."""

    ips: Estimated = Field(description="inverse propensity score: unbiased, wide")
    snips: Estimated = Field(description="self-normalised: narrower, with a small bias")
    dr: Estimated = Field(description="doubly robust: corrects a model of the log by the inverse propensity score")


class EstimatedInterval(View):
    """A value and its interval."""

    value: float = shown(0.62, "the estimate")
    lower: float = shown(0.58, "lower end of the interval")
    upper: float = shown(0.66, "upper end of the interval")


class RunOutView(View):
    """When the budgets would have run out, by the doubly robust estimate."""

    share: EstimatedInterval = Field(description="share of the flight; 1 if the budgets last")
    reward: EstimatedInterval = shown({"value": 2480.0, "lower": 2310.0, "upper": 2650.0}, "total until then")
    resource: str | None = shown("usd", "the resource that runs out first")
    lasts: float = shown(0.0, "share of the resampled flights in which all budgets last")


class Warned(View):
    """A reason to doubt an estimate."""

    code: str = shown(
        "largest_weight",
        "effective_sample_size, largest_weight, weight_mean, unsupported, restricted or unplayable",
    )
    text: str = shown("one round has 12 % of the weight", "the reason in words")


class CandidateResult(View):
    """The estimates of one candidate."""

    candidate: dict[str, Any] = shown({"type": "uniform"}, "the candidate as requested")
    estimates: Estimators = Field(description="means per round by three estimators")
    effective_sample_size: float = shown(5210.4, "rounds / mean of Σ π²/p over all arms, from stored probabilities")
    overlap: dict[str, float | None] = shown(
        {"effective": 5210.4, "weight_mean": 1.002, "mass": 1.0, "unsupported": 0.0},
        "how well the log covers the candidate: effective rounds, mean weight, probability of real arms (mass), and "
        "the part of it for arms that the log could not draw",
    )
    weight_max: float = shown(21.7, "bound on the importance weights")
    weight_max_from: str = shown("probabilities", "origin of the bound on weights: probabilities, or the largest seen")
    validity: str | None = Field(
        default=None,
        examples=["IPS and DR stay unbiased."],
        description="which estimators and intervals stay valid; not in results of version 0.1",
    )
    warnings: list[Warned] = shown([], "reasons to doubt the estimates")
    run_out: RunOutView = Field(description="when the budgets would have run out")
    summary: str = shown(
        "Under these budgets this policy would have run out of usd at 62 % (58–66 %) of the flight; "
        "expected reward until then: 2,480 (2,310–2,650).",
        "the result as a sentence",
    )


class ActualView(View):
    """What happened, at the listed rounds."""

    reward: list[float] = shown([310.0, 655.0], "sum of rewards so far")
    spent: dict[str, list[float]] = shown({"usd": [48.0, 99.5]}, "by resource, spent so far")


class FlightView(ActualView):
    """Means over a few simulated flights, at the listed rounds."""

    reward_at_end: EstimatedInterval = Field(description="mean, smallest and largest reward of the flights")
    marginal_value: dict[str, list[float]] = shown({"usd": [1.7, 1.9]}, "value of one more unit, in reward")
    matched: float = shown(0.71, "share of rounds with the arm that was played in the log")


class WhatIfView(View):
    """The campaign's own policy on its log: with other budgets, and with its own to show the error of the model."""

    assumption: str = shown("outcomes are drawn from a model of the log", "what the simulation assumes")
    rounds: list[int] = shown([8010, 16020], "the rounds that the lists refer to")
    changed: FlightView = Field(description="flights with the requested budgets")
    control: FlightView = Field(
        description="flights with the campaign's own budgets; their distance to actual is the error of the model"
    )
    actual: ActualView = Field(description="what happened")


class LoggedMeans(View):
    """Means per round of what happened."""

    reward: float = shown(0.041, "mean reward per round")
    costs: Amounts = shown({"usd": 0.024, "impressions": 0.97}, "by resource, mean cost per round")


class EvaluationResult(View):
    """The result of an evaluation."""

    rounds: int = shown(16020, "number of rounds that are used")
    left_out: dict[str, int] = shown(
        {"unsettled": 130, "untaught": 0, "actions": 0, "older": 0, "pruned": 0},
        "decisions that are not used: unsettled, untaught, with actions of their own, older, pruned",
    )
    level: float = shown(0.95, "confidence level of the intervals")
    budgets: Amounts = shown({"usd": 100, "impressions": 50000}, "by resource, the budgets that are assumed")
    restriction: str = shown(
        "The policy is restricted to the arms that were eligible in each logged round: "
        "where it would have played another arm, it plays null.",
        "what a candidate may play in a logged round",
    )
    logged: LoggedMeans = Field(description="what happened")
    candidates: list[CandidateResult] = Field(description="one result per candidate")
    what_if: WhatIfView | None = Field(description="the simulation; null if it was not asked for")


class EvaluationView(EvaluationSummary):
    """An evaluation with its result, which is null until the evaluation is done."""

    result: EvaluationResult | None = shown(EvaluationResult.example(), "the result; null until the status is done")


class UpliftInterval(View):
    """A difference of means per decision, policy minus hold-out, with its interval."""

    value: float | None = shown(0.012, "the difference; null without enough outcomes")
    lower: float | None = shown(0.0005, "lower end of the interval")
    upper: float | None = shown(0.0235, "upper end of the interval")


class UpliftGroup(View):
    """One group; its means per decision count decisions with a learnt outcome and decisions that played nothing."""

    decisions: int = shown(15338, "number of decisions in the group")
    plays: int = shown(15001, "decisions that have an arm")
    open: int = shown(160, "plays without an outcome that counts, so far or finally")
    mean_reward: float | None = shown(0.043, "mean reward per decision; null without outcomes")
    mean_cost: Amounts | None = shown(
        {"usd": 0.023, "impressions": 0.98}, "by resource, mean cost per decision; null without outcomes"
    )
    reward_per_cost: dict[str, float | None] = shown({"usd": 1.87, "impressions": 0.044}, "null if nothing was spent")


class UpliftGroups(View):
    """Both groups; decisions in which no arm could be played are in neither."""

    holdout: UpliftGroup = Field(description="decisions of the baseline")
    policy: UpliftGroup = Field(description="decisions of the policy")


class UpliftDifference(View):
    """The advantage of the policy over the baseline."""

    reward: UpliftInterval = Field(description="difference of the mean rewards")
    relative: float | None = shown(0.387, "relative to the hold-out's mean reward, if that is above 0")
    costs: dict[str, UpliftInterval] = shown(
        {"usd": UpliftInterval.example()}, "by resource, difference of the mean costs"
    )
    reward_per_cost: dict[str, UpliftInterval] = shown(
        {"usd": {"value": 0.31, "lower": 0.02, "upper": 0.6}}, "by resource, difference of the reward per unit of cost"
    )


class HoldoutReport(View):
    """The policy compared with its hold-out."""

    arm: str | None = shown("banner-a", "the arm of the baseline; null for none")
    fraction: float = shown(0.05, "share of the decisions that the baseline makes")
    level: float = shown(0.95, "confidence level of the intervals")
    groups: UpliftGroups = Field(description="what both groups earned and cost")
    uplift: UpliftDifference = Field(description="policy minus hold-out")


class ShadowArm(View):
    """How often an arm was played, and how often the policy would have played it."""

    id: str | None = shown("banner-a", "null for the null arm")
    did: int = shown(812, "decisions in which the caller played it")
    would_have: int = shown(790, "decisions in which the policy would have played it")


class ShadowReport(View):
    """What the policy would have done, over the newest decisions."""

    decisions: int = shown(1000, "number of decisions counted")
    agreement: float | None = shown(0.93, "share of decisions in which the policy would have done the same")
    arms: list[ShadowArm] = Field(description="one entry per arm")
    expected_reward: float | None = shown(0.041, "per decision of the policy, by its own predictions")
    expected_cost: Amounts | None = shown(
        {"usd": 0.023, "impressions": 0.98}, "by resource, per decision of the policy, by its own predictions"
    )


class UpliftView(View):
    """The report of the hold-out or of shadow mode; null if the campaign does not have it."""

    campaign_id: CampaignName = Field(description="id of the campaign")
    holdout: HoldoutReport | None = shown(HoldoutReport.example(), "the hold-out's report; null without a hold-out")
    shadow: ShadowReport | None = Field(description="the report of shadow mode; null in live mode")


EvaluationPage = page("EvaluationPage", EvaluationSummary, "Evaluations, newest first.")
