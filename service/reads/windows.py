"""The windows of campaigns in their present periods."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, select

from service.domain.budget_holder import BudgetHolder
from service.domain.windows import Window, bounds
from service.money import amount
from service.reads.shared import Row, fetch
from service.store import tables
from service.store.database import clock_micros
from service.times import moment_text


class PresentWindows(NamedTuple):
    """The accounts of windows whose periods contain `now`, by campaign, resource and period."""

    now: int
    rows: dict[tuple[int, int, str], Row]

    @classmethod
    def of(cls, connection: Connection, numbers: Collection[int] | Select[Any]) -> PresentWindows:
        """Those of these campaigns."""
        window, now = tables.window_account, clock_micros(connection)
        query = select(window).where(window.c.campaign.in_(numbers), window.c.ends_at > now)
        return cls(now, {(row["campaign"], row["resource"], row["period"]): row for row in fetch(connection, query)})

    def shown(self, campaign: BudgetHolder, resource: int) -> list[dict[str, Any]]:
        """The windows of one resource; a period without decisions yet has all of its limit free."""
        return [self._shown(campaign, window) for window in campaign.windows if window.resource == resource]

    def _shown(self, campaign: BudgetHolder, window: Window) -> dict[str, Any]:
        row = self.rows.get((campaign.number, *window.key))
        if row is None:
            start, end = bounds(window.period, self.now, campaign.zone)
            row = {"starts_at": start, "ends_at": end, "held": 0, "spent": 0}
        return {
            "period": window.period,
            "starts_at": moment_text(row["starts_at"]),
            "ends_at": moment_text(row["ends_at"]),
            "limit": amount(window.limit),
            "held": amount(row["held"]),
            "spent": amount(row["spent"]),
            "free": amount(max(0, window.limit - row["held"] - row["spent"])),
        }
