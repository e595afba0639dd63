"""The status of a decision: the table of states as data, and below it one function per event.

An event that `TRANSITIONS` does not list for a status is a repeat or a conflict. docs/architecture.md shows the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import orjson

from service.domain.campaign import Campaign

LATE = "late_not_learnt"
ROUNDED = "rounded"
CLIPPED = "reward_clipped"
ABOVE_HOLD = "cost_above_hold"
COST_MISSING = "cost_missing"


class Event(StrEnum):
    """What happens to a decision. A report is the event of the halves that are new in it."""

    DECIDED = "decided"
    REWARD = "reward"
    COSTS = "costs"
    BOTH = "costs and reward"
    VOID = "void"
    EXPIRY = "expiry"


class Movement(StrEnum):
    """What a transition does to the accounts. When `spent` changes, the prices change with it."""

    NONE = "–"
    HOLD = "held += hold"
    SETTLE = "held −= hold, spent += costs"
    RELEASE = "held −= hold"
    CHARGE = 'held −= hold, spent += hold (`missing_cost: "none"`: += 0)'
    CORRECT = "spent is corrected to the reported costs"


class Teaches(StrEnum):
    """Whether the oracle learns from a transition."""

    NO = "no"
    COSTS = "the costs, from rules 4 on"
    YES = "yes"
    WITH_REWARD = "yes, unless no reward came and `missing_reward` is null"


class Transition(NamedTuple):
    """One row of the table."""

    before: tuple[str, ...]  # statuses; none for a new decision
    event: Event
    to: str
    movement: Movement
    teaches: Teaches


TRANSITIONS = (
    Transition((), Event.DECIDED, "held", Movement.HOLD, Teaches.NO),
    Transition(("held",), Event.REWARD, "rewarded", Movement.NONE, Teaches.NO),
    Transition(("held",), Event.COSTS, "charged", Movement.SETTLE, Teaches.COSTS),
    Transition(("held",), Event.BOTH, "settled", Movement.SETTLE, Teaches.YES),
    Transition(("rewarded",), Event.COSTS, "settled", Movement.SETTLE, Teaches.YES),
    Transition(("charged",), Event.REWARD, "settled", Movement.NONE, Teaches.YES),
    Transition(("held", "rewarded"), Event.VOID, "voided", Movement.RELEASE, Teaches.NO),
    Transition(("held", "rewarded"), Event.EXPIRY, "expired", Movement.CHARGE, Teaches.WITH_REWARD),
    Transition(("charged",), Event.EXPIRY, "settled", Movement.NONE, Teaches.WITH_REWARD),
    # A settled decision accepts a reward only if its expiry settled it: otherwise the reward is known.
    Transition(("settled", "expired", "voided", "late"), Event.REWARD, "late", Movement.NONE, Teaches.NO),
    Transition(("expired", "voided", "late"), Event.COSTS, "late", Movement.CORRECT, Teaches.NO),
    Transition(("expired", "voided"), Event.BOTH, "late", Movement.CORRECT, Teaches.NO),
)
_AFTER = {(status, row.event): row for row in TRANSITIONS for status in row.before}
# These statuses end the wait for feedback: the row of the hold goes.
FINAL = ("settled", "voided", "expired")


class Report(NamedTuple):
    """A feedback request, with its costs in millionths in the order of the resources."""

    reward: float | None
    costs: list[int] | None
    warnings: Sequence[str] = ()


class Effect(NamedTuple):
    """What one event changes. The engine books it, teaches it and logs it as an outcome."""

    kind: str  # of the outcome
    transition: Transition
    reward: float | None = None  # logged
    costs: list[int] | None = None  # logged
    held: list[int] | None = None  # change of the accounts
    spent: list[int] | None = None  # change of the accounts
    taught: list[Any] | None = None  # what the oracle learns: the scaled reward or None, then the costs
    warnings: Sequence[str] = ()


@dataclass(slots=True)
class DecisionRecord:
    """A stored decision and the fold of its outcomes."""

    row: Any  # of table decision
    outcomes: list[Any] = field(default_factory=list)  # of table outcome, in order
    status: str = "held"
    reward: float | None = None  # as reported, in the caller's range
    costs: list[int] | None = None  # as reported
    booked: list[int] | None = None  # what `spent` contains because of it

    @classmethod
    def of(cls, row: Any, outcomes: Sequence[Any]) -> DecisionRecord:
        """Returns the decision after its stored outcomes."""
        record = cls(row)
        for outcome in outcomes:
            record.add(outcome, _amounts(outcome["costs"]), _amounts(outcome["spent"]))
        return record

    def add(self, outcome: Any, costs: list[int] | None, spent: list[int] | None) -> None:
        """Adds one outcome, with its amounts decoded."""
        self.outcomes.append(outcome)
        self.status = outcome["status"]
        if outcome["kind"] in ("reported", "late"):
            self.reward = self.reward if outcome["reward"] is None else outcome["reward"]
            self.costs = self.costs if costs is None else costs
        if spent is not None:
            self.booked = spent if self.booked is None else [a + b for a, b in zip(self.booked, spent, strict=True)]

    @property
    def hold(self) -> list[int]:
        """The amounts that the decision held."""
        amounts: list[int] = orjson.loads(self.row["hold"])
        return amounts

    def contradicts(self, report: Report) -> bool:
        """Whether a half of the report has another value than before."""
        return (None not in (report.reward, self.reward) and report.reward != self.reward) or (
            None not in (report.costs, self.costs) and report.costs != self.costs
        )

    def answered(self, report: Report) -> Any:
        """The outcome that answered these halves before: exactly these, else the last with one of them."""
        given = (report.reward is not None, report.costs is not None)
        last = self.outcomes[-1]
        for outcome in self.outcomes:
            if outcome["kind"] in ("reported", "late"):
                halves = (outcome["reward"] is not None, outcome["costs"] is not None)
                if halves == given:
                    return outcome
                if (given[0] and halves[0]) or (given[1] and halves[1]):
                    last = outcome
        return last


def is_learnt(outcome: Any) -> bool:
    """Whether the oracle has learnt the decision with this row of table outcome; costs alone are a half of it."""
    return outcome["taught"] is not None and outcome["status"] != "charged"


def reported(campaign: Campaign, record: DecisionRecord, report: Report) -> Effect | None:
    """Costs, a reward or both arrive; None if they are known."""
    new_reward = report.reward is not None and record.reward is None
    if report.costs is not None and record.costs is None:
        event = Event.BOTH if new_reward else Event.COSTS
    elif new_reward:
        event = Event.REWARD
    else:
        return None
    transition = _AFTER[record.status, event]
    movement, late = transition.movement, transition.to == "late"
    warnings, held, spent = [*report.warnings], None, None
    taught: list[Any] | None = None
    if movement is Movement.SETTLE:
        hold, spent = record.hold, report.costs or []
        held = [-amount for amount in hold]
        if any(cost > limit for cost, limit in zip(spent, hold, strict=True)):
            warnings.append(ABOVE_HOLD)
    elif movement is Movement.CORRECT:
        corrected = report.costs or []
        spent = [cost - was for cost, was in zip(corrected, record.booked or [0] * len(corrected), strict=True)]
    if transition.teaches is Teaches.YES:
        reward = record.reward if report.reward is None else report.reward
        costs = (record.costs if report.costs is None else report.costs) or []
        assert reward is not None, "both halves are known"
        taught = [campaign.reward(reward)[0], *costs]
    elif transition.teaches is Teaches.COSTS and campaign.policy.learns_costs_first:
        taught = [None, *(report.costs or [])]
    if report.reward is not None and not late and campaign.reward(report.reward)[1]:
        warnings.append(CLIPPED)
    kind, warnings = ("late", [*warnings, LATE]) if late else ("reported", warnings)
    return Effect(kind, transition, report.reward, report.costs, held, spent, taught, warnings)


def voided(record: DecisionRecord) -> Effect | None:
    """The caller did not use the decision; None if the status does not accept it."""
    transition = _AFTER.get((record.status, Event.VOID))
    return transition and Effect("void", transition, held=[-amount for amount in record.hold])


def expired(campaign: Campaign, record: DecisionRecord) -> Effect:
    """The time for feedback is over: the campaign's `feedback` terms replace what is missing."""
    transition = _AFTER[record.status, Event.EXPIRY]
    reward = campaign.config["feedback"]["missing_reward"] if record.reward is None else record.reward
    costs, held, booked = record.costs, None, None
    if transition.movement is Movement.CHARGE:
        hold = record.hold
        held = [-amount for amount in hold]
        costs = booked = missing_costs(campaign, hold)
    assert costs is not None
    taught = None if reward is None else [campaign.reward(reward)[0], *costs]
    return Effect("expired", transition, reward, booked, held, booked, taught)


def missing_costs(campaign: Campaign, hold: list[int]) -> list[int]:
    """What is booked for costs that were not reported, in the order of the resources."""
    return hold if campaign.config["feedback"]["missing_cost"] == "hold" else [0] * len(hold)


def _amounts(text: str | None) -> list[int] | None:
    return None if text is None else orjson.loads(text)
