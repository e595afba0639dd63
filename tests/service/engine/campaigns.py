"""Campaign configurations for tests, as the interface has them with its defaults filled in, and an engine."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

from sqlalchemy import select

from service.engine import Engine
from service.engine.commands import CreateCampaign
from service.store import tables


def config(name="c", *, budget=10, max_cost=1, horizon=1000, **changes):
    """Two arms, money and impressions, two numbers of context."""
    base = {
        "id": name,
        "arms": [{"id": "a"}, {"id": "b"}],
        "resources": [
            {"id": "usd", "budget": budget, "max_cost": max_cost},
            {"id": "impressions", "budget": 100000, "max_cost": 1},
        ],
        "horizon": horizon,
        "ends_at": None,
        "context": {"dimension": 2, "features": None},
        "reward": {"min": 0, "max": 1},
        "model": "per_arm",
        "arm_features": None,
        "policy": {
            "preset": "practical",
            "oracle": {"kind": "newton", "link": "identity", "forgetting": None},
            "gamma": "auto",
            "z": "auto",
            "two_stage": "auto",
        },
        "feedback": {"ttl_seconds": 3600, "late_window_seconds": 604800, "missing_reward": 0, "missing_cost": "hold"},
        "seed": 7,
    }
    feedback = changes.pop("feedback", {})
    return base | changes | {"feedback": base["feedback"] | feedback}


@asynccontextmanager
async def running(database, **options):
    """An engine that empties its queue."""
    settings = {
        "queue_max": 10_000,
        "deadline_seconds": 30.0,
        "memory_bytes_max": 2**28,
        "lock_timeout_ms": 2_000,
    }
    engine = Engine(database, **(settings | options))
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


def with_campaign(database, play, **changes):
    """Create a campaign and run `play(engine)` in an event loop."""

    async def main():
        async with running(database) as engine:
            await engine.submit(CreateCampaign(config(**changes)))
            return await play(engine)

    return asyncio.run(main())


def accounts(database, resource=0):
    """granted, held, spent and overrun of a resource, in millionths."""
    account = tables.account
    with database.read() as connection:
        row = connection.execute(select(account).where(account.c.resource == resource)).one()
    return row.granted, row.held, row.spent, row.overrun


def rows(database, table):
    """All rows of a table, in order."""
    with database.read() as connection:
        return connection.execute(select(table)).mappings().all()


def loads(text):
    """A JSON column, NULL as None."""
    return None if text is None else json.loads(text)
