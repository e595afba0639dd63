"""What one transaction changes: the campaigns it has locked, and the rows it writes.

Every new decision, hold, outcome, grant and change leaves a transaction through `Changes.write`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import orjson
from sqlalchemy import BindParameter, Connection, bindparam, delete, literal_column, update

from cbwk_core import State, Ticket
from service.domain.campaign import Campaign
from service.domain.decision_rows import Columns
from service.domain.ledger import Account, Ledger
from service.domain.traffic import Counts, encoded
from service.engine.locked_portfolio import LockedPortfolio, Membership, Numbered
from service.fault import Reached
from service.store import tables
from service.store.bulk_insert import append_columns, append_rows
from service.store.statements import Prepared, array_of, execute, run_on_arrays


class Lesson(NamedTuple):
    """An outcome, or a half of one, that the policy does not know yet."""

    row: Any  # of table decision
    reward: float  # scaled; 0 if it is not known
    costs: list[int]
    booked: bool  # its costs are booked now: the policy's own account and prices move
    learn_reward: bool  # both halves are known: the oracle learns the reward, and the outcome counts as learnt
    learn_costs: bool  # the oracle learns the costs


class LockedCampaign(Numbered):
    """A campaign locked by a transaction. Its state and ledger move here; a failed transaction discards them."""

    campaign: Campaign
    one_by_one = False  # each outcome is taught at once, and one that would spoil the model is not learnt
    to_learn = 0  # lessons that complete an outcome
    learnt = 0  # outcomes and halves learnt in this transaction
    expired = 0
    above_hold = 0
    quarantined = 0
    before: Any = None  # the CachedCampaign that the transaction found
    traffic: Counts | None = None  # decisions by hour of the week; None while nothing needs them
    member: Membership | None = None  # of a portfolio

    # Not a dataclass: a transaction makes one for every campaign, and a dataclass takes twice as long.
    def __init__(
        self,
        campaign: Campaign,
        state: State,
        ledger: Ledger,
        status: str,
        sequence: int,
        model_version: int,
        now: int,
        created_at: int,
        changes: Changes | None = None,
    ) -> None:
        self.campaign, self.state, self.ledger, self.status = campaign, state, ledger, status
        self.sequence, self.model_version, self.created_at = sequence, model_version, created_at
        self.now = now  # microseconds; never below the campaign's last event
        # The lists of the transaction and not the transaction, which refers to this: a circle waits for the collector.
        self.decisions: list[Columns] = [] if changes is None else changes.decisions
        self.holds: list[Columns] = [] if changes is None else changes.holds
        self.rows: dict[str, list[dict[str, Any]]] = {}  # new rows of the tables that `write` names
        self.closed_holds: list[tuple[int, int]] = []  # (expires_at, decision) of hold rows to delete
        self.emptied_holds: list[tuple[int, int]] = []  # charged, still waiting for a reward
        self.lessons: list[Lesson] = []  # outcomes that the policy learns together
        self.unstored: dict[str, int] = {}  # answers without a row, by reason
        self.delays: list[float] = []  # seconds from a decision to its costs
        self.earlier: dict[int, Campaign] = {}  # versions in which decisions were made that are explained again

    def move_portfolio(self, ticket: Ticket) -> None:
        """Move the portfolio by the decisions of one call, the next ones of the log, and keep the call for writing."""
        assert self.member is not None, "the campaign is in a portfolio"
        row = self.member.decided(self.campaign, ticket, self.sequence + 1, self.now)
        if row is not None:
            self.rows.setdefault("portfolio_call", []).append(row)

    def count_unstored(self, reason: str) -> None:
        """Count an answer that is not stored."""
        self.unstored[reason] = self.unstored.get(reason, 0) + 1

    @property
    def policy_version(self) -> int:
        """Outcomes learnt so far."""
        return self.state.learnt.item() + self.to_learn


_account, _hold, _state = tables.account, tables.hold, tables.campaign_state
_NUMBER: BindParameter[int] = bindparam("number")
_OF_HOLD = (
    _hold.c.expires_at == bindparam("of_expiry"),
    _hold.c.campaign == _NUMBER,
    _hold.c.decision == bindparam("of_decision"),
)
_HOLD_KEY = ("of_expiry", "number", "of_decision")
_EMPTY_HOLD = Prepared(lambda _: update(_hold).where(*_OF_HOLD).values(amounts=literal_column("'[]'")))
_CLOSE_HOLD = Prepared(lambda _: delete(_hold).where(*_OF_HOLD))
_MOVE_ACCOUNT = Prepared(
    lambda _: (
        update(_account)
        .where(_account.c.campaign == _NUMBER, _account.c.resource == bindparam("of_resource"))
        .values({name: bindparam(f"new_{name}") for name in Account._fields})
    )
)
_MOVED = (*(f"new_{name}" for name in Account._fields), "number", "of_resource")
_window = tables.window_account
_WINDOW_KEY = ("number", "of_resource", "of_period", "of_start")
_MOVE_WINDOW = Prepared(
    lambda _: (
        update(_window)
        .where(
            _window.c.campaign == _NUMBER,
            _window.c.resource == bindparam("of_resource"),
            _window.c.period == bindparam("of_period"),
            _window.c.starts_at == bindparam("of_start"),
        )
        .values({name: bindparam(f"new_{name}") for name in Account._fields})
    )
)
_MOVED_WINDOW = (*(f"new_{name}" for name in Account._fields), *_WINDOW_KEY)
_STATE_COLUMNS = ("status", "config_version", "model_version", "sequence", "round", "books", "last_event_at", "traffic")
_MOVE_STATE = Prepared(
    lambda _: (
        update(_state)
        .where(_state.c.campaign == _NUMBER)
        .values({name: bindparam(f"new_{name}") for name in _STATE_COLUMNS})
    )
)
_STATE_VALUES = (*(f"new_{name}" for name in _STATE_COLUMNS), "number")
# For PostgreSQL, where every statement is a message: one statement for all rows, whose columns are arrays.
_CLOSE_HOLDS = (
    f"DELETE FROM hold USING unnest({array_of('int8')}, {array_of('int4')}, {array_of('int8')})"
    " AS closed (expires_at, campaign, decision) WHERE hold.expires_at = closed.expires_at"
    " AND hold.campaign = closed.campaign AND hold.decision = closed.decision"
)
_MOVE_ACCOUNTS = (
    "UPDATE account SET granted = new.granted, held = new.held, spent = new.spent, overrun = new.overrun FROM {rows}"
    " AS new (granted, held, spent, overrun, campaign, resource)"
    " WHERE account.campaign = new.campaign AND account.resource = new.resource"
)
_ACCOUNT_TYPES = ("int8", "int8", "int8", "int8", "int4", "int2")
_MOVE_WINDOWS = (
    "UPDATE window_account AS old SET granted = new.granted, held = new.held, spent = new.spent, overrun = new.overrun"
    " FROM {rows} AS new (granted, held, spent, overrun, campaign, resource, period, starts_at)"
    " WHERE old.campaign = new.campaign AND old.resource = new.resource AND old.period = new.period"
    " AND old.starts_at = new.starts_at"
)
_WINDOW_TYPES = (*_ACCOUNT_TYPES, "text", "int8")
# Up to this many values are sent as rows, for which PostgreSQL needs no function; beyond 50 parameters psycopg would
# parse the statement every time.
VALUES_MAX = 48
_STATE_TYPES = ("text", "int4", "int4", "int8", "int8", "text", "int8", "text", "int4")
_MOVE_STATES = (
    "UPDATE campaign_state SET books = decode(new.books, 'hex'), traffic = decode(nullif(new.traffic, ''), 'hex'),"
    f" {', '.join(f'{name} = new.{name}' for name in _STATE_COLUMNS if name not in ('books', 'traffic'))}"
    f" FROM unnest({', '.join(map(array_of, _STATE_TYPES))}) AS new ({', '.join(_STATE_COLUMNS)}, campaign)"
    " WHERE campaign_state.campaign = new.campaign"
)


@dataclass(slots=True)
class Changes:
    """The unit of work of one transaction."""

    campaigns: dict[str, LockedCampaign] = field(default_factory=dict)  # by their ids
    portfolios: dict[int, LockedPortfolio] = field(default_factory=dict)  # by their numbers
    decisions: list[Columns] = field(default_factory=list)  # new rows of the table decision
    holds: list[Columns] = field(default_factory=list)  # new rows of the table hold

    def write(self, connection: Connection, reached: Reached | None = None) -> None:
        """Insert the new rows, then update holds, accounts and states. Each table takes one statement."""
        if reached is not None:
            reached("before-insert")
        append_columns(connection, tables.decision, self.decisions)
        append_columns(connection, tables.hold, self.holds)
        campaigns: Collection[LockedCampaign] = self.campaigns.values()
        every: Collection[LockedCampaign | LockedPortfolio] = campaigns
        if self.portfolios:
            every = [*campaigns, *self.portfolios.values()]
        for name in ("outcome", "grant", "change", "window_account", "portfolio_call"):
            rows = [row for locked in every if locked.rows for row in locked.rows.get(name, ())]
            if rows:
                append_rows(connection, tables.metadata.tables[name], rows)
        if reached is not None:
            reached("after-insert")
        if any(locked.closed_holds or locked.emptied_holds for locked in campaigns):
            _move_holds(connection, campaigns)
        accounts = [
            (*account, locked.campaign.number, resource)
            for locked in every
            for resource, account in enumerate(locked.ledger.accounts)
        ]
        states = [_state_row(locked) for locked in campaigns]
        if connection.dialect.name == "postgresql":
            _move(connection, _MOVE_ACCOUNTS, _ACCOUNT_TYPES, accounts)
        else:
            _MOVE_ACCOUNT.run(connection, _MOVED, accounts)
        if any(locked.ledger.limits or locked.ledger.earlier for locked in every):
            _move_windows(connection, every)
        for number, portfolio in self.portfolios.items():
            table = tables.portfolio_state
            connection.execute(update(table).where(table.c.campaign == number).values(portfolio.row()))
        if not states:
            pass  # a change of a portfolio
        elif connection.dialect.name == "postgresql" and len(states) > 1:
            run_on_arrays(connection, _MOVE_STATES, [[*map(_in_text, row)] for row in states]).close()
        else:
            _MOVE_STATE.run(connection, _STATE_VALUES, states)
        if reached is not None:
            reached("before-commit")


def _state_row(locked: LockedCampaign) -> tuple[Any, ...]:
    state, campaign = locked.state, locked.campaign
    books = state.books.astype("<f8", copy=False).tobytes()
    rounds = state.round.item()
    numbers = (campaign.version, locked.model_version, locked.sequence, rounds)
    traffic = None if locked.traffic is None else encoded(locked.traffic)
    return (locked.status, *numbers, books, locked.now, traffic, campaign.number)


def _in_text(part: Any) -> Any:
    if part is None:
        return ""
    return part.hex() if isinstance(part, bytes) else part


def _move_holds(connection: Connection, campaigns: Collection[LockedCampaign]) -> None:
    emptied = [(expiry, one.campaign.number, decision) for one in campaigns for expiry, decision in one.emptied_holds]
    closed = [(expiry, one.campaign.number, decision) for one in campaigns for expiry, decision in one.closed_holds]
    if emptied:
        _EMPTY_HOLD.run(connection, _HOLD_KEY, emptied)
    if not closed:
        return
    if connection.dialect.name == "postgresql":
        # Planned each time, by the present number of holds: a plan kept from the first uses would read all of them.
        cursor = run_on_arrays(connection, _CLOSE_HOLDS, closed, prepare=False)
        gone: int = cursor.rowcount
        cursor.close()
    else:
        gone = _CLOSE_HOLD.run(connection, _HOLD_KEY, closed)
    assert gone == len(closed), "a hold is where its decision says, once"


def _move_windows(connection: Connection, every: Collection[LockedCampaign | LockedPortfolio]) -> None:
    rows = [
        (*limit.account, locked.campaign.number, limit.resource, limit.period, limit.starts_at)
        for locked in every
        for limit in (*locked.ledger.limits, *locked.ledger.earlier)
    ]
    if connection.dialect.name == "postgresql":
        moved = _move(connection, _MOVE_WINDOWS, _WINDOW_TYPES, rows)
    else:
        moved = _MOVE_WINDOW.run(connection, _MOVED_WINDOW, rows)
    assert moved == len(rows), "every period of a window has its account"


def _move(connection: Connection, statement: str, types: Sequence[str], accounts: Sequence[tuple[Any, ...]]) -> int:
    """Update accounts on PostgreSQL; returns how many."""
    if len(accounts) * len(types) <= VALUES_MAX:
        row = f"({', '.join(f'%s::{kind}' for kind in types)})"
        text = statement.format(rows=f"(VALUES {', '.join([row] * len(accounts))})")
        cursor = execute(connection, text, [*chain.from_iterable(accounts)])
    else:
        text = statement.format(rows=f"unnest({', '.join(map(array_of, types))})")
        cursor = run_on_arrays(connection, text, accounts)
    moved: int = cursor.rowcount
    cursor.close()
    return moved


def to_json(value: Any) -> str:
    """Compact JSON for a column."""
    return orjson.dumps(value).decode()
