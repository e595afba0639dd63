"""PgBouncer between the service and PostgreSQL: it is killed, and it is in transaction mode for a while."""

from __future__ import annotations

import asyncio
import time

from tests.faults.processes import Testbed
from tests.faults.report import Progress, Row
from tests.faults.trial import new_trial
from tests.service.pgbouncer import MISSING, new_pooler

CLIENTS = 8
FAULT = "PgBouncer killed, or in transaction mode"
# Two processes with two pools of five connections each, and the checks of each start.
SESSIONS_MAX = 40


async def poolers(testbed: Testbed, dialect: str, injections: int, progress: Progress) -> Row:
    """In session mode, kill PgBouncer and start it again; let it share sessions for a while, which is 503."""
    if MISSING:
        return Row(FAULT, dialect, 0, 0, {}, skipped=MISSING)
    with new_pooler(testbed.postgresql.folder, "session", default_pool_size=SESSIONS_MAX) as pooler:

        def through(url: str) -> str:
            return pooler.url(url.partition("@/")[2].partition("?")[0])

        async with new_trial(testbed, dialect, seed=19, servers=2, through=through) as trial:
            refused = 0
            for number in range(injections):
                await trial.tighten(number)
                trial.load.start(CLIENTS)
                await asyncio.sleep(trial.chance.uniform(0.2, 0.6))
                if number % 2:
                    await asyncio.to_thread(pooler.kill)
                    await asyncio.to_thread(pooler.start)
                else:
                    began = time.monotonic()
                    await asyncio.to_thread(pooler.change_mode, "transaction")
                    await asyncio.sleep(trial.chance.uniform(0.5, 1.5))
                    await asyncio.to_thread(pooler.change_mode, "session")
                    refused += sum(
                        b"pool_mode" in (call.answer or b"") for call in trial.history.calls if call.sent_at > began
                    )
                trial.injections += 1
                since = time.monotonic()
                for server in trial.servers:
                    await trial.recovered(server, since)
                await trial.load.stop()
                progress()
            trial.expect_running()
            note = f"two processes; {refused} requests were refused with 503 because of shared sessions"
            return await trial.verdict(FAULT, dialect, note=note)
