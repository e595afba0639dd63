"""Campaigns for the dashboard, created through the interface."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
from sqlalchemy import create_engine, func, insert, select

from service.store import tables

CITY, LAKE, PEAK = "city", "lake", "peak"
ARMS = (CITY, LAKE, PEAK)
DEVICES = ("mobile", "desktop", "tv")
CLICKS = np.array([[0.35, 0.15, 0.25], [0.10, 0.45, 0.20], [0.20, 0.20, 0.50]])  # by device and arm
USD = np.array([0.020, 0.030, 0.045])


def campaign(name: str, *, requests: int, usd: float, **changes: Any) -> dict[str, Any]:
    """Three banners, paid in money and impressions."""
    return {
        "id": name,
        "arms": [{"id": arm} for arm in ARMS],
        "resources": [
            {"id": "usd", "budget": usd, "max_cost": 0.05},
            {"id": "impressions", "budget": requests, "max_cost": 1},
        ],
        "horizon": requests,
        "context": {"features": [{"name": "device", "type": "category", "values": list(DEVICES)}]},
        "seed": 7,
    } | changes


def create(client: httpx.Client, body: dict[str, Any]) -> None:
    """Creates a campaign."""
    answer = client.post("/campaigns", json=body)
    assert answer.status_code == 201, answer.text


def play(
    client: httpx.Client,
    name: str,
    requests: int,
    *,
    seed: int = 1,
    missing: float = 0.02,
    batch: int = 100,
    baseline: str | None = None,
) -> None:
    """Plays an ad server: reports each batch of visitors before the next, a few never; in shadow mode it always plays
    `baseline`."""
    choice = {} if baseline is None else {"baseline_arm": baseline}
    rng = np.random.default_rng(seed)
    for start in range(0, requests, batch):
        devices = rng.integers(0, len(DEVICES), size=min(batch, requests - start))
        items = [{"context": {"device": DEVICES[device]}, **choice} for device in devices]
        answer = client.post("/decide/batch", json={"campaign_id": name, "items": items})
        assert answer.status_code == 200, answer.text
        reports = []
        for device, decision in zip(devices, answer.json()["decisions"], strict=True):
            if decision["arm"] is None or rng.random() < missing:
                continue
            arm = ARMS.index(decision["arm"])
            report: dict[str, Any] = {"campaign_id": name, "decision_id": decision["decision_id"]}
            if rng.random() < missing:
                reports.append(report | {"void": True})
                continue
            usd = round(float(USD[arm] * rng.uniform(0.7, 1.1)), 6)
            clicked = float(rng.random() < CLICKS[device, arm])
            reports.append(report | {"reward": clicked, "costs": {"usd": usd, "impressions": 1}})
        answer = client.post("/feedback/batch", json={"items": reports})
        assert answer.status_code == 200, answer.text


def make_all(client: httpx.Client, requests: int = 2000, batch: int = 100) -> None:
    """Creates one campaign of each kind: on plan, out of budget, too fast, paused, archived, new."""
    create(client, campaign("summer-sale", requests=requests * 2, usd=requests * 2 * 0.015))
    play(client, "summer-sale", requests, batch=batch)
    create(client, campaign("lakeside-autumn", requests=requests, usd=0.06))
    play(client, "lakeside-autumn", 200)
    create(client, campaign("city-breaks", requests=1000, usd=30))
    play(client, "city-breaks", 200)
    create(client, campaign("mountain-huts", requests=1000, usd=8))
    play(client, "mountain-huts", 100)
    create(client, campaign("night-trains", requests=1000, usd=30))
    assert client.post("/campaigns/night-trains/pause").status_code == 200
    create(client, campaign("last-year", requests=1000, usd=30))
    assert client.post("/campaigns/last-year/archive").status_code == 200
    create(client, campaign("new-year", requests=1000, usd=30))


def multiply(database_url: str, name: str, count: int) -> None:
    """Copies a campaign with its last decision in the database; through the interface it takes a minute."""
    of_campaigns = (tables.config, tables.campaign_state, tables.account, tables.decision)
    with create_engine(database_url).begin() as connection:
        number = connection.execute(select(tables.campaign.c.number).where(tables.campaign.c.id == name)).scalar_one()
        free = connection.execute(select(func.max(tables.campaign.c.number))).scalar_one() + 1
        names = [{"number": free + copy, "id": f"{name}-{copy:04}", "created_at": 1} for copy in range(count)]
        connection.execute(insert(tables.campaign), names)
        for table in of_campaigns:
            rows = connection.execute(select(table).where(table.c.campaign == number)).mappings().all()
            kept = rows[-1:] if table is tables.decision else rows
            copies = [dict(row) | {"campaign": free + copy} for copy in range(count) for row in kept]
            connection.execute(insert(table), copies)
