"""Campaigns that start and end at a time, and the traffic from which their horizon is estimated."""

from __future__ import annotations

import json
from operator import itemgetter

import numpy as np
import pytest
from sqlalchemy import update

from service import reads
from service.domain import traffic
from service.domain.horizon import expected_horizon
from service.engine import prune
from service.engine.batch import BatchRunner
from service.engine.commands import CreateCampaign, Decide, Feedback, Item, PatchCampaign
from service.engine.replay import replay
from service.store import tables
from service.times import HOURS_PER_WEEK, MICROS_PER_HOUR, hour_of_week, moment_text
from tests.service.engine.campaigns import config, rows, with_campaign

DAY = 24 * MICROS_PER_HOUR
LATER = "2100-01-01T00:00:00Z"


class Runner:
    """Runs commands on a database, each list in one transaction."""

    def __init__(self, database):
        self.runner = BatchRunner(database, memory_bytes_max=2**28, lock_timeout_ms=2_000)

    def __call__(self, *commands):
        items = [Item(command, 0.0) for command in commands]
        self.runner.run(items)
        return [item.answer for item in items]


@pytest.mark.parametrize(
    ("rounds", "now", "expected"),
    [(100, 1_000, 1_000), (0, 5_000, 1), (10, 10_000, 11), (3, 1, 30_000)],
)
def test_within_an_hour_the_expected_horizon_continues_the_rate_so_far(rounds, now, expected):
    counts = traffic.plus(traffic.no_traffic(), rounds, 0)
    assert expected_horizon(counts, since=0, now=now, ends=10_000) == expected


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
    estimates = estimates_of(database)
    assert len(estimates) >= 2
    # 60 decisions in 0.6 s of 2.5 s.
    assert all(estimate["horizon"] == pytest.approx(250, rel=0.06) for estimate in estimates[1:])
    assert rows(database, tables.campaign_state)[0]["config_version"] == len(estimates) + 1
    assert len(rows(database, tables.decision)) == 60


def test_near_the_end_estimates_are_not_renewed_with_every_decision(clocked_database):
    """Near the end nearly all decisions are made; the share of those still expected counts."""
    database, clock = clocked_database, clocked_database.clock
    start, seconds, made = clock.micros, 60, 600
    run = Runner(database)
    terms = config(horizon=None, ends_at=moment_text(start + seconds * 1_000_000), budget=100_000)
    reasons = []
    for number, command in enumerate((CreateCampaign(terms), *decides(made))):
        clock.micros = start + number * seconds * 1_000_000 // made
        reasons.append(run(command)[0].body.get("reason"))
    assert reasons[-2:] == ["policy", "ended"]
    estimates = estimates_of(database)
    assert all(abs(estimate["horizon"] - made) <= 2 for estimate in estimates if estimate["rounds"] > made / 2)
    assert 8 <= len([estimate for estimate in estimates if estimate["rounds"] > 0.9 * made]) <= 14


@pytest.mark.parametrize("first_hour", [8, 20])
def test_after_a_day_and_a_half_the_estimate_knows_the_night(clocked_database, first_hour):
    """Ten decisions an hour by day and none at night, for ten days from the morning or the evening."""
    database, clock = clocked_database, clocked_database.clock
    start = clock.micros - clock.micros % DAY + DAY + first_hour * MICROS_PER_HOUR
    run = Runner(database)
    clock.micros = start - 20 * DAY
    ends_at = moment_text(start + 10 * DAY)
    terms = config(horizon=None, starts_at=moment_text(start), ends_at=ends_at, budget=100_000)
    run(CreateCampaign(terms))
    for hour in range(38):
        clock.micros = start + hour * MICROS_PER_HOUR + 1
        if 8 <= (first_hour + hour) % 24 < 20:
            run(*(Decide("c", f"{hour}-{each}", [0.5, 0.5]) for each in range(10)))
        else:
            run(Feedback("c", "none", void=True))  # a transaction without a decision
    last = estimates_of(database)[-1]
    assert last["at"] == start + 37 * MICROS_PER_HOUR + 1
    assert last["horizon"] == pytest.approx(1_200, rel=0.08)
    assert abs(last["rounds"] * 240 / 37 / 1_200 - 1) > 0.25  # by linear extrapolation
    assert_counted(database)


