"""Rows that the tables accept."""

from typing import Any

from sqlalchemy import Connection, insert

from service.store import tables
from service.store.tables import outcome_digest


def state(number: int, **changes: Any) -> dict[str, Any]:
    """A campaign's state, as it is when nothing has happened."""
    return {
        "campaign": number,
        "status": "active",
        "config_version": 1,
        "model_version": 0,
        "sequence": 0,
        "round": 0,
        "books": b"",
        "last_event_at": 0,
        "pruned_through": 0,
        "traffic": None,
    } | changes


def account(**changes: Any) -> dict[str, Any]:
    """An account of campaign 1 with money in every column."""
    return {"campaign": 1, "resource": 0, "granted": 100, "held": 30, "spent": 60, "overrun": 0} | changes


def decision(sequence: int, **changes: Any) -> dict[str, Any]:
    """A decision of campaign 1 that gave an arm."""
    return {
        "campaign": 1,
        "sequence": sequence,
        "decision_id": f"d{sequence}",
        "request_digest": b"\x00\xff",
        "config_version": 1,
        "policy_version": 0,
        "round": sequence,
        "place": 0,
        "arm": 0,
        "arm_id": "a",
        "reason": "policy",
        "probability": 0.5,
        "gamma": 1.0,
        "context": "{}",
        "exclude": None,
        "actions": None,
        "max_costs": None,
        "shadow": None,
        "numbers": b"",
        "prices": b"",
        "explanation": None,
        "hold": "[1]",
        "decided_at": 0,
        "expires_at": 1,
    } | changes


def outcome(sequence: int, **changes: Any) -> dict[str, Any]:
    """What became of decision 1 of campaign 1."""
    row = {
        "campaign": 1,
        "sequence": sequence,
        "decision": 1,
        "kind": "reported",
        "status": "settled",
        "reward": 1.0,
        "costs": "[1]",
        "spent": "[1]",
        "released": True,
        "taught": None,
        "policy_version": 0,
        "warnings": None,
        "at": 0,
    } | changes
    return {"digest": outcome_digest(row)} | row


def add_campaigns(connection: Connection, *numbers: int) -> None:
    """Campaigns with a state each."""
    for number in numbers:
        connection.execute(insert(tables.campaign).values(number=number, id=f"c{number}", created_at=0))
        connection.execute(insert(tables.campaign_state).values(state(number)))
