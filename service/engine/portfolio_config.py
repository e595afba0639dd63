"""The stored configurations of portfolios."""

from __future__ import annotations

from sqlalchemy import Connection, select

from service.domain.campaign import Campaign
from service.domain.portfolio import Portfolio
from service.store import tables
from service.store.campaigns import config_of, portfolio_of


def load_portfolio(connection: Connection, number: int, version: int | None = None) -> Portfolio:
    """One version of the configuration of a portfolio, or the current one."""
    if version is None:
        state = tables.portfolio_state
        query = select(state.c.config_version).where(state.c.campaign == number)
        version = connection.execute(query).scalar_one()
    name, config = config_of(connection, number, version)
    return Portfolio(number, name.removeprefix(tables.PORTFOLIO_PREFIX), version, config)


def places_of(connection: Connection, campaign: Campaign) -> list[int | None]:
    """The places of a campaign's resources in its portfolio; none without a portfolio."""
    number = portfolio_of(connection, campaign.number)
    return [] if number is None else load_portfolio(connection, number).places(campaign.resources)
