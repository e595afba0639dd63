"""The process exits at named points of a batch: before and after the insert and the commit, before the answer."""

from __future__ import annotations

import asyncio
import time
from typing import get_args

from service.fault import EXIT_CODE, Point
from tests.faults.processes import Testbed
from tests.faults.report import Progress, Row
from tests.faults.trial import new_trial, ready

CLIENTS = 6
EXIT_SECONDS_MAX = 15.0
POINTS = get_args(Point)


async def exits(testbed: Testbed, dialect: str, injections: int, progress: Progress) -> Row:
    """Let the process exit at each of the points in turn, in one of the first batches."""
    async with new_trial(testbed, dialect, seed=2, clocked=True) as trial:
        await trial.add_kinds()
        for number in range(injections):
            # Each expiry passes the points, so the first few passes happen before the load begins.
            await trial.restart(fault_point=f"{POINTS[number % len(POINTS)]}:{trial.chance.randint(4, 40)}:exit")
            await trial.tighten(number)
            trial.pass_time()
            trial.load.start(CLIENTS)
            assert trial.server.child is not None
            started = time.monotonic()
            while trial.server.child.code() is None and time.monotonic() - started < EXIT_SECONDS_MAX:
                await asyncio.sleep(0.005)
            await trial.load.stop()
            if trial.server.child.code() != EXIT_CODE:
                trial.note("unclear", f"the process did not exit at its point but with {trial.server.child.code()}")
            trial.injections += 1
            progress()
        trial.server.start()
        await ready(trial.server)
        return await trial.verdict("exit at a named point", dialect, note=f"in turn {', '.join(POINTS)}")
