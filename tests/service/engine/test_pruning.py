"""Pruning deletes old decisions; accounts, models and reads stay the same."""

from __future__ import annotations

import asyncio
from itertools import count

import numpy as np
import pytest
from sqlalchemy import delete, func, select, update

from service import reads
from service.engine import prune
from service.engine.commands import Answer, CreateCampaign, Decide, Feedback, ImportModel, PatchCampaign
from service.engine.model_export import exported_model
from service.engine.replay import replay
from service.problems import NotFound
from service.store import tables
from tests.service.engine.campaigns import config, rows, running
from tests.service.engine.histories import lived, state_of

AFTER_ALL = 2**62  # a time after everything


@pytest.fixture
def numbers():
    return count()


@pytest.fixture
def lives(database, numbers):
    """A campaign whose late windows are over; two holds are open."""
    asyncio.run(_live(database, numbers, created=True))


async def _live(database, numbers, *, created=False):
    async with running(database) as engine:
        if created:
            changes = config(budget=600, horizon=300, feedback={"late_window_seconds": 0})
            await engine.submit(CreateCampaign(changes))
        return await lived(engine, numbers=numbers, rounds=1)


def pruned(database, before=AFTER_ALL):
    """Prunes everything that can be pruned. Returns the numbers of decisions and outcomes deleted."""
    found = prune.prunable(database, 1, before)
    gone = prune.prune(database, found, actor="test", advanced=lambda step, done, todo: None)
    assert gone == (found.decisions, found.outcomes)
    return gone


def read(database, what, *arguments, **options):
    with database.read() as connection:
        return what(connection, "c", *arguments, **options)


def leaves(part):
    if isinstance(part, tuple):
        return [leaf for inner in part for leaf in leaves(inner)]
    return [part]


