"""The engine: everything queued goes into one transaction, and is answered when it is committed."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from threading import Condition, Thread

import structlog

from service.engine import stages
from service.engine.background import in_background
from service.engine.commands import Answer, Command, Decide, Expire, Feedback, Item
from service.engine.pace import Pace
from service.engine.processor import EXPIRE_ROWS_MAX, Processor
from service.fault import Reached, pass_by
from service.metrics import Metrics
from service.problems import Problem, Unavailable
from service.store.database import Database

__all__ = ["FULL", "Engine"]

# How often holds are looked at when nothing else happens.
EXPIRE_EVERY_SECONDS = 1.0
# How often stages are looked at that only wait for their last outcomes.
STAGES_EVERY_SECONDS = 1.0
FULL = "more is asked than can be answered in time; try again"

Waiting = tuple[Item, asyncio.Future[Answer]]

log = structlog.get_logger(__name__)


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
        self._processor = Processor(
            database,
            memory_bytes_max=memory_bytes_max,
            lock_timeout_ms=lock_timeout_ms,
            metrics=metrics,
            reached=reached,
        )
        self._reached = reached
        self._on_failure = on_failure
        self._database = database
        self._queue: deque[Waiting] = deque()
        self._changed = Condition()  # guards the queue and `_stopping`
        self._pace = Pace(deadline_seconds, queue_max)
        self._under_way_max = queue_max
        self._lag_seconds = 0.0  # how long the event loop took to get to the last answers
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._groups = 0
        self._loop: asyncio.AbstractEventLoop
        self._ended: asyncio.Future[None]

    @property
    def queued(self) -> int:
        """Commands that wait."""
        return len(self._queue)

    @property
    def under_way_max(self) -> int:
        """How many decisions and outcomes may be under way, waiting or not; more would not be answered in time."""
        return self._under_way_max

    async def start(self) -> None:
        """Begin to empty the queue."""
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        Thread(target=self._work, name="cbwk-engine", daemon=True).start()
        self._tasks = [asyncio.create_task(task()) for task in (self._tick, self._end_stages)]

    async def stop(self) -> None:
        """Answer what is queued, save what was learnt, end."""
        for task in self._tasks:
            task.cancel()
        with self._changed:
            self._stopping = True
            self._changed.notify()
        await self._ended

    async def submit(self, command: Command) -> Answer:
        """Queue a command and wait for its commit; raises the Problem it was answered with."""
        (future,) = self._queued([command], 0)
        return await future

    async def submit_together(self, commands: Sequence[Command]) -> list[Answer | Problem]:
        """Queue commands for one transaction; each is answered for itself, and all are unavailable or none."""
        self._groups += 1
        answers = await asyncio.gather(*self._queued(commands, self._groups), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, Unavailable):
                raise answer
            if isinstance(answer, BaseException) and not isinstance(answer, Problem):
                raise answer
        return [answer for answer in answers if isinstance(answer, Answer | Problem)]

    def _queued(self, commands: Sequence[Command], group: int) -> list[asyncio.Future[Answer]]:
        """Put commands into the queue, or raise; a group that finds any room goes in whole."""
        # What administrators ask, and what the engine asks itself, is little and may wait longer.
        hot = isinstance(commands[0], Decide | Feedback)
        deadline = time.monotonic() + self._pace.deadline_seconds if hot else inf
        with self._changed:
            if self._stopping:
                raise Unavailable("the service is stopping", kind="queue-full")
            if len(self._queue) + len(commands) > self._pace.queue_max or (
                hot and len(self._queue) >= self._under_way_max
            ):
                raise Unavailable(FULL, kind="queue-full")
            futures = [self._loop.create_future() for _ in commands]
            items = [Item(command, deadline, group) for command in commands]
            self._queue.extend(zip(items, futures, strict=True))
            self._changed.notify()
        return futures

    def _work(self) -> None:
        """What the engine's thread does, until the engine stops."""
        while True:
            batch = self._taken()
            if not batch:
                break
            started = time.monotonic()
            try:
                self._processor.run([item for item, _ in batch])
            except Exception as error:
                log.error("a batch was left without answers", exc_info=error)
            self._reached("before-answer")
            ended = time.monotonic()
            self._pace = self._pace.after(len(batch), ended - started, self._lag_seconds)
            self._under_way_max = self._pace.under_way_max
            self._loop.call_soon_threadsafe(self._answer_all, batch, ended)
            self._processor.save_due()  # nobody waits for it
            if self._processor.failed and not self._stopping:
                self._stopping = True  # what is still queued is answered with 503, and nothing more is taken
                self._loop.call_soon_threadsafe(self._on_failure)
        self._processor.save_all()
        self._loop.call_soon_threadsafe(self._ended.set_result, None)

    def _taken(self) -> list[Waiting]:
        """What goes into the next transaction, as soon as there is something; nothing when the engine has stopped.

        Whose client is gone is left out, and so is who would get the answer too late: it is better not done at all.
        """
        with self._changed:
            while True:
                while not self._queue and not self._stopping:
                    self._changed.wait()
                if not self._queue:
                    return []
                now = time.monotonic()
                batch, late = self._chosen(now + self._pace.answer_seconds(len(self._queue)))
                if late:
                    self._loop.call_soon_threadsafe(self._answer_all, late, now)
                if batch:
                    return batch

    def _chosen(self, ends_at: float) -> tuple[list[Waiting], list[Waiting]]:
        batch: list[Waiting] = []
        late: list[Waiting] = []
        group = 0
        while self._queue and (len(batch) < self._pace.batch_max or 0 < group == self._queue[0][0].together):
            item, future = self._queue.popleft()
            group = item.together
            if future.done():
                continue
            if item.deadline < ends_at:
                item.answer = Unavailable(FULL, kind="queue-full")
                late.append((item, future))
            else:
                batch.append((item, future))
        return batch, late

    def _answer_all(self, batch: Sequence[Waiting], answered_at: float) -> None:
        self._lag_seconds = time.monotonic() - answered_at
        for item, future in batch:
            if future.done():  # the client hung up; what was committed stays committed
                continue
            if isinstance(item.answer, Answer):
                future.set_result(item.answer)
            else:
                future.set_exception(item.answer or RuntimeError("a command was left without an answer"))

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
            for number in set(self._processor.handed_out()) - given_up:
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
