"""Campaigns that declare an end in time instead of a number of decisions."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from service.domain.horizon import expected_rounds
from service.engine.batch import BatchRunner
from service.engine.commands import CreateCampaign, Decide, Item
from service.store import tables
from service.times import moment_text
from tests.service.engine.campaigns import config, rows, with_campaign


@pytest.mark.parametrize(
    ("rounds", "now", "expected"),
    [(100, 1_000, 1_000), (0, 5_000, 1), (10, 10_000, 11), (3, 1, 30_000)],
)
def test_rounds_are_expected_to_go_on_as_they_came(rounds, now, expected):
    assert expected_rounds(rounds, started=0, now=now, ends=10_000) == expected


def test_the_horizon_follows_the_traffic_until_the_end(database):
    ends_at = moment_text(time.time_ns() // 1000 + 2_500_000)

    async def play(engine):
        for i in range(60):
            await engine.submit(Decide("c", f"d{i}", [0.5, 0.5]))
            await asyncio.sleep(0.01)
        await asyncio.sleep(2.2)
        return (await engine.submit(Decide("c", "after", [0.5, 0.5]))).body

    after = with_campaign(database, play, horizon=None, ends_at=ends_at, budget=100_000)
    assert (after["arm"], after["reason"]) == (None, "ended")
    estimates = [json.loads(row["body"])["estimate"] for row in rows(database, tables.config)[1:]]
    assert len(estimates) >= 2
    assert all(estimate["horizon"] > estimate["rounds"] for estimate in estimates)
    assert rows(database, tables.campaign_state)[0]["config_version"] == len(estimates) + 1
    assert len(rows(database, tables.decision)) == 60


def test_near_the_end_estimates_are_not_renewed_with_every_decision(database, monkeypatch):
    """Near the end nearly all decisions are made at any time; the decisions still expected are what counts."""
    start, seconds, made = 1_800_000_000_000_000, 60, 600
    moments = iter([start + each * seconds * 1_000_000 // made for each in range(made + 2)])
    monkeypatch.setattr(database, "now_micros", lambda connection: next(moments))
    processor = BatchRunner(database, memory_bytes_max=2**28, lock_timeout_ms=2_000)
    ends_at = moment_text(start + seconds * 1_000_000)
    terms = config(horizon=None, ends_at=ends_at, budget=100_000)
    items = [Item(command, 0.0) for command in (CreateCampaign(terms), *decides(made))]
    for item in items:
        processor.run([item])
    assert [item.answer.body["reason"] for item in items[-2:]] == ["policy", "ended"]
    estimates = [json.loads(row["body"])["estimate"] for row in rows(database, tables.config)[1:]]
    assert all(abs(estimate["horizon"] - made) <= 2 for estimate in estimates if estimate["rounds"] > made / 2)
    assert 8 <= len([estimate for estimate in estimates if estimate["rounds"] > 0.9 * made]) <= 14


def decides(count):
    return [Decide("c", f"d{each}", [0.5, 0.5]) for each in range(count)]
