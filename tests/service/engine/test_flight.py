"""Campaigns with an end in time instead of a number of decisions."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from service.engine.commands import Decide
from service.engine.flight import expected_rounds
from service.store import tables
from service.times import moment_text
from tests.service.engine.campaigns import rows, with_campaign


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


def test_near_the_end_estimates_are_not_renewed_with_every_decision(database):
    """Then nearly all of the decisions are made at any time; what counts is how many were still to come."""
    ends_at = moment_text(time.time_ns() // 1000 + 3_000_000)

    async def play(engine):
        made = 0
        while (await engine.submit(Decide("c", f"d{made}", [0.5, 0.5]))).body["reason"] != "ended":
            made += 1
            await asyncio.sleep(0.004)
        return made

    made = with_campaign(database, play, horizon=None, ends_at=ends_at, budget=100_000)
    estimates = [json.loads(row["body"])["estimate"] for row in rows(database, tables.config)[1:]]
    late = [estimate for estimate in estimates if estimate["rounds"] > 0.9 * made]
    assert made > 100
    assert len(late) <= 14  # ten hundredths of the flight, and few besides
