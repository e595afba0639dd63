"""Clients that hang up after or within a request, and never wait for an answer."""

from __future__ import annotations

import asyncio

from tests.faults.load import Habits
from tests.faults.processes import Testbed
from tests.faults.report import Progress, Row
from tests.faults.trial import new_trial

CLIENTS = 8


async def hang_ups(testbed: Testbed, dialect: str, injections: int, progress: Progress) -> Row:
    """Clients hang up on three of ten calls, which neither undoes nor repeats anything."""
    async with new_trial(testbed, dialect, seed=5, habits=Habits(hang_up=0.3)) as trial:
        await trial.tighten(0)
        trial.load.start(CLIENTS)
        # Calls under way have no status either, at most one for each client.
        while sum(call.status is None for call in trial.history.calls) < injections + CLIENTS:
            await asyncio.sleep(0.1)
        await trial.load.stop()
        trial.injections = sum(call.status is None for call in trial.history.calls)
        progress()
        return await trial.verdict("clients that hang up", dialect)


async def feedback(testbed: Testbed, dialect: str, injections: int, progress: Progress) -> Row:
    """Reports come twice, out of order, after the expiry, too high or never; the injections are reports."""
    habits = Habits(missing=0.3, excessive=0.05, void=0.1, apart=0.6, duplicate=0.5, delayed=0.6)
    async with new_trial(testbed, dialect, seed=6, habits=habits) as trial:
        number = 0
        while sum(call.path == "/feedback" for call in trial.history.calls) < injections:
            await trial.tighten(number)
            trial.load.start(CLIENTS)
            await asyncio.sleep(1.5)
            await trial.load.stop()
            number += 1
            progress()
        trial.injections = sum(call.path == "/feedback" for call in trial.history.calls)
        note = "30 % missing, 5 % above the hold, half of the rest twice, most of it late or in halves in either order"
        return await trial.verdict("irregular feedback", dialect, note=note)
