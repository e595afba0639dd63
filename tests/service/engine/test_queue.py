"""What waits, what is refused at once, and what is left undone because its answer would come too late."""

import asyncio
import threading
import time
from collections import deque

import pytest

from service.engine.commands import CreateCampaign, Decide, SetStatus
from service.engine.transaction import EXPIRE_ROWS_MAX
from service.problems import Unavailable
from service.store import tables
from tests.service.engine.campaigns import config, rows, running


class Gate:
    """Keeps the engine's thread at its next commits until it is opened, or for a while at each."""

    def __init__(self):
        self.seconds = 0.0
        self.opened = threading.Event()
        self.opened.set()

    def __call__(self, point):
        if point == "before-commit":
            time.sleep(self.seconds)
            assert self.opened.wait(20)


def decide(name):
    return Decide("c", name, [0.1, 0.2])


def played(database, play, **options):
    """Run `play(engine, gate)` with a campaign."""

    async def main():
        gate = Gate()
        async with running(database, reached=gate, **options) as engine:
            await engine.submit(CreateCampaign(config()))
            try:
                return await play(engine, gate)
            finally:
                gate.opened.set()

    return asyncio.run(main())


async def stuck(engine, gate):
    """A decision that has been taken and does not end."""
    gate.opened.clear()
    first = asyncio.create_task(engine.submit(decide("stuck")))
    await asyncio.sleep(0.05)
    assert engine.queued == 0
    return first


async def waiting(engine, names):
    tasks = [asyncio.create_task(engine.submit(decide(name))) for name in names]
    await asyncio.sleep(0)
    return tasks


def stored(database):
    return {row["decision_id"] for row in rows(database, tables.decision)}


def test_more_than_may_wait_is_refused_at_once_and_not_done(database):
    async def play(engine, gate):
        first = await stuck(engine, gate)
        more = await waiting(engine, [f"w{number}" for number in range(3)])
        assert engine.queued == engine.under_way_max
        with pytest.raises(Unavailable, match="more is asked") as refused:
            await asyncio.wait_for(engine.submit(decide("refused")), 0.2)
        assert refused.value.kind == "queue-full"
        gate.opened.set()
        await asyncio.gather(first, *more)

    played(database, play, queue_max=3)
    assert stored(database) == {"stuck", "w0", "w1", "w2"}


def test_a_group_that_does_not_fit_is_refused_whole_and_one_that_finds_room_is_done_whole(database):
    async def play(engine, gate):
        first = await stuck(engine, gate)
        with pytest.raises(Unavailable):
            await engine.submit_together([decide(f"too-many-{number}") for number in range(301)])
        together = asyncio.create_task(engine.submit_together([decide(f"g{number}") for number in range(300)]))
        await asyncio.sleep(0)
        gate.opened.set()
        await asyncio.gather(first, together)

    played(database, play, queue_max=300)
    assert stored(database) == {"stuck", *(f"g{number}" for number in range(300))}
    found = [row for row in rows(database, tables.decision) if row["decision_id"] != "stuck"]
    assert len({row["decided_at"] for row in found}) == 1  # one transaction, though a batch is of 256


def test_when_it_goes_slowly_fewer_may_wait_but_an_administrator_always_may(database):
    async def play(engine, gate):
        before = engine.under_way_max
        gate.seconds = 2.56
        await engine.submit_together([decide(f"slow-{number}") for number in range(128)])
        gate.seconds = 0.0
        await asyncio.sleep(0.1)  # the engine counts only when everyone has been told
        # 20 ms and more each, of which the newest batch counts for three tenths.
        assert 8 <= engine.under_way_max <= 0.5 / (0.7 * 0.0005 + 0.3 * 0.02) < before / 10
        first = await stuck(engine, gate)
        more = await waiting(engine, [f"w{number}" for number in range(engine.under_way_max)])
        with pytest.raises(Unavailable):
            await engine.submit(decide("refused"))
        pause = asyncio.create_task(engine.submit(SetStatus("c", "pause")))
        await asyncio.sleep(0)
        assert engine.queued == len(more) + 1
        gate.opened.set()
        await asyncio.gather(first, *more, pause)

    played(database, play, deadline_seconds=1.0)
    assert "refused" not in stored(database)


