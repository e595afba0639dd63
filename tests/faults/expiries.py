"""The table of holds is away for a moment, or one hold cannot expire: all other holds still expire in time."""

from __future__ import annotations

import asyncio
import time

from tests.faults.checker import INTERNAL_ERROR
from tests.faults.corruption import opened, run
from tests.faults.history import MICROS, Call
from tests.faults.load import campaign
from tests.faults.processes import Testbed
from tests.faults.report import Progress, Row
from tests.faults.trial import Trial, new_trial
from tests.faults.wire import Wire

CLIENTS = 8
AWAY_SECONDS = 2.5
# Holds live for a second or two; expiry comes once a second, and after a failure a campaign waits for ten.
OVERDUE_SECONDS_MAX = 15.0
POISONED = "poisoned"
_ITS_HOLDS = "campaign = (SELECT number FROM campaign WHERE id = ?)"
# A hold whose expiry is not its decision's cannot be closed.
POISON = f"UPDATE hold SET expires_at = 2 WHERE {_ITS_HOLDS}"
CURE = (
    "UPDATE hold SET expires_at = (SELECT expires_at FROM decision WHERE decision.campaign = hold.campaign"
    f" AND decision.sequence = hold.decision) WHERE {_ITS_HOLDS}"
)


async def expiries(testbed: Testbed, dialect: str, injections: int, progress: Progress) -> Row:
    """Rename the table `hold` away for 2.5 s under load; keep one hold from expiring for as long."""
    async with new_trial(testbed, dialect, seed=20) as trial:
        await trial.create(campaign(POISONED, budget=1000, feedback={"ttl_seconds": 86_400}))
        for number in range(injections):
            await trial.tighten(number)
            trial.load.start(CLIENTS)
            await asyncio.sleep(trial.chance.uniform(0.2, 0.6))
            since = time.monotonic()
            if number % 2:
                await _poison(trial, number)
            else:
                _change(trial, "ALTER TABLE hold RENAME TO hold_away")
                await asyncio.sleep(AWAY_SECONDS)
                _change(trial, "ALTER TABLE hold_away RENAME TO hold")
            trial.injections += 1
            await trial.recovered(trial.server, time.monotonic())
            await trial.load.stop()
            _take_back_errors(trial, since)
            await _until_all_expired(trial)
            progress()
        trial.expect_running()
        return await trial.verdict("holds cannot expire for a while", dialect)


async def _poison(trial: Trial, number: int) -> None:
    """Keep the hold of one decision from expiring; the gauge must tell, and the others' holds must expire."""
    wire = Wire(trial.server.port)
    call = Call("/decide", {"campaign_id": POISONED, "decision_id": f"p{number}", "context": [0.5, 0.5]}, 0.0)
    trial.history.calls.append(call)
    await wire.ask(call)
    _change(trial, POISON, POISONED)
    await asyncio.sleep(AWAY_SECONDS)
    await _until_all_expired(trial)
    if await _overdue_seconds(trial) < OVERDUE_SECONDS_MAX:
        trial.note("unnoticed", "a hold cannot expire, and the gauge does not tell")
    _change(trial, CURE, POISONED)
    wire.cut()


def _change(trial: Trial, statement: str, *values: str) -> None:
    with opened(trial.url) as connection:
        run(connection, statement, values)


def _take_back_errors(trial: Trial, since: float) -> None:
    """While a table is away an answer is 500, and the client sends the request again."""
    for call in trial.history.calls:
        if (call.answered_at or 0.0) > since and call.status == INTERNAL_ERROR:
            call.status = call.answer = call.answered_at = None


async def _overdue_seconds(trial: Trial) -> float:
    """The gauge of the oldest overdue hold."""
    wire = Wire(trial.server.port)
    call = await wire.ask(Call("/metrics", {}, 0.0), method="GET")
    wire.cut()
    lines = (call.answer or b"").decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("cbwk_overdue_hold_seconds "))


async def _until_all_expired(trial: Trial) -> None:
    """Wait until every hold that was due by now has expired, but for the poisoned campaign's."""
    due = int(time.time() * MICROS)
    deadline = time.monotonic() + OVERDUE_SECONDS_MAX
    question = f"SELECT count(*) FROM hold WHERE expires_at < ? AND NOT {_ITS_HOLDS}"
    while True:
        with opened(trial.url) as connection:
            ((overdue,),) = run(connection, question, [due, POISONED])
        if not overdue:
            return
        if time.monotonic() > deadline:
            trial.note("overdue", f"{overdue} holds did not expire within {OVERDUE_SECONDS_MAX} s")
            return
        await asyncio.sleep(0.1)
