"""A campaign's life with everything that may happen to it, and what is left of it in a process and in the database."""

from __future__ import annotations

from itertools import count

from sqlalchemy import select

from service.engine.cache import Cache, current
from service.engine.commands import Adjust, Decide, Expire, Feedback, PatchCampaign, SetStatus
from service.store import tables


async def decided(engine, name, numbers, size, exclude=()):
    """The ids of as many decisions for a real arm as one batch of this size gives."""
    ids = [f"d{next(numbers)}" for _ in range(size)]
    requests = [
        Decide(name, one, [(int(one[1:]) * 37 % 11) / 11, (int(one[1:]) * 17 % 7) / 7], exclude=exclude) for one in ids
    ]
    answers = await engine.submit_together(requests)
    return [one for one, answer in zip(ids, answers, strict=True) if answer.body["arm"] is not None]


async def reported(engine, name, ids):
    """Both halves of some, one after the other of some, a void and a cost above the hold among them."""
    for place, one in enumerate(ids):
        costs = {"usd": 0.1 + place % 5 / 10, "impressions": 1}
        if place % 6 == 5:
            await engine.submit(Feedback(name, one, void=True))
        elif place % 6 == 4:
            await engine.submit(Feedback(name, one, costs=costs))
            await engine.submit(Feedback(name, one, reward=place % 3 / 2))
        elif place % 6 == 3:
            await engine.submit(Feedback(name, one, reward=1.0))
            await engine.submit(Feedback(name, one, costs=costs | {"usd": 1.25}))
        else:
            await engine.submit(Feedback(name, one, reward=place % 2, costs=costs))


async def expired(engine, name, numbers):
    """Decisions whose time is up at once; one of them costs something after all."""
    await engine.submit(PatchCampaign(name, {"feedback": {"ttl_seconds": 0}}))
    late = await decided(engine, name, numbers, 4)
    await engine.submit(Expire())
    for one in late[:1]:
        await engine.submit(Feedback(name, one, costs={"usd": 0.3}))
    await engine.submit(PatchCampaign(name, {"feedback": {"ttl_seconds": 3600}}))


async def lived(engine, name="c", *, numbers=None, rounds=1):
    """Delays, batches, exclusions, voids, expiry, changes of arms, budgets and horizon, a pause; two stay open."""
    numbers = numbers or count()
    for turn in range(rounds):
        waiting = []
        for size in (1, 5, 2, 12):
            waiting.append(await decided(engine, name, numbers, size, exclude=["a"] if size == 2 else ()))
            if len(waiting) > 1:  # feedback comes a batch later
                await reported(engine, name, waiting.pop(0))
        await reported(engine, name, waiting.pop())
        await expired(engine, name, numbers)
        budgets = [{"id": "usd", "budget": 60 + 20 * turn}]
        changes = {"resources": budgets, "horizon": 900 + turn, "add_arms": [{"id": f"{name}{next(numbers)}"}]}
        await engine.submit(PatchCampaign(name, changes))
        await engine.submit(Adjust(name, "usd", 0.5, "a test"))
        await engine.submit(SetStatus(name, "pause"))
        await decided(engine, name, numbers, 1)
        await engine.submit(SetStatus(name, "resume"))
    await engine.submit(PatchCampaign(name, {"retire_arms": ["b"]}))
    return await decided(engine, name, numbers, 2)


def state_of(database, number=1):
    """The policy's state as a process that has just started makes it up."""
    table = tables.campaign_state
    with database.read() as connection:
        row = connection.execute(select(table).where(table.c.campaign == number)).mappings().one()
        return current(connection, Cache(2**28), dict(row)).state
