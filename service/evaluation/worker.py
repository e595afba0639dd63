"""The process of one evaluation: a request on stdin, progress and the result on stdout, one JSON object per line.

It only reads the database, at a low priority, and ends when nobody holds its stdin any more: a server that is killed
leaves no process behind.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from threading import Thread
from typing import Any

import orjson

from service.evaluation.logged import NothingLogged
from service.evaluation.work import work_out
from service.problems import Problem
from service.store.database import Database

NICENESS = 10
# How often progress is told at the most.
TELL_EVERY_SECONDS = 0.5


def main() -> None:
    """Work one request out."""
    os.nice(NICENESS)
    asked = orjson.loads(sys.stdin.buffer.readline())
    Thread(target=_end_with_stdin, daemon=True).start()
    last = 0.0

    def told(progress: float) -> None:
        nonlocal last
        if time.monotonic() - last >= TELL_EVERY_SECONDS:
            last = time.monotonic()
            _say({"progress": progress})

    try:
        with Database.open_read_only(asked["database_url"]) as database:
            _say({"result": work_out(database, asked["campaign_id"], asked["request"], told)})
    except NothingLogged as error:
        _say({"failed": {"code": "nothing-logged", "message": str(error)}})
    except Problem as problem:
        _say({"failed": {"code": problem.kind, "message": problem.detail}})
    except MemoryError:
        _say({"failed": {"code": "too-large", "message": "the log does not fit into memory; ask for fewer rounds"}})
    except Exception:  # noqa: BLE001 - it is told to whoever started this process
        _say({"crashed": traceback.format_exc()})


def _say(line: dict[str, Any]) -> None:
    sys.stdout.buffer.write(orjson.dumps(line, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n")
    sys.stdout.buffer.flush()


def _end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    main()
