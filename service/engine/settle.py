"""What becomes of a decision: the table of states in DESIGN.md, one event at a time, in the order of the log.

held ─ costs ─▶ charged ─ reward ─▶ settled          held ─ void ─▶ voided
held ─ reward ─▶ rewarded ─ costs ─▶ settled          held, rewarded ─ expiry ─▶ expired
charged ─ expiry ─▶ settled with the missing reward    expired, voided ─ costs after all ─▶ late
                    ─ reward after all ─▶ late
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from cbwk_core import NULL_ARM, State, Ticket
from service.domain.status import DecisionRecord as Standing
from service.domain.tickets import tickets_from
from service.engine.changes import Lesson, Work, to_json
from service.engine.commands import Answer, Feedback
from service.money import micros_rounded_up
from service.problems import Conflict, Invalid, NotFound, Problem
from service.store.digests import outcome_digest
from service.times import MICROS_PER_SECOND

LATE = "late_not_learnt"
ROUNDED = "rounded"
CLIPPED = "reward_clipped"
ABOVE_HOLD = "cost_above_hold"


@dataclass(slots=True)
class Report:
    """A feedback request in the ledger's terms."""

    reward: float | None
    costs: list[int] | None
    warnings: list[str]


def settle(work: Work, request: Feedback, standing: Standing | None) -> Answer | Problem:
    """Apply one feedback request."""
    answer = _settle(work, request, standing)
    if isinstance(answer, Problem):
        return answer
    return Answer({"campaign_id": work.campaign.id, **answer.body}, replayed=answer.replayed)


def _settle(work: Work, request: Feedback, standing: Standing | None) -> Answer | Problem:
    if standing is None:
        return NotFound("there is no such decision in this campaign", kind="decision-not-found")
    try:
        report = _report(work, request)
    except Problem as problem:
        return problem
    if standing.row["arm"] == NULL_ARM:
        return _ignored(work, request, report)
    if request.void:
        return _void(work, standing)
    repeated = _repeated(standing, report)
    if repeated is not None:
        return repeated
    if standing.status in ("expired", "voided", "late", "settled"):  # settled, and yet not repeated: by its expiry
        return _late(work, standing, report)
    return _reported(work, standing, report)


def _report(work: Work, request: Feedback) -> Report:
    warnings: list[str] = []
    costs = None
    if request.costs is not None:
        unknown = set(request.costs) - set(work.campaign.resources)
        if unknown:
            raise Invalid(
                "costs name a resource the campaign does not have",
                kind="unknown-resource",
                errors=[{"field": "costs", "message": "an unknown resource"}],
            )
        costs = []
        for resource in work.campaign.resources:
            cost, rounded = micros_rounded_up(request.costs.get(resource, 0))
            costs.append(cost)
            if rounded and ROUNDED not in warnings:
                warnings.append(ROUNDED)
    return Report(request.reward, costs, warnings)


def _ignored(work: Work, request: Feedback, report: Report) -> Answer | Problem:
    if report.costs is not None and any(report.costs):
        return Invalid("the null arm costs nothing, and these costs are not zero", kind="null-arm-cost")
    return Answer(
        {
            "decision_id": request.decision_id,
            "status": "ignored",
            "learned": False,
            "policy_version": work.policy_version,
            "warnings": report.warnings,
        }
    )


def _repeated(standing: Standing, report: Report) -> Answer | Problem | None:
    """A replay if everything reported is known already, a conflict if something contradicts, else None."""
    reward_known = report.reward is not None and standing.reward is not None
    costs_known = report.costs is not None and standing.costs is not None
    if (reward_known and report.reward != standing.reward) or (costs_known and report.costs != standing.costs):
        return Conflict("another value was reported for this decision before; adjust corrects", kind="feedback-differs")
    if (report.reward is None or reward_known) and (report.costs is None or costs_known):
        return _replay(standing, report)
    return None


