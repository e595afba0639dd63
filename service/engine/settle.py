"""Feedback and expiry: applies the effects of `domain.status` to accounts, policy and log, in the order of the log."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson

from cbwk_core import NULL_ARM
from service.domain import status
from service.domain.campaign import Campaign
from service.domain.decision_rows import tickets_from
from service.domain.status import (
    ABOVE_HOLD,
    COST_MISSING,
    FINAL,
    ROUNDED,
    DecisionRecord,
    Effect,
    Movement,
    Report,
    is_learnt,
)
from service.engine.changes import Lesson, LockedCampaign, to_json
from service.engine.commands import Answer, Feedback
from service.money import micros_rounded_up
from service.problems import Conflict, Invalid, NotFound, Problem
from service.store.tables import outcome_digest
from service.times import MICROS_PER_SECOND
from service.words import error_at, no_such, not_among


class Unsound(Exception):  # noqa: N818
    """Learning an outcome would make a parameter of the model infinite or NaN."""


def settle(locked: LockedCampaign, request: Feedback, record: DecisionRecord | None) -> Answer | Problem:
    """Applies one feedback request."""
    if record is None:
        return NotFound(
            no_such("decision", request.decision_id, f" in campaign {locked.campaign.id}"), kind="decision-not-found"
        )
    try:
        report = _report(locked.campaign, request, record)
    except Problem as problem:
        return problem
    if record.row["arm"] == NULL_ARM:
        if any(report.costs or ()):
            return Invalid("the null arm costs nothing, and these costs are not zero", kind="null-arm-cost")
        ignored = {"status": "ignored", "taught": None, "warnings": to_json(report.warnings)}
        return Answer(_body(locked, record, ignored | {"policy_version": locked.policy_version}))
    if record.contradicts(report):
        return Conflict("another value was reported for this decision before; adjust corrects", kind="feedback-differs")
    effect = status.voided(record) if request.void else status.reported(locked.campaign, record, report)
    if effect is not None:
        try:
            return Answer(_body(locked, record, _apply(locked, record, effect)))
        except Conflict as problem:  # an account is full; nothing has changed
            return problem
    if request.void:
        earlier = next((outcome for outcome in record.outcomes if outcome["kind"] == "void"), None)
        if earlier is None:
            return Conflict(f"a decision that is {record.status} cannot be voided", kind="not-voidable")
    else:
        earlier = record.answered(report)
    return Answer(_body(locked, record, earlier), replayed=True)


def expire(locked: LockedCampaign, record: DecisionRecord) -> None:
    """Ends a decision whose time for feedback is over."""
    effect = status.expired(locked.campaign, record)
    locked.expired += effect.transition.movement is Movement.CHARGE
    _apply(locked, record, effect)


def _report(campaign: Campaign, request: Feedback, record: DecisionRecord) -> Report:
    """Returns the request with a cost for every resource.

    No costs at all are zeros. Where some are named, the campaign's `missing_cost` replaces the others, with a warning.
    If the costs are known, the others are as before: they contradict nothing, whatever the terms are by now.
    """
    if request.costs is None:
        return Report(request.reward, None)
    if not request.costs.keys() <= set(campaign.resources):
        unknown = [name for name in request.costs if name not in campaign.resources]
        errors = [error_at(("costs", name), not_among("resources", name, campaign.resources)) for name in unknown]
        raise Invalid("costs name a resource the campaign does not have", kind="unknown-resource", errors=errors)
    costs = [micros_rounded_up(request.costs.get(resource, 0)) for resource in campaign.resources]
    warnings = [ROUNDED] if any(rounded for _, rounded in costs) else []
    amounts = [cost for cost, _ in costs]
    if 0 < len(request.costs) < len(amounts) and record.row["arm"] != NULL_ARM:
        missing = record.costs
        if missing is None:
            missing = status.missing_costs(campaign, record.hold)
            warnings.append(COST_MISSING)
        for at, resource in enumerate(campaign.resources):
            if resource not in request.costs:
                amounts[at] = missing[at]
    return Report(request.reward, amounts, warnings)


def _body(locked: LockedCampaign, record: DecisionRecord, outcome: Any) -> dict[str, Any]:
    """Returns the response to a feedback request, from the outcome it made."""
    return {
        "campaign_id": locked.campaign.id,
        "decision_id": record.row["decision_id"],
        "status": outcome["status"],
        "learned": is_learnt(outcome),
        "policy_version": outcome["policy_version"],
        "warnings": orjson.loads(outcome["warnings"]) if outcome["warnings"] else [],
    }


def _apply(locked: LockedCampaign, record: DecisionRecord, effect: Effect) -> Any:
    """Books, teaches and logs an effect. Returns the outcome's row."""
    movement, after = effect.transition.movement, effect.transition.to
    if movement is not Movement.NONE:
        reported = movement in (Movement.SETTLE, Movement.CORRECT)
        decided_at = record.row["decided_at"]
        locked.ledger.book(decided_at=decided_at, held=effect.held, spent=effect.spent, reported=reported)
        if locked.member is not None:
            locked.member.settled(locked.campaign, record.row, effect)
    if movement is Movement.SETTLE:
        locked.delays.append((locked.now - record.row["decided_at"]) / MICROS_PER_SECOND)
        locked.above_hold += ABOVE_HOLD in effect.warnings
    taught = _moved_policy(locked, record, effect)
    if after in FINAL:
        locked.closed_holds.append((record.row["expires_at"], record.row["sequence"]))
    elif after == "charged":
        locked.emptied_holds.append((record.row["expires_at"], record.row["sequence"]))
    costs = None if effect.costs is None else to_json(effect.costs)
    same = effect.spent is effect.costs
    locked.append(
        "outcome",
        decision=record.row["sequence"],
        kind=effect.kind,
        status=after,
        reward=None if effect.reward is None else effect.reward + 0.0,  # SQLite stores -0.0 as 0.0
        costs=costs,
        spent=costs if same else None if effect.spent is None else to_json(effect.spent),
        released=effect.held is not None,
        taught=None if taught is None else to_json(taught),
        policy_version=locked.policy_version,
        warnings=to_json(effect.warnings) if effect.warnings else None,
        at=locked.now,
    )
    outcome = locked.rows["outcome"][-1]
    outcome["digest"] = outcome_digest(outcome)
    record.add(outcome, effect.costs, effect.spent)
    return outcome


