"""The metrics that are read from the database when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from service import reads
from service.metrics import gauge
from service.money import ONE
from service.store.database import Database


def gauges(database: Database | None) -> Iterator[Metric]:
    """Yield accounts, open holds and prices of all campaigns that are not archived."""
    found = reads.Gauges([], {}, {})
    if database is not None:
        with database.read() as connection:
            found = reads.gauges(connection)
    by_resource = ("campaign", "resource")
    for part in ("granted", "held", "spent", "overrun"):
        amounts = [
            ((account.campaign_id, account.resource), getattr(account, part) / ONE) for account in found.accounts
        ]
        yield gauge(f"cbwk_budget_{part}_units", f"Budget {part}, in units.", by_resource, amounts)
    holds = [((campaign,), count) for campaign, count in found.open_holds.items()]
    yield gauge("cbwk_open_holds", "Decisions waiting for feedback.", ("campaign",), holds)
    text = "Price of a unit at the last decision, in reward."
    yield gauge("cbwk_price", text, by_resource, found.prices.items())
