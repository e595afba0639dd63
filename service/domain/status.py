"""The status of a decision: a fold of its outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson


@dataclass(slots=True)
class DecisionRecord:
    """A stored decision and what has become of it so far."""

    row: Any  # of table decision
    outcomes: list[Any] = field(default_factory=list)  # of table outcome, in order
    status: str = "held"
    reward: float | None = None  # as reported, in the caller's range
    costs: list[int] | None = None  # as reported
    booked: list[int] | None = None  # what is in `spent` because of it

    @classmethod
    def of(cls, row: Any, outcomes: Sequence[Any]) -> DecisionRecord:
        """Fold the outcomes of a decision."""
        record = cls(row)
        for outcome in outcomes:
            record.apply(outcome)
        return record

    def apply(self, outcome: Any) -> None:
        """One more outcome, as it is stored."""
        self.move(
            outcome,
            None if outcome["costs"] is None else orjson.loads(outcome["costs"]),
            None if outcome["spent"] is None else orjson.loads(outcome["spent"]),
        )

    def move(self, outcome: Any, costs: list[int] | None, spent: list[int] | None) -> None:
        """One more outcome, whose amounts are these."""
        self.outcomes.append(outcome)
        self.status = outcome["status"]
        if outcome["kind"] in ("reported", "late"):
            if outcome["reward"] is not None:
                self.reward = outcome["reward"]
            if costs is not None:
                self.costs = costs
        if spent is not None:
            self.booked = spent if self.booked is None else [a + b for a, b in zip(self.booked, spent, strict=True)]

    @property
    def hold(self) -> list[int]:
        """The amounts held when it was made."""
        amounts: list[int] = orjson.loads(self.row["hold"])
        return amounts

    @property
    def hold_key(self) -> tuple[int, int]:
        """Where its hold is, beside the campaign: when it expires, and the number of the decision."""
        return self.row["expires_at"], self.row["sequence"]
