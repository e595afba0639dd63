"""What campaigns and portfolios have in common: budgets, and windows in the calendar of a time zone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any
from zoneinfo import ZoneInfo

from service.domain.windows import Window, most_payable
from service.money import micros


@dataclass(frozen=True)
class BudgetHolder:
    """One version of the configuration of a campaign or a portfolio."""

    number: int
    id: str
    version: int
    config: dict[str, Any]

    @cached_property
    def resources(self) -> tuple[str, ...]:
        """Resource ids, in order."""
        return tuple(resource["id"] for resource in self.config["resources"])

    @cached_property
    def budgets(self) -> list[int]:
        """Granted amounts, in millionths."""
        return [micros(resource["budget"]) for resource in self.config["resources"]]

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        """The limits per period, in the order of the resources."""
        return tuple(
            Window(index, window["period"], micros(window["limit"]))
            for index, resource in enumerate(self.config["resources"])
            for window in resource.get("windows") or ()
        )

    @cached_property
    def payable(self) -> list[int]:
        """The most that a decision can ever hold of each resource: its budget or its tightest window."""
        return most_payable(self.budgets, self.windows)

    @cached_property
    def zone(self) -> ZoneInfo:
        """The time zone whose calendar the windows follow."""
        return ZoneInfo(self.config.get("timezone", "UTC"))
