"""The engine's queue: which commands wait, which are refused at once, and which are dropped because they are late."""

import asyncio
import sys
import threading

import pytest

from service.engine import Engine
from service.engine.admission import BATCH_MAX, TRANSACTIONS_MAX
from service.engine.commands import CreateCampaign, Decide, SetStatus
from service.engine.stored_rows import EXPIRE_ROWS_MAX
from service.problems import Unavailable
from service.store import tables
from tests.service.conditions import until
from tests.service.engine.campaigns import config, rows, running

WAIT_SECONDS_MAX = 20


class Clock:
    """The engine's clock, which stands still unless a test moves it."""

    def __init__(self):
        self.seconds = 1000.0

    def monotonic(self):
        return self.seconds


@pytest.fixture
def clock(monkeypatch):
    """Gives the engine a clock that the test moves."""
    given = Clock()
    monkeypatch.setattr(sys.modules[Engine.__module__], "time", given)
    return given


class Gate:
    """Stops the engine's thread before its next commits until the gate is open; `before_commit` runs first."""

    def __init__(self):
        self.before_commit = lambda: None
        self.reached = threading.Event()
        self.open = threading.Event()
        self.open.set()

    def __call__(self, point):
        if point == "before-commit":
            self.before_commit()
            self.reached.set()
            assert self.open.wait(WAIT_SECONDS_MAX)


def decide(name):
    return Decide("c", name, [0.1, 0.2])


def decides(prefix, count):
    return [decide(f"{prefix}{number}") for number in range(count)]


def played(database, play, *, campaign=None, **options):
    """Run `play(engine, gate)` with a campaign."""

    async def main():
        gate = Gate()
        async with running(database, reached=gate, **options) as engine:
            await engine.submit(CreateCampaign(config(horizon=100_000, **(campaign or {}))))
            try:
                return await play(engine, gate)
            finally:
                gate.open.set()

    return asyncio.run(main())


async def stuck(engine, gate):
    """Submit a decision and return its task when the engine's thread waits at the gate with it."""
    gate.open.clear()
    gate.reached.clear()
    first = asyncio.create_task(engine.submit(decide("stuck")))
    assert await asyncio.to_thread(gate.reached.wait, WAIT_SECONDS_MAX)
    assert engine.queued == 0
    return first


async def waiting(engine, commands):
    tasks = [asyncio.create_task(engine.submit(command)) for command in commands]
    await asyncio.sleep(0)
    return tasks


def stored(database):
    return {row["decision_id"] for row in rows(database, tables.decision)}


def test_a_command_beyond_the_limit_of_the_queue_is_refused_at_once_and_not_carried_out(database):
    async def play(engine, gate):
        first = await stuck(engine, gate)
        more = await waiting(engine, decides("w", 3))
        assert engine.queued == engine.under_way_max
        with pytest.raises(Unavailable, match="more is asked") as refused:
            await asyncio.wait_for(engine.submit(decide("refused")), WAIT_SECONDS_MAX / 4)  # the gate is closed
        assert refused.value.kind == "queue-full"
        gate.open.set()
        await asyncio.gather(first, *more)

    played(database, play, queue_max=3)
    assert stored(database) == {"stuck", "w0", "w1", "w2"}


def test_a_group_that_does_not_fit_is_refused_whole_and_one_that_fits_is_one_transaction_beyond_the_limit(database):
    count = BATCH_MAX + 1
    queue_max = 3 * count

    async def play(engine, gate):
        first = await stuck(engine, gate)
        with pytest.raises(Unavailable):
            await engine.submit_together(decides("too-many-", queue_max + 1))
        singles = await waiting(engine, decides("s", count))
        group = asyncio.create_task(engine.submit_together(decides("g", count)))
        await asyncio.sleep(0)
        gate.open.set()
        await asyncio.gather(first, *singles, group)

    played(database, play, queue_max=queue_max)
    moments = {row["decision_id"]: row["decided_at"] for row in rows(database, tables.decision)}
    assert set(moments) == {"stuck", *(f"{kind}{number}" for kind in "sg" for number in range(count))}
    # All decisions of a transaction have the same time.
    assert len({moments[f"s{number}"] for number in range(count)}) == 2
    assert len({moments[f"g{number}"] for number in range(count)}) == 1


