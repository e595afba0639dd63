"""Evaluations of a server: a few at once, each in a process of its own, the others wait their turn.

What is asked and what came of it stand in the table `evaluation`. While any of ours waits or runs, its row is touched
every few seconds; one that was not for long belongs to a server that is gone, and has failed as interrupted.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Event, Lock, Thread, Timer
from typing import IO, Any

import orjson
import structlog
from sqlalchemy import insert, update

from service.engine.administer import write_audit
from service.ids import uuid7
from service.problems import Unavailable
from service.reads.evaluations import LOST_AFTER_SECONDS
from service.reads.shared import stored_campaign
from service.store import tables
from service.store.database import Database
from service.times import MICROS_PER_SECOND

# How many may wait behind those that run.
WAITING_MAX = 1_000
BEAT_SECONDS = 3.0
STOP_SECONDS = 2.0
INTERRUPTED = {"code": "interrupted", "message": "the server that worked on it ended"}
_ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}

log = structlog.get_logger(__name__)


@dataclass
class _Task:
    """An evaluation that waits or runs here."""

    database: Database
    campaign: int
    campaign_id: str
    id: str
    request: dict[str, Any]
    progress: float = 0.0
    process: subprocess.Popen[bytes] | None = None
    timed_out: bool = False


class Evaluations:
    """Threads that start processes and write down what they say; none as long as nobody asks."""

    def __init__(self, *, at_once: int, seconds_max: float) -> None:
        self._at_once = at_once
        self._seconds_max = seconds_max
        self._lock = Lock()
        self._waiting: deque[_Task] = deque()
        self._running: list[_Task] = []
        self._workers = 0
        self._threads: list[Thread] = []
        self._heart: Thread | None = None
        self._stopping = Event()

    def submit(self, database: Database, campaign_id: str, request: dict[str, Any], actor: str) -> dict[str, Any]:
        """Write down a checked request and begin when it is its turn; what it is answered with."""
        with self._lock:
            if self._stopping.is_set() or len(self._waiting) >= WAITING_MAX:
                raise Unavailable("too many evaluations wait; try again later", kind="evaluations-full")
        with database.write() as connection:
            now = database.now_micros(connection)
            number = stored_campaign(connection, campaign_id).campaign.number
            task = _Task(database, number, campaign_id, uuid7(now), request)
            row = {"campaign": number, "id": task.id, "status": "queued", "request": orjson.dumps(request).decode()}
            connection.execute(insert(tables.evaluation).values(**row, progress=0.0, created_at=now, beat_at=now))
            write_audit(connection, now, actor, "campaign.evaluate", campaign_id, {"id": task.id, "request": request})
        with self._lock:
            self._waiting.append(task)
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            if self._workers < self._at_once:
                self._workers += 1
                self._start_thread(self._work)
            if self._heart is None or not self._heart.is_alive():
                self._heart = self._start_thread(self._beat)
        return {"id": task.id, "campaign_id": campaign_id, "status": "queued"}

    def _start_thread(self, target: Any) -> Thread:
        thread = Thread(target=target, name="cbwk-evaluation", daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def stop(self) -> None:
        """End what runs, and write down that it was interrupted."""
        with self._lock:
            self._stopping.set()
            waiting = list(self._waiting)
            self._waiting.clear()
            for task in self._running:
                if task.process is not None:
                    task.process.kill()
            threads = list(self._threads)
        for task in waiting:
            self._note(task, status="failed", error=INTERRUPTED)
        for thread in threads:
            thread.join(STOP_SECONDS)

    def _work(self) -> None:
        """Take what waits, one after the other, until nothing does."""
        while True:
            with self._lock:
                if not self._waiting or self._stopping.is_set():
                    self._workers -= 1
                    return
                task = self._waiting.popleft()
                self._running.append(task)
            try:
                self._run(task)
            except Exception as error:
                log.error("an evaluation was left without an end", exc_info=error)
            finally:
                with self._lock:
                    self._running.remove(task)

    def _run(self, task: _Task) -> None:
        self._note(task, status="running")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CBWK_")}
        command = [sys.executable, "-m", "service.evaluation.worker"]
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment | _ONE_THREAD,
        ) as process:
            task.process = process
            if self._stopping.is_set():
                process.kill()
            alarm = Timer(self._seconds_max, self._ring, [task])
            alarm.daemon = True
            alarm.start()
            try:
                end = _conversation(process, task)
            finally:
                alarm.cancel()
                process.kill()
        if self._stopping.is_set() and "result" not in end:
            self._note(task, status="failed", error=INTERRUPTED)
        elif task.timed_out:
            told = {"code": "took-too-long", "message": f"it took longer than {self._seconds_max:g} seconds"}
            self._note(task, status="failed", error=told)
        elif "result" in end:
            self._note(task, status="done", result=end["result"])
        elif "failed" in end:
            self._note(task, status="failed", error=end["failed"])
        else:
            log.error("an evaluation failed", evaluation=task.id, said=end.get("crashed"), code=process.returncode)
            self._note(task, status="failed", error={"code": "internal", "message": "its process ended with an error"})

    def _ring(self, task: _Task) -> None:
        task.timed_out = True
        if task.process is not None:
            task.process.kill()

    def _note(self, task: _Task, *, status: str, error: Any = None, result: Any = None) -> None:
        """Write down where an evaluation stands."""
        evaluation = tables.evaluation
        with task.database.write() as connection:
            now = task.database.now_micros(connection)
            values: dict[str, Any] = {"status": status, "beat_at": now}
            values |= {"started_at": now} if status == "running" else {"finished_at": now}
            if status == "done":
                values |= {"progress": 1.0, "result": orjson.dumps(result).decode()}
            if error is not None:
                values["error"] = orjson.dumps(error).decode()
            connection.execute(
                update(evaluation)
                .where(evaluation.c.campaign == task.campaign, evaluation.c.id == task.id)
                .values(**values)
            )

    def _beat(self) -> None:
        """Touch the rows of everything that waits or runs here, as long as something does."""
        while not self._stopping.wait(BEAT_SECONDS):
            with self._lock:
                tasks = [*self._waiting, *self._running]
                if not tasks:
                    self._heart = None
                    return
            try:
                _touch(tasks)
            except Exception as error:  # noqa: BLE001 - the next beat may reach the database again
                log.warning("an evaluation's progress was not written", error=type(error).__name__)


def _conversation(process: subprocess.Popen[bytes], task: _Task) -> dict[str, Any]:
    """What the process says last; progress on the way. Its stdin stays open: it ends when that is closed."""
    assert process.stdin is not None
    assert process.stdout is not None
    asked = {"database_url": task.database.private_url, "campaign_id": task.campaign_id, "request": task.request}
    try:
        process.stdin.write(orjson.dumps(asked) + b"\n")
        process.stdin.flush()
        return _last_words(process.stdout, task)
    except OSError:
        return {}


def _last_words(stdout: IO[bytes], task: _Task) -> dict[str, Any]:
    for line in stdout:
        if not line.endswith(b"\n"):
            break
        said: dict[str, Any] = orjson.loads(line)
        if "progress" not in said:
            return said
        task.progress = min(max(said["progress"], 0.0), 1.0)
    return {}


def _touch(tasks: list[_Task]) -> None:
    evaluation, database = tables.evaluation, tasks[0].database
    with database.write() as connection:
        now = database.now_micros(connection)
        for task in tasks:
            connection.execute(
                update(evaluation)
                .where(
                    evaluation.c.campaign == task.campaign,
                    evaluation.c.id == task.id,
                    evaluation.c.status.in_(("queued", "running")),
                )
                .values(progress=task.progress, beat_at=now)
            )


def end_interrupted(database: Database) -> int:
    """Write down that evaluations of servers that are gone were interrupted: all on SQLite, which serves one process;
    on PostgreSQL those that nobody has touched for long. How many they were."""
    evaluation = tables.evaluation
    with database.write() as connection:
        now = database.now_micros(connection)
        values: Mapping[str, Any] = {
            "status": "failed",
            "error": orjson.dumps(INTERRUPTED).decode(),
            "finished_at": now,
        }
        query = update(evaluation).where(evaluation.c.status.in_(("queued", "running"))).values(**values)
        if database.dialect == "postgresql":
            query = query.where(evaluation.c.beat_at < now - LOST_AFTER_SECONDS * MICROS_PER_SECOND)
        return int(connection.execute(query).rowcount)
