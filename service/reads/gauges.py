"""The gauges of the metrics that are read from the database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import structlog
from sqlalchemy import Connection, func, select

from service.domain.budget_holder import BudgetHolder
from service.reads.portfolios import all_portfolios
from service.reads.shared import StoredCampaign, last_prices, prices
from service.reads.windows import PresentWindows
from service.store import campaigns, tables
from service.store.database import clock_micros
from service.times import MICROS_PER_SECOND

log = structlog.get_logger(__name__)


class AccountGauge(NamedTuple):
    """One account of a campaign or a portfolio, in millionths."""

    owner_id: str
    resource: str
    granted: int
    held: int
    spent: int
    overrun: int


class WindowGauge(NamedTuple):
    """One window of a campaign or a portfolio in its present period, in millionths."""

    owner_id: str
    resource: str
    period: str
    limit: int
    held: int
    spent: int


class PortfolioGauges(NamedTuple):
    """Accounts and windows of all portfolios, in the order of their creation."""

    accounts: list[AccountGauge]
    windows: list[WindowGauge]


class Gauges(NamedTuple):
    """Accounts, windows, open holds by campaign and prices by campaign and resource, of all campaigns that are not
    archived, in the order of their creation; how long ago the oldest hold of all should have expired."""

    accounts: list[AccountGauge]
    open_holds: dict[str, int]
    prices: dict[tuple[str, str], float]
    windows: list[WindowGauge]
    portfolios: PortfolioGauges
    overdue_seconds: float = 0.0

    @classmethod
    def nothing(cls) -> Gauges:
        """Those of an empty database."""
        return cls([], {}, {}, [], PortfolioGauges([], []))


def gauges(connection: Connection) -> Gauges:
    """All gauges of one snapshot."""
    state, account, hold = tables.campaign_state, tables.account, tables.hold
    active = select(state.c.campaign).where(state.c.status != "archived")
    last = last_prices(connection, active)
    counts = connection.execute(select(hold.c.campaign, func.count()).group_by(hold.c.campaign))
    open_holds = {row[0]: row[1] for row in counts}
    found, campaign_of = Gauges.nothing(), dict[int, tuple[str, tuple[str, ...]]]()
    present = PresentWindows.of(connection, active)
    # Configurations may be large, and there may be many.
    query = campaigns.states(with_config=True).where(state.c.status != "archived").execution_options(yield_per=100)
    for row in connection.execute(query).mappings():
        try:
            campaign = StoredCampaign.of(row).campaign
            campaign_of[campaign.number] = campaign.id, campaign.resources
            quoted = prices(campaign, last[campaign.number])
        except Exception as error:  # noqa: BLE001 - the other campaigns still have their gauges
            log.error("a configuration cannot be read", campaign=row["id"], error=type(error).__name__)
            continue
        found.windows.extend(_windows(campaign, present))
        found.open_holds[campaign.id] = open_holds.get(campaign.number, 0)
        found.prices.update({(campaign.id, name): price for name, price in quoted.items()})
    accounts = select(account).where(account.c.campaign.in_(active)).order_by(account.c.campaign, account.c.resource)
    for number, resource, *amounts in connection.execute(accounts):
        if number in campaign_of:
            campaign_id, resources = campaign_of[number]
            found.accounts.append(AccountGauge(campaign_id, resources[resource], *amounts))
    return found._replace(portfolios=_portfolios(connection), overdue_seconds=_overdue_seconds(connection))


def _windows(owner: BudgetHolder, present: PresentWindows) -> Iterator[WindowGauge]:
    for window in owner.windows:
        now = present.rows.get((owner.number, *window.key), {"held": 0, "spent": 0})
        sums = window.limit, now["held"], now["spent"]
        yield WindowGauge(owner.id, owner.resources[window.resource], window.period, *sums)


def _portfolios(connection: Connection) -> PortfolioGauges:
    portfolios, account = {each.number: each for each in all_portfolios(connection)}, tables.account
    present = PresentWindows.of(connection, [*portfolios])
    rows = select(account).where(account.c.campaign.in_(portfolios)).order_by(account.c.campaign, account.c.resource)
    return PortfolioGauges(
        [
            AccountGauge(portfolios[number].id, portfolios[number].resources[resource], *amounts)
            for number, resource, *amounts in connection.execute(rows)
        ],
        [gauge for portfolio in portfolios.values() for gauge in _windows(portfolio, present)],
    )


def _overdue_seconds(connection: Connection) -> float:
    """How long ago the oldest hold should have expired; 0 if none is past its time."""
    oldest = connection.execute(select(func.min(tables.hold.c.expires_at))).scalar_one()
    return 0.0 if oldest is None else max(0.0, (clock_micros(connection) - oldest) / MICROS_PER_SECOND)


def ping(connection: Connection) -> None:
    """Execute the simplest statement."""
    connection.execute(select(1))
