"""The engine: everything queued goes into one transaction, and is answered when it is committed."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from threading import Lock, Thread

import structlog

from service.engine import stage_one as stages
from service.engine.admission import Pace
from service.engine.background import in_background
from service.engine.batch import BatchRunner
from service.engine.commands import Answer, Command, Decide, Expire, Feedback, Item
from service.engine.transaction import EXPIRE_ROWS_MAX
from service.engine.wakeup import Bell
from service.fault import Reached, pass_by
from service.metrics import Metrics
from service.problems import Problem, Unavailable
from service.store.database import Database

__all__ = ["FULL", "Engine", "answers_of"]

# How often holds are looked at when nothing else happens.
EXPIRE_EVERY_SECONDS = 1.0
# How often stages are looked at that only wait for their last outcomes.
STAGES_EVERY_SECONDS = 1.0
# How long the engine waits for the event loop to tell the last answers and to read what has come meanwhile. It shares a
# core with it, so nothing is lost; without it half of the clients would always be in the next batch and half in the
# one after, and a batch of half the size takes nearly as long. A loop that is busy with other things is not waited for.
READING_SECONDS_MAX = 0.01
FULL = "more is asked than can be answered in time; try again"

Deliver = Callable[[Sequence[Item]], None]

log = structlog.get_logger(__name__)


class Waiter:
    """Commands of one transaction, and who is told what became of them: in the event loop, once."""

    __slots__ = ("deliver", "gone", "items")

    def __init__(self, items: Sequence[Item], deliver: Deliver) -> None:
        self.items = items
        self.deliver = deliver
        self.gone = False  # nobody is interested any more: what is not begun need not be done


class Engine:
    """A queue and the one thread that empties it: idle, a batch is one command; busy, it forms while the last commits.

    Only the event loop puts commands in and answers them. The thread takes the next batch by itself, so that an event
    loop that is busy with refusals does not keep the database waiting.
    """

    def __init__(
        self,
        database: Database,
        *,
        queue_max: int,
        deadline_seconds: float,
        memory_bytes_max: int,
        lock_timeout_ms: int,
        metrics: Metrics | None = None,
        reached: Reached = pass_by,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self._batches = BatchRunner(
            database,
            memory_bytes_max=memory_bytes_max,
            lock_timeout_ms=lock_timeout_ms,
            metrics=metrics,
            reached=reached,
        )
        self._reached = reached
        self._on_failure = on_failure
        self._database = database
        self._queue: deque[Waiter] = deque()
        self.queued = 0  # commands that wait
        self._guard = Lock()  # for who changes the queue or looks at what follows to decide whether to sleep
        self._asleep = False  # the engine's thread waits for its bell
        self._telling = False  # the event loop has still to tell the last answers
        self._reading = False  # the event loop has still to tell the last answers, or to read what they have brought
        self._patient_until = 0.0  # when that is no longer waited for
        self._pace = Pace(deadline_seconds, queue_max)
        self._batch_max = self._pace.batch_max
        self.under_way_max = queue_max  # of decisions and outcomes, waiting or not; more would not be answered in time
        self._answered: deque[tuple[Sequence[Waiter], float]] = deque()  # who is to be told, and since when
        self._lag_seconds = 0.0  # how long the event loop took to get to the last answers
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._groups = 0
        self._loop: asyncio.AbstractEventLoop
        self._ended: asyncio.Future[None]
        self._engine_bell: Bell  # wakes the engine's thread
        self._loop_bell: Bell  # wakes the event loop

    async def start(self) -> None:
        """Begin to empty the queue."""
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        self._engine_bell, self._loop_bell = Bell(), Bell()
        self._loop.add_reader(self._loop_bell.fileno(), self._hear)
        Thread(target=self._work, name="cbwk-engine", daemon=True).start()
        self._tasks = [asyncio.create_task(task()) for task in (self._tick, self._end_stages)]

    async def stop(self) -> None:
        """Answer what is queued, save what was learnt, end."""
        for task in self._tasks:
            task.cancel()
        with self._guard:
            self._stopping = True
        self._wake()
        await self._ended

    async def submit(self, command: Command) -> Answer:
        """Queue a command and wait for its commit; raises the Problem it was answered with."""
        (answer,) = await self.submit_together([command])
        if isinstance(answer, Problem):
            raise answer
        return answer

    async def submit_together(self, commands: Sequence[Command]) -> list[Answer | Problem]:
        """Queue commands for one transaction; each is answered for itself, and all are unavailable or none."""
        told: asyncio.Future[Sequence[Item]] = self._loop.create_future()

        def tell(items: Sequence[Item]) -> None:
            if not told.done():
                told.set_result(items)

        waiter = self.ask(commands, tell)
        try:
            return answers_of(await told)
        finally:
            waiter.gone = True

    def ask(self, commands: Sequence[Command], deliver: Deliver) -> Waiter:
        """Queue commands for one transaction, in the event loop, or raise; any room at all takes them whole."""
        # What administrators ask, and what the engine asks itself, is little and may wait longer.
        hot = isinstance(commands[0], Decide | Feedback)
        deadline = time.monotonic() + self._pace.deadline_seconds if hot else inf
        together = 0
        if len(commands) > 1:
            together = self._groups = self._groups + 1
        waiter = Waiter([Item(command, deadline, together) for command in commands], deliver)
        with self._guard:
            if self._stopping:
                raise Unavailable("the service is stopping", kind="queue-full")
            if self.queued + len(commands) > self._pace.queue_max or (hot and self.queued >= self.under_way_max):
                raise Unavailable(FULL, kind="queue-full")
            self.queued += len(commands)
            self._queue.append(waiter)
            soon = not self._is_worth_waiting()
        if soon:
            self._wake()
        return waiter

    def _wake(self) -> None:
        """Have the engine's thread look at what has changed; not while guarding it, which it would wait for."""
        if self._asleep:
            self._asleep = False
            self._engine_bell.ring()

    def _is_worth_waiting(self) -> bool:
        """Whether the next batch will be larger for the event loop's turn, which may last."""
        if not self._reading or self._stopping or self.queued >= min(self._batch_max, self.under_way_max):
            return False
        return time.monotonic() < self._patient_until

    def _work(self) -> None:
        """What the engine's thread does, until the engine stops."""
        while True:
            batch = self._taken()
            if not batch:
                break
            items = [item for waiter in batch for item in waiter.items]
            started = time.monotonic()
            try:
                self._batches.process(items)
            except Exception as error:
                log.error("a batch was left without answers", exc_info=error)
            self._reached("before-answer")
            ended = time.monotonic()
            self._answer_soon(batch, ended)
            # Nobody waits for the rest: clients read their answers meanwhile.
            self._sleep_until(self._is_told)
            self._keep_pace(len(items), ended - started)
            self._batches.conclude()
            self._batches.save_due()
            if self._batches.failed and not self._stopping:
                self._stopping = True  # what is still queued is answered with 503, and nothing more is taken
                self._loop.call_soon_threadsafe(self._on_failure)
        self._batches.save_all()
        self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        """The last that happens in the event loop."""
        self.answer()
        self._loop.remove_reader(self._loop_bell.fileno())
        for bell in (self._engine_bell, self._loop_bell):
            bell.close()
        if not self._ended.done():  # or nobody waits for it any more
            self._ended.set_result(None)

    def _sleep_until(self, is_time: Callable[[], bool]) -> None:
        """Wait in the engine's thread. Of what comes in the event loop's turn it is not told before that ends."""
        while True:
            with self._guard:
                # Before it is asked: who is patient then is so for some time.
                patience = max(0.0, self._patient_until - time.monotonic()) if self._reading else 0.0
                self._asleep = asleep = not is_time()
            if not asleep:
                return
            self._engine_bell.wait(patience or None)

    def _is_told(self) -> bool:
        return not (self._telling and self._is_worth_waiting())

    def _is_time_for_more(self) -> bool:
        return (bool(self._queue) or self._stopping) and not self._is_worth_waiting()

    def _keep_pace(self, commands: int, seconds: float) -> None:
        self._pace = self._pace.after(commands, seconds, self._lag_seconds)
        self._batch_max, self.under_way_max = self._pace.batch_max, self._pace.under_way_max

    def _taken(self) -> list[Waiter]:
        """What goes into the next transaction, as soon as there is something; nothing when the engine has stopped.

        Whose client is gone is left out, and so is who would get the answer too late: it is better not done at all.
        """
        while True:
            self._sleep_until(self._is_time_for_more)
            now = time.monotonic()
            with self._guard:
                if not self._queue:
                    return []
                batch, late = self._chosen(now + self._pace.answer_seconds(self.queued))
            if late:
                self._answer_soon(late, now)
                # No batch may follow that would tell how the event loop does by now.
                self._keep_pace(0, 0.0)
            if batch:
                return batch

    def _chosen(self, ends_at: float) -> tuple[list[Waiter], list[Waiter]]:
        batch: list[Waiter] = []
        late: list[Waiter] = []
        commands = 0
        while self._queue and commands < self._batch_max:
            waiter = self._queue.popleft()
            self.queued -= len(waiter.items)
            if waiter.gone:
                continue
            if waiter.items[0].deadline < ends_at:
                for item in waiter.items:
                    item.answer = Unavailable(FULL, kind="queue-full")
                late.append(waiter)
            else:
                batch.append(waiter)
                commands += len(waiter.items)
        return batch, late

    def _answer_soon(self, waiters: Sequence[Waiter], since: float) -> None:
        # In this order: the event loop may be answering just now, and whoever takes them says that it has read.
        self._patient_until = time.monotonic() + READING_SECONDS_MAX
        self._telling = self._reading = True
        self._answered.append((waiters, since))
        self._loop_bell.ring()

    def _hear(self) -> None:
        self._loop_bell.hush()
        self.answer()

    def answer(self) -> None:
        """Tell everyone whose commands have ended; in the event loop.

        Whoever keeps the loop busy with reading calls it now and then: libuv reads whatever there is, up to 50,000
        times, before it comes to anything else.
        """
        if not self._answered:
            return
        while self._answered:
            waiters, since = self._answered.popleft()
            self._lag_seconds = time.monotonic() - since
            for waiter in waiters:
                if not waiter.gone:  # who is gone does not change that what was committed stays committed
                    _deliver(waiter)
        # In its turn after the next, for this one may be in the midst of its reading: by then it has read what these
        # have brought so far.
        self._loop.call_soon(self._loop.call_soon, self._have_read)
        with self._guard:
            self._telling = bool(self._answered)
        self._wake()

    def _have_read(self) -> None:
        with self._guard:
            self._reading = bool(self._answered)
            more = bool(self._queue)
        if more:
            self._wake()

    async def _tick(self) -> None:
        """Let holds expire: once a second, and again at once while there are more than one transaction takes."""
        expired = 0
        while True:
            if expired < EXPIRE_ROWS_MAX:
                await asyncio.sleep(EXPIRE_EVERY_SECONDS)
            try:
                expired = (await self.submit(Expire())).body["expired"]
            except Problem:
                expired = 0

    async def _end_stages(self) -> None:
        """Conclude from every stage one that is over: beside the queue, which goes on with one stage meanwhile."""
        given_up: set[int] = set()
        while True:
            await asyncio.sleep(STAGES_EVERY_SECONDS)
            for number in set(self._batches.handed_out()) - given_up:
                try:
                    found = await in_background(stages.conclusion, self._database, number)
                    if found is not None:
                        await self.submit(found)
                except Problem:
                    continue
                except Exception as error:
                    if not self._database.is_connection_error(error):
                        given_up.add(number)
                        log.error("stage one was not concluded from; one stage goes on", exc_info=error)


def _deliver(waiter: Waiter) -> None:
    try:
        waiter.deliver(waiter.items)
    except Exception as error:  # the others of the batch are answered all the same
        log.error("an answer was not delivered", exc_info=error)


def answers_of(items: Sequence[Item]) -> list[Answer | Problem]:
    """What commands of one transaction were answered with; raises what all of them failed with."""
    answers: list[Answer | Problem] = []
    for item in items:
        answer = item.answer
        if isinstance(answer, Answer) or (isinstance(answer, Problem) and not isinstance(answer, Unavailable)):
            answers.append(answer)
        else:
            raise answer or RuntimeError("a command was left without an answer")
    return answers