def _replay(standing: Standing, report: Report) -> Answer:
    """The answer that just these halves were given; where they came otherwise, that of the last of them."""
    asked = (report.reward is not None, report.costs is not None)
    reports = [outcome for outcome in standing.outcomes if outcome["kind"] in ("reported", "late")]
    halves = [(outcome["reward"] is not None, outcome["costs"] is not None) for outcome in reports]
    for outcome, came in zip(reports, halves, strict=True):
        if came == asked:
            return Answer(_stored_body(standing, outcome), replayed=True)
    for outcome, came in zip(reversed(reports), reversed(halves), strict=True):
        if (asked[0] and came[0]) or (asked[1] and came[1]):
            return Answer(_stored_body(standing, outcome), replayed=True)
    return Answer(_stored_body(standing, standing.outcomes[-1]), replayed=True)


def _void(work: Work, standing: Standing) -> Answer | Problem:
    if standing.status in ("held", "rewarded"):
        work.ledger.release(standing.hold)
        tell(work)
        work.state = work.campaign.policy.cancel(work.state, tickets_from(work.campaign, [standing.row]))
        work.closed_holds.append(standing.hold_key)
        return _logged(work, standing, kind="void", status="voided", released=True)
    for outcome in standing.outcomes:
        if outcome["kind"] == "void":
            return Answer(_stored_body(standing, outcome), replayed=True)
    return Conflict(f"a decision that is {standing.status} cannot be voided", kind="not-voidable")


def _reported(work: Work, standing: Standing, report: Report) -> Answer:
    """Halves of an open decision: held, rewarded or charged."""
    warnings = list(report.warnings)
    reward = standing.reward if report.reward is None else report.reward
    open_ = standing.status in ("held", "rewarded")
    spent: list[int] | None = None
    if report.costs is not None and open_:
        hold = standing.hold
        if any(cost > limit for cost, limit in zip(report.costs, hold, strict=True)):
            warnings.append(ABOVE_HOLD)
            work.above_hold += 1
        work.delays.append((work.now - standing.row["decided_at"]) / MICROS_PER_SECOND)
        work.ledger.settle(hold, report.costs)
        spent = report.costs
    costs = standing.costs if report.costs is None else report.costs
    learnt = reward is not None and costs is not None
    if learnt and work.campaign.reward(float(reward or 0.0))[1]:
        warnings.append(CLIPPED)
    taught = _teach(work, standing, reward, costs, booked_now=spent is not None, learn=learnt)
    status = "settled" if learnt else "charged" if costs is not None else "rewarded"
    if spent is not None:
        (work.closed_holds if learnt else work.emptied_holds).append(standing.hold_key)
    elif learnt:
        work.closed_holds.append(standing.hold_key)
    return _logged(
        work,
        standing,
        kind="reported",
        status=status,
        reward=report.reward,
        costs=report.costs,
        spent=spent,
        released=spent is not None,
        taught=taught,
        warnings=warnings,
    )


def _teach(
    work: Work, standing: Standing, reward: float | None, costs: list[int] | None, *, booked_now: bool, learn: bool
) -> list[float] | None:
    """Move the policy's own account and prices when costs are booked, and its oracle when both halves are known.

    Returns what was learnt, so that the log alone is enough to learn it again.
    """
    if costs is None:
        return None
    scaled = work.campaign.reward(reward)[0] if reward is not None else 0.0
    work.lessons.append(Lesson(standing.row, scaled, costs, booked_now, learn))
    work.to_learn += learn
    if work.one_by_one:
        try:
            tell(work)
        except Unsound:
            work.lessons[-1] = work.lessons[-1]._replace(learn=False)
            work.to_learn -= 1
            tell(work)
            work.quarantined += 1
            return None
    return [scaled, *costs] if learn else None


class Unsound(Exception):  # noqa: N818
    """Something among what was to be learnt would leave a parameter not finite."""


def tell(work: Work) -> None:
    """Tell the policy of the outcomes that wait for it, all at once: for one it copies as much as for a hundred.

    Nothing may be decided, voided or corrected before. Raises Unsound where an outcome would spoil the model, and
    nothing is told then.
    """
    if not work.lessons:
        return
    tickets = tickets_from(work.campaign, [lesson.row for lesson in work.lessons])
    rewards = np.array([lesson.reward for lesson in work.lessons])
    costs = np.array([lesson.costs for lesson in work.lessons], dtype=np.float64)
    policy, state = work.campaign.policy, work.state
    booked = np.flatnonzero([lesson.booked for lesson in work.lessons])
    if booked.size:
        state = policy.settle(state, tickets.rows(booked), rewards[booked], costs[booked], learn=False)
    learn = np.flatnonzero([lesson.learn for lesson in work.lessons])
    if learn.size:
        learnt = tickets.rows(learn)
        state = policy.teach(state, learnt, rewards[learn], costs[learn])
        if not _is_sound(work, state, learnt):
            raise Unsound
    work.state = state
    work.learnt += learn.size
    work.lessons.clear()
    work.to_learn = 0


