"""The network between the service and PostgreSQL fails in every way that a proxy can cause."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.faults.processes import Testbed
from tests.faults.proxy import Proxy
from tests.faults.report import Progress, Row
from tests.faults.trial import Trial, new_trial

CLIENTS = 8
COMMIT_SECONDS_MAX = 5.0
LOSSES = ("lose-after", "lose-sent", "lose-before")
DISTURBANCES = ("delay", "reset", "half-close", "drop")


@asynccontextmanager
async def _proxied(testbed: Testbed, dialect: str, seed: int) -> AsyncIterator[tuple[Trial, Proxy]]:
    proxy = Proxy(testbed.postgresql.socket)
    await proxy.start()
    try:
        async with new_trial(testbed, dialect, seed=seed, through=proxy.through) as trial:
            yield trial, proxy
    finally:
        await proxy.close()


async def lost_commits(testbed: Testbed, dialect: str, injections: int, progress: Progress) -> Row:
    """Lose the connection at a COMMIT: after the server's reply, just after the COMMIT was sent, or before."""
    async with _proxied(testbed, dialect, 7) as (trial, proxy):
        await trial.tighten(0)
        trial.load.start(CLIENTS)
        for number in range(injections):
            await asyncio.sleep(trial.chance.uniform(0.02, 0.2))
            proxy.mode = LOSSES[number % len(LOSSES)]
            await _until_struck(proxy, number + 1)
            since = time.monotonic()
            await trial.recovered(trial.server, since)
            if number % 20 == 19:
                await trial.load.stop()
                await trial.tighten(number)
                trial.load.start(CLIENTS)
            progress()
        await trial.load.stop()
        trial.injections = proxy.struck
        note = "alternately the reply lost, the COMMIT just sent, the COMMIT never sent"
        return await trial.verdict("connection lost at COMMIT", dialect, note=note)


async def _until_struck(proxy: Proxy, times: int) -> None:
    deadline = time.monotonic() + COMMIT_SECONDS_MAX
    while proxy.struck < times:
        assert time.monotonic() < deadline, "no COMMIT was sent"
        await asyncio.sleep(0.002)


async def disturbances(testbed: Testbed, dialect: str, injections: int, progress: Progress) -> Row:
    """Delay, reset, half-close, or lose all messages and then reset."""
    async with _proxied(testbed, dialect, 8) as (trial, proxy):
        for number in range(injections):
            if number % 4 == 0:
                await trial.tighten(number)
            trial.load.start(CLIENTS)
            await asyncio.sleep(trial.chance.uniform(0.05, 0.3))
            proxy.mode = DISTURBANCES[number % len(DISTURBANCES)]
            if proxy.mode == "reset":
                proxy.reset()
            elif proxy.mode == "half-close":
                proxy.half_close()
            else:
                await asyncio.sleep(trial.chance.uniform(0.3, 1.0))
            if proxy.mode == "drop":
                proxy.reset()
            proxy.mode = "pass"
            trial.injections += 1
            await trial.recovered(trial.server, time.monotonic())
            await trial.load.stop()
            progress()
        note = "alternately delay, reset, half-close, silence; recovery is measured from the end of the disturbance"
        return await trial.verdict("network to PostgreSQL disturbed", dialect, note=note)
