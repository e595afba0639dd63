"""Campaigns with a log, created over the interface, and their evaluations."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

WAIT_SECONDS_MAX = 60.0
# Mean reward and mean cost of the arms.
REWARDS, COSTS = (0.3, 0.7), (0.2, 0.6)


def campaign(name: str = "c", **changes: Any) -> dict[str, Any]:
    """Returns a campaign with two arms, the second earning and costing more; its budget is not scarce."""
    return {
        "id": name,
        "arms": [{"id": "a"}, {"id": "b"}],
        "resources": [{"id": "usd", "budget": 1000, "max_cost": 1}],
        "horizon": 1000,
        "context": {"dimension": 1},
        "seed": 7,
    } | changes


def play(client: Any, count: int, name: str = "c", **decide: Any) -> None:
    """Makes decisions in batches of 50 and reports nine of ten, with a fixed generator."""
    rng = np.random.default_rng(1)
    for start in range(0, count, 50):
        items = [{"decision_id": f"d{start + i}", "context": [round(float(rng.random()), 3)]} for i in range(50)]
        items = [item | decide for item in items]
        decided = client("POST", "/decide/batch", json={"campaign_id": name, "items": items}).json()["decisions"]
        reports = []
        for index, decision in enumerate(decided):
            luck = rng.random(2)
            if decision.get("arm") is not None and index % 10:
                arm = 0 if decision["arm"] == "a" else 1
                outcome = {"reward": float(luck[0] < REWARDS[arm]), "costs": {"usd": float(luck[1] < COSTS[arm])}}
                reports.append({"campaign_id": name, "decision_id": decision["decision_id"]} | outcome)
        assert client("POST", "/feedback/batch", json={"items": reports}).status_code == 200


def finished(client: Any, evaluation_id: str, name: str = "c") -> dict[str, Any]:
    """Waits for an evaluation to finish and returns it."""
    until = time.monotonic() + WAIT_SECONDS_MAX
    while True:
        answer = client("GET", f"/admin/campaigns/{name}/evaluations/{evaluation_id}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        if found["status"] in ("done", "failed"):
            return found
        assert time.monotonic() < until, found
        time.sleep(0.05)


def make(client, **changes):
    """Creates a campaign over HTTP."""
    answer = client("POST", "/campaigns", json=campaign(**changes))
    assert answer.status_code == 201, answer.text
