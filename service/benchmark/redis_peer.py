"""What a team would build instead: FastAPI, a linear bandit in the process, and budgets in Redis, moved by Lua scripts.

It speaks the hot bodies of the service, for one campaign after another. It is written with care and without what makes
the service slow to build: there are no propensities, prices, expiries, repeats after a restart, or a log.
"""

from __future__ import annotations

import sys
import zlib
from typing import Any

import numpy as np
import orjson
import uvicorn
from fastapi import FastAPI, Request, Response
from numpy.typing import NDArray

from service import server

Vector = NDArray[np.float64]

# Checks every budget and holds the max costs, once per decision id. Amounts are whole millionths.
HOLD = """
local held = redis.call('HGET', KEYS[2], ARGV[1])
if held then return {2, held} end
for at = 3, #ARGV, 2 do
  local free = redis.call('HGET', KEYS[1], ARGV[at] .. ':free')
  if tonumber(free) < tonumber(ARGV[at + 1]) then return {0, ''} end
end
for at = 3, #ARGV, 2 do redis.call('HINCRBY', KEYS[1], ARGV[at] .. ':free', -ARGV[at + 1]) end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
return {1, ARGV[2]}
"""
# Replaces the hold of a decision by its costs, once.
SETTLE = """
local held = redis.call('HGET', KEYS[2], ARGV[1])
if not held then return false end
redis.call('HDEL', KEYS[2], ARGV[1])
for at = 2, #ARGV, 3 do
  redis.call('HINCRBY', KEYS[1], ARGV[at] .. ':free', ARGV[at + 1] - ARGV[at + 2])
  redis.call('HINCRBY', KEYS[1], ARGV[at] .. ':spent', ARGV[at + 2])
end
return held
"""
MICROS = 1_000_000
HASHED = 64
EXPLORE = 0.05
RIDGE = 1.0


class Bandit:
    """ε-greedy on a ridge regression of the reward for each arm."""

    def __init__(self, arms: int) -> None:
        self.inverse = np.tile(np.eye(HASHED) / RIDGE, (arms, 1, 1))
        self.moment = np.zeros((arms, HASHED))
        self.theta = np.zeros((arms, HASHED))
        self.learnt = 0
        self._rng = np.random.default_rng(0)

    def choose(self, x: Vector) -> int:
        """Returns the arm to play."""
        if self._rng.random() < EXPLORE:
            return int(self._rng.integers(len(self.theta)))
        return int(np.argmax(self.theta @ x))

    def learn(self, arm: int, x: Vector, reward: float) -> None:
        """Learns one reward."""
        inverse = self.inverse[arm]
        seen = inverse @ x
        inverse -= np.outer(seen, seen / (1.0 + seen @ x))
        self.moment[arm] += reward * x
        self.theta[arm] = inverse @ self.moment[arm]
        self.learnt += 1


def features(context: dict[str, float | str]) -> Vector:
    """Returns a context as a vector: hashed names, and numbers as their values."""
    x = np.zeros(HASHED)
    for name, value in context.items():
        if isinstance(value, str):
            x[zlib.crc32(f"{name}={value}".encode()) % HASHED] += 1.0
        else:
            x[zlib.crc32(name.encode()) % HASHED] += value / 10
    return x


app = FastAPI()
campaigns: dict[str, tuple[list[str], list[tuple[str, int]], Bandit]] = {}
waiting: dict[str, tuple[int, Any]] = {}  # what each open decision needs to be learnt


@app.post("/campaigns")
async def create(request: Request) -> Response:
    """Creates a campaign, or finds it after a restart."""
    body = orjson.loads(await request.body())
    holds = [(one["id"], round(one["max_cost"] * MICROS)) for one in body["resources"]]
    arms = [arm["id"] for arm in body["arms"]]
    campaigns[body["id"]] = arms, holds, Bandit(len(arms))
    for one in body["resources"]:
        await app.state.redis.hsetnx(body["id"], f"{one['id']}:free", round(one["budget"] * MICROS))
    return _json({"id": body["id"]})


@app.post("/decide")
async def decide(request: Request) -> Response:
    """Chooses an arm and holds its max costs."""
    body = orjson.loads(await request.body())
    name, decision_id = body["campaign_id"], body["decision_id"]
    arms, holds, bandit = campaigns[name]
    x = features(body["context"])
    arm = bandit.choose(x)
    amounts = [part for hold in holds for part in hold]
    made, chosen = await app.state.hold(keys=[name, f"{name}:open"], args=[decision_id, arms[arm], *amounts])
    waiting[decision_id] = arm, x
    hold = {resource: amount / MICROS for resource, amount in holds} if made else {}
    return _json(
        {
            "decision_id": decision_id,
            "campaign_id": name,
            "arm": chosen.decode() or None,
            "reason": "policy",
            "hold": hold,
        }
    )


@app.post("/feedback")
async def feedback(request: Request) -> Response:
    """Books the costs of a decision and learns its reward."""
    body = orjson.loads(await request.body())
    name, decision_id = body["campaign_id"], body["decision_id"]
    _, holds, bandit = campaigns[name]
    costs = [
        part for resource, held in holds for part in (resource, held, round(body["costs"].get(resource, 0) * MICROS))
    ]
    settled = await app.state.settle(keys=[name, f"{name}:open"], args=[decision_id, *costs])
    if settled is not None and decision_id in waiting:
        bandit.learn(*waiting.pop(decision_id), body["reward"])
    return _json({"campaign_id": name, "decision_id": decision_id, "status": "settled"})


@app.get("/campaigns/{name}")
async def campaign(name: str) -> Response:
    """Answers how many decisions are held."""
    return _json({"held": await app.state.redis.hlen(f"{name}:open")})


@app.get("/readyz")
async def readyz() -> Response:
    """Answers how much every bandit has learnt."""
    return _json({name: bandit.learnt for name, (_, _, bandit) in campaigns.items()})


def _json(body: dict[str, Any]) -> Response:
    return Response(orjson.dumps(body), media_type="application/json")


def main() -> None:
    """Serves on the given port, with Redis at the given socket: uvloop, httptools and hiredis, and else our options."""
    import hiredis  # noqa: F401, PLC0415 - without it the client of Redis reads answers in Python
    from redis.asyncio import Redis  # noqa: PLC0415 - not among the packages of the service

    app.state.redis = Redis(unix_socket_path=sys.argv[2])
    app.state.hold = app.state.redis.register_script(HOLD)
    app.state.settle = app.state.redis.register_script(SETTLE)
    listener = server.listen("127.0.0.1", int(sys.argv[1]))
    options = server.UVICORN_OPTIONS | {"http": "httptools", "loop": "uvloop"}  # not the connections of the service
    uvicorn.Server(uvicorn.Config(app, **options)).run(sockets=[listener])


if __name__ == "__main__":
    main()