def test_before_its_start_a_campaign_answers_null_and_stores_nothing(clocked_database):
    database, clock = clocked_database, clocked_database.clock
    start = clock.micros + MICROS_PER_HOUR
    run = Runner(database)
    run(CreateCampaign(config(starts_at=moment_text(start), horizon=None, ends_at=moment_text(start + DAY))))
    clock.micros = start - 1
    early = [answer.body for answer in run(*decides(1_100))]
    assert {(body["arm"], body["reason"], body["round"]) for body in early} == {(None, "not_started", 0)}
    assert rows(database, tables.decision) == []
    assert len(rows(database, tables.config)) == 1  # nor an estimate
    clock.micros = start
    (first,) = run(Decide("c", "d0", [0.5, 0.5]))
    assert (first.body["reason"], first.replayed) == ("policy", False)


def test_before_its_start_a_paused_campaign_is_paused(clocked_database):
    run = Runner(clocked_database)
    run(CreateCampaign(config(starts_at=LATER)))
    with clocked_database.write() as connection:
        connection.execute(update(tables.campaign_state).values(status="paused"))
    assert run(*decides(1))[0].body["reason"] == "paused"


def test_a_start_moves_only_until_the_campaign_has_started(clocked_database):
    database, clock = clocked_database, clocked_database.clock
    run = Runner(database)
    hour = moment_text(clock.micros + MICROS_PER_HOUR)
    run(CreateCampaign(config(starts_at=LATER)), CreateCampaign(config("other")))
    assert run(PatchCampaign("c", {"starts_at": hour}))[0].body["config"]["starts_at"] == hour
    (past,) = run(PatchCampaign("c", {"starts_at": "2020-01-01T00:00:00Z"}))
    assert (past.status, past.extensions["errors"][0]["field"]) == (422, "starts_at")
    (after_end,) = run(PatchCampaign("c", {"ends_at": moment_text(clock.micros + 1)}))
    assert (after_end.status, after_end.extensions["errors"][0]["field"]) == (422, "starts_at")
    (now,) = run(PatchCampaign("c", {"starts_at": None}))
    assert (now.body["status"], now.body["config"]["starts_at"]) == ("active", moment_text(clock.micros))
    for name in ("c", "other"):
        (late,) = run(PatchCampaign(name, {"starts_at": LATER}))
        assert (late.status, late.kind) == (409, "change-refused")
    assert run(*decides(1))[0].body["reason"] == "policy"


def test_a_campaign_of_two_stages_cannot_get_an_end_time_and_is_told_why(clocked_database):
    run = Runner(clocked_database)
    policy = config()["policy"] | {"preset": "paper", "two_stage": "paper"}
    run(CreateCampaign(config(horizon=100_000, budget=100_000, policy=policy)))
    (refused,) = run(PatchCampaign("c", {"ends_at": LATER}))
    assert (refused.status, refused.kind) == (409, "change-refused")
    assert "two stages" in refused.detail


def test_traffic_is_counted_by_hour_of_the_week_for_campaigns_with_an_end(clocked_database):
    database, clock = clocked_database, clocked_database.clock
    run = Runner(database)
    names = ["timed", "timed-too", "timed-as-well", "counted"]
    for name in names:
        ends = {} if name == "counted" else {"horizon": None, "ends_at": LATER}
        run(CreateCampaign(config(name, budget=1_000, **ends)))
    hours = []
    for number in range(5):
        hours.append(hour_of_week(clock.micros))
        # All of one shape: they are decided and written together.
        run(*(Decide(name, f"a{number}", [0.5, 0.5]) for name in names))
        run(*(Decide("timed", f"b{number}-{each}", [0.5, 0.5]) for each in range(number)))
        clock.micros += 61 * 60 * 1_000_000
    stored = [row["traffic"] for row in sorted(rows(database, tables.campaign_state), key=itemgetter("campaign"))]
    assert stored[3] is None
    first, second = (traffic.decoded(counts) for counts in stored[:2])
    assert [first[hour] for hour in hours] == [1, 2, 3, 4, 5]
    assert [second[hour] for hour in hours] == [1, 1, 1, 1, 1]
    assert (first.sum(), second.sum()) == (15, 5)
    assert_counted(database, "timed")


