"""A queue of commands and the one thread that empties it.

Idle, a batch is one command; busy, it forms while the last one commits.
"""

from __future__ import annotations

import asyncio
import os
import select
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from math import ceil, inf
from threading import Lock, Thread

import structlog

from service.engine import stage_one
from service.engine.admission import Admission, Deliver, LargeRequests, Waiter, work_of
from service.engine.background import in_background
from service.engine.batch import BatchRunner
from service.engine.commands import Answer, Command, Decide, Expire, Feedback, Item
from service.engine.stored_rows import EXPIRE_ROWS_MAX
from service.fault import Reached
from service.limits import DECIDE_WORK_MAX
from service.metrics import Metrics
from service.problems import Problem, Unavailable
from service.store.database import Database

# How often the engine looks for expired holds while nothing else happens.
EXPIRE_EVERY_SECONDS = 1.0
# How often it looks at first stages that only wait for their last outcomes.
STAGES_EVERY_SECONDS = 1.0
# A stage one that could not be concluded is tried again after this time.
STAGE_AGAIN_SECONDS = 60.0
# The longest time that the engine waits for the event loop to send the last answers and to read the next requests. They
# share a core, so nothing is lost. Without it half of the clients would always be in the next batch and half in the
# one after, and a batch of half the size takes nearly as long. The engine does not wait for a busy loop any longer.
READING_SECONDS_MAX = 0.01
# Campaigns that the line of a slow transaction names.
LOGGED_CAMPAIGNS_MAX = 5
# After this many refusals the event loop leaves the interpreter to the engine, for longer than a thread takes to wake
# up. Between two reads it releases the interpreter too briefly: the engine would wait for the switch interval, 5 ms,
# after every statement of its transaction.
REFUSALS_PER_YIELD = 128
YIELD_SECONDS = 0.00002
# The bytes that add one to an event counter; a pipe takes them as well.
_SIGNAL = (1).to_bytes(8, "little")
FULL = "more is asked than can be answered in time; try again"

log = structlog.get_logger(__name__)


class Wakeup:
    """One thread sets it, another waits for it. A signal is never lost, and several may count as one.

    A lock or condition of `threading` wakes the other thread while its own still holds the interpreter. On one core the
    woken thread takes over at once, finds the interpreter taken and sleeps again, three times over before it runs. A
    system call releases the interpreter first, so the woken thread can go on.
    """

    def __init__(self) -> None:
        if hasattr(os, "eventfd"):
            self._reader = self._writer = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self._reader, self._writer = os.pipe()
            os.set_blocking(self._reader, False)
            os.set_blocking(self._writer, False)
        self._poll = select.poll()
        self._poll.register(self._reader, select.POLLIN)

    def fileno(self) -> int:
        """The descriptor that is readable while it is set, for an event loop."""
        return self._reader

    def set(self) -> None:
        """Wake the thread that waits, or the next one that will."""
        try:  # noqa: SIM105 - `suppress` takes as long as the system call
            os.write(self._writer, _SIGNAL)
        except BlockingIOError:  # it is set
            pass

    def wait(self, seconds: float | None) -> None:
        """Return when it is set, or was since the last time, and clear it; at the latest after `seconds`."""
        if self._poll.poll(None if seconds is None else ceil(seconds * 1000)):
            self.clear()

    def clear(self) -> None:
        """Clear it."""
        try:  # noqa: SIM105 - as above
            os.read(self._reader, 4096)
        except BlockingIOError:  # it is not set
            pass

    def close(self) -> None:
        """Close it; no thread may use it any more."""
        for end in {self._reader, self._writer}:
            os.close(end)


