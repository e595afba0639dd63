"""The rows of a campaign, read by plain SQL without the code of the service."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.rows import dict_row

TABLES = (
    "campaign", "config", "campaign_state", "account", "window_account", "decision", "hold", "outcome", "grant",
    "change",
)  # fmt: skip


# What the id of a portfolio begins with in the table `campaign`.
PORTFOLIO = "portfolio/"


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """A row of `decision`."""

    sequence: int
    decision_id: str
    round: int
    arm: str | None
    reason: str
    probability: float
    hold: tuple[int, ...] | None
    expires_at: int | None
    at: int
    config_version: int = 1


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """A row of `outcome`."""

    sequence: int
    decision: int
    kind: str
    status: str
    reward: float | None
    costs: tuple[int, ...] | None
    spent: tuple[int, ...] | None
    released: bool
    taught: bool
    policy_version: int
    warnings: tuple[str, ...]
    at: int


@dataclass(frozen=True, slots=True)
class GrantRow:
    """A row of `grant`."""

    sequence: int
    resource: int
    kind: str
    amount: int
    reason: str = ""
    at: int = 0


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """A row of `change`; the body is JSON."""

    sequence: int
    kind: str
    body: str
    at: int = 0


@dataclass(frozen=True, slots=True)
class Account:
    """A row of `account`."""

    granted: int
    held: int
    spent: int
    overrun: int


@dataclass(frozen=True, slots=True)
class WindowRow:
    """A row of `window_account`: what a window has in one period."""

    resource: int
    period: str
    starts_at: int
    ends_at: int
    account: Account


@dataclass(frozen=True, slots=True)
class Books:
    """The rows of one campaign that count, in the order of their numbers."""

    campaign: str
    resources: tuple[str, ...]
    sequence: int
    round: int
    accounts: tuple[Account, ...]
    decisions: tuple[DecisionRow, ...]
    outcomes: tuple[OutcomeRow, ...]
    grants: tuple[GrantRow, ...]
    changes: tuple[ChangeRow, ...]
    holds: dict[int, tuple[int, ...]]
    config_version: int = 1
    configs: Mapping[int, str] = field(default_factory=dict)  # JSON by version
    windows: tuple[WindowRow, ...] = ()


def read_books(url: str) -> dict[str, Books]:
    """Return the books of every campaign, from one snapshot of the database."""
    return read_both(url)[0]


def read_both(url: str) -> tuple[dict[str, Books], dict[str, Books]]:
    """Return the books of every campaign and those of every portfolio, from one snapshot of the database."""
    return both_in(_sqlite_rows(url) if url.startswith("sqlite") else _postgresql_rows(url))


def both_in(rows: dict[str, list[Any]]) -> tuple[dict[str, Books], dict[str, Books]]:
    """Return the books of every campaign and those of every portfolio, from the rows of all `TABLES`."""
    found = _all_books(rows)
    portfolios = {name: found.pop(name) for name in [*found] if name.startswith(PORTFOLIO)}
    return found, portfolios


def _all_books(rows: dict[str, list[Any]]) -> dict[str, Books]:
    by_campaign: dict[str, dict[int, list[Any]]] = {}
    for table in TABLES[1:]:
        found: dict[int, list[Any]] = defaultdict(list)
        for row in rows[table]:
            found[row["campaign"]].append(row)
        by_campaign[table] = found
    return {
        row["id"]: _books(row["id"], {table: by_campaign[table][row["number"]] for table in TABLES[1:]})
        for row in rows["campaign"]
    }


def _sqlite_rows(url: str) -> dict[str, list[Any]]:
    path = url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute("BEGIN")
        return {table: connection.execute(f'SELECT * FROM "{table}"').fetchall() for table in TABLES}


def _postgresql_rows(url: str) -> dict[str, list[Any]]:
    with psycopg.connect(url, row_factory=dict_row) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        return {table: list(connection.execute(f'SELECT * FROM "{table}"')) for table in TABLES}


def _amounts(text: str | None) -> tuple[int, ...] | None:
    return None if text is None else tuple(json.loads(text))


def _books(name: str, rows: dict[str, Sequence[Any]]) -> Books:
    configs = {row["version"]: row["body"] for row in rows["config"]}
    of_portfolio = {"config_version": max(configs), "sequence": 0, "round": 0}
    state = rows["campaign_state"][0] if rows["campaign_state"] else of_portfolio
    version = state["config_version"]
    return Books(
        campaign=name,
        resources=tuple(resource["id"] for resource in json.loads(configs[version])["resources"]),
        sequence=state["sequence"],
        round=state["round"],
        accounts=tuple(_account(row) for row in sorted(rows["account"], key=lambda row: int(row["resource"]))),
        decisions=tuple(sorted((_decision_row(row) for row in rows["decision"]), key=lambda one: one.sequence)),
        outcomes=tuple(sorted((_outcome_row(row) for row in rows["outcome"]), key=lambda one: one.sequence)),
        grants=tuple(
            GrantRow(row["sequence"], row["resource"], row["kind"], row["amount"], row["reason"], row["at"])
            for row in rows["grant"]
        ),
        changes=tuple(
            ChangeRow(row["sequence"], row["kind"], row["body"], row["at"])
            for row in sorted(rows["change"], key=lambda row: int(row["sequence"]))
        ),
        holds={row["decision"]: tuple(json.loads(row["amounts"])) for row in rows["hold"]},
        config_version=version,
        configs=configs,
        windows=tuple(
            WindowRow(row["resource"], row["period"], row["starts_at"], row["ends_at"], _account(row))
            for row in rows["window_account"]
        ),
    )


def _account(row: Any) -> Account:
    return Account(row["granted"], row["held"], row["spent"], row["overrun"])


def _decision_row(row: Any) -> DecisionRow:
    return DecisionRow(
        sequence=row["sequence"],
        decision_id=row["decision_id"],
        round=row["round"],
        arm=row["arm_id"],
        reason=row["reason"],
        probability=row["probability"],
        hold=_amounts(row["hold"]),
        expires_at=row["expires_at"],
        at=row["decided_at"],
        config_version=row["config_version"],
    )


def _outcome_row(row: Any) -> OutcomeRow:
    return OutcomeRow(
        sequence=row["sequence"],
        decision=row["decision"],
        kind=row["kind"],
        status=row["status"],
        reward=row["reward"],
        costs=_amounts(row["costs"]),
        spent=_amounts(row["spent"]),
        released=bool(row["released"]),
        taught=row["taught"] is not None and row["status"] != "charged",  # costs alone are a half of a lesson
        policy_version=row["policy_version"],
        warnings=tuple(json.loads(row["warnings"] or "[]")),
        at=row["at"],
    )
