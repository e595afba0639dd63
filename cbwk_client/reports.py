"""Feedback on one decision."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Report:
    """The feedback on one decision: its reward, its costs, both, or that it is void."""

    campaign_id: str
    decision_id: str
    reward: float | None = None
    costs: Mapping[str, float] | None = None
    void: bool = False

    def __post_init__(self) -> None:
        has_outcome = self.reward is not None or self.costs is not None
        if has_outcome == self.void:
            raise ValueError("a report must have reward, costs or both, or else void=True alone")
        # JSON has no NaN: the service would read it as a missing value.
        for number in (self.reward or 0.0, *(self.costs or {}).values()):
            if not math.isfinite(number):
                raise ValueError(f"reward and costs must be finite, got {number}")

    def body(self) -> dict[str, Any]:
        """Return the body of `POST /feedback`."""
        body: dict[str, Any] = {"campaign_id": self.campaign_id, "decision_id": self.decision_id}
        if self.reward is not None:
            body["reward"] = float(self.reward)
        if self.costs is not None:
            body["costs"] = {resource: float(cost) for resource, cost in self.costs.items()}
        if self.void:
            body["void"] = True
        return body
