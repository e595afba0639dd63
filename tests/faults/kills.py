"""kill -9 of the server at random times under load, while campaigns are changed and hours and days end."""

from __future__ import annotations

import asyncio
import time

from tests.faults.processes import Testbed
from tests.faults.report import Progress, Row
from tests.faults.trial import new_trial, ready

CLIENTS = 8
LOAD_SECONDS_MAX = 0.6


async def kills(testbed: Testbed, dialect: str, injections: int, progress: Progress) -> Row:
    """Kill and restart the server repeatedly, each time at a random moment under load."""
    async with new_trial(testbed, dialect, seed=1, clocked=True) as trial:
        trial.administer(await trial.add_kinds())
        for number in range(injections):
            await trial.tighten(number)
            trial.pass_time()
            trial.load.start(CLIENTS)
            await asyncio.sleep(trial.chance.uniform(0.02, LOAD_SECONDS_MAX))
            killed = time.monotonic()
            trial.server.kill()
            trial.injections += 1
            trial.server.start()
            await trial.recovered(trial.server, killed)
            await trial.load.stop()
            progress()
        await ready(trial.server)
        return await trial.verdict("kill -9 under load", dialect)
