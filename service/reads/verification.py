"""Verifies accounts and log: accounts are computed again from the log. Pruned rows count with their sums."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, exists, func, select

from service.domain.traffic import decoded
from service.domain.windows import WINDOW
from service.money import amount
from service.reads.shared import Row, StoredCampaign, fetch, stored_campaign
from service.store import tables
from service.store.log_amounts import element, sums_by_quarter
from service.store.opening_balance import Opening, decisions_by_hour, opening_of
from service.store.tables import outcome_digest
from service.times import moment_text

LOG = (tables.decision, tables.outcome, tables.grant, tables.change)
ROWS_AT_ONCE = 1_000
# Of a resource and the bounds of a period: what its decisions hold and have spent.
Within = Callable[[int, int, int], tuple[int, int]]


def verify(connection: Connection, campaign_id: str) -> dict[str, Any]:
    """Every check with the expected and the found value. The connection must see one snapshot."""
    try:
        stored = stored_campaign(connection, campaign_id)
        _ = stored.campaign.resources
    except (ValueError, TypeError, KeyError) as error:
        checks = [check("configuration", "readable", type(error).__name__)]
        return {"campaign_id": campaign_id, "ok": False, "checks": checks}
    pruned = pruned_part(connection, stored)
    checks = [*_account_checks(connection, stored, pruned), *_log_checks(connection, stored, pruned)]
    resources = stored.campaign.resources
    checks += window_checks(
        connection,
        stored.campaign.number,
        resources,
        lambda: sums_by_quarter(connection, stored.campaign.number, len(resources)).within,
    )
    return {"campaign_id": campaign_id, "ok": all(check["ok"] for check in checks), "checks": checks}


def pruned_part(connection: Connection, stored: StoredCampaign) -> Opening:
    """The sums of what was pruned, 0 if nothing was."""
    return opening_of(connection, stored.campaign.number) or Opening(0, spent=(0,) * len(stored.campaign.resources))


def check(name: str, expected: Any, found: Any) -> dict[str, Any]:
    """One value computed again, and the stored one."""
    return {"name": name, "ok": expected == found, "expected": expected, "found": found}


def _account_checks(connection: Connection, stored: StoredCampaign, pruned: Opening) -> list[dict[str, Any]]:
    """Each account against the sums of the log, and what it holds against the table of holds."""
    number, resources = stored.campaign.number, stored.campaign.resources
    rows = accounts_of(connection, number)
    checks = [check("accounts", len(resources), len(rows))]
    open_holds = _open_holds(connection, stored)
    for row in rows:
        index, name = row["resource"], resources[row["resource"]]
        held, spent = booked(connection, stored, pruned, index)
        checks += account_checks(name, row, granted(connection, number, index), held, spent)
        checks.append(check(f"open holds of {name}", amount(held), amount(open_holds[index])))
    return checks


def accounts_of(connection: Connection, number: int) -> Sequence[Row]:
    """The stored accounts of a campaign or a portfolio, in the order of its resources."""
    account = tables.account
    return fetch(connection, select(account).where(account.c.campaign == number).order_by(account.c.resource))


def account_checks(name: str, row: Row, grants: int, held: int, spent: int) -> list[dict[str, Any]]:
    """A stored account against these amounts."""
    logged = {"granted": grants, "held": held, "spent": spent, "overrun": max(0, spent + held - grants)}
    return [check(f"{column} of {name}", amount(logged[column]), amount(row[column])) for column in logged]


def granted(connection: Connection, number: int, index: int) -> int:
    """What the log of a campaign or a portfolio grants of one resource."""
    grant = tables.grant
    of_resource = (grant.c.campaign == number, grant.c.resource == index, grant.c.kind == "budget")
    return _sum(connection, grant.c.amount, *of_resource)


def booked(connection: Connection, stored: StoredCampaign, pruned: Opening, index: int) -> tuple[int, int]:
    """What the log of a campaign holds and has spent of one resource."""
    grant, outcome, decision, number = tables.grant, tables.outcome, tables.decision, stored.campaign.number
    released = exists().where(
        outcome.c.campaign == decision.c.campaign, outcome.c.decision == decision.c.sequence, outcome.c.released
    )
    of_resource = (grant.c.campaign == number, grant.c.resource == index, grant.c.kind == "adjust")
    adjusted = _sum(connection, grant.c.amount, *of_resource)
    settled = _sum(connection, element(connection, outcome.c.spent, index), outcome.c.campaign == number)
    held = _sum(connection, element(connection, decision.c.hold, index), decision.c.campaign == number, ~released)
    return held, adjusted + settled + pruned.spent[index]


def window_checks(
    connection: Connection, number: int, resources: Sequence[str], sums: Callable[[], Within]
) -> list[dict[str, Any]]:
    """Each account of a window against the sums of the decisions of its period; their limits against the changes.

    The windows are those of a campaign or of a portfolio. sums: makes the function of a resource and the bounds of a
    period that returns what the decisions of the period hold and have spent.
    """
    window, change = tables.window_account, tables.change
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
    checks, within = [check("periods of windows", sum(map(len, limits.values())), len(rows))], sums()
    for row in rows:
        held, spent = within(row["resource"], row["starts_at"], row["ends_at"])
        limit = limits.get((row["resource"], row["period"]), {}).get(row["starts_at"], 0)
        name = f"{resources[row['resource']]} in the {row['period']} from {moment_text(row['starts_at'])}"
        checks += account_checks(name, row, limit, held, spent + row["pruned_spent"])
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
        check("rows of the log", last, count),
        # If the count is right, a number that occurs twice replaces another one, which changes the sum.
        check("numbers of the log", last * (last + 1) // 2, total),
        check("rounds", stored.state["round"], pruned.decisions + rounds),
        check("pruned through", stored.state["pruned_through"], pruned.through),
        check("decisions released twice", 0, released_twice),
        check("damaged outcomes", 0, _damaged(connection, number)),
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
    return [check("hours of other traffic", 0, int(differs.sum()))]


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
