"""Compares the rows of a campaign with its configurations: pure functions that return findings, each of one kind.

configuration  a row does not follow from the status or the configuration that was in force at its number
hold-out       a baseline decided another share than declared, or played another arm
shadow         a campaign in shadow mode answered another arm than its client plays
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from math import sqrt
from typing import Any

from tests.faults.books import Books, ChangeRow, DecisionRow, OutcomeRow
from tests.faults.checker import UNSTORED, Finding
from tests.faults.history import MICROS, Operation, micros_of

STATUS_AFTER = {"pause": "paused", "resume": "active", "archive": "archived"}
NEW_VERSIONS = ("patch", "estimate")
# The deviation of a sound share is larger once in two million times.
DEVIATIONS_MAX = 5.0
ROUNDING = 1e-9


def config_findings(books: Books) -> Iterator[Finding]:
    """Every decision and every expiry follows the configuration and the status at its number."""
    configs = {version: json.loads(body) for version, body in books.configs.items()}
    holds = {row.sequence: row.hold for row in books.decisions}
    version, status = 1, "active"
    rows: list[DecisionRow | OutcomeRow | ChangeRow] = [*books.decisions, *books.outcomes, *books.changes]
    for row in sorted(rows, key=lambda row: row.sequence):
        wrong = ""
        if isinstance(row, ChangeRow):
            status = STATUS_AFTER.get(row.kind, status)
            version += row.kind in NEW_VERSIONS
            wrong = "" if version in configs else f"there is no version {version}"
        elif isinstance(row, DecisionRow):
            wrong = _misdecided(row, configs[version], version, status)
        elif row.kind == row.status == "expired":
            charged = configs[version]["feedback"]["missing_cost"] == "hold"
            expected = tuple(amount * charged for amount in holds[row.decision] or ())
            wrong = "" if row.costs == expected else f"expired at {row.costs}, not at {expected}"
        if wrong:
            yield Finding("configuration", books.campaign, f"at number {row.sequence}: {wrong}")
            if version not in configs:
                return
    if version != books.config_version:
        yield Finding("configuration", books.campaign, f"version {books.config_version} after {version - 1} changes")


def _misdecided(row: DecisionRow, config: dict[str, Any], version: int, status: str) -> str:
    """Return why the configuration does not allow a decision, if it does not."""
    arms = {arm["id"]: arm for arm in config["arms"]}
    if status != "active":
        return f"decided while {status}"
    if row.config_version != version:
        return f"decided with version {row.config_version} instead of {version}"
    if config["horizon"] is not None and row.round >= config["horizon"]:
        return f"round {row.round} of {config['horizon']}"
    starts_at = config.get("starts_at")
    if starts_at is not None and row.at < datetime.fromisoformat(starts_at).timestamp() * MICROS:
        return "decided before the start"
    if config["ends_at"] is not None and row.at >= datetime.fromisoformat(config["ends_at"]).timestamp() * MICROS:
        return "decided after the end"
    if row.arm is None:
        return ""
    arm = arms.get(row.arm)
    if arm is None or arm.get("retired") or arm.get("status") == "paused":
        return f"arm {row.arm} is paused, retired or unknown"
    own = arm.get("max_cost") or {}
    hold = tuple(micros_of(own.get(resource["id"], resource["max_cost"])) for resource in config["resources"])
    return "" if row.hold == hold else f"arm {row.arm} holds {row.hold} instead of {hold}"


def holdout_findings(books: Books) -> Iterator[Finding]:
    """The baseline decides the declared share, plays the declared arm, and its share is part of each probability."""
    terms = json.loads(books.configs[1])["holdout"]
    fraction = terms["fraction"] if terms else 0.0
    drawn = [row for row in books.decisions if row.reason in ("policy", "holdout")]
    held_out = [row for row in drawn if row.reason == "holdout"]
    expected, deviation = fraction * len(drawn), sqrt(len(drawn) * fraction * (1 - fraction))
    if abs(len(held_out) - expected) > DEVIATIONS_MAX * deviation:
        what = f"the baseline decided {len(held_out)} of {len(drawn)}, declared is {fraction}"
        yield Finding("hold-out", books.campaign, what)
    for row in drawn:
        is_baseline = bool(terms) and row.arm in (terms["arm"], None)
        if row.reason == "holdout" and not (is_baseline and row.probability >= fraction - ROUNDING):
            yield Finding("hold-out", books.campaign, f"round {row.round}: {row.arm} by chance {row.probability}")
        if not is_baseline and row.probability > 1 - fraction + ROUNDING:
            yield Finding("hold-out", books.campaign, f"round {row.round}: chance {row.probability} is too large")


def shadow_findings(campaign: str, requested: Sequence[Operation]) -> Iterator[Finding]:
    """Each answer is the arm that the client plays, or null without the budget for it."""
    for operation in requested:
        answer, wanted = operation.answer, operation.body["baseline_arm"]
        if answer is None or "error" in answer or answer["reason"] in UNSTORED:
            continue
        expected = {"shadow": wanted, "budget_exhausted": None}.get(answer["reason"], "no such reason")
        if answer["arm"] != expected:
            yield Finding("shadow", campaign, f"{operation.decision_id}: {wanted} is played, answered {answer}")
