"""Campaigns that end at a time instead of after a number of decisions."""

from __future__ import annotations

import json

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
def test_the_expected_rounds_continue_the_rate_so_far(rounds, now, expected):
    assert expected_rounds(rounds, started=0, now=now, ends=10_000) == expected


def test_the_horizon_follows_the_traffic_until_the_end(clocked_database):
    database, clock = clocked_database, clocked_database.clock
    ends = clock.micros + 2_500_000

    async def play(engine):
        for command in decides(60):
            clock.micros += 10_000
            await engine.submit(command)
        clock.micros = ends
        return (await engine.submit(Decide("c", "after", [0.5, 0.5]))).body

    after = with_campaign(database, play, horizon=None, ends_at=moment_text(ends), budget=100_000)
    assert (after["arm"], after["reason"]) == (None, "ended")
    estimates = [json.loads(row["body"])["estimate"] for row in rows(database, tables.config)[1:]]
    assert len(estimates) >= 2
    # 60 decisions in 0.6 s of 2.5 s.
    assert all(estimate["horizon"] == pytest.approx(250, rel=0.06) for estimate in estimates[1:])
    assert rows(database, tables.campaign_state)[0]["config_version"] == len(estimates) + 1
    assert len(rows(database, tables.decision)) == 60


def test_near_the_end_estimates_are_not_renewed_with_every_decision(clocked_database):
    """Near the end nearly all decisions are made; the share of those still expected counts."""
    database, clock = clocked_database, clocked_database.clock
    start, seconds, made = clock.micros, 60, 600
    processor = BatchRunner(database, memory_bytes_max=2**28, lock_timeout_ms=2_000)
    ends_at = moment_text(start + seconds * 1_000_000)
    terms = config(horizon=None, ends_at=ends_at, budget=100_000)
    items = [Item(command, 0.0) for command in (CreateCampaign(terms), *decides(made))]
    for number, item in enumerate(items):
        clock.micros = start + number * seconds * 1_000_000 // made
        processor.run([item])
    assert [item.answer.body["reason"] for item in items[-2:]] == ["policy", "ended"]
    estimates = [json.loads(row["body"])["estimate"] for row in rows(database, tables.config)[1:]]
    assert all(abs(estimate["horizon"] - made) <= 2 for estimate in estimates if estimate["rounds"] > made / 2)
    assert 8 <= len([estimate for estimate in estimates if estimate["rounds"] > 0.9 * made]) <= 14


def decides(count):
    return [Decide("c", f"d{each}", [0.5, 0.5]) for each in range(count)]
