"""Long computations beside the event loop, in threads that do not delay the end of the process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import Any, TypeVar

Result = TypeVar("Result")


async def in_background(function: Callable[..., Result], *arguments: Any) -> Result:
    """Return what the function returns, or raise what it raises. Threads of an executor would delay a stop."""
    future: Future[Result] = Future()
    future.set_running_or_notify_cancel()  # a caller that no longer waits does not cancel it

    def run() -> None:
        try:
            future.set_result(function(*arguments))
        except Exception as error:  # noqa: BLE001 - raised where the caller awaits
            future.set_exception(error)

    Thread(target=run, name="cbwk-background", daemon=True).start()
    return await asyncio.wrap_future(future)
