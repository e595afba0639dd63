"""Accounts computed anew from the log, and other things that must hold of it, in one snapshot.

What was pruned counts with the sums that were left of it.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, exists, func, select

from service.money import amount
from service.reads.shared import Row, Seen, element, seen
from service.store import tables
from service.store.digests import outcome_digest
from service.store.opening_balance import Opening, opening_of

LOG = (tables.decision, tables.outcome, tables.grant, tables.change)
ROWS_AT_ONCE = 1_000


def verify(connection: Connection, campaign_id: str) -> dict[str, Any]:
    """Every check with what the log says and what was found. The connection must see one snapshot throughout."""
    one = seen(connection, campaign_id)
    pruned = opening_of(connection, one.campaign.number) or Opening(0, spent=(0,) * len(one.campaign.resources))
    checks = [*_account_checks(connection, one, pruned), *_log_checks(connection, one, pruned)]
    return {"campaign_id": campaign_id, "ok": all(check["ok"] for check in checks), "checks": checks}


def _check(name: str, expected: Any, found: Any) -> dict[str, Any]:
    return {"name": name, "ok": expected == found, "expected": expected, "found": found}


def _account_checks(connection: Connection, one: Seen, pruned: Opening) -> list[dict[str, Any]]:
    account = tables.account
    rows = (
        connection.execute(
            select(account).where(account.c.campaign == one.campaign.number).order_by(account.c.resource)
        )
        .mappings()
        .all()
    )
    checks = [_check("accounts", len(one.campaign.resources), len(rows))]
    held = _open(connection, one)
    for row in rows:
        checks += _checks_of_account(connection, one, row, pruned, held[row["resource"]])
    return checks


def _checks_of_account(
    connection: Connection, one: Seen, row: Row, pruned: Opening, in_holds: int
) -> list[dict[str, Any]]:
    index = row["resource"]
    name = one.campaign.resources[index]
    granted = _grants(connection, one, index, "budget")
    spent = _grants(connection, one, index, "adjust") + _spent(connection, one, index) + pruned.spent[index]
    held = _held(connection, one, index)
    logged = {"granted": granted, "held": held, "spent": spent, "overrun": max(0, spent + held - granted)}
    checks = [_check(f"{part} of {name}", amount(logged[part]), amount(row[part])) for part in logged]
    return [*checks, _check(f"open holds of {name}", amount(held), amount(in_holds))]


def _sum(connection: Connection, column: ColumnElement[Any], *where: ColumnElement[bool]) -> int:
    return int(connection.execute(select(func.coalesce(func.sum(column), 0)).where(*where)).scalar_one())


def _grants(connection: Connection, one: Seen, index: int, kind: str) -> int:
    grant = tables.grant
    return _sum(
        connection,
        grant.c.amount,
        grant.c.campaign == one.campaign.number,
        grant.c.resource == index,
        grant.c.kind == kind,
    )


def _spent(connection: Connection, one: Seen, index: int) -> int:
    outcome = tables.outcome
    return _sum(connection, element(connection, outcome.c.spent, index), outcome.c.campaign == one.campaign.number)


def _held(connection: Connection, one: Seen, index: int) -> int:
    """Holds of decisions that nothing has ended."""
    decision, outcome = tables.decision, tables.outcome
    ended = exists().where(
        outcome.c.campaign == decision.c.campaign, outcome.c.decision == decision.c.sequence, outcome.c.released
    )
    return _sum(
        connection, element(connection, decision.c.hold, index), decision.c.campaign == one.campaign.number, ~ended
    )


def _open(connection: Connection, one: Seen) -> list[int]:
    """What the table of holds says, of each resource: in one statement, which reads the holds of all campaigns."""
    hold, resources = tables.hold, len(one.campaign.resources)
    sums = [func.coalesce(func.sum(element(connection, hold.c.amounts, index)), 0) for index in range(resources)]
    found = connection.execute(select(*sums).where(hold.c.campaign == one.campaign.number)).one()
    return [int(part) for part in found]


def _log_checks(connection: Connection, one: Seen, pruned: Opening) -> list[dict[str, Any]]:
    number, last = one.campaign.number, one.sequence
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
        # With the right count, a number used twice would need another to be missing, and the sum would tell.
        _check("numbers of the log", last * (last + 1) // 2, total),
        _check("rounds", one.state["round"], pruned.decisions + rounds),
        _check("pruned through", one.state["pruned_through"], pruned.through),
        _check("decisions released twice", 0, released_twice),
        _check("damaged outcomes", 0, _damaged(connection, number)),
    ]


def _damaged(connection: Connection, number: int) -> int:
    """Outcomes that are not as they were written."""
    outcome = tables.outcome
    rows = connection.execute(
        select(outcome).where(outcome.c.campaign == number), execution_options={"yield_per": ROWS_AT_ONCE}
    ).mappings()
    return sum(outcome_digest(dict(row)) != row["digest"] for row in rows)
