"""Long computations beside the event loop, in threads that nobody waits for when the process ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any, TypeVar

Result = TypeVar("Result")


async def in_background(function: Callable[..., Result], *arguments: Any) -> Result:
    """What the function returns or raises. An executor's threads would keep a process that was told to stop."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def run() -> None:
        try:
            result = function(*arguments)
        except Exception as error:  # noqa: BLE001 - it is raised where the result is awaited
            tell(future.set_exception, error)
        else:
            tell(future.set_result, result)

    def tell(setter: Callable[[Any], None], outcome: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody is there to be told
            loop.call_soon_threadsafe(lambda: None if future.done() else setter(outcome))

    Thread(target=run, name="cbwk-background", daemon=True).start()
    return await future
