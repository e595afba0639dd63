"""An asynchronous standby that lacks the last decisions is promoted under running replicas."""

from __future__ import annotations

import asyncio
import time

from service.store.migrate import migrate
from tests.faults.processes import Testbed
from tests.faults.report import Progress, Row
from tests.faults.trial import Trial, new_trial
from tests.service.standby import new_pair

CLIENTS = 9


async def promotions(testbed: Testbed, dialect: str, injections: int, progress: Progress) -> Row:
    """Promote a standby that was cut off under load, then make the old primary its standby.

    What was acknowledged since the cut is gone: for the checker these calls have no answer, and they are sent again.
    """
    with new_pair() as pair:
        migrate(pair.url())
        missing = 0
        async with new_trial(testbed, dialect, seed=18, servers=3, url=pair.url()) as trial:
            for number in range(injections):
                await trial.tighten(number)
                trial.load.start(CLIENTS)
                await asyncio.sleep(trial.chance.uniform(0.2, 0.8))
                since = time.monotonic()
                await asyncio.to_thread(pair.cut)
                await asyncio.sleep(trial.chance.uniform(0.2, 0.8))
                await asyncio.to_thread(pair.fail_over)
                trial.injections += 1
                promoted = time.monotonic()
                for server in trial.servers:
                    await trial.recovered(server, promoted)
                await asyncio.sleep(0.5)
                await trial.load.stop()
                missing += _take_back(trial, since, promoted)
                await asyncio.to_thread(pair.exchange)
                progress()
            trial.expect_running()
            note = (
                f"three processes; recovery is measured from the promotion; {missing} answers were on the old primary"
            )
            return await trial.verdict("standby that lacks decisions promoted", dialect, note=note)


def _take_back(trial: Trial, since: float, until: float) -> int:
    """Take back what was answered in a period; returns the number of acknowledged calls."""
    taken = 0
    for call in trial.history.calls:
        if call.answered_at is not None and since <= call.answered_at <= until:
            taken += call.is_acknowledged
            call.status = call.answer = call.answered_at = None
    return taken