class Engine:
    """The queue and its thread.

    Only the event loop adds commands and delivers answers. The thread takes the next batch by itself, so that an event
    loop that is busy with refusals does not keep the database waiting.
    """

    item: type[Item] = Item
    batches: type[BatchRunner] = BatchRunner

    def __init__(
        self,
        database: Database,
        *,
        queue_max: int,
        deadline_seconds: float,
        memory_bytes_max: int,
        lock_timeout_ms: int,
        work_max: int = DECIDE_WORK_MAX,
        slow_seconds: float = inf,
        metrics: Metrics | None = None,
        reached: Reached | None = None,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self._batches = self.batches(
            database,
            memory_bytes_max=memory_bytes_max,
            lock_timeout_ms=lock_timeout_ms,
            work_max=work_max,
            metrics=metrics,
            reached=reached,
        )
        self._reached = reached
        self._slow_seconds = slow_seconds
        self._on_failure = on_failure
        self._database = database
        self._queue: deque[Waiter] = deque()
        self.queued = 0  # commands that wait
        self._work_max = work_max
        self._large = LargeRequests(work_max)
        self._large_first = False  # the last transaction was one of other requests
        self._guard = Lock()  # for the queue and for the decision to sleep
        self._asleep = False  # the engine's thread waits for its wakeup
        self._reading = False  # the event loop has still to send the last answers, or to read what follows them
        self._patient_until = 0.0  # when the engine stops waiting for that
        self._admission = Admission(deadline_seconds, queue_max)
        self._batch_max = self._admission.batch_max
        self.under_way_max = queue_max  # of decisions and outcomes, waiting or not; more would be answered too late
        self._answered: deque[tuple[Sequence[Waiter], float]] = deque()  # waiters to answer, and since when
        self._lag_seconds = 0.0  # how long the event loop took to get to the last answers
        self._refused = 0
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._thread = Thread(target=self._run, name="cbwk-engine", daemon=True)
        self._groups = 0
        self._loop: asyncio.AbstractEventLoop
        self._ended: asyncio.Future[None]
        self._engine_wakeup: Wakeup
        self._loop_wakeup: Wakeup

    async def start(self) -> None:
        """Begin to empty the queue."""
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        self._engine_wakeup, self._loop_wakeup = Wakeup(), Wakeup()
        self._loop.add_reader(self._loop_wakeup.fileno(), self._woken)
        self._thread.start()
        self._tasks = [asyncio.create_task(task()) for task in (self._expire, self._end_stages)]

    @property
    def is_whole(self) -> bool:
        """Whether the thread and every background task run; each of them should run until the engine stops."""
        return self._thread.is_alive() and not any(task.done() for task in self._tasks)

    async def stop(self) -> None:
        """Answer what is queued, save what was learnt, end."""
        for task in self._tasks:
            task.cancel()
        with self._guard:
            self._stopping = True
        self._wake()
        await self._ended

    async def submit(self, command: Command) -> Answer:
        """Queue a command and wait for its commit; raise the Problem it was answered with."""
        (answer,) = await self.submit_together([command])
        if isinstance(answer, Problem):
            raise answer
        return answer

    async def submit_together(self, commands: Sequence[Command]) -> list[Answer | Problem]:
        """Queue commands for one transaction; each has its own answer, and all are unavailable or none."""
        done: asyncio.Future[Sequence[Item]] = self._loop.create_future()

        def deliver(items: Sequence[Item]) -> None:
            if not done.done():
                done.set_result(items)

        waiter = self.enqueue(commands, deliver)
        try:
            return answers_of(await done)
        finally:
            waiter.gone = True

    def enqueue(self, commands: Sequence[Command], deliver: Deliver) -> Waiter:
        """Queue commands for one transaction, in the event loop, or raise; any room at all takes them whole."""
        # Commands of administrators and of the engine itself are few and may wait longer.
        hot = isinstance(commands[0], Decide | Feedback)
        deadline = time.monotonic() + self._admission.deadline_seconds if hot else inf
        together = 0
        if len(commands) > 1:
            together = self._groups = self._groups + 1
        large = self._batches.large_campaigns
        work = work_of(commands, large, self._work_max) if hot and large else 0
        waiter = Waiter([self.item(command, deadline, together) for command in commands], deliver, work)
        with self._guard:
            if self._stopping:
                raise Unavailable("the service is stopping", kind="queue-full")
            if not (self._large.add(waiter) if work else self._add(waiter, hot=hot)):
                raise Unavailable(FULL, kind="queue-full")
            soon = not self._is_worth_waiting()
        if soon:
            self._wake()
        return waiter

    def forget_webhooks(self) -> None:
        """Read the webhooks again: another process may have created or deleted one."""
        self._batches.forget_webhooks()

    def _add(self, waiter: Waiter, *, hot: bool) -> bool:
        """Put a request into the queue, in the guard; return whether there is room."""
        queued = self.queued + len(waiter.items)
        if queued > self._admission.queue_max or (hot and self.queued >= self.under_way_max):
            return False
        self.queued = queued
        self._queue.append(waiter)
        return True

    def is_full(self, under_way: int) -> bool:
        """Whether the engine takes no more decisions and outcomes while that many requests are under way."""
        # A request whose client is gone stays in the queue until its turn.
        full = under_way >= self.under_way_max or self.queued >= self.under_way_max
        if full:
            if self._answered:
                self.deliver()
            self._refused += 1
            if self._refused % REFUSALS_PER_YIELD == 0 and not self._asleep:
                time.sleep(YIELD_SECONDS)
        return full

    def _wake(self) -> None:
        """Wake the engine's thread; not inside the guard, for which it would wait."""
        if self._asleep:
            self._asleep = False
            self._engine_wakeup.set()

    def _is_worth_waiting(self) -> bool:
        """Whether the next batch grows if the event loop goes on reading."""
        if not self._reading or self._stopping or self.queued >= min(self._batch_max, self.under_way_max):
            return False
        return time.monotonic() < self._patient_until

    def _run(self) -> None:
        """Run batches in the engine's thread until the engine stops."""
        while batch := self._next_batch():
            items = [item for waiter in batch for item in waiter.items]
            started, left = time.monotonic(), 0
            try:
                left = self._batches.run_free(items)
            except Exception as error:
                log.error("a batch was left without answers", exc_info=error)
            if self._reached is not None:
                self._reached("before-answer")
            ended = time.monotonic()
            if ended - started > self._slow_seconds:
                _log_slow(items, ended - started)
            if not batch[0].work:
                self._admit(len(items) - left, ended - started)
            if left:
                batch = self._put_back(batch)
            if batch:
                self._hand_over(batch, ended)
            if self._batches.due:
                self._batches.save_due()
            if self._batches.failed and not self._stopping:
                self._stopping = True  # what is still queued is answered with 503, and nothing more is taken
                self._loop.call_soon_threadsafe(self._on_failure)
        self._batches.save_all()
        self._loop.call_soon_threadsafe(self._end)

    def _put_back(self, batch: Sequence[Waiter]) -> list[Waiter]:
        """Queue the requests whose campaigns were not free again, before all others; returns the other requests."""
        answered: list[Waiter] = []
        with self._guard:
            for waiter in reversed(batch):
                if not any(item.is_blocked for item in waiter.items):
                    answered.append(waiter)
                elif waiter.work:
                    self._large.put_back(waiter)
                else:
                    self._queue.appendleft(waiter)
                    self.queued += len(waiter.items)
        return answered[::-1]

    def _end(self) -> None:
        """The last step, in the event loop."""
        self.deliver()
        self._loop.remove_reader(self._loop_wakeup.fileno())
        for wakeup in (self._engine_wakeup, self._loop_wakeup):
            wakeup.close()
        if not self._ended.done():  # `stop` may have been cancelled
            self._ended.set_result(None)

    def _sleep(self) -> None:
        """Wait in the engine's thread until a batch is due; commands that come while the loop reads do not wake it."""
        while True:
            with self._guard:
                # Before the question: the answer holds for this time.
                patience = max(0.0, self._patient_until - time.monotonic()) if self._reading else 0.0
                due = (self._queue or self._large or self._stopping) and not self._is_worth_waiting()
                self._asleep = not due
            if due:
                return
            self._engine_wakeup.wait(patience or None)

    def _admit(self, commands: int, seconds: float) -> None:
        """Adapt the limits to the time that the last batch took."""
        self._admission = self._admission.after(commands, seconds, self._lag_seconds)
        self._batch_max, self.under_way_max = self._admission.batch_max, self._admission.under_way_max

    def _next_batch(self) -> list[Waiter]:
        """The waiters of the next transaction, as soon as there are some; none when the engine has stopped.

        Requests whose client is gone are dropped. Requests that would be answered too late are answered with 503.
        Large requests wait in a line of their own, and every second transaction is theirs.
        """
        while True:
            self._sleep()
            now = time.monotonic()
            batch: list[Waiter] = []
            late: list[Waiter] = []
            with self._guard:
                if not self._queue and not self._large:
                    return []
                if self._large and (self._large_first or not self._queue):
                    for waiter in self._large.take():
                        if not waiter.gone:
                            (late if waiter.items[0].deadline < now else batch).append(waiter)
                else:
                    self._take_queued(now, batch, late)
                self._large_first = not (batch and batch[0].work)
            if late:
                for waiter in late:
                    for item in waiter.items:
                        item.answer = Unavailable(FULL, kind="queue-full")
                self._hand_over(late, now)
                # No batch may follow that would show how long the event loop takes by now.
                self._admit(0, 0.0)
            if batch:
                return batch

    def _take_queued(self, now: float, batch: list[Waiter], late: list[Waiter]) -> None:
        """Take the next requests from the queue, in the guard."""
        ends_at, commands = now + self._admission.answer_seconds(self.queued), 0
        while self._queue and commands < self._batch_max:
            waiter = self._queue.popleft()
            self.queued -= len(waiter.items)
            if not waiter.gone:
                (late if waiter.items[0].deadline < ends_at else batch).append(waiter)
                commands += len(waiter.items) if waiter.items[0].deadline >= ends_at else 0

    def _hand_over(self, waiters: Sequence[Waiter], since: float) -> None:
        """Give answered waiters to the event loop."""
        # In this order: the event loop may be sending answers right now, and it reports when it has read.
        self._patient_until = time.monotonic() + READING_SECONDS_MAX
        self._reading = True
        self._answered.append((waiters, since))
        self._loop_wakeup.set()

    def _woken(self) -> None:
        self._loop_wakeup.clear()
        self.deliver()

    def deliver(self) -> None:
        """Deliver the answers of all commands that have ended; in the event loop.

        Code that keeps the loop busy with reading calls this now and then: libuv reads up to 50,000 times before it
        comes to anything else.
        """
        if not self._answered:
            return
        while self._answered:
            waiters, since = self._answered.popleft()
            self._lag_seconds = time.monotonic() - since
            for waiter in waiters:
                if not waiter.gone:  # what was committed stays committed even if the client is gone
                    try:
                        waiter.deliver(waiter.items)
                    except Exception as error:  # the other waiters of the batch are still answered
                        log.error("an answer was not delivered", exc_info=error)
        # Three turns later: by then the loop has read what clients send when they have these answers. After two turns a
        # sixth of them was in the next batch.
        later = self._loop.call_soon
        later(later, later, self._have_read)

    def _have_read(self) -> None:
        with self._guard:
            self._reading = bool(self._answered)
            more = bool(self._queue or self._large)
        if more:
            self._wake()

    async def _expire(self) -> None:
        """Expire holds: once a second, and again at once while there are more than one transaction takes."""
        expired = total = 0
        while True:
            total += expired
            if expired < EXPIRE_ROWS_MAX:
                if total:
                    log.info("holds have expired", count=total)
                total = 0
                await asyncio.sleep(EXPIRE_EVERY_SECONDS)
            try:
                expired = (await self.submit(Expire())).body["expired"]
            except Problem:
                expired = 0
            except Exception as error:  # noqa: BLE001 - a loop that ends would leave every later hold open for good
                expired = 0
                log.error("holds did not expire; the next attempt follows", error=type(error).__name__)

    async def _end_stages(self) -> None:
        """End every stage one that is over. The linear program runs beside the queue, which goes on with one stage."""
        again_at: dict[int, float] = {}
        while True:
            await asyncio.sleep(STAGES_EVERY_SECONDS)
            for number in self._batches.handed_out():
                if time.monotonic() < again_at.get(number, 0.0):
                    continue
                try:
                    found = await in_background(stage_one.conclusion, self._database, number)
                    if found is not None:
                        await self.submit(found)
                except Problem:
                    continue
                except Exception as error:
                    if not self._database.is_connection_error(error):
                        again_at[number] = time.monotonic() + STAGE_AGAIN_SECONDS
                        log.error("stage one was not concluded; one stage goes on", exc_info=error)


def _log_slow(items: Sequence[Item], seconds: float) -> None:
    campaigns = sorted({name for item in items if (name := getattr(item.command, "campaign_id", None))})
    commands = Counter(type(item.command).__name__ for item in items)
    shown = campaigns[:LOGGED_CAMPAIGNS_MAX]
    log.warning("slow transaction", seconds=round(seconds, 3), commands=commands, campaigns=shown, of=len(campaigns))


def answers_of(items: Sequence[Item]) -> list[Answer | Problem]:
    """The answers to the commands of one transaction; raises the failure of the whole transaction."""
    answers: list[Answer | Problem] = []
    for item in items:
        answer = item.answer
        if isinstance(answer, Answer) or (isinstance(answer, Problem) and not isinstance(answer, Unavailable)):
            answers.append(answer)
        else:
            raise answer or RuntimeError("a command was left without an answer")
    return answers