def test_what_would_be_answered_too_late_is_not_done_and_says_so(database):
    async def play(engine, gate):
        first = await stuck(engine, gate)
        late = (await waiting(engine, ["late"]))[0]
        together = asyncio.create_task(engine.submit_together([decide("late-1"), decide("late-2")]))
        pause = asyncio.create_task(engine.submit(SetStatus("c", "pause")))
        await asyncio.sleep(0.3)
        gate.opened.set()
        for task in (late, together):
            with pytest.raises(Unavailable) as refused:
                await task
            assert refused.value.kind == "queue-full"
        assert (await pause).body["status"] == "paused"  # an administrator can wait
        assert (await first).body["decision_id"] == "stuck"  # it had been taken in time

    played(database, play, deadline_seconds=0.2)
    assert stored(database) == {"stuck"}


def test_whose_client_is_gone_is_not_done(database):
    async def play(engine, gate):
        first = await stuck(engine, gate)
        (gone,) = await waiting(engine, ["gone"])
        gone.cancel()
        await asyncio.sleep(0)
        gate.opened.set()
        await first
        await engine.submit(decide("next"))

    played(database, play)
    assert stored(database) == {"stuck", "next"}


def test_a_stop_answers_what_is_queued_and_refuses_the_rest(database):
    async def play(engine, gate):
        first = await stuck(engine, gate)
        more = await waiting(engine, ["queued"])
        stopping = asyncio.create_task(engine.stop())
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="stopping"):
            await engine.submit(decide("refused"))
        gate.opened.set()
        await asyncio.gather(first, *more, stopping)

    played(database, play)
    assert stored(database) == {"stuck", "queued"}


def test_more_holds_than_one_transaction_lets_expire_do_not_wait_for_the_next_look(database, monkeypatch):
    monkeypatch.setattr("service.engine.engine.EXPIRE_EVERY_SECONDS", 3.0)

    async def play():
        async with running(database) as engine:
            await engine.submit(CreateCampaign(config(budget=100_000, horizon=100_000, feedback={"ttl_seconds": 1})))
            await engine.submit_together([decide(f"d{number}") for number in range(2 * EXPIRE_ROWS_MAX + 500)])
            holds = len(rows(database, tables.hold))
            assert holds > EXPIRE_ROWS_MAX
            deadline = time.monotonic() + 20
            while rows(database, tables.hold):
                assert time.monotonic() < deadline
                await asyncio.sleep(0.1)
            return holds

    holds = asyncio.run(play())
    at = sorted(row["at"] for row in rows(database, tables.outcome))
    assert len(at) == holds
    first, second = at[0], at[EXPIRE_ROWS_MAX]
    assert first == at[EXPIRE_ROWS_MAX - 1] < second < first + 2_900_000


def test_answers_that_the_event_loop_takes_before_it_is_told_of_them_leave_nobody_waiting(database):
    async def play(engine, gate):
        loop = asyncio.get_running_loop()

        class Raced(deque):
            """The event loop answers, and has read, before the engine's thread goes on."""

            def append(self, answered):
                super().append(answered)
                done = threading.Event()
                loop.call_soon_threadsafe(lambda: (engine.deliver(), loop.call_soon(loop.call_soon, done.set)))
                assert done.wait(5)

        engine._answered = Raced()
        for number in range(5):
            await asyncio.wait_for(engine.submit(decide(f"d{number}")), 5)

    played(database, play)


def test_an_answer_that_cannot_be_delivered_keeps_nobody_else_waiting(database):
    async def play(engine, gate):
        def broken(items):
            raise RuntimeError("gone")

        first = await stuck(engine, gate)
        engine.enqueue([decide("lost")], broken)
        others = await waiting(engine, ["a", "b"])
        gate.opened.set()
        await asyncio.wait_for(asyncio.gather(first, *others), 5)
        await asyncio.wait_for(engine.submit(decide("c")), 5)

    played(database, play)
    assert len(rows(database, tables.decision)) == 5
