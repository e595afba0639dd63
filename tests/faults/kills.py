"""kill -9 of the server at random times under load."""

from __future__ import annotations

import asyncio
import time

from tests.faults.processes import Ground
from tests.faults.report import Progress, Row
from tests.faults.trial import ready, trial

CLIENTS = 8
LOAD_SECONDS_MAX = 0.6


async def kills(ground: Ground, dialect: str, injections: int, progress: Progress) -> Row:
    """Kill, start, go on, again and again; every life ends at a random moment of the load."""
    async with trial(ground, dialect, seed=1) as one:
        for number in range(injections):
            await one.tighten(number)
            one.load.start(CLIENTS)
            await asyncio.sleep(one.chance.uniform(0.02, LOAD_SECONDS_MAX))
            killed = time.monotonic()
            one.server.kill()
            one.injections += 1
            one.server.start()
            await one.recovered(one.server, killed)
            await one.load.stop()
            progress()
        await ready(one.server)
        return await one.verdict("kill -9 under load", dialect)