def _is_sound(work: Work, state: State, tickets: Ticket) -> bool:
    """Whether what was learnt left the parameters it touched finite."""
    features = tickets.features if work.campaign.arm_encoder is None else tickets.features[:, None]
    predictions = work.campaign.policy.predict(state, features)
    return bool(np.isfinite(predictions).all() and np.isfinite(state.residuals).all())


def _late(work: Work, standing: Standing, report: Report) -> Answer:
    """A half after expiry or void: costs are booked in full and prices move, but nothing is learnt."""
    spent = None
    if report.costs is not None and standing.costs is None:
        booked = standing.booked or [0] * len(report.costs)
        spent = [cost - before for cost, before in zip(report.costs, booked, strict=True)]
        work.ledger.correct(spent)
        moved = np.array([spent], dtype=np.float64)
        tell(work)
        work.state = work.campaign.policy.correct(work.state, tickets_from(work.campaign, [standing.row]), moved)
    return _logged(
        work,
        standing,
        kind="late",
        status="late",
        reward=report.reward,
        costs=report.costs,
        spent=spent,
        warnings=[*report.warnings, LATE],
    )


def expire(work: Work, standing: Standing) -> None:
    """The time of a decision is up; what it teaches and costs is the campaign's `feedback` to say."""
    terms = work.campaign.config["feedback"]
    work.expired += standing.status != "charged"
    missing_reward = terms["missing_reward"]
    reward = standing.reward if standing.reward is not None else missing_reward
    learn = reward is not None
    if standing.status == "charged":
        taught = _teach(work, standing, reward, standing.costs, booked_now=False, learn=learn)
        _logged(work, standing, kind="expired", status="settled", reward=reward, taught=taught)
    else:
        hold = standing.hold
        charged = terms["missing_cost"] == "hold"
        costs = hold if charged else [0] * len(hold)
        (work.ledger.charge if charged else work.ledger.release)(hold)
        taught = _teach(work, standing, reward, costs, booked_now=True, learn=learn)
        _logged(
            work,
            standing,
            kind="expired",
            status="expired",
            reward=reward,
            costs=costs,
            spent=costs,
            released=True,
            taught=taught,
        )
    work.closed_holds.append(standing.hold_key)


def _logged(
    work: Work,
    standing: Standing,
    *,
    kind: str,
    status: str,
    reward: float | None = None,
    costs: list[int] | None = None,
    spent: list[int] | None = None,
    released: bool = False,
    taught: list[float] | None = None,
    warnings: Sequence[str] = (),
) -> Answer:
    """Append the outcome, move the standing on, and answer."""
    text = None if costs is None else to_json(costs)
    work.append(
        "outcome",
        decision=standing.row["sequence"],
        kind=kind,
        status=status,
        reward=reward,
        costs=text,
        spent=None if spent is None else text if spent is costs else to_json(spent),
        released=released,
        taught=to_json(taught) if taught is not None else None,
        policy_version=work.policy_version,
        warnings=to_json(list(warnings)) if warnings else None,
        at=work.now,
    )
    outcome = work.rows["outcome"][-1]
    outcome["digest"] = outcome_digest(outcome)
    standing.move(outcome, costs, spent)
    return Answer(_stored_body(standing, outcome))


def _stored_body(standing: Standing, outcome: Any) -> dict[str, Any]:
    """The answer to a feedback request, from the outcome it made."""
    return {
        "decision_id": standing.row["decision_id"],
        "status": outcome["status"],
        "learned": outcome["taught"] is not None,
        "policy_version": outcome["policy_version"],
        "warnings": orjson.loads(outcome["warnings"]) if outcome["warnings"] else [],
    }
