"""The entry point of the command `cbwk`: it runs the command, or prints how to install a missing extra."""

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

_OURS = {"cbwk_client", "cbwk_core", "service"}
# The packages that only one extra brings; all others come with `server`.
_EXTRAS = {"matplotlib": "plots", "threadpoolctl": "plots", "opentelemetry": "otel", "google": "otel"}


def _exit_at_once(number: int, _frame: FrameType | None) -> None:
    """End as the default action would; an exception could be lost in a destructor. `serve` has its own handler."""
    os._exit(128 + number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code of the process."""
    # Before numpy is imported. A product in several threads would take the core of the event loop, and on a busy
    # machine its threads wait for each other: 1,000 arms of 139 features take 32 ms in two threads and 8 ms in one.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Before the imports, which take most of a start: without a handler, process 1 of a container ignores SIGTERM.
    signal.signal(signal.SIGTERM, _exit_at_once)
    try:
        from service.cli import main as run

        return run(arguments)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not package or package in _OURS or package in sys.stdlib_module_names:
            raise
        extra = _EXTRAS.get(package, "server")
        sys.stderr.write(f"cbwk: {package} is not installed: pip install 'cbwk[{extra}]'\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