def _moved_policy(locked: LockedCampaign, record: DecisionRecord, effect: Effect) -> list[Any] | None:
    """Moves the policy's accounts and prices with the ledger. Returns what the oracle learns, for the log."""
    movement, policy = effect.transition.movement, locked.campaign.policy
    if movement in (Movement.RELEASE, Movement.CORRECT):
        teach(locked)
        ticket = tickets_from(locked.campaign, [record.row])
        if movement is Movement.RELEASE:
            locked.state = policy.cancel(locked.state, ticket)
        else:
            locked.state = policy.correct(locked.state, ticket, np.array([effect.spent], dtype=np.float64))
        return None
    booked = effect.spent is not None
    if effect.taught is None and not booked:
        return None
    reward, *costs = effect.taught or (None, *(effect.spent or ()))
    learn_costs = effect.taught is not None and (booked or not policy.learns_costs_first)
    locked.lessons.append(Lesson(record.row, reward or 0.0, costs, booked, reward is not None, learn_costs))
    locked.to_learn += reward is not None
    if locked.one_by_one:
        try:
            teach(locked)
        except Unsound:
            locked.lessons[-1] = locked.lessons[-1]._replace(learn_reward=False, learn_costs=False)
            locked.to_learn -= reward is not None
            teach(locked)
            locked.quarantined += 1
            return None
    return effect.taught


def teach(locked: LockedCampaign) -> None:
    """Passes all waiting outcomes to the policy in one call, which costs little more than a call for one outcome.

    The caller does this before it decides, voids or corrects. Raises Unsound, and changes nothing, if an outcome would
    spoil the model.
    """
    if not locked.lessons:
        return
    tickets = tickets_from(locked.campaign, [lesson.row for lesson in locked.lessons])
    rewards = np.array([lesson.reward for lesson in locked.lessons])
    costs = np.array([lesson.costs for lesson in locked.lessons], dtype=np.float64)
    policy, state = locked.campaign.policy, locked.state
    booked, learn_reward, learn_costs = np.array([lesson[3:] for lesson in locked.lessons]).T
    learn, whole = learn_reward | learn_costs, (learn_reward == learn_costs).all()
    if booked.all() and whole:
        state = policy.settle(state, tickets, rewards, costs, learn)
    else:  # some halves come alone; the oracle learns all of them in their order
        state = policy.settle(state, tickets.rows(booked), rewards[booked], costs[booked], learn=False)
        halves = () if whole else (learn_reward[learn], learn_costs[learn])
        state = policy.teach(state, tickets.rows(learn), rewards[learn], costs[learn], *halves)
    learnt = int(learn.sum())
    if learnt and not policy.is_finite(state):
        raise Unsound
    locked.state = state
    locked.learnt += learnt
    locked.lessons.clear()
    locked.to_learn = 0
