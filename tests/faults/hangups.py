"""Clients that hang up: after the whole request, or in the middle of it, and never wait for an answer."""

from __future__ import annotations

import asyncio

from tests.faults.load import Habits
from tests.faults.processes import Ground
from tests.faults.report import Progress, Row
from tests.faults.trial import trial

CLIENTS = 8


async def hang_ups(ground: Ground, dialect: str, injections: int, progress: Progress) -> Row:
    """Three calls in ten are hung up on; a hang-up neither undoes nor repeats anything."""
    async with trial(ground, dialect, seed=5, habits=Habits(hang_up=0.3)) as one:
        await one.tighten(0)
        one.load.start(CLIENTS)
        while sum(call.status is None for call in one.history.calls) < injections + CLIENTS:  # some still wait
            await asyncio.sleep(0.1)
        await one.load.stop()
        one.injections = sum(call.status is None for call in one.history.calls)
        progress()
        return await one.verdict("clients that hang up", dialect)


async def feedback(ground: Ground, dialect: str, injections: int, progress: Progress) -> Row:
    """Reports that come twice, out of order, after the expiry, too high or never; injections are such reports."""
    habits = Habits(missing=0.3, excessive=0.05, void=0.1, apart=0.6, duplicate=0.5, delayed=0.6)
    async with trial(ground, dialect, seed=6, habits=habits) as one:
        number = 0
        while sum(call.path == "/feedback" for call in one.history.calls) < injections:
            await one.tighten(number)
            one.load.start(CLIENTS)
            await asyncio.sleep(1.5)
            await one.load.stop()
            number += 1
            progress()
        one.injections = sum(call.path == "/feedback" for call in one.history.calls)
        note = "30 % missing, 5 % above the hold, half of the rest twice, most of it late or in halves in either order"
        return await one.verdict("irregular feedback", dialect, note=note)
