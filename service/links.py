"""The links of the OpenAPI document: from an operation's response to the operations that can follow."""

from __future__ import annotations

from typing import Any

_ID = "$response.body#/id"
_CAMPAIGN_ID, _DECISION_ID = "$response.body#/campaign_id", "$response.body#/decision_id"

_CAMPAIGN_OPERATIONS = (
    "show_campaign",
    "change_campaign",
    "pause_campaign",
    "resume_campaign",
    "archive_campaign",
    "show_budget",
    "list_movements",
    "adjust_spent",
    "verify_campaign",
    "show_timeline",
    "show_feedback",
    "list_arms",
    "list_decisions",
    "export_decisions",
    "list_evaluations",
    "show_uplift",
)
_SHOW_DECISION = {"parameters": {"campaign_id": _CAMPAIGN_ID, "decision_id": _DECISION_ID}}
_BOTH_IDS = {"requestBody": {"campaign_id": _CAMPAIGN_ID, "decision_id": _DECISION_ID}}

LINKS: dict[str, dict[str, dict[str, Any]]] = {
    "create_campaign": {
        **{following: {"parameters": {"campaign_id": _ID}} for following in _CAMPAIGN_OPERATIONS},
        "decide": {"requestBody": {"campaign_id": _ID}},
        "decide_batch": {"requestBody": {"campaign_id": _ID}},
    },
    "pause_campaign": {"resume_campaign": {"parameters": {"campaign_id": _ID}}},
    "decide": {"feedback": _BOTH_IDS, "show_decision": _SHOW_DECISION},
    "feedback": {"feedback": _BOTH_IDS, "show_decision": _SHOW_DECISION},
    "start_evaluation": {"show_evaluation": {"parameters": {"campaign_id": _CAMPAIGN_ID, "evaluation_id": _ID}}},
    "create_key": {"revoke_key": {"parameters": {"key_id": _ID}}},
}


def links_from(operation: str) -> dict[str, dict[str, Any]]:
    """Returns the links of an operation's successful response.

    >>> links_from("create_key")
    {'revoke_key': {'operationId': 'revoke_key', 'parameters': {'key_id': '$response.body#/id'}}}
    """
    return {following: {"operationId": following, **link} for following, link in LINKS.get(operation, {}).items()}
