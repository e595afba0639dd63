"""Runs the evaluations of a server: a few at a time, each in its own process; the others wait in a queue.

The table `evaluation` holds requests and results. The server updates `beat_at` of its queued and running evaluations
every few seconds; an evaluation whose `beat_at` is old belonged to a server that is gone, and fails as interrupted.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from dataclasses import dataclass
from subprocess import DEVNULL, PIPE, Popen
from threading import Event, Lock, Thread, Timer
from typing import Any

import orjson
import structlog
from sqlalchemy import Update, insert, update

from service.engine.administer import write_audit
from service.engine.notices import notice_evaluation
from service.ids import uuid7
from service.problems import Unavailable
from service.reads.evaluations import INTERRUPTED, LOST_AFTER_SECONDS, UNFINISHED
from service.reads.shared import stored_campaign
from service.store import tables
from service.store.database import Database
from service.times import MICROS_PER_SECOND

WAITING_MAX = 1_000
BEAT_SECONDS = 3.0
STOP_SECONDS = 2.0
_ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}

log = structlog.get_logger(__name__)


@dataclass
class _Task:
    """A queued or running evaluation of this server."""

    database: Database
    campaign: int
    campaign_id: str
    id: str
    request: dict[str, Any]
    progress: float = 0.0
    process: Popen[bytes] | None = None
    timed_out: bool = False


class Evaluations:
    """Threads that start evaluation processes and store their output; none while there is nothing to run."""

    def __init__(self, *, at_once: int, seconds_max: float) -> None:
        self._at_once, self._seconds_max = at_once, seconds_max
        self._lock = Lock()
        self._waiting: deque[_Task] = deque()
        self._running: list[_Task] = []
        self._workers = 0  # threads that take evaluations from the queue
        self._threads: list[Thread] = []
        self._heartbeat: Thread | None = None
        self._stopping = Event()

    def submit(self, database: Database, campaign_id: str, request: dict[str, Any], actor: str) -> dict[str, Any]:
        """Stores a checked request and queues it; returns the response body."""
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
        log.info("an evaluation was queued", evaluation=task.id, campaign=campaign_id, actor=actor)
        with self._lock:
            self._waiting.append(task)
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            if self._workers < self._at_once:
                self._workers += 1
                self._start_thread(self._run_queue)
            if self._heartbeat is None or not self._heartbeat.is_alive():
                self._heartbeat = self._start_thread(self._write_beats)
        return {"id": task.id, "campaign_id": campaign_id, "status": "queued"}

    def _start_thread(self, target: Any) -> Thread:
        thread = Thread(target=target, name="cbwk-evaluation", daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def stop(self) -> None:
        """Ends running processes and stores that queued and running evaluations were interrupted."""
        with self._lock:
            self._stopping.set()
            waiting = list(self._waiting)
            self._waiting.clear()
            for task in self._running:
                if task.process is not None:
                    task.process.kill()
            threads = list(self._threads)
        for task in waiting:
            self._store(task, status="failed", error=INTERRUPTED)
        for thread in threads:
            thread.join(STOP_SECONDS)

    def _run_queue(self) -> None:
        """Runs queued evaluations one after the other until the queue is empty."""
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
                log.error("the end of an evaluation was not stored", exc_info=error)
            finally:
                with self._lock:
                    self._running.remove(task)

    def _run(self, task: _Task) -> None:
        self._store(task, status="running")
        log.info("an evaluation starts", evaluation=task.id, campaign=task.campaign_id)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CBWK_")} | _ONE_THREAD
        command = [sys.executable, "-m", "service.evaluation.process"]
        with Popen(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=environment) as process:
            task.process = process
            if self._stopping.is_set():
                process.kill()
            alarm = Timer(self._seconds_max, self._time_out, [task])
            alarm.daemon = True
            alarm.start()
            try:
                end = _last_message(process, task)
            finally:
                alarm.cancel()
                process.kill()
        if self._stopping.is_set() and "result" not in end:
            self._store(task, status="failed", error=INTERRUPTED)
        elif task.timed_out:
            error = {"code": "took-too-long", "message": f"it took longer than {self._seconds_max:g} seconds"}
            self._store(task, status="failed", error=error)
        elif "result" in end:
            self._store(task, status="done", result=end["result"])
        elif "failed" in end:
            self._store(task, status="failed", error=end["failed"])
        else:
            log.error("an evaluation failed", evaluation=task.id, error=end.get("crashed"), code=process.returncode)
            self._store(task, status="failed", error={"code": "internal", "message": "its process ended with an error"})

    def _time_out(self, task: _Task) -> None:
        task.timed_out = True
        if task.process is not None:
            task.process.kill()

    def _store(self, task: _Task, *, status: str, error: Any = None, result: Any = None) -> None:
        """Stores the status of an evaluation."""
        with task.database.write() as connection:
            now = task.database.now_micros(connection)
            values: dict[str, Any] = {"status": status, "beat_at": now}
            values |= {"started_at": now} if status == "running" else {"finished_at": now}
            if status == "done":
                values |= {"progress": 1.0, "result": orjson.dumps(result).decode()}
            if error is not None:
                values["error"] = orjson.dumps(error).decode()
            connection.execute(_update_of(task).values(**values))
            if status != "running":
                notice_evaluation(connection, task.campaign_id, task.id, status, now)
        if status != "running":
            log.info("an evaluation ended", evaluation=task.id, campaign=task.campaign_id, status=status)

    def _write_beats(self) -> None:
        """Updates `beat_at` and the progress of the evaluations of this server while there are any."""
        while not self._stopping.wait(BEAT_SECONDS):
            with self._lock:
                tasks = [*self._waiting, *self._running]
                if not tasks:
                    self._heartbeat = None
                    return
            try:
                database = tasks[0].database
                with database.write() as connection:
                    now = database.now_micros(connection)
                    for task in tasks:
                        query = _update_of(task).where(tables.evaluation.c.status.in_(UNFINISHED))
                        connection.execute(query.values(progress=task.progress, beat_at=now))
            except Exception as error:  # noqa: BLE001 - the next beat may reach the database again
                log.warning("an evaluation's progress was not written", error=type(error).__name__)


def _update_of(task: _Task) -> Update:
    evaluation = tables.evaluation
    return update(evaluation).where(evaluation.c.campaign == task.campaign, evaluation.c.id == task.id)


def _last_message(process: Popen[bytes], task: _Task) -> dict[str, Any]:
    """Sends the request and returns the last message of the process; {} if it ends without one.

    Progress messages update the task. The process ends when its stdin is closed, so this leaves it open.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    message = {"database_url": task.database.private_url, "campaign_id": task.campaign_id, "request": task.request}
    try:
        process.stdin.write(orjson.dumps(message) + b"\n")
        process.stdin.flush()
        for line in process.stdout:
            if not line.endswith(b"\n"):
                break
            received: dict[str, Any] = orjson.loads(line)
            if "progress" not in received:
                return received
            task.progress = min(max(received["progress"], 0.0), 1.0)
    except OSError:
        pass
    return {}


def end_interrupted(database: Database) -> int:
    """Marks evaluations of servers that are gone as interrupted and returns their number.

    On SQLite, which serves one process, these are all unfinished ones; on PostgreSQL those with an old `beat_at`.
    """
    evaluation = tables.evaluation
    with database.write() as connection:
        now = database.now_micros(connection)
        query = (
            update(evaluation)
            .where(evaluation.c.status.in_(UNFINISHED))
            .values(status="failed", error=orjson.dumps(INTERRUPTED).decode(), finished_at=now)
        )
        if database.dialect == "postgresql":
            query = query.where(evaluation.c.beat_at < now - LOST_AFTER_SECONDS * MICROS_PER_SECOND)
        return int(connection.execute(query).rowcount)
