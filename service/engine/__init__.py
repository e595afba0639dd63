"""The engine: everything queued goes into one transaction, and is answered when it is committed."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import structlog

from service.engine import stages
from service.engine.background import in_background
from service.engine.commands import Answer, Command, Expire, Item
from service.engine.processor import Processor
from service.fault import Reached, pass_by
from service.metrics import Metrics
from service.problems import Problem, Unavailable
from service.store.database import Database

__all__ = ["Engine"]

# How many commands one transaction takes at the most.
BATCH_MAX = 256
# How often holds are looked at when nothing else happens.
EXPIRE_EVERY_SECONDS = 1.0
# How often stages are looked at that only wait for their last outcomes.
STAGES_EVERY_SECONDS = 1.0

log = structlog.get_logger(__name__)


class Engine:
    """A queue and the one loop that empties it: idle, a batch is one command; busy, it forms while the last commits."""

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
        self._queue: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._queue_max = queue_max
        self._deadline_seconds = deadline_seconds
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cbwk-engine")
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self._groups = 0

    @property
    def queued(self) -> int:
        """Commands that wait."""
        return len(self._queue)

    async def start(self) -> None:
        """Begin to empty the queue."""
        self._tasks = [asyncio.create_task(task()) for task in (self._loop, self._tick, self._end_stages)]

    async def stop(self) -> None:
        """Answer what is queued, save what was learnt, end."""
        self._stopping = True
        self._wake.set()
        loop, *timed = self._tasks
        for task in timed:
            task.cancel()
        await loop
        await asyncio.get_running_loop().run_in_executor(self._thread, self._processor.save_all)
        self._thread.shutdown()

    async def submit(self, command: Command) -> Answer:
        """Queue a command and wait for its commit; raises the Problem it was answered with."""
        return await self._queued(command, 0)

    async def submit_together(self, commands: Sequence[Command]) -> list[Answer | Problem]:
        """Queue commands for one transaction; each is answered for itself, and all are unavailable or none."""
        self._groups += 1
        if len(self._queue) + len(commands) > self._queue_max:
            raise Unavailable("the queue is full; try again", kind="queue-full")
        waiting = [self._queued(command, self._groups) for command in commands]
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, Unavailable):
                raise answer
            if isinstance(answer, BaseException) and not isinstance(answer, Problem):
                raise answer
        return [answer for answer in answers if isinstance(answer, Answer | Problem)]

    def _queued(self, command: Command, group: int) -> asyncio.Future[Answer]:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if self._stopping or len(self._queue) >= self._queue_max:
            reason = "the service is stopping" if self._stopping else "the queue is full; try again"
            future.set_exception(Unavailable(reason, kind="queue-full"))
            return future
        self._queue.append((Item(command, time.monotonic() + self._deadline_seconds, group), future))
        self._wake.set()
        return future

    async def _loop(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while not self._queue:
                if self._stopping:
                    return
                self._wake.clear()
                await self._wake.wait()
            batch = self._taken()
            if batch:
                await loop.run_in_executor(self._thread, self._processor.run, [item for item, _ in batch])
                self._reached("before-answer")
                for item, future in batch:
                    _answer(future, item.answer)
                if self._processor.failed and not self._stopping:
                    self._stopping = True  # what is still queued is answered with 503, and nothing more is taken
                    self._on_failure()

    def _taken(self) -> list[tuple[Item, asyncio.Future[Answer]]]:
        """What goes into the next transaction; whose client is gone or whose time is up is dropped."""
        now = time.monotonic()
        batch: list[tuple[Item, asyncio.Future[Answer]]] = []
        while self._queue and (len(batch) < BATCH_MAX or self._queue[0][0].together):
            item, future = self._queue.popleft()
            if future.done():
                continue
            if item.deadline < now:
                _answer(future, Unavailable("the request's time was up before its turn came", kind="deadline-passed"))
                continue
            batch.append((item, future))
        return batch

    async def _tick(self) -> None:
        """Let holds expire."""
        while True:
            await asyncio.sleep(EXPIRE_EVERY_SECONDS)
            try:
                await self.submit(Expire())
            except Problem:
                continue

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


def _answer(future: asyncio.Future[Answer], answer: Answer | BaseException | None) -> None:
    if future.done():  # the client hung up; what was committed stays committed
        return
    if isinstance(answer, Answer):
        future.set_result(answer)
    else:
        future.set_exception(answer or RuntimeError("a command was left without an answer"))
