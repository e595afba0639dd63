"""What a scrape of the metrics asks of the database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from service.engine.cache import load_campaign
from service.reads.shared import prices
from service.store import tables


@dataclass(frozen=True, slots=True)
class AccountGauge:
    """One account, in millionths."""

    campaign_id: str
    resource: str
    granted: int
    held: int
    spent: int
    overrun: int


@dataclass(frozen=True, slots=True)
class Gauges:
    """Accounts, open holds by campaign and prices by campaign and resource, of all campaigns that are not archived."""

    accounts: list[AccountGauge]
    open_holds: dict[str, int]
    prices: dict[tuple[str, str], float]


def gauges(connection: Connection) -> Gauges:
    """Everything at once."""
    read = Gauges([], {}, {})
    campaign, state = tables.campaign, tables.campaign_state
    rows = connection.execute(
        select(state.c.campaign, state.c.config_version, campaign.c.id)
        .join(campaign, campaign.c.number == state.c.campaign)
        .where(state.c.status != "archived")
        .order_by(state.c.campaign)
    ).all()
    hold, decision = tables.hold, tables.decision
    counted = connection.execute(select(hold.c.campaign, func.count().label("holds")).group_by(hold.c.campaign))
    held = {row.campaign: row.holds for row in counted}
    for row in rows:
        known = load_campaign(connection, row.campaign, row.config_version)
        read.accounts.extend(_accounts(connection, row.campaign, row.id, known.resources))
        read.open_holds[row.id] = held.get(row.campaign, 0)
        last = connection.execute(
            select(decision.c.prices)
            .where(decision.c.campaign == row.campaign)
            .order_by(decision.c.sequence.desc())
            .limit(1)
        ).scalar()
        read.prices.update({(row.id, name): price for name, price in prices(known, last).items()})
    return read


def _accounts(
    connection: Connection, number: int, campaign_id: str, resources: Sequence[str]
) -> Iterator[AccountGauge]:
    account = tables.account
    for row in connection.execute(select(account).where(account.c.campaign == number)):
        yield AccountGauge(campaign_id, resources[row.resource], row.granted, row.held, row.spent, row.overrun)


def ping(connection: Connection) -> None:
    """Ask the database anything at all."""
    connection.execute(select(1))