def assert_same(one, other):
    for a, b in zip(leaves(one), leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def views(database):
    """Returns everything that must be the same before and after."""
    return (
        rows(database, tables.account),
        rows(database, tables.hold),
        read(database, reads.campaign),
        read(database, reads.budget),
        read(database, reads.arms),
        read(database, reads.timeline, points=1)["items"][-1],
    )


@pytest.mark.usefixtures("lives")
def test_accounts_model_and_figures_are_the_same_and_the_log_is_short(database):
    seen, state = views(database), state_of(database)
    made = len(rows(database, tables.decision))
    gone, _ = pruned(database)
    assert gone == made - 2  # the open ones
    assert len(rows(database, tables.decision)) == 2
    assert views(database)[:4] == seen[:4]
    for before, after in zip(seen[4]["items"], views(database)[4]["items"], strict=True):
        assert after == {name: pytest.approx(value) for name, value in before.items()}
    assert {**views(database)[5], "reward": 0} == {**seen[5], "reward": 0}
    assert views(database)[5]["reward"] == pytest.approx(seen[5]["reward"])
    assert read(database, reads.verify)["ok"]
    assert_same(state_of(database), state)


@pytest.mark.usefixtures("lives")
def test_the_ledger_still_sums_up_to_the_accounts(database):
    pruned(database)
    sums, cursor, kinds = {"granted": 0.0, "held": 0.0, "spent": 0.0}, None, []
    while True:
        page = read(database, reads.ledger, limit=3, cursor=cursor)
        for item in page["items"]:
            kinds.append(item["kind"])
            for part in sums:
                sums[part] += item[part].get("usd", 0)
        cursor = page["next_cursor"]
        if cursor is None:
            break
    account = read(database, reads.budget)["resources"][0]
    assert sums == {part: pytest.approx(account[part]) for part in sums}
    assert kinds.count("opening") == 1


@pytest.mark.usefixtures("lives")
def test_the_model_does_not_need_its_snapshots(database):
    state = state_of(database)
    pruned(database)
    with database.write() as connection:
        connection.execute(delete(tables.snapshot))
    assert_same(state_of(database), state)


@pytest.mark.parametrize("imported_first", [True, False])
@pytest.mark.usefixtures("lives")
def test_an_imported_model_is_kept_whether_it_came_before_or_after(database, numbers, imported_first):
    with database.read() as connection:
        data = exported_model(connection, "c").data
        fitting = reads.fitting_model(connection, "c", data)

    async def play():
        async with running(database) as engine:
            await engine.submit(ImportModel("c", *fitting, data))
            await engine.submit(Decide("c", "more", [0.5, 0.5]))

    for step in (lambda: asyncio.run(play()), lambda: pruned(database))[:: 1 if imported_first else -1]:
        step()
    asyncio.run(_live(database, numbers))
    state = state_of(database)
    with database.write() as connection:
        connection.execute(delete(tables.snapshot))
    assert_same(state_of(database), state)
    assert read(database, reads.verify)["ok"]
    assert replay(database, 1, advanced=lambda done, todo: None).difference is None


def test_decisions_of_stage_one_stay_until_it_is_concluded_from(database):
    policy = config()["policy"] | {"preset": "authors", "two_stage": "measured"}

    async def play():
        async with running(database) as engine:
            await engine.submit(CreateCampaign(config(budget=500, horizon=1000, policy=policy)))
            for number in range(5):
                answer = await engine.submit(Decide("c", f"d{number}", [0.5, number / 5]))
                assert answer.body["arm"] is not None
                await engine.submit(Feedback("c", f"d{number}", reward=1, costs={"usd": 0.5}))

    asyncio.run(play())
    assert pruned(database) == (0, 0)


@pytest.mark.usefixtures("lives")
def test_a_campaign_goes_on_after_pruning_and_may_be_pruned_and_replayed_again(database, numbers):
    for _ in range(2):
        pruned(database)
        asyncio.run(_live(database, numbers))
        assert read(database, reads.verify)["ok"]
        found = replay(database, 1, advanced=lambda done, todo: None)
        assert found.difference is None
        assert found.decisions > 20
        assert found.after > 0
    assert [row["action"] for row in rows(database, tables.audit)].count("campaign.prune") == 2


@pytest.mark.usefixtures("lives")
def test_points_of_the_timeline_are_true_from_the_opening_on(database, numbers):
    before = read(database, reads.timeline, points=7)["items"]
    third = before[2]["sequence"]
    table = tables.decision
    with database.read() as connection:
        moment = connection.execute(select(func.min(table.c.decided_at)).where(table.c.sequence > third)).scalar_one()
    pruned(database, moment)
    after = read(database, reads.timeline, points=7)["items"]
    assert len(after) < len(before)
    old = {point["sequence"]: point for point in before}
    for point in after[1:]:
        same = old[point["sequence"]]
        assert {name: point[name] for name in ("round", "granted", "spent", "decisions", "plays")} == {
            name: same[name] for name in ("round", "granted", "spent", "decisions", "plays")
        }
        assert point["reward"] == pytest.approx(same["reward"])


@pytest.mark.usefixtures("lives")
def test_what_is_young_stays(database):
    made = rows(database, tables.decision)
    moment = made[len(made) // 2]["decided_at"]
    pruned(database, moment)
    kept = {row["sequence"] for row in rows(database, tables.decision)}
    assert kept >= {row["sequence"] for row in made if row["decided_at"] >= moment}
    assert len(kept) < len(made)
    assert replay(database, 1, advanced=lambda done, todo: None).difference is None


def test_a_decision_costs_may_still_come_for_stays_until_its_late_window_is_over(database):
    async def play():
        async with running(database) as engine:
            await engine.submit(CreateCampaign(config(horizon=20, feedback={"late_window_seconds": 3600})))
            for name in ("voided", "settled", "last"):
                await engine.submit(Decide("c", name, [0.1, 0.2]))
            await engine.submit(Feedback("c", "voided", void=True))
            await engine.submit(Feedback("c", "settled", reward=1, costs={"usd": 0.5}))
            await engine.submit(Feedback("c", "last", reward=1, costs={"usd": 0.5}))

    asyncio.run(play())
    assert pruned(database)[0] == 1
    assert [row["decision_id"] for row in rows(database, tables.decision)] == ["voided", "last"]

    async def shortened():
        async with running(database) as engine:
            await engine.submit(PatchCampaign("c", {"feedback": {"late_window_seconds": 0}}))

    asyncio.run(shortened())
    assert pruned(database)[0] == 1
    assert [row["decision_id"] for row in rows(database, tables.decision)] == ["last"]
    assert read(database, reads.verify)["ok"]


@pytest.mark.usefixtures("lives")
def test_feedback_on_a_decision_that_is_gone_is_unknown_and_its_id_is_free(database):
    pruned(database)

    async def play():
        async with running(database) as engine:
            with pytest.raises(NotFound):
                await engine.submit(Feedback("c", "d0", reward=1))
            return await engine.submit(Decide("c", "d0", [0.5, 0.5]))

    answer = asyncio.run(play())
    assert isinstance(answer, Answer)
    assert not answer.replayed


@pytest.mark.usefixtures("lives")
def test_pruning_ended_at_any_moment_leaves_a_database_that_is_right_and_goes_on_later(database, monkeypatch):
    monkeypatch.setattr(prune, "DECISIONS_MAX", 3)
    state, left = state_of(database), len(rows(database, tables.decision))

    class KilledError(Exception):
        """The process was killed."""

    def advanced(step, done, todo):
        if step == "delete":
            raise KilledError

    while left > 8:
        with pytest.raises(KilledError):
            prune.prune(database, prune.prunable(database, 1, AFTER_ALL), actor="test", advanced=advanced)
        assert len(rows(database, tables.decision)) == left - 3
        left -= 3
        assert read(database, reads.verify)["ok"]
        assert_same(state_of(database), state)
    assert pruned(database)[0] == left - 2


def test_a_replay_that_starts_while_decisions_are_deleted_has_the_right_accounts(database, monkeypatch):
    async def play(*names):
        async with running(database) as engine:
            if "d1" in names:
                await engine.submit(CreateCampaign(config(budget=4, horizon=20)))
            for name in names:
                answer = await engine.submit(Decide("c", name, [0.5, 0.5]))
                if name in ("d1", "d2", "d3"):
                    await engine.submit(Feedback("c", name, reward=1, costs={"usd": 1}))
            return answer.body["reason"]

    asyncio.run(play("d1", "d2", "d3"))
    assert asyncio.run(play("d4", "d5")) == "budget_exhausted"
    before = rows(database, tables.decision)[3]["decided_at"]
    monkeypatch.setattr(prune, "DECISIONS_MAX", 1)
    deleting = prune.prunable(database, 1, before)
    opened = count()
    right_read = database.read

    def read_while_deleting():
        if next(opened) == 2:  # the replay has read the opening
            assert pruned(database, before)[0] == 2
        return right_read()

    def stopped_after_one(step, done, todo):
        if step == "delete":
            raise StopIteration

    with pytest.raises(StopIteration):
        prune.prune(database, deleting, actor="test", advanced=stopped_after_one)
    monkeypatch.setattr(database, "read", read_while_deleting)
    assert replay(database, 1, advanced=lambda done, todo: None).difference is None
    assert [row["decision_id"] for row in rows(database, tables.decision)] == ["d4", "d5"]


@pytest.mark.usefixtures("lives")
def test_a_replay_that_pruning_overtakes_starts_again(database, numbers, monkeypatch):
    opened, right_read = count(), database.read

    def read_before_pruning():
        if next(opened) == 1:  # the replay has read where the log ends
            asyncio.run(_live(database, numbers))
            pruned(database)
        return right_read()

    monkeypatch.setattr(database, "read", read_before_pruning)
    assert replay(database, 1, advanced=lambda done, todo: None).difference is None


def test_a_process_that_remembers_less_than_was_pruned_starts_from_what_is_left(database, numbers):
    async def play():
        async with running(database) as stale, running(database) as busy:
            await stale.submit(CreateCampaign(config(budget=60, horizon=300, feedback={"late_window_seconds": 0})))
            await stale.submit(Decide("c", "first", [0.5, 0.5]))
            await stale.submit(Feedback("c", "first", reward=1, costs={"usd": 0.5}))
            await lived(busy, numbers=numbers, rounds=1)
            state = state_of(database)
            pruned(database)
            answer = await stale.submit(Decide("c", "next", [0.5, 0.5]))
            return state, answer

    state, answer = asyncio.run(play())
    assert answer.body["policy_version"] == int(state.learnt[0])
    found = replay(database, 1, advanced=lambda done, todo: None)
    assert (found.difference, found.decisions) == (None, 1)


@pytest.mark.usefixtures("lives")
def test_a_log_that_does_not_lead_to_its_decisions_is_not_pruned(database):
    table = tables.outcome
    with database.write() as connection:
        learnt = select(table.c.sequence).where(table.c.taught.is_not(None)).limit(1)
        first = connection.execute(learnt).scalar_one()
        connection.execute(update(table).where(table.c.sequence == first).values(taught=None))
    with pytest.raises(prune.PruneError, match="cbwk replay"):
        pruned(database)
    assert not rows(database, tables.opening)


def test_costs_are_booked_after_the_late_window_as_long_as_the_decision_is_there(database):
    async def play():
        async with running(database) as engine:
            await engine.submit(CreateCampaign(config(horizon=20, feedback={"late_window_seconds": 0})))
            await engine.submit(Decide("c", "voided", [0.1, 0.2]))
            await engine.submit(Decide("c", "last", [0.1, 0.2]))
            await engine.submit(Feedback("c", "voided", void=True))
            return await engine.submit(Feedback("c", "voided", costs={"usd": 0.75}))

    assert asyncio.run(play()).body["status"] == "late"
    assert read(database, reads.budget)["resources"][0]["spent"] == 0.75
    assert pruned(database) == (1, 2)
    assert read(database, reads.budget)["resources"][0]["spent"] == 0.75
    assert read(database, reads.verify)["ok"]
