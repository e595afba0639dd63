"""PostgreSQL stopped with no time to tidy up, and its sessions ended one and all, under load."""

from __future__ import annotations

import asyncio
import time

from tests.faults.processes import Ground
from tests.faults.report import Progress, Row
from tests.faults.trial import trial

CLIENTS = 8


async def immediate_stops(ground: Ground, dialect: str, injections: int, progress: Progress) -> Row:
    """`pg_ctl stop -m immediate`, and a start; the time of recovery runs from the start's end."""
    async with trial(ground, dialect, seed=3) as one:
        for number in range(injections):
            await one.tighten(number)
            one.load.start(CLIENTS)
            await asyncio.sleep(one.chance.uniform(0.1, 0.6))
            ground.postgresql.stop_immediately()
            one.injections += 1
            await asyncio.sleep(one.chance.uniform(0.0, 0.5))
            await asyncio.to_thread(ground.postgresql.start)
            await one.recovered(one.server, time.monotonic())
            await one.load.stop()
            progress()
        one.expect_running()
        return await one.verdict("PostgreSQL stopped -m immediate", dialect, note="recovery from PostgreSQL's start on")


async def ended_sessions(ground: Ground, dialect: str, injections: int, progress: Progress) -> Row:
    """`pg_terminate_backend` of every session."""
    async with trial(ground, dialect, seed=4) as one:
        await one.tighten(0)
        one.load.start(CLIENTS)
        for _ in range(injections):
            await asyncio.sleep(one.chance.uniform(0.02, 0.3))
            since = time.monotonic()
            await asyncio.to_thread(ground.postgresql.terminate_sessions, one.url)
            one.injections += 1
            await one.recovered(one.server, since)
            progress()
        await one.load.stop()
        one.expect_running()
        return await one.verdict("PostgreSQL's sessions ended", dialect)
