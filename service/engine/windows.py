"""The accounts of a campaign's windows: read under its lock, begun with the first decision of a period, changed.

Every change of a window is a row of the log, and the ledger follows from these rows (`domain.windows.changed`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import inf
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, select

from service.domain.campaign import Campaign
from service.domain.ledger import Account, Limit
from service.domain.traffic import expected_rounds
from service.domain.windows import WINDOW, Window, bounds, changed, due, left
from service.engine.changes import LockedCampaign, to_json
from service.problems import Conflict
from service.store import tables
from service.store.bulk_insert import append_rows
from service.store.log_amounts import sums_by_quarter
from service.store.opening_balance import opening_of
from service.store.statements import Prepared
from service.times import MICROS_PER_HOUR

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


def read_earlier(connection: Connection, locked: LockedCampaign, decisions: Sequence[Any]) -> None:
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
    campaign, ledger, now = locked.campaign, locked.ledger, locked.now
    is_over = locked.state.round.item() >= campaign.horizon or campaign.outside_flight(now) is not None
    if is_over or locked.status != "active":
        return
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


def _begin(locked: LockedCampaign, window: Window, start: int, end: int, **sums: int) -> None:
    _log(locked, window, starts_at=start, ends_at=end, limit=window.limit, **sums)
    account = locked.ledger.limits[-1].account._asdict()
    row = {"campaign": locked.campaign.number, "resource": window.resource, "period": window.period}
    row |= {"starts_at": start, "ends_at": end, **account, "pruned_spent": 0}
    locked.rows.setdefault("window_account", []).append(row)


def _log(locked: LockedCampaign, window: Window | Limit, **change: int | None) -> None:
    body = {"resource": window.resource, "period": window.period, **change}
    locked.append("change", kind=WINDOW, body=to_json(body), model=None, at=locked.now)
    locked.ledger.limits = changed(locked.ledger.limits, body)


def pace_of(locked: LockedCampaign) -> list[float]:
    """What a decision may cost for every window to last to its end, in millionths; infinite where there is none.

    Decisions come at the rate of the campaign's own past. An hour without decisions counts as seen before it, so that
    the first seconds do not promise thousands.
    """
    campaign, state, now, traffic = locked.campaign, locked.state, locked.now, locked.traffic
    assert traffic is not None, "the traffic of a campaign with windows is counted"
    since, rest = campaign.flight_start(locked.created_at) - MICROS_PER_HOUR, campaign.horizon - state.round.item()
    held = zip(state.held[0].tolist(), state.predicted[0].tolist(), campaign.units, strict=True)
    shares = [min(1.0, predicted * unit / hold) if hold > 0 else 0.0 for hold, predicted, unit in held]
    pace, rounds = [inf] * len(shares), dict[int, float]()
    for limit in locked.ledger.limits:
        until = limit.ends_at if campaign.ends_at is None else min(limit.ends_at, campaign.ends_at)
        if until not in rounds:
            rounds[until] = max(1.0, min(rest, expected_rounds(traffic, since, now, until)))
        rate = left(limit, now, shares[limit.resource]) / rounds[until]
        pace[limit.resource] = min(pace[limit.resource], rate)
    return pace


def check_change(connection: Connection, locked: LockedCampaign, newer: Campaign) -> dict[Window, Limit]:
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


def _counted(connection: Connection, locked: LockedCampaign, window: Window) -> Limit:
    """The account of a window in its present period, from the log. Raises Conflict if a part of it was pruned."""
    start, end = bounds(window.period, locked.now, locked.campaign.zone)
    opening = opening_of(connection, locked.campaign.number)
    if opening is not None and opening.last_at >= start:
        raise Conflict("decisions of the window's present period were pruned: add it in the next", kind="window-pruned")
    # The sums are those of the database.
    append_rows(connection, tables.outcome, locked.rows.get("outcome", []))
    if "outcome" in locked.rows:
        locked.rows["outcome"] = []
    sums = sums_by_quarter(connection, locked.campaign.number, len(locked.campaign.resources), since=start)
    held, spent = sums.within(window.resource, start, end)
    return Limit(*window.key, start, end, Account(window.limit).moved(held=held, spent=spent, reported=True))


def apply_change(connection: Connection, locked: LockedCampaign, newer: Campaign, added: dict[Window, Limit]) -> None:
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
