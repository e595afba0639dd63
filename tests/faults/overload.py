"""Three times as many requests as the service can take, for a while."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from typing import Any

from tests.faults.history import Call
from tests.faults.processes import Ground
from tests.faults.report import Progress, Row
from tests.faults.trial import LOOSE, Trial, trial
from tests.service.http_client import ADMIN_KEY

OVERLOAD = 3
DEADLINE_SECONDS = 1.0
QUEUE_MAX = 500
CONNECTIONS = 1_000
# As many as make whole batches, and never fill the queue.
CALM_CONNECTIONS = 200
# On a machine that client and service share, an answer may wait for a processor: this much is not held against it.
GRACE_SECONDS = 1.0
LATE_SHARE_MAX = 0.01
MEMORY_GROWTH_MAX = 0.10
SAMPLE_SECONDS = 0.5
STRICT_SECONDS_MIN = 20
# Of what was acknowledged and of what was refused, how much is asked again afterwards.
AGAIN_MAX = 1_000


@dataclass(frozen=True)
class Flooded:
    """What came of a flood."""

    calls: list[Call]
    unsent: int

    def seconds(self, *statuses: int) -> list[float]:
        """How long answers of these kinds took, sorted."""
        return sorted((call.answered_at or 0.0) - call.sent_at for call in self.calls if call.status in statuses)


async def overload(ground: Ground, dialect: str, seconds: int, progress: Progress) -> Row:
    """What is accepted is answered in time, the rest is refused at once, and the memory stays as it is."""
    settings = {"request_deadline_ms": int(DEADLINE_SECONDS * 1000), "queue_max": QUEUE_MAX}
    async with trial(ground, dialect, seed=17, **settings) as one:
        calm_seconds = max(2.0, seconds / 20)
        calm = await _flood(one, "c", rate=0, seconds=calm_seconds, connections=CALM_CONNECTIONS)
        capacity = len(calm.seconds(200)) / calm_seconds
        memory: list[int] = []
        sampling = asyncio.create_task(_sample(one, memory, progress))
        flooded = await _flood(one, "f", rate=OVERLOAD * capacity, seconds=seconds, connections=CONNECTIONS)
        sampling.cancel()
        one.injections = len(flooded.calls)
        strict = seconds >= STRICT_SECONDS_MIN
        one.replays_max = AGAIN_MAX if strict else AGAIN_MAX // 5
        _kept(one, calm.calls + flooded.calls, one.replays_max)
        growth = memory[-1] / memory[len(memory) // 3] - 1
        note = _judged(one, flooded, growth, strict=strict)
        sent = len(flooded.calls) / seconds
        note = f"{capacity:,.0f} a second calm, {sent:,.0f} a second sent for {seconds} s; {note}"
        return await one.verdict("overload at three times capacity", dialect, note=note, replay=False)


def _kept(one: Trial, calls: list[Call], again_max: int) -> None:
    """All that was acknowledged, and of what was refused as much as can be asked again in reasonable time."""
    refused = [call for call in calls if not call.is_acknowledged]
    one.chance.shuffle(refused)
    one.history.calls += [call for call in calls if call.is_acknowledged] + refused[:again_max]
    one.history.given_up += refused[again_max:]


def _judged(one: Trial, flooded: Flooded, growth: float, *, strict: bool) -> str:
    """The flood in words; times and memory are held against the service only if it was a long one."""
    accepted, refused = flooded.seconds(200), flooded.seconds(503)
    late = sum(took > DEADLINE_SECONDS + GRACE_SECONDS for took in accepted + refused)
    if strict and late > LATE_SHARE_MAX * len(flooded.calls):
        one.note("late", f"{late} of {len(flooded.calls)} answers came after {DEADLINE_SECONDS + GRACE_SECONDS} s")
    if strict and not refused:
        one.note("unclear", "nothing was refused: was it too much at all?")
    others = {call.status for call in flooded.calls} - {200, 503}
    if others:
        one.note("unclear", f"answers {others} under overload")
    if strict and growth > MEMORY_GROWTH_MAX:
        one.note("memory", f"grew by {growth:.0%} in the last two thirds of the flood")
    return (
        f"{len(accepted):,} accepted ({_quantiles(accepted)}), {len(refused):,} refused ({_quantiles(refused)}), "
        f"{flooded.unsent:,} not sent because all of {CONNECTIONS:,} connections waited; memory grew by {growth:.1%}"
    )


def _quantiles(took: list[float]) -> str:
    if not took:
        return "–"
    parts = [took[min(len(took) - 1, int(share * len(took)))] for share in (0.5, 0.99)]
    return f"median {parts[0]:.2f} s, 99 % within {parts[1]:.2f} s, all within {took[-1]:.2f} s"


async def _sample(one: Trial, memory: list[int], progress: Progress) -> None:
    assert one.server.child is not None
    while True:
        memory.append(one.server.child.resident_bytes())
        progress()
        await asyncio.sleep(SAMPLE_SECONDS)


async def _flood(one: Trial, label: str, *, rate: float, seconds: float, connections: int) -> Flooded:
    out = one.ground.folder / f"flood-{label}.jsonl"
    order: dict[str, Any] = {
        "port": one.server.port, "key": ADMIN_KEY, "campaign": LOOSE, "label": label, "rate": rate, "seconds": seconds,
        "connections": connections, "out": str(out),
    }  # fmt: skip
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "tests.faults.flood", json.dumps(order))
    assert await process.wait() == 0, "the flood failed"
    first, *lines = out.read_text().splitlines()
    calls = []
    for line in lines:
        decision_id, sent_at, answered_at, status, answer = json.loads(line)
        body = {"campaign_id": LOOSE, "decision_id": decision_id, "context": [0.25, 0.75]}
        calls.append(Call("/decide", body, sent_at, answered_at, status, answer.encode(), port=one.server.port))
    return Flooded(calls, json.loads(first)[1])
