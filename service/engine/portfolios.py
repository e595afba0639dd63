"""Portfolios in transactions: locked before their campaigns, created, changed, kept between transactions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, insert, select

from cbwk_core.shared_prices import first_state, read_state
from service.domain.campaign import Campaign
from service.domain.ledger import Ledger
from service.domain.portfolio import Portfolio, expected_rounds_left
from service.domain.traffic import decoded, encoded, no_traffic
from service.engine import windows
from service.engine.administer import write_audit
from service.engine.cache import accounts, creation_times
from service.engine.changes import Changes, LockedCampaign, to_json
from service.engine.commands import Answer, CreatePortfolio, PatchPortfolio
from service.engine.locked_portfolio import LockedPortfolio, Membership
from service.engine.portfolio_config import load_portfolio
from service.problems import Conflict, NotFound, Problem, Unavailable
from service.store import tables
from service.store.campaigns import add_campaign, portfolio_number, states
from service.store.database import Database
from service.store.statements import Row
from service.times import MICROS_PER_SECOND
from service.words import no_such

# The expected decisions of the campaigns are counted again after this time.
EXPECTED_MICROS = 60 * MICROS_PER_SECOND


class CachedPortfolio(NamedTuple):
    """A portfolio as a transaction left it."""

    epoch: int | None  # of the transaction: see `Writer.epoch`
    portfolio: Portfolio
    row: Mapping[str, Any]
    ledger: Ledger
    created_at: int


class Portfolios:
    """The portfolios of one engine; one thread only."""

    def __init__(self, database: Database, lock_timeout_ms: int) -> None:
        self._database, self._lock_timeout_ms = database, lock_timeout_ms
        self.members: dict[int, int] = {}  # the numbers of portfolios by those of their campaigns
        self._kept: dict[int, CachedPortfolio] = {}

    def forget(self) -> None:
        """Forget what transactions left: something failed, and it may have been after a commit."""
        self._kept.clear()

    def find_members(self, connection: Connection, numbers: Sequence[int]) -> None:
        """Read which of these campaigns are in portfolios."""
        campaign = tables.campaign
        query = select(campaign.c.number, campaign.c.portfolio)
        query = query.where(campaign.c.number.in_(numbers), campaign.c.portfolio.is_not(None))
        self.members.update({row.number: row.portfolio for row in connection.execute(query)})

    def open(
        self, connection: Connection, changes: Changes, numbers: Sequence[int], now: int, epoch: int | None
    ) -> list[int]:
        """Lock those portfolios of campaigns that are free, before any campaign.

        Returns the campaigns without portfolio or with a locked one.
        """
        wanted = sorted({self.members[number] for number in numbers if number in self.members})
        unread = [number for number in wanted if not self._is_unchanged(number, epoch)]
        for number in wanted:
            if number not in unread:
                changes.portfolios[number] = _locked(self._kept[number], now)
        if unread:
            rows = self._database.lock_free_rows(connection, unread, portfolios=True)
            self._read(connection, changes, rows, now)
        return [each for each in numbers if each not in self.members or self.members[each] in changes.portfolios]

    def _is_unchanged(self, number: int, epoch: int | None) -> bool:
        return epoch is not None and number in self._kept and self._kept[number].epoch == epoch

    def _read(self, connection: Connection, changes: Changes, rows: Sequence[Row], now: int) -> None:
        """Read the rest of locked portfolios, and add them to the changes."""
        found = [row["campaign"] for row in rows]
        balances, created_at = (accounts(connection, found), creation_times(connection, found)) if found else ({}, {})
        for row in rows:
            number = row["campaign"]
            portfolio = self._portfolio(connection, number, row["config_version"])
            limits = windows.present_limits(connection, [number], now)[number] if portfolio.windows else []
            ledger = Ledger(balances[number], limits)
            changes.portfolios[number] = _locked(CachedPortfolio(None, portfolio, row, ledger, created_at[number]), now)

    def _portfolio(self, connection: Connection, number: int, version: int) -> Portfolio:
        kept = self._kept.get(number)
        if kept is not None and kept.portfolio.version == version:
            return kept.portfolio
        return load_portfolio(connection, number, version)

    def join(self, changes: Changes) -> None:
        """Give every locked campaign of a portfolio its part in it. All of them have one time."""
        parts = [
            (locked, changes.portfolios[self.members[locked.campaign.number]])
            for locked in changes.campaigns.values()
            if locked.campaign.number in self.members and locked.member is None
        ]
        for locked, portfolio in parts:
            portfolio.now = max(portfolio.now, locked.now)
        for locked, portfolio in parts:
            locked.now = portfolio.now
            locked.member = Membership(portfolio.campaign.places(locked.campaign.resources), portfolio)
            locked.ledger.share = locked.member.share()

    def prepare(self, connection: Connection, changes: Changes, locked: LockedCampaign) -> None:
        """Make the portfolio of a campaign ready for its decisions: present periods, expected decisions."""
        portfolio = changes.portfolios[self.members[locked.campaign.number]]
        if windows.is_over(locked):
            return
        if portfolio.campaign.windows:
            windows.begin_periods(connection, portfolio)
        is_first = locked.state.round.item() == 0
        if is_first or not 0 <= portfolio.now - portfolio.expected_at < EXPECTED_MICROS:
            left = _expected_rounds_left(connection, changes, portfolio)
            portfolio.expected, portfolio.expected_at = int(portfolio.state.rounds) + left, portfolio.now

    def remember(self, changes: Changes, epoch: int | None) -> None:
        """Keep the portfolios of a transaction that is committed."""
        for number, locked in changes.portfolios.items():
            ledger = Ledger(locked.ledger.accounts, locked.ledger.limits)
            row = {"campaign": number, **locked.row()}
            self._kept[number] = CachedPortfolio(epoch, locked.campaign, row, ledger, locked.created_at)

    def patch(self, connection: Connection, changes: Changes, command: PatchPortfolio) -> Answer | Problem:
        """Changes budgets and windows of a portfolio."""
        number = portfolio_number(connection, command.portfolio_id)
        if number is None:
            return NotFound(no_such("portfolio", command.portfolio_id), kind="portfolio-not-found")
        rows = self._database.lock_rows(connection, [number], timeout_ms=self._lock_timeout_ms, portfolios=True)
        self._read(connection, changes, rows, self._database.now_micros(connection))  # it may have waited
        locked = changes.portfolios.get(number)
        if locked is None:
            return Unavailable("another process keeps the portfolio locked; try again", kind="portfolio-busy")
        try:
            return _patched(connection, locked, command)
        except Problem as problem:
            del changes.portfolios[number]
            return problem


def _locked(kept: CachedPortfolio, now: int) -> LockedPortfolio:
    row, ledger = kept.row, Ledger(kept.ledger.accounts, kept.ledger.limits)
    state, traffic = read_state(np.frombuffer(row["numbers"], dtype="<f8")), decoded(row["traffic"])
    return LockedPortfolio(kept.portfolio, state, ledger, row, traffic, now, kept.created_at)


def _expected_rounds_left(connection: Connection, changes: Changes, portfolio: LockedPortfolio) -> int:
    """The decisions that the campaigns of a portfolio have left. Who changes one of them has the portfolio's lock."""
    now, left = portfolio.now, 0
    query = states(with_config=True).where(tables.campaign.c.portfolio == portfolio.campaign.number)
    for row in connection.execute(query).mappings():
        mine = changes.campaigns.get(row["id"])
        if mine is not None:
            left += expected_rounds_left(mine.campaign, mine.status, mine.state.round.item(), now)
        else:
            campaign = Campaign(row["campaign"], row["id"], row["config_version"], json.loads(row["config"]))
            left += expected_rounds_left(campaign, row["status"], row["round"], now)
    return left