def test_after_a_slow_batch_fewer_requests_may_wait_but_an_administrator_always_may(database, clock):
    def slow_commit():
        clock.seconds += 2.56

    async def play(engine, gate):
        gate.before_commit = slow_commit
        await engine.submit_together(decides("slow-", 128))
        gate.before_commit = lambda: None
        # 20 ms a command, and the newest batch has a weight of three tenths.
        expected = int(0.5 / (0.7 * 0.0005 + 0.3 * 0.02))
        await until(lambda: engine.under_way_max == expected, f"{expected} requests may be under way")
        first = await stuck(engine, gate)
        more = await waiting(engine, decides("w", engine.under_way_max))
        with pytest.raises(Unavailable):
            await engine.submit(decide("refused"))
        (pause,) = await waiting(engine, [SetStatus("c", "pause")])
        assert engine.queued == len(more) + 1
        gate.open.set()
        await asyncio.gather(first, *more, pause)

    played(database, play, deadline_seconds=1.0)
    assert "refused" not in stored(database)


def test_a_request_whose_answer_would_be_late_is_refused_and_not_carried_out(database, clock):
    async def play(engine, gate):
        first = await stuck(engine, gate)
        (late,) = await waiting(engine, [decide("late")])
        group = asyncio.create_task(engine.submit_together([decide("late-1"), decide("late-2")]))
        (pause,) = await waiting(engine, [SetStatus("c", "pause")])
        clock.seconds += 0.3
        gate.open.set()
        for task in (late, group):
            with pytest.raises(Unavailable) as refused:
                await task
            assert refused.value.kind == "queue-full"
        assert (await pause).body["status"] == "paused"  # an administrator's command has no deadline
        assert (await first).body["decision_id"] == "stuck"  # the engine took it in time

    played(database, play, deadline_seconds=0.2)
    assert stored(database) == {"stuck"}


def test_a_request_whose_client_is_gone_is_not_carried_out(database):
    async def play(engine, gate):
        first = await stuck(engine, gate)
        (gone,) = await waiting(engine, [decide("gone")])
        gone.cancel()
        await asyncio.sleep(0)
        gate.open.set()
        await first
        await engine.submit(decide("next"))

    played(database, play)
    assert stored(database) == {"stuck", "next"}


def test_a_stopping_engine_answers_its_queue_and_refuses_new_requests(database):
    async def play(engine, gate):
        first = await stuck(engine, gate)
        more = await waiting(engine, [decide("queued")])
        stopping = asyncio.create_task(engine.stop())
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="stopping"):
            await engine.submit(decide("refused"))
        gate.open.set()
        await asyncio.gather(first, *more, stopping)

    played(database, play)
    assert stored(database) == {"stuck", "queued"}


