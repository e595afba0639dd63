"""Long computations beside the event loop, in threads that do not delay the end of the process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any, TypeVar

Result = TypeVar("Result")


async def in_background(function: Callable[..., Result], *arguments: Any) -> Result:
    """Return what the function returns, or raise what it raises. Threads of an executor would delay a stop."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def run() -> None:
        try:
            result = function(*arguments)
        except Exception as error:  # noqa: BLE001 - raised where the caller awaits
            deliver(future.set_exception, error)
        else:
            deliver(future.set_result, result)

    def deliver(setter: Callable[[Any], None], outcome: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(lambda: None if future.done() else setter(outcome))

    Thread(target=run, name="cbwk-background", daemon=True).start()
    return await future