def create_portfolio(connection: Connection, command: CreatePortfolio, now: int) -> Answer | Problem:
    """Makes a portfolio with its accounts."""
    config = command.config
    number = add_campaign(connection, tables.PORTFOLIO_PREFIX + config["id"], now)
    if number is None:
        return Conflict("a portfolio of this id exists", kind="portfolio-exists")
    portfolio = Portfolio(number, config["id"], 1, config)
    connection.execute(insert(tables.config).values(campaign=number, version=1, body=to_json(config), at=now))
    numbers = first_state(len(portfolio.budgets)).numbers().astype("<f8").tobytes()
    state = {"config_version": 1, "sequence": len(portfolio.budgets), "call": 0, "numbers": numbers, "expected": 0}
    state |= {"expected_at": 0, "last_event_at": now, "traffic": encoded(no_traffic())}
    connection.execute(insert(tables.portfolio_state).values(campaign=number, **state))
    for resource, budget in enumerate(portfolio.budgets):
        of_resource = {"campaign": number, "resource": resource}
        account = {"granted": budget, "held": 0, "spent": 0, "overrun": 0}
        connection.execute(insert(tables.account).values(**of_resource, **account))
        grant = {"sequence": resource + 1, "kind": "budget", "amount": budget, "reason": "created", "at": now}
        connection.execute(insert(tables.grant).values(**of_resource, **grant))
    write_audit(connection, now, command.actor, "portfolio.create", None, {"config": config})
    return Answer(_summary(portfolio), status=201)


def _summary(portfolio: Portfolio) -> dict[str, Any]:
    return {"id": portfolio.id, "version": portfolio.version, "config": portfolio.config}


def _patched(connection: Connection, locked: LockedPortfolio, command: PatchPortfolio) -> Answer:
    """Changes a locked portfolio. Raises a Problem, and has changed nothing then."""
    older, changes = locked.campaign, command.changes
    assert isinstance(older, Portfolio), "the configuration of a portfolio"
    expected = changes.get("expected_version")
    if expected is not None and expected != older.version:
        message = f"expected_version is not the portfolio's, which is {older.version}"
        raise Conflict(message, kind="version-differs")
    config: dict[str, Any] = json.loads(json.dumps(older.config))
    known = {resource["id"]: resource for resource in config["resources"]}
    for change in changes["resources"]:
        if change["id"] not in known:
            raise NotFound(no_such("resource", change["id"], " in the portfolio", known), kind="unknown-resource")
        known[change["id"]] |= change
    newer = replace(older, version=older.version + 1, config=config)
    moved = []
    for account, budget in zip(locked.ledger.accounts, newer.budgets, strict=True):
        if budget < account.spent + account.held and budget < account.granted:
            raise Conflict("a budget cannot go below what is spent and held", kind="budget-below-spent")
        moved.append(budget - account.granted)
    added = windows.check_change(connection, locked, newer)
    for resource, difference in enumerate(moved):
        if difference:
            locked.ledger.move(resource, granted=difference)
            locked.append("grant", resource=resource, kind="budget", amount=difference, reason="changed", at=locked.now)
    windows.apply_change(connection, locked, newer, added)
    locked.campaign = newer
    locked.append("change", kind="patch", body=to_json(changes), model=None, at=locked.now)
    row = {"campaign": newer.number, "version": newer.version, "body": to_json(config), "at": locked.now}
    connection.execute(insert(tables.config).values(**row))
    body = {"portfolio": newer.id, **changes}
    write_audit(connection, locked.now, command.actor, "portfolio.patch", None, body)
    return Answer(_summary(newer))
