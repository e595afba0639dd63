"""Compares the rows of a campaign with its configurations: pure functions that return findings, each of one kind.

configuration  a row does not follow from the status or the configuration that was in force at its number
hold-out       a baseline decided another share than declared, or played another arm
shadow         a campaign in shadow mode answered another arm than its client plays
"""

from __future__ import annotations

import json
from collections import defaultdict
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


def config_findings(books: Books, requested: Sequence[Operation] = ()) -> Iterator[Finding]:
    """Every decision and every expiry follows the configuration and the status at its number."""
    configs = configs_of(books)
    bodies = {operation.decision_id: operation.body for operation in requested}
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
            wrong = _misdecided(row, configs[version], version, status, bodies.get(row.decision_id, {}))
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


def configs_of(books: Books) -> dict[int, dict[str, Any]]:
    """Return the configurations by version."""
    return {version: json.loads(body) for version, body in books.configs.items()}


def holds_of(config: dict[str, Any], request: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return what each arm that can be chosen holds; a request may bring max costs of its own."""
    return {arm["id"]: hold_of(config, arm, request) for arm in config["arms"] if not is_inactive(arm)}


def hold_of(config: dict[str, Any], arm: dict[str, Any], request: dict[str, Any]) -> tuple[int, ...]:
    """Return what an arm holds for a request."""
    own = {
        **(arm.get("max_cost") or {}),
        **request.get("max_cost", {}),
        **request.get("max_costs", {}).get(arm["id"], {}),
    }
    return tuple(micros_of(own.get(resource["id"], resource["max_cost"])) for resource in config["resources"])


def is_inactive(arm: dict[str, Any]) -> bool:
    """Whether an arm is retired or paused."""
    return bool(arm.get("retired")) or arm.get("status") == "paused"


def _misdecided(row: DecisionRow, config: dict[str, Any], version: int, status: str, request: dict[str, Any]) -> str:
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
    if arm is None or (is_inactive(arm) and config.get("mode") != "shadow"):
        return f"arm {row.arm} is paused, retired or unknown"
    hold = hold_of(config, arm, request)
    return "" if row.hold == hold else f"arm {row.arm} holds {row.hold} instead of {hold}"


def holdout_findings(books: Books) -> Iterator[Finding]:
    """The baseline decides the declared share, plays the declared arm, and its share is part of each probability.

    Where null is the last resort, the baseline may decide less: it plays only where the reserve leaves its arm, and
    elsewhere the policy decides alone.
    """
    configs = configs_of(books)
    drawn = [row for row in books.decisions if row.reason in ("policy", "holdout")]
    groups: dict[tuple[str, bool], list[DecisionRow]] = defaultdict(list)
    for row in drawn:
        config = configs[row.config_version]
        groups[json.dumps(config.get("holdout")), _must_play(config)].append(row)
    for (text, must_play), rows in groups.items():
        fraction = (json.loads(text) or {"fraction": 0.0})["fraction"]
        held_out = [row for row in rows if row.reason == "holdout"]
        expected, deviation = fraction * len(rows), sqrt(len(rows) * fraction * (1 - fraction))
        difference = len(held_out) - expected
        if (max(difference, 0.0) if must_play else abs(difference)) > DEVIATIONS_MAX * deviation:
            what = f"the baseline decided {len(held_out)} of {len(rows)}, declared is {fraction}"
            yield Finding("hold-out", books.campaign, what)
    for row in drawn:
        terms, must_play = configs[row.config_version].get("holdout"), _must_play(configs[row.config_version])
        fraction = terms["fraction"] if terms else 0.0
        is_baseline = bool(terms) and row.arm in ((terms["arm"],) if must_play else (terms["arm"], None))
        if row.reason == "holdout" and not (is_baseline and row.probability >= fraction - ROUNDING):
            yield Finding("hold-out", books.campaign, f"round {row.round}: {row.arm} by chance {row.probability}")
        if not is_baseline and not must_play and row.probability > 1 - fraction + ROUNDING:
            yield Finding("hold-out", books.campaign, f"round {row.round}: chance {row.probability} is too large")


def _must_play(config: dict[str, Any]) -> bool:
    return config.get("null_arm") == "last_resort"


def shadow_findings(books: Books, requested: Sequence[Operation]) -> Iterator[Finding]:
    """In shadow mode each answer is the arm that the client plays, or null without the money for it or any arm."""
    configs, rows = configs_of(books), {row.decision_id: row for row in books.decisions}
    for operation in requested:
        answer, row = operation.answer, rows.get(operation.decision_id)
        if answer is None or row is None or "error" in answer or answer["reason"] in UNSTORED:
            continue
        config = configs[row.config_version]
        if config.get("mode") != "shadow":
            wrong = "shadow" if answer["reason"] == "shadow" or "baseline_arm" in operation.body else ""
        else:
            wanted, active = operation.body["baseline_arm"], bool(holds_of(config, {}))
            excused = {"budget_exhausted", "window_exhausted"} if active else {"all_excluded"}
            right = (answer["reason"] in excused and answer["arm"] is None) or (
                active and answer["reason"] == "shadow" and answer["arm"] == wanted
            )
            wrong = "" if right else f"{wanted} is played"
        if wrong:
            yield Finding("shadow", books.campaign, f"{operation.decision_id}: {wrong}, answered {answer}")