def test_a_campaign_that_gets_an_end_counts_what_it_has_decided_before(clocked_database):
    database, clock = clocked_database, clocked_database.clock
    run = Runner(database)
    run(CreateCampaign(config(budget=1_000, horizon=6)))
    for command in decides(6):
        run(command)
        clock.micros += MICROS_PER_HOUR
    ends = moment_text(clock.micros + 6 * MICROS_PER_HOUR)
    # All rounds are made: the first estimate continues their rate.
    assert run(PatchCampaign("c", {"ends_at": ends}))[0].body["config"]["estimate"]["horizon"] == 12
    assert_counted(database)
    run(PatchCampaign("c", {"horizon": 100}), Decide("c", "more", [0.5, 0.5]))
    assert rows(database, tables.campaign_state)[0]["traffic"] is None
    run(PatchCampaign("c", {"ends_at": ends}), Decide("c", "last", [0.5, 0.5]))
    assert_counted(database)
    assert len(rows(database, tables.decision)) == 8


@pytest.mark.parametrize("left", [None, bytes(4 * HOURS_PER_WEEK)])
def test_traffic_that_another_version_did_not_count_is_counted_from_the_log(clocked_database, left):
    database = clocked_database
    Runner(database)(CreateCampaign(config(budget=1_000, horizon=None, ends_at=LATER)), *decides(1))
    Runner(database)(*decides(5))
    with database.write() as connection:
        connection.execute(update(tables.campaign_state).values(traffic=left))
    Runner(database)(Decide("c", "next", [0.5, 0.5]))
    assert_counted(database)


def test_verify_and_replay_name_traffic_that_differs_from_the_log(clocked_database):
    database = clocked_database
    Runner(database)(CreateCampaign(config(budget=1_000, horizon=None, ends_at=LATER)))
    Runner(database)(*decides(5))
    counts = traffic.decoded(rows(database, tables.campaign_state)[0]["traffic"])
    with database.write() as connection:
        moved = traffic.encoded(np.roll(counts, 1))
        connection.execute(update(tables.campaign_state).values(traffic=moved))
    with database.read() as connection:
        found = reads.verify(connection, "c")
    assert [(check["name"], check["found"]) for check in found["checks"] if not check["ok"]] == [
        ("hours of other traffic", 2)
    ]
    assert replay(database, 1, advanced=lambda done, todo: None).difference.what == "traffic"


@pytest.mark.parametrize("by_version_0_1", [False, True])
def test_pruned_decisions_stay_counted(clocked_database, by_version_0_1):
    database, clock = clocked_database, clocked_database.clock
    run = Runner(database)
    ends = {} if by_version_0_1 else {"horizon": None, "ends_at": LATER}
    run(CreateCampaign(config(budget=1_000, feedback={"late_window_seconds": 0}, **ends)))
    for number in range(8):
        run(Decide("c", f"d{number}", [0.5, 0.5]))
        if number < 5:
            run(Feedback("c", f"d{number}", reward=0.5, costs={"usd": 0.1, "impressions": 1}))
        clock.micros += MICROS_PER_HOUR
    found = prune.prunable(database, 1, 2**62)
    gone, _ = prune.prune(database, found, actor="test", advanced=lambda step, done, todo: None)
    assert gone == 5
    if by_version_0_1:  # it did not store the hours: an even rate is assumed for them
        with database.write() as connection:
            connection.execute(update(tables.opening).values(traffic=None))
        run(PatchCampaign("c", {"ends_at": LATER}))
    run(Decide("c", "next", [0.5, 0.5]))
    assert_counted(database)
    assert traffic.decoded(rows(database, tables.campaign_state)[0]["traffic"]).sum() == 9


def decides(count):
    return [Decide("c", f"d{each}", [0.5, 0.5]) for each in range(count)]


def estimates_of(database):
    bodies = [json.loads(row["body"]) for row in rows(database, tables.config)]
    return [body["estimate"] for body in bodies[1:] if "estimate" in body]


def assert_counted(database, name="c"):
    """The stored traffic is that of the log, by `verify` and by `replay`."""
    with database.read() as connection:
        found = reads.verify(connection, name)
    assert found["ok"], found
    assert "hours of other traffic" in [check["name"] for check in found["checks"]]
    assert replay(database, 1, advanced=lambda done, todo: None).difference is None
