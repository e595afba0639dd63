"""The process of one evaluation: reads a request from stdin, writes progress and the result to stdout as JSON lines.

It only reads the database, at a low priority. It ends when its stdin is closed, so a killed server leaves no process.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from threading import Thread
from typing import Any

import orjson

from service.evaluation.campaign_log import EmptyLog
from service.evaluation.result import evaluation_result
from service.problems import Problem
from service.store.database import Database

NICENESS = 10
PROGRESS_SECONDS_MIN = 0.5


def main() -> None:
    """Computes one evaluation."""
    os.nice(NICENESS)
    task = orjson.loads(sys.stdin.buffer.readline())
    Thread(target=_exit_with_stdin, daemon=True).start()
    last = 0.0

    def report(progress: float) -> None:
        nonlocal last
        if time.monotonic() - last >= PROGRESS_SECONDS_MIN:
            last = time.monotonic()
            _write({"progress": progress})

    try:
        with Database.open_read_only(task["database_url"]) as database:
            _write({"result": evaluation_result(database, task["campaign_id"], task["request"], report)})
    except EmptyLog as error:
        _write({"failed": {"code": "nothing-logged", "message": str(error)}})
    except Problem as problem:
        _write({"failed": {"code": problem.kind, "message": problem.detail}})
    except MemoryError:
        _write({"failed": {"code": "too-large", "message": "the log does not fit into memory; ask for fewer rounds"}})
    except Exception:  # noqa: BLE001 - the parent process logs it
        _write({"crashed": traceback.format_exc()})


def _write(line: dict[str, Any]) -> None:
    sys.stdout.buffer.write(orjson.dumps(line, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n")
    sys.stdout.buffer.flush()


def _exit_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    main()
