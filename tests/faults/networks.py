"""The network between service and PostgreSQL fails in every way a proxy can make it fail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.faults.processes import Ground
from tests.faults.proxy import Proxy
from tests.faults.report import Progress, Row
from tests.faults.trial import Trial, trial

CLIENTS = 8
COMMIT_SECONDS_MAX = 5.0
LOSSES = ("lose-after", "lose-sent", "lose-before")
DISTURBANCES = ("delay", "reset", "half-close", "drop")


@asynccontextmanager
async def _proxied(ground: Ground, dialect: str, seed: int) -> AsyncIterator[tuple[Trial, Proxy]]:
    proxy = Proxy(ground.postgresql.socket)
    await proxy.start()
    try:
        async with trial(ground, dialect, seed=seed, through=proxy.through) as one:
            yield one, proxy
    finally:
        await proxy.close()


async def lost_commits(ground: Ground, dialect: str, injections: int, progress: Progress) -> Row:
    """The connection is lost at a COMMIT: after the server has replied, just after it was sent, or before."""
    async with _proxied(ground, dialect, 7) as (one, proxy):
        await one.tighten(0)
        one.load.start(CLIENTS)
        for number in range(injections):
            await asyncio.sleep(one.chance.uniform(0.02, 0.2))
            proxy.mode = LOSSES[number % len(LOSSES)]
            await _until_struck(proxy, number + 1)
            since = time.monotonic()
            await one.recovered(one.server, since)
            if number % 20 == 19:
                await one.load.stop()
                await one.tighten(number)
                one.load.start(CLIENTS)
            progress()
        await one.load.stop()
        one.injections = proxy.struck
        note = "in turn with the reply lost, the COMMIT just sent, the COMMIT never sent"
        return await one.verdict("connection lost at COMMIT", dialect, note=note)


async def _until_struck(proxy: Proxy, times: int) -> None:
    deadline = time.monotonic() + COMMIT_SECONDS_MAX
    while proxy.struck < times:
        assert time.monotonic() < deadline, "no COMMIT came by"
        await asyncio.sleep(0.002)


async def disturbances(ground: Ground, dialect: str, injections: int, progress: Progress) -> Row:
    """Delay, reset, half-close, and silence that ends in a reset."""
    async with _proxied(ground, dialect, 8) as (one, proxy):
        for number in range(injections):
            if number % 4 == 0:
                await one.tighten(number)
            one.load.start(CLIENTS)
            await asyncio.sleep(one.chance.uniform(0.05, 0.3))
            proxy.mode = DISTURBANCES[number % len(DISTURBANCES)]
            if proxy.mode == "reset":
                proxy.reset()
            elif proxy.mode == "half-close":
                proxy.half_close()
            else:
                await asyncio.sleep(one.chance.uniform(0.3, 1.0))
            if proxy.mode == "drop":
                proxy.reset()
            proxy.mode = "pass"
            one.injections += 1
            await one.recovered(one.server, time.monotonic())
            await one.load.stop()
            progress()
        note = "in turn delay, reset, half-close, silence; recovery from the end of the disturbance on"
        return await one.verdict("network to PostgreSQL disturbed", dialect, note=note)