def test_holds_beyond_one_transaction_expire_at_once_and_not_at_the_next_look(database, monkeypatch):
    monkeypatch.setattr("service.engine.engine.EXPIRE_EVERY_SECONDS", 0.02)

    async def play(engine, gate):
        def before_commit():
            if stored(database):  # the decisions are committed, so this is the first look that finds holds
                monkeypatch.setattr("service.engine.engine.EXPIRE_EVERY_SECONDS", 3600.0)

        gate.before_commit = before_commit
        answers = await engine.submit_together(decides("d", 2 * EXPIRE_ROWS_MAX + 500))
        await until(lambda: not rows(database, tables.hold), "all holds have expired")
        return sum(answer.body["arm"] is not None for answer in answers)

    holds = played(database, play, campaign={"budget": 100_000, "feedback": {"ttl_seconds": 0}})
    assert holds > EXPIRE_ROWS_MAX
    moments = [row["at"] for row in rows(database, tables.outcome)]
    assert len(moments) == holds
    assert len(set(moments)) == -(-holds // EXPIRE_ROWS_MAX)


def test_an_answer_that_the_event_loop_takes_at_any_moment_leaves_no_request_waiting(database, clock):
    """Between any two lines of the engine's thread the event loop takes the answers and reads."""
    source = sys.modules[Engine.__module__].__file__
    taken = []

    async def play(engine, gate):
        loop = asyncio.get_running_loop()

        def trace(frame, event, argument):
            if frame.f_code.co_filename != source:
                return None
            if event == "line":
                done = threading.Event()
                loop.call_soon_threadsafe(lambda: (engine.deliver(), loop.call_soon(loop.call_soon, done.set)))
                # In vain where this thread has locked the queue.
                taken.append(done.wait(0.005))
            return trace

        gate.before_commit = lambda: sys.settrace(trace)  # in the engine's thread, for the functions it calls next
        for number in range(3):
            await asyncio.wait_for(engine.submit(decide(f"d{number}")), WAIT_SECONDS_MAX)

    played(database, play)
    assert sum(taken) > 20


def test_an_answer_that_cannot_be_delivered_does_not_delay_the_others(database):
    async def play(engine, gate):
        def broken(items):
            raise RuntimeError("gone")

        first = await stuck(engine, gate)
        engine.enqueue([decide("lost")], broken)
        others = await waiting(engine, [decide("a"), decide("b")])
        gate.open.set()
        await asyncio.wait_for(asyncio.gather(first, *others), WAIT_SECONDS_MAX)
        await asyncio.wait_for(engine.submit(decide("c")), WAIT_SECONDS_MAX)

    played(database, play)
    assert len(rows(database, tables.decision)) == 5


ONE_SMALL = 2 * 256  # multiplications of a decision among two arms, the least that counts
WORK_MAX = BATCH_MAX * ONE_SMALL  # campaigns with more arms are large
LARGE_ARMS = 100


def test_large_requests_are_in_transactions_of_their_own_between_those_of_the_others(database):
    arms = [{"id": f"a{number}"} for number in range(LARGE_ARMS)]
    each = WORK_MAX // (LARGE_ARMS * 256)  # decisions of a large transaction
    transactions = []

    async def play(engine, gate):
        await engine.submit(CreateCampaign(config("large", arms=arms)))
        await engine.submit(Decide("large", "known", [0.1, 0.2]))
        run = engine._batches.run_free

        def noted(items):
            transactions.append([item.command for item in items])
            return run(items)

        engine._batches.run_free = noted
        first = await stuck(engine, gate)
        large = await waiting(engine, [Decide("large", f"l{number}", [0.1, 0.2]) for number in range(3 * each)])
        small = await waiting(engine, decides("s", 2))
        gate.open.set()
        await asyncio.gather(first, *large, *small)

    played(database, play, work_max=WORK_MAX)
    sizes = [(len(commands), {command.campaign_id for command in commands}) for commands in transactions[1:]]
    large = (each, {"large"})
    assert sizes == [large, (2, {"c"}), large, large]


def test_large_requests_that_would_wait_too_long_are_refused_and_the_others_are_not(database):
    arms = [{"id": f"a{number}"} for number in range(LARGE_ARMS)]
    each = WORK_MAX // (LARGE_ARMS * 256)

    async def play(engine, gate):
        await engine.submit(CreateCampaign(config("large", arms=arms)))
        await engine.submit(Decide("large", "known", [0.1, 0.2]))
        first = await stuck(engine, gate)
        large = [Decide("large", f"l{number}", [0.1, 0.2]) for number in range((TRANSACTIONS_MAX + 2) * each)]
        tasks = await waiting(engine, [*large, decide("s")])
        gate.open.set()
        await first
        return await asyncio.gather(*tasks, return_exceptions=True)

    *large, small = played(database, play, work_max=WORK_MAX)
    refused = [answer for answer in large if isinstance(answer, Unavailable)]
    assert {answer.kind for answer in refused} == {"queue-full"}
    assert each <= len(refused) <= 2 * each
    assert small.body["decision_id"] == "s"
