"""A process that imports the program and then only forks, so that a restart takes a fraction of a second.

It reads one order per line from its standard input and answers each with one line. A forked process runs `cbwk` with
the arguments and the environment of the order. When the input ends, it kills all its children.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from typing import Any, NoReturn

from tests.faults.shifted_clock import VARIABLE, follow


def main() -> None:
    """Import the program, then fork as ordered."""
    # A flood needs thousands of connections.
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    import service.server  # noqa: PLC0415 - the children need no import
    import service.store.migrate  # noqa: F401, PLC0415

    if "SEEDED_BUG" in os.environ:
        from tests.faults.seeded import plant  # noqa: PLC0415

        plant(os.environ["SEEDED_BUG"])
    children: set[int] = set()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        if "arguments" in order:
            child = os.fork()
            if child == 0:
                _become(order)
            children.add(child)
            print(json.dumps({"pid": child}), flush=True)
        else:
            print(json.dumps({"code": _code(order["pid"], children)}), flush=True)
    for child in children:
        os.kill(child, signal.SIGKILL)


def _code(pid: int, children: set[int]) -> int | None:
    """Return the exit code of a child as `subprocess` does; None while it runs."""
    found, status = os.waitpid(pid, os.WNOHANG)
    if found == 0:
        return None
    children.discard(pid)
    return os.waitstatus_to_exitcode(status)


def _become(order: dict[str, Any]) -> NoReturn:
    code = 1
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for descriptor, source in ((0, nothing), (1, log), (2, log)):
            os.dup2(source, descriptor)
        os.chdir(order["folder"])
        for name in [name for name in os.environ if name.startswith("CBWK_")]:
            del os.environ[name]
        os.environ.update(order["environment"])
        if VARIABLE in os.environ:
            follow(os.environ[VARIABLE])
        from service.cli import main as cbwk  # noqa: PLC0415

        code = cbwk(order["arguments"])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
