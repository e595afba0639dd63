"""One byte flipped in a snapshot, in both snapshots, in an outcome."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from tests.faults.history import Call
from tests.faults.load import campaign
from tests.faults.processes import Testbed
from tests.faults.report import Progress, Row
from tests.faults.trial import Trial, new_trial, ready
from tests.faults.wire import Wire, get

STILL = "still"  # a campaign without expiries
REPORTS = 40
CONTEXTS = ((0.1, 0.9), (0.7, 0.2))
# The columns in which `verify` must find a flipped byte: all that describe an outcome.
COLUMNS = ("decision", "kind", "status", "reward", "costs", "spent", "released", "taught", "policy_version", "at")


async def flipped_bytes(testbed: Testbed, dialect: str, injections: int, progress: Progress) -> Row:
    """The service skips damaged snapshots and learns again from the log; `verify` finds damaged outcomes."""
    async with new_trial(testbed, dialect, seed=16) as trial:
        await trial.create(campaign(STILL, budget=1000, feedback={"ttl_seconds": 86_400}))
        unfound: dict[str, int] = {}
        for number in range(injections):
            await _snapshots(trial, number, damaged=1 + number % 2)
            for column in COLUMNS:
                if not await _verify_finds(trial, column):
                    unfound[column] = unfound.get(column, 0) + 1
                    trial.note("unnoticed", f"a byte of outcome.{column} was flipped and verify holds")
            progress()
        note = f"in snapshots and in {', '.join(COLUMNS)} of outcomes; unnoticed: {unfound or 'none'}"
        return await trial.verdict("one byte flipped", dialect, note=note)


async def _snapshots(trial: Trial, number: int, damaged: int) -> None:
    """Damage one or both of two snapshots; after a restart the service must predict the same as before."""
    for life in range(2):
        await _learn(trial, f"{number}-{life}")
        before = await _predictions(trial, f"{number}-{life}-before")
        assert trial.server.child is not None
        trial.server.child.send(signal.SIGTERM)
        await asyncio.to_thread(trial.server.child.wait)
        if life == 0:
            trial.server.start()
            await ready(trial.server)
    count = _flip_snapshots(trial, damaged)
    trial.injections += count
    if count != damaged:
        trial.note("unclear", f"{count} snapshots were there to damage, not {damaged}")
    warned = trial.server.log.read_text().count("snapshot")
    trial.server.start()
    await ready(trial.server)
    after = await _predictions(trial, f"{number}-after")
    if after != before:
        trial.note("unnoticed", f"after damage to {damaged} snapshots the service predicts {after}, not {before}")
    if trial.server.log.read_text().count("snapshot") < warned + damaged:
        trial.note("unnoticed", "no line of the log says that a snapshot is damaged")


async def _call(trial: Trial, path: str, body: dict[str, Any]) -> Call:
    call = Call(path, body, 0.0)
    trial.history.calls.append(call)
    wire = Wire(trial.server.port)
    await wire.ask(call)
    wire.cut()
    assert call.status == 200, call.answer
    return call


async def _learn(trial: Trial, label: str) -> None:
    for place in range(REPORTS):
        body = {"campaign_id": STILL, "decision_id": f"{label}-{place}", "context": [place / REPORTS, 0.5]}
        answer = (await _call(trial, "/decide", body)).json
        if answer["arm"]:
            report = {"reward": float(place % 2), "costs": {"usd": 0.11 * (place % 3), "impressions": 0.5}}
            about = {"campaign_id": STILL, "decision_id": f"{label}-{place}"}
            await _call(trial, "/feedback", about | report)


async def _predictions(trial: Trial, label: str) -> list[Any]:
    predictions = []
    for place, context in enumerate(CONTEXTS):
        body = {"campaign_id": STILL, "decision_id": f"{label}-{place}", "context": list(context), "explain": True}
        answer = (await _call(trial, "/decide", body)).json
        predictions.append(
            (answer["policy_version"], [(arm["id"], arm["reward"], arm["cost"]) for arm in answer["arms"]])
        )
    return predictions


@contextmanager
def opened(url: str) -> Iterator[Any]:
    """Yield a direct connection to the database that bypasses the service."""
    connection: Any
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=10)
    else:
        connection = psycopg.connect(url, autocommit=True)
    try:
        yield connection
    finally:
        connection.close()


def run(connection: Any, statement: str, values: Sequence[Any] = ()) -> list[Any]:
    marked = statement if isinstance(connection, sqlite3.Connection) else statement.replace("?", "%s")
    cursor = connection.execute(marked, values)
    return list(cursor.fetchall()) if cursor.description else []


def _flip_snapshots(trial: Trial, number: int) -> int:
    """Flip one byte in each of the newest snapshots of the campaign; returns their number."""
    with opened(trial.url) as connection:
        which = "FROM snapshot WHERE campaign = (SELECT number FROM campaign WHERE id = ?)"
        rows = run(connection, f"SELECT sequence, data {which} ORDER BY sequence DESC", [STILL])
        for sequence, data in rows[:number]:
            changed = bytearray(data)
            changed[trial.chance.randrange(len(changed))] ^= 1 << trial.chance.randrange(8)
            update = "UPDATE snapshot SET data = ? WHERE campaign = (SELECT number FROM campaign WHERE id = ?)"
            run(connection, f"{update} AND sequence = ?", [bytes(changed), STILL, sequence])
        return len(rows[:number])


async def _verify_finds(trial: Trial, column: str) -> bool:
    """Change one character or bit of a random outcome, run `verify`, and restore it."""
    with opened(trial.url) as connection:
        which = "FROM outcome WHERE campaign = (SELECT number FROM campaign WHERE id = ?)"
        rows = run(connection, f"SELECT sequence, {column} {which} AND {column} IS NOT NULL", [STILL])
        sequence, value = trial.chance.choice(rows)
        mine = "campaign = (SELECT number FROM campaign WHERE id = ?)"
        update = f"UPDATE outcome SET {column} = ? WHERE sequence = ? AND {mine}"
        run(connection, update, [_damaged(value, column, trial), sequence, STILL])
        trial.injections += 1
        answer = await get(trial.server.port, f"/admin/campaigns/{STILL}/verify")
        run(connection, update, [value, sequence, STILL])
    return not answer["ok"]


def _damaged(value: Any, column: str, trial: Trial) -> Any:
    if isinstance(value, bool) or column == "released":
        return not value if isinstance(value, bool) else 1 - int(value)
    if column in ("kind", "status"):  # a CHECK constraint refuses other values
        words = {"kind": ("reported", "void", "expired", "late"), "status": ("charged", "settled", "voided", "expired")}
        return trial.chance.choice([word for word in words[column] if word != value])
    if isinstance(value, int):
        return value ^ 1 << trial.chance.randrange(4)
    if isinstance(value, float):
        return 1.0 - value
    places = [place for place, sign in enumerate(value) if sign.isdigit()]
    place = trial.chance.choice(places)
    return value[:place] + str((int(value[place]) + 1 + trial.chance.randrange(8)) % 10) + value[place + 1 :]
