"""Standbys are promoted under running replicas: one that lacks the last decisions, and one that lacks nothing."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise

from service.store.migrate import migrate
from tests.faults.processes import Testbed
from tests.faults.report import Progress, Row
from tests.faults.trial import Trial, new_trial
from tests.service.standby import Pair, new_pair, new_synchronous_pair

CLIENTS = 9
_WRITTEN = "SELECT sum(sequence), max(last_event_at) FROM campaign_state"


async def promotions(testbed: Testbed, dialect: str, injections: int, progress: Progress) -> Row:
    """Promote a standby that was cut off under load, then make the old primary its standby.

    What was acknowledged since the cut is gone: for the checker these calls have no answer, and they are sent again.
    """
    with new_pair() as pair:
        migrate(pair.url())
        missing = 0
        async with new_trial(testbed, dialect, seed=18, clocked=True, servers=3, url=pair.url()) as trial:
            trial.administer(await trial.add_kinds())
            for number in range(injections):
                await trial.tighten(number)
                trial.pass_time()
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


async def synchronous_promotions(testbed: Testbed, dialect: str, injections: int, progress: Progress) -> Row:
    """Kill a primary under load, promote its synchronous standby, and start the old primary as it was."""
    with new_synchronous_pair() as pair:
        migrate(pair.hosts_url())
        silent: list[float] = []
        async with new_trial(testbed, dialect, seed=19, servers=3, url=pair.hosts_url()) as trial:
            for number in range(injections):
                await trial.tighten(number)
                trial.load.start(CLIENTS)
                await asyncio.sleep(trial.chance.uniform(0.2, 0.8))
                since = time.monotonic()
                await asyncio.to_thread(pair.take_over)
                trial.injections += 1
                for server in trial.servers:
                    await trial.recovered(server, since)
                silent.append(_longest_silence(trial, since))
                await _come_back(trial, pair)
                await trial.load.stop()
                await asyncio.to_thread(pair.exchange)
                pair.replicate_synchronously(pair.primary, "*")
                progress()
            trial.expect_running()
            note = f"two hosts in the URL, three processes; longest time without an answer: {max(silent):.1f} s"
            return await trial.verdict("synchronous standby promoted", dialect, note=note)


async def _come_back(trial: Trial, pair: Pair) -> None:
    """Start the replaced primary as it was and break the connections of all processes; nothing may be written to it."""
    await asyncio.to_thread(pair.start, pair.primary)
    before = pair.execute(pair.primary, _WRITTEN)
    pair.execute(pair.standby, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'cbwk'")
    broken = time.monotonic()
    for server in trial.servers:
        await trial.recovered(server, broken)
    if pair.execute(pair.primary, _WRITTEN) != before:
        trial.note("old-primary", "the replaced primary was written to")


def _longest_silence(trial: Trial, since: float) -> float:
    """Return the longest time from `since` on in which no client got an acknowledgement."""
    times = sorted(call.answered_at or 0.0 for call in trial.history.calls if call.is_acknowledged)
    after = [since, *(at for at in times if at > since)]
    return max(later - earlier for earlier, later in pairwise(after))


def _take_back(trial: Trial, since: float, until: float) -> int:
    """Take back what was answered in a period; returns the number of acknowledged calls."""
    taken = 0
    administered = [made.call for admin in trial.admins for made in admin.calls]
    for call in [*trial.history.calls, *administered]:
        if call.answered_at is not None and since <= call.answered_at <= until:
            taken += call.is_acknowledged
            call.status = call.answer = call.answered_at = None
    return taken
