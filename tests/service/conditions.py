"""Waiting for a condition."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

WAIT_SECONDS_MAX = 20.0
POLL_SECONDS = 0.005


async def until(condition: Callable[[], object], what: str) -> None:
    """Return as soon as the condition holds; fails with `what` if that takes too long."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"waited {WAIT_SECONDS_MAX:g} s in vain until {what}"
        await asyncio.sleep(POLL_SECONDS)
