"""The accounts of a campaign's windows: read under its lock, begun with the first decision of a period, changed.

Every change of a window is a row of the log, and the ledger follows from these rows (`domain.windows.changed`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, select

from service.domain.budget_holder import BudgetHolder
from service.domain.ledger import Account, Limit
from service.domain.portfolio import Portfolio
from service.domain.traffic import Counts
from service.domain.windows import WINDOW, Window, bounds, changed, due, paces, rounds_until
from service.engine.changes import LockedCampaign, to_json
from service.engine.locked_portfolio import LockedPortfolio
from service.problems import Conflict
from service.store import tables
from service.store.bulk_insert import append_rows
from service.store.campaigns import members_of
from service.store.log_amounts import sums_by_quarter
from service.store.opening_balance import opening_of
from service.store.statements import Prepared
from service.times import MICROS_PER_HOUR

Locked = LockedCampaign | LockedPortfolio

_table = tables.window_account
_PRESENT = Prepared(
    lambda among: select(_table).where(among.has(_table.c.campaign), _table.c.ends_at > bindparam("now"))
)


def present_limits(connection: Connection, numbers: Sequence[int], now: int) -> dict[int, list[Limit]]:
    """The limits of campaigns whose periods have not ended."""
    found: dict[int, list[Limit]] = defaultdict(list)
    for row in _PRESENT.fetch(connection, numbers, now=now) if numbers else ():
        found[row["campaign"]].append(_limit(row))
    return found


def _limit(row: Any) -> Limit:
    account = Account(row["granted"], row["held"], row["spent"], row["overrun"])
    return Limit(row["resource"], row["period"], row["starts_at"], row["ends_at"], account)


def read_earlier(connection: Connection, locked: Locked, decisions: Sequence[Any]) -> None:
    """Reads the accounts of past periods in which these decisions, rows of their table, were made."""
    ledger, times = locked.ledger, [row["decided_at"] for row in decisions]
    if len(ledger.limits) == len(locked.campaign.windows):
        begun = max(limit.starts_at for limit in ledger.limits)
        times = [at for at in times if at < begun]
    if not times:
        return
    known = {(limit.key, limit.starts_at) for limit in (*ledger.limits, *ledger.earlier)}
    wanted = (_table.c.campaign == locked.campaign.number, _table.c.ends_at > min(times))
    rows = connection.execute(select(_table).where(*wanted, _table.c.starts_at <= max(times))).mappings()
    found = [limit for limit in map(_limit, rows) if any(map(limit.covers, times))]
    ledger.earlier = [*ledger.earlier, *(limit for limit in found if (limit.key, limit.starts_at) not in known)]


def roll_over(connection: Connection, locked: LockedCampaign) -> None:
    """Begins the accounts of the periods that a decision now would be the first of; other periods are over."""
    if not is_over(locked):
        begin_periods(connection, locked)


def is_over(locked: LockedCampaign) -> bool:
    """Whether the campaign decides nothing now."""
    ended = locked.state.round.item() >= locked.campaign.horizon
    return ended or locked.status != "active" or locked.campaign.outside_flight(locked.now) is not None


def begin_periods(connection: Connection, locked: Locked) -> None:
    """Begins the accounts of the present periods that have none."""
    campaign, ledger, now = locked.campaign, locked.ledger, locked.now
    # Another process may have rolled over between the begin of this transaction and its lock: both periods were read.
    ledger.earlier = [*ledger.earlier, *(limit for limit in ledger.limits if not limit.covers(now))]
    ledger.limits = [limit for limit in ledger.limits if limit.covers(now)]
    for window in due(campaign.windows, ledger.limits, now):
        start, end = bounds(window.period, now, campaign.zone)
        # A period does not overlap the last one, also if the rules of the time zone have changed meanwhile.
        of_window = (_table.c.resource == window.resource, _table.c.period == window.period)
        ended = select(func.max(_table.c.ends_at)).where(_table.c.campaign == campaign.number, *of_window)
        start = max(start, connection.execute(ended.where(_table.c.ends_at > start)).scalar() or start)
        _begin(locked, window, start, end)


def _begin(locked: Locked, window: Window, start: int, end: int, **sums: int) -> None:
    _log(locked, window, starts_at=start, ends_at=end, limit=window.limit, **sums)
    account = locked.ledger.limits[-1].account._asdict()
    row = {"campaign": locked.campaign.number, "resource": window.resource, "period": window.period}
    row |= {"starts_at": start, "ends_at": end, **account, "pruned_spent": 0}
    locked.rows.setdefault("window_account", []).append(row)


def _log(locked: Locked, window: Window | Limit, **change: int | None) -> None:
    body = {"resource": window.resource, "period": window.period, **change}
    locked.append("change", kind=WINDOW, body=to_json(body), model=None, at=locked.now)
    locked.ledger.limits = changed(locked.ledger.limits, body)


def limits_of(locked: LockedCampaign) -> tuple[list[float] | None, list[float] | None]:
    """What limits mean for a call of the policy: the pace that windows allow, and the prices that a portfolio adds."""
    pace = pace_of(locked) if locked.ledger.limits else None
    return pace, None if locked.member is None else locked.member.prices(locked.campaign)


def pace_of(locked: LockedCampaign) -> list[float]:
    """What a decision may cost for every window to last to its end, in millionths; infinite where there is none.

    Decisions come at the rate of the campaign's own past.
    """
    campaign, rest = locked.campaign, locked.campaign.horizon - locked.state.round.item()
    traffic, since = _past(locked)
    return paces(locked.ledger.limits, predicted_shares(locked), traffic, since, locked.now, rest, campaign.ends_at)


def predicted_shares(locked: LockedCampaign) -> list[float]:
    """The share of what open decisions hold of each resource that they are predicted to cost."""
    state, units = locked.state, locked.campaign.units
    held = zip(state.held[0].tolist(), state.predicted[0].tolist(), units, strict=True)
    return [min(1.0, predicted * unit / hold) if hold > 0 else 0.0 for hold, predicted, unit in held]


def rounds_of(locked: LockedCampaign) -> dict[int, float]:
    """The decisions to expect until the ends of the present periods, by these ends; at least 1."""
    if not locked.ledger.limits:
        return {}
    traffic, since = _past(locked)
    rest = locked.campaign.horizon - locked.state.round.item()
    rounds = rounds_until(locked.ledger.limits, traffic, since, locked.now, locked.campaign.ends_at)
    return {end: max(1.0, min(rest, expected)) for end, expected in rounds.items()}


def _past(locked: LockedCampaign) -> tuple[Counts, int]:
    """The traffic of a campaign with windows, and since when.

    An hour without decisions counts as seen before the first, so that the first seconds do not promise thousands.
    """
    assert locked.traffic is not None, "the traffic of a campaign with windows is counted"
    return locked.traffic, locked.campaign.flight_start(locked.created_at) - MICROS_PER_HOUR


def check_change(connection: Connection, locked: Locked, newer: BudgetHolder) -> dict[Window, Limit]:
    """Returns what the new windows of a configuration have in their present periods. Raises Conflict.

    A window counts the decisions that were made in the period before it was declared.
    """
    before = {window.key: window for window in locked.campaign.windows}
    begun = {limit.key: limit for limit in locked.ledger.limits if limit.covers(locked.now)}
    added = {}
    for window in newer.windows:
        limit = begun.get(window.key)
        if window.key not in before:
            limit = added[window] = _counted(connection, locked, window)
        if limit is not None:
            used = limit.account.spent + limit.account.held
            if window.limit < used and (window in added or window.limit < limit.account.granted):
                message = "a window cannot go below what is spent and held in its present period"
                raise Conflict(message, kind="window-below-spent")
    return added


def _counted(connection: Connection, locked: Locked, window: Window) -> Limit:
    """The account of a window in its present period, from the log. Raises Conflict if a part of it was pruned."""
    start, end = bounds(window.period, locked.now, locked.campaign.zone)
    # The sums are those of the database.
    append_rows(connection, tables.outcome, locked.rows.get("outcome", []))
    if "outcome" in locked.rows:
        locked.rows["outcome"] = []
    held = spent = 0
    for number, resource, resources in _logs(connection, locked, window.resource):
        opening = opening_of(connection, number)
        if opening is not None and opening.last_at >= start:
            message = "decisions of the window's present period were pruned: add it in the next"
            raise Conflict(message, kind="window-pruned")
        sums = sums_by_quarter(connection, number, resources, since=start).within(resource, start, end)
        held, spent = held + sums[0], spent + sums[1]
    return Limit(*window.key, start, end, Account(window.limit).moved(held=held, spent=spent, reported=True))


def _logs(connection: Connection, locked: Locked, resource: int) -> list[tuple[int, int, int]]:
    """The logs that a resource is booked in: number, place of the resource there, and how many resources it has."""
    campaign = locked.campaign
    if not isinstance(campaign, Portfolio):
        return [(campaign.number, resource, len(campaign.resources))]
    name, found = campaign.resources[resource], []
    for number, resources in members_of(connection, campaign.number):
        if name in resources:
            found.append((number, resources.index(name), len(resources)))
    return found


def apply_change(connection: Connection, locked: Locked, newer: BudgetHolder, added: dict[Window, Limit]) -> None:
    """Changes the accounts of windows to the new configuration; a window that is removed loses its accounts."""
    ledger, wanted = locked.ledger, {window.key: window for window in newer.windows}
    for window in locked.campaign.windows:
        if window.key not in wanted:
            of_window = (_table.c.resource == window.resource, _table.c.period == window.period)
            connection.execute(delete(_table).where(_table.c.campaign == newer.number, *of_window))
            ledger.earlier = [limit for limit in ledger.earlier if limit.key != window.key]
            begun = locked.rows.get("window_account", [])
            begun[:] = [row for row in begun if (row["resource"], row["period"]) != window.key]
            _log(locked, window, limit=None)
    for limit in ledger.limits:
        new = wanted[limit.key].limit
        if limit.covers(locked.now) and new != limit.account.granted:
            _log(locked, limit, starts_at=limit.starts_at, ends_at=limit.ends_at, limit=new)
    for window, limit in added.items():
        sums = {"held": limit.account.held, "spent": limit.account.spent}
        _begin(locked, window, limit.starts_at, limit.ends_at, **sums)
