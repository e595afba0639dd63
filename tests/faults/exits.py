"""The process ends itself at named points of a batch: before and after the insert and the commit, before the answer."""

from __future__ import annotations

import asyncio
import time
from typing import get_args

from service.fault import EXIT_CODE, Point
from tests.faults.processes import Ground
from tests.faults.report import Progress, Row
from tests.faults.trial import ready, trial

CLIENTS = 6
EXIT_SECONDS_MAX = 15.0
POINTS = get_args(Point)


async def exits(ground: Ground, dialect: str, injections: int, progress: Progress) -> Row:
    """Every life ends at one of the points, in turn, in one of the first batches."""
    async with trial(ground, dialect, seed=2) as one:
        for number in range(injections):
            # A service that is at rest comes by with every expiry: the first times are for the way to the load.
            await one.restart(fault_point=f"{POINTS[number % len(POINTS)]}:{one.chance.randint(4, 40)}:exit")
            await one.tighten(number)
            one.load.start(CLIENTS)
            assert one.server.child is not None
            started = time.monotonic()
            while one.server.child.code() is None and time.monotonic() - started < EXIT_SECONDS_MAX:
                await asyncio.sleep(0.005)
            await one.load.stop()
            if one.server.child.code() != EXIT_CODE:
                one.note("unclear", f"the process did not exit at its point but with {one.server.child.code()}")
            one.injections += 1
            progress()
        one.server.start()
        await ready(one.server)
        return await one.verdict("exit at a named point", dialect, note=f"in turn {', '.join(POINTS)}")
