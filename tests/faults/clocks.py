"""The clock jumps by an hour, forth and back, while decisions are open."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import psycopg

from tests.faults.books import read_books
from tests.faults.history import MICROS, Call
from tests.faults.load import campaign
from tests.faults.processes import Ground, Zygote
from tests.faults.report import Progress, Row
from tests.faults.trial import Trial, ready, trial
from tests.faults.wire import Wire

CLIENTS = 6
JUMPS = (3600, 0, -3600, 0)  # seconds off the right time, one after the other
OPEN = 10  # decisions that a jump finds open
EXPIRY_SECONDS_MAX = 15.0
# A clock of the database's own, found before PostgreSQL's because its schema is searched first.
WRONG_CLOCK = """
CREATE TABLE clock_jump (seconds double precision NOT NULL);
INSERT INTO clock_jump VALUES (0);
CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
  'SELECT pg_catalog.clock_timestamp() + make_interval(secs => (SELECT seconds FROM public.clock_jump))';
"""


async def clock_jumps(ground: Ground, dialect: str, injections: int, progress: Progress) -> Row:
    """Accounts stay right and nothing happens twice; what expired too early is healed by the costs that come late."""
    wrong = {seconds for seconds in JUMPS[:injections] if seconds and dialect == "sqlite"}
    zygotes = {seconds: Zygote(clock_seconds=seconds) for seconds in wrong}
    before = 0
    try:
        async with trial(ground, dialect, seed=14) as one:
            if dialect == "postgresql":
                _make_wrong_clock(one.url)
                await _restart(one, ground.zygote)  # sessions search the schemas they found when they began
            for number in range(injections):
                seconds = JUMPS[number % len(JUMPS)]
                name = f"hour-{number}"
                await one.create(campaign(name, budget=1000, feedback={"ttl_seconds": 1800}))
                opened = [await _call(one, "/decide", _decide(name, place)) for place in range(OPEN)]
                one.load.start(CLIENTS)
                await asyncio.sleep(0.3)
                since = time.monotonic()
                if dialect == "postgresql":
                    _jump(one.url, seconds)
                else:
                    await one.load.stop()
                    await _restart(one, zygotes.get(seconds, ground.zygote))
                    one.load.start(CLIENTS)
                one.injections += 1
                await one.recovered(one.server, since)
                await asyncio.sleep(0.3)
                await one.load.stop()
                await _heal(one, name, opened, expired=seconds > before)
                before = seconds
                progress()
            note = "PostgreSQL's clock under the running service; on SQLite, which is read once, the restart's clock"
            return await one.verdict("clock jumps by an hour", dialect, note=note)
    finally:
        for zygote in zygotes.values():
            zygote.close()


def _make_wrong_clock(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(WRONG_CLOCK)
        name = connection.info.dbname
        connection.execute(f"ALTER DATABASE {name} SET search_path = public, pg_catalog")


def _jump(url: str, seconds: float) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE clock_jump SET seconds = %s", [seconds])


async def _restart(one: Trial, zygote: Zygote) -> None:
    one.server.kill()
    one.server.start(zygote)
    await ready(one.server)


def _decide(name: str, place: int) -> dict[str, Any]:
    return {"campaign_id": name, "decision_id": f"o{place}", "context": [place / OPEN, 0.5]}


async def _call(one: Trial, path: str, body: dict[str, Any]) -> Call:
    call = Call(path, body, 0.0)
    one.history.calls.append(call)
    wire = Wire(one.server.port)
    await wire.ask(call)
    wire.cut()
    return call


async def _heal(one: Trial, name: str, opened: list[Call], *, expired: bool) -> None:
    """Report what the decisions really cost; whatever the clock did, that is what was spent."""
    if expired:
        deadline = time.monotonic() + EXPIRY_SECONDS_MAX
        while any(read_books(one.url)[name].holds):
            assert time.monotonic() < deadline, "nothing expires an hour later"
            await asyncio.sleep(0.1)
    given = [call.json for call in opened if call.is_acknowledged and call.json["arm"]]
    for answer in given:
        body = {"campaign_id": name, "decision_id": answer["decision_id"], "reward": 1.0, "costs": {"usd": 0.123456}}
        status = (await _call(one, "/feedback", body)).json["status"]
        if status != ("late" if expired else "settled"):
            one.note("states", f"{name}: {status} after a jump, expired: {expired}")
    spent = read_books(one.url)[name].accounts[0].spent
    if spent != len(given) * round(0.123456 * MICROS):
        one.note("accounts", f"{name}: {spent} spent after {len(given)} reports of 0.123456")
