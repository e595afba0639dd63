"""PostgreSQL is stopped without a shutdown, or all its sessions are terminated, under load."""

from __future__ import annotations

import asyncio
import time

from tests.faults.processes import Testbed
from tests.faults.report import Progress, Row
from tests.faults.trial import new_trial

CLIENTS = 8


async def immediate_stops(testbed: Testbed, dialect: str, injections: int, progress: Progress) -> Row:
    """Run `pg_ctl stop -m immediate` and start again; recovery is measured from the end of the start."""
    async with new_trial(testbed, dialect, seed=3) as trial:
        for number in range(injections):
            await trial.tighten(number)
            trial.load.start(CLIENTS)
            await asyncio.sleep(trial.chance.uniform(0.1, 0.6))
            testbed.postgresql.stop_immediately()
            trial.injections += 1
            await asyncio.sleep(trial.chance.uniform(0.0, 0.5))
            await asyncio.to_thread(testbed.postgresql.start)
            await trial.recovered(trial.server, time.monotonic())
            await trial.load.stop()
            progress()
        trial.expect_running()
        return await trial.verdict(
            "PostgreSQL stopped -m immediate", dialect, note="recovery is measured from PostgreSQL's start"
        )


async def ended_sessions(testbed: Testbed, dialect: str, injections: int, progress: Progress) -> Row:
    """Terminate every session with `pg_terminate_backend`."""
    async with new_trial(testbed, dialect, seed=4) as trial:
        await trial.tighten(0)
        trial.load.start(CLIENTS)
        for _ in range(injections):
            await asyncio.sleep(trial.chance.uniform(0.02, 0.3))
            since = time.monotonic()
            await asyncio.to_thread(testbed.postgresql.terminate_sessions, trial.url)
            trial.injections += 1
            await trial.recovered(trial.server, since)
            progress()
        await trial.load.stop()
        trial.expect_running()
        return await trial.verdict("PostgreSQL's sessions ended", dialect)
