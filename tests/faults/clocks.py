"""The clock jumps by an hour, forward and back, while decisions are open."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from tests.faults.books import read_books
from tests.faults.history import MICROS, Call
from tests.faults.load import campaign
from tests.faults.processes import Testbed
from tests.faults.report import Progress, Row
from tests.faults.trial import Trial, new_trial, ready
from tests.faults.wire import Wire

CLIENTS = 6
JUMPS = (3600, 0, -3600, 0)  # offsets from the right time, one after the other
OPEN = 10  # decisions that are open at a jump
EXPIRY_SECONDS_MAX = 15.0


async def clock_jumps(testbed: Testbed, dialect: str, injections: int, progress: Progress) -> Row:
    """Accounts stay correct and nothing happens twice; late costs correct what expired too early."""
    before = 0
    async with new_trial(testbed, dialect, seed=14, clocked=True) as trial:
        await trial.add_kinds()
        for number in range(injections):
            seconds = JUMPS[number % len(JUMPS)]
            name = f"hour-{number}"
            await trial.create(campaign(name, budget=1000, feedback={"ttl_seconds": 1800}))
            opened = [await _call(trial, "/decide", _decide(name, place)) for place in range(OPEN)]
            trial.load.start(CLIENTS)
            await asyncio.sleep(0.3)
            since = time.monotonic()
            if dialect == "postgresql":
                trial.clock.jump(seconds)
            else:  # within one process its clock is never set back
                await trial.load.stop()
                trial.server.kill()
                trial.clock.jump(seconds)
                trial.server.start()
                await ready(trial.server)
                trial.load.start(CLIENTS)
            trial.injections += 1
            await trial.recovered(trial.server, since)
            await asyncio.sleep(0.3)
            await trial.load.stop()
            await _heal(trial, name, opened, expired=seconds > before)
            before = seconds
            progress()
        note = "PostgreSQL's clock under the running service; on SQLite the clock of a restarted process"
        return await trial.verdict("clock jumps by an hour", dialect, note=note)


def _decide(name: str, place: int) -> dict[str, Any]:
    return {"campaign_id": name, "decision_id": f"o{place}", "context": [place / OPEN, 0.5]}


async def _call(trial: Trial, path: str, body: dict[str, Any]) -> Call:
    call = Call(path, body, 0.0)
    trial.history.calls.append(call)
    wire = Wire(trial.server.port)
    await wire.ask(call)
    wire.cut()
    return call


async def _heal(trial: Trial, name: str, opened: list[Call], *, expired: bool) -> None:
    """Report the real costs of the decisions: exactly these must be spent, whatever the clock did."""
    if expired:
        deadline = time.monotonic() + EXPIRY_SECONDS_MAX
        while any(read_books(trial.url)[name].holds):
            assert time.monotonic() < deadline, "nothing has expired an hour later"
            await asyncio.sleep(0.1)
    given = [call.json for call in opened if call.is_acknowledged and call.json["arm"]]
    for answer in given:
        body = {"campaign_id": name, "decision_id": answer["decision_id"], "reward": 1.0, "costs": {"usd": 0.123456}}
        status = (await _call(trial, "/feedback", body)).json["status"]
        if status != ("late" if expired else "settled"):
            trial.note("states", f"{name}: {status} after a jump, expired: {expired}")
    spent = read_books(trial.url)[name].accounts[0].spent
    if spent != len(given) * round(0.123456 * MICROS):
        trial.note("accounts", f"{name}: {spent} spent after {len(given)} reports of 0.123456")
