"""Verifies accounts and log: accounts are computed again from the log. Pruned rows count with their sums."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import ColumnElement, Connection, exists, func, select

from service.domain.traffic import decoded
from service.domain.windows import WINDOW
from service.money import amount
from service.reads.shared import StoredCampaign, fetch, stored_campaign
from service.store import tables
from service.store.log_amounts import element, sums_by_quarter
from service.store.opening_balance import Opening, decisions_by_hour, opening_of
from service.store.tables import outcome_digest
from service.times import moment_text

LOG = (tables.decision, tables.outcome, tables.grant, tables.change)
ROWS_AT_ONCE = 1_000


def verify(connection: Connection, campaign_id: str) -> dict[str, Any]:
    """Every check with the expected and the found value. The connection must see one snapshot."""
    try:
        stored = stored_campaign(connection, campaign_id)
        _ = stored.campaign.resources
    except (ValueError, TypeError, KeyError) as error:
        check = _check("configuration", "readable", type(error).__name__)
        return {"campaign_id": campaign_id, "ok": False, "checks": [check]}
    pruned = opening_of(connection, stored.campaign.number) or Opening(0, spent=(0,) * len(stored.campaign.resources))
    checks = [*_account_checks(connection, stored, pruned), *_log_checks(connection, stored, pruned)]
    checks += _window_checks(connection, stored)
    return {"campaign_id": campaign_id, "ok": all(check["ok"] for check in checks), "checks": checks}


def _check(name: str, expected: Any, found: Any) -> dict[str, Any]:
    return {"name": name, "ok": expected == found, "expected": expected, "found": found}


def _account_checks(connection: Connection, stored: StoredCampaign, pruned: Opening) -> list[dict[str, Any]]:
    """Each account against the sums of the log, and what it holds against the table of holds."""
    account, grant, outcome, decision = tables.account, tables.grant, tables.outcome, tables.decision
    number, resources = stored.campaign.number, stored.campaign.resources
    rows = fetch(connection, select(account).where(account.c.campaign == number).order_by(account.c.resource))
    checks = [_check("accounts", len(resources), len(rows))]
    open_holds = _open_holds(connection, stored)
    released = exists().where(
        outcome.c.campaign == decision.c.campaign, outcome.c.decision == decision.c.sequence, outcome.c.released
    )
    for row in rows:
        index, name = row["resource"], resources[row["resource"]]
        of_resource = grant.c.campaign == number, grant.c.resource == index
        granted = _sum(connection, grant.c.amount, *of_resource, grant.c.kind == "budget")
        adjusted = _sum(connection, grant.c.amount, *of_resource, grant.c.kind == "adjust")
        settled = _sum(connection, element(connection, outcome.c.spent, index), outcome.c.campaign == number)
        held = _sum(connection, element(connection, decision.c.hold, index), decision.c.campaign == number, ~released)
        spent = adjusted + settled + pruned.spent[index]
        logged = {"granted": granted, "held": held, "spent": spent, "overrun": max(0, spent + held - granted)}
        checks += [_check(f"{column} of {name}", amount(logged[column]), amount(row[column])) for column in logged]
        checks.append(_check(f"open holds of {name}", amount(held), amount(open_holds[index])))
    return checks


def _window_checks(connection: Connection, stored: StoredCampaign) -> list[dict[str, Any]]:
    """Each account of a window against the sums of the decisions of its period; their limits against the changes."""
    window, change, number = tables.window_account, tables.change, stored.campaign.number
    query = select(change.c.body).where(change.c.campaign == number, change.c.kind == WINDOW)
    limits: dict[tuple[int, str], dict[int, int]] = {}
    for body in map(json.loads, connection.execute(query.order_by(change.c.sequence)).scalars()):
        if body["limit"] is None:
            limits.pop((body["resource"], body["period"]), None)
        else:
            limits.setdefault((body["resource"], body["period"]), {})[body["starts_at"]] = body["limit"]
    rows = fetch(connection, select(window).where(window.c.campaign == number).order_by(*window.primary_key.columns))
    if not limits and not rows:
        return []
    checks = [_check("periods of windows", sum(map(len, limits.values())), len(rows))]
    sums = sums_by_quarter(connection, number, len(stored.campaign.resources))
    for row in rows:
        held, spent = sums.within(row["resource"], row["starts_at"], row["ends_at"])
        spent += row["pruned_spent"]
        granted = limits.get((row["resource"], row["period"]), {}).get(row["starts_at"], 0)
        logged = {"granted": granted, "held": held, "spent": spent, "overrun": max(0, spent + held - granted)}
        resource = stored.campaign.resources[row["resource"]]
        name = f"{resource} in the {row['period']} from {moment_text(row['starts_at'])}"
        checks += [_check(f"{column} of {name}", amount(logged[column]), amount(row[column])) for column in logged]
    return checks


def _sum(connection: Connection, column: ColumnElement[Any], *where: ColumnElement[bool]) -> int:
    return int(connection.execute(select(func.coalesce(func.sum(column), 0)).where(*where)).scalar_one())


def _open_holds(connection: Connection, stored: StoredCampaign) -> list[int]:
    """The sums of the table of holds by resource, in one statement, because it reads the holds of all campaigns."""
    hold, resources = tables.hold, len(stored.campaign.resources)
    sums = [func.coalesce(func.sum(element(connection, hold.c.amounts, index)), 0) for index in range(resources)]
    found = connection.execute(select(*sums).where(hold.c.campaign == stored.campaign.number)).one()
    return [int(total) for total in found]


def _log_checks(connection: Connection, stored: StoredCampaign, pruned: Opening) -> list[dict[str, Any]]:
    number, last = stored.campaign.number, stored.sequence
    decision, outcome = tables.decision, tables.outcome
    count, total = pruned.row_count, pruned.number_sum
    for table in LOG:
        rows, numbers = connection.execute(
            select(func.count(), func.coalesce(func.sum(table.c.sequence), 0)).where(table.c.campaign == number)
        ).one()
        count, total = count + rows, total + int(numbers)
    twice = (
        select(outcome.c.decision)
        .where(outcome.c.campaign == number, outcome.c.released)
        .group_by(outcome.c.decision)
        .having(func.count() > 1)
        .subquery()
    )
    released_twice = connection.execute(select(func.count()).select_from(twice)).scalar_one()
    rounds = connection.execute(select(func.count()).where(decision.c.campaign == number)).scalar_one()
    return [
        _check("rows of the log", last, count),
        # If the count is right, a number that occurs twice replaces another one, which changes the sum.
        _check("numbers of the log", last * (last + 1) // 2, total),
        _check("rounds", stored.state["round"], pruned.decisions + rounds),
        _check("pruned through", stored.state["pruned_through"], pruned.through),
        _check("decisions released twice", 0, released_twice),
        _check("damaged outcomes", 0, _damaged(connection, number)),
        *_traffic_check(connection, stored),
    ]


def _traffic_check(connection: Connection, stored: StoredCampaign) -> list[dict[str, Any]]:
    """How many hours of the week have another count than the log; nothing if the campaign does not count them.

    Version 0.1 does not count either: after its last decision the counts are not used, and made again.
    """
    counts = None if stored.state["traffic"] is None else decoded(stored.state["traffic"])
    if counts is None or counts.sum() != stored.state["round"]:
        return []
    differs = counts != decisions_by_hour(connection, stored.campaign.number)
    return [_check("hours of other traffic", 0, int(differs.sum()))]


def _damaged(connection: Connection, number: int) -> int:
    """The number of outcomes that differ from their digest."""
    outcome = tables.outcome
    rows = connection.execute(
        select(outcome).where(outcome.c.campaign == number), execution_options={"yield_per": ROWS_AT_ONCE}
    ).mappings()
    return sum(_is_damaged(dict(row)) for row in rows)


def _is_damaged(row: dict[str, Any]) -> bool:
    if outcome_digest(row) == row["digest"]:
        return False
    # Version 0.1 made the digest of a reward -0.0, which SQLite stores as 0.0.
    return bool(row["reward"] != 0 or outcome_digest(row | {"reward": -0.0}) != row["digest"])
