"""Three times as many requests as the service can take, for a while."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tests.faults.books import read_books
from tests.faults.flood import CONTEXT
from tests.faults.history import Call
from tests.faults.load import campaign
from tests.faults.processes import Ground
from tests.faults.report import Progress, Row
from tests.faults.trial import Trial, trial
from tests.service.http_client import ADMIN_KEY

OVERLOAD = 3
# Budget for all, and holds that do not expire meanwhile, or the second half of a flood would be another load.
FLOODED = campaign("flooded", budget=10_000_000, feedback={"ttl_seconds": 3_600})
DEADLINE_SECONDS = 1.0
# Enough that a request finds one free although everything accepted waits on one.
CONNECTIONS = 4_000
# As many as make whole batches, and never fill the queue.
CALM_CONNECTIONS = 200
# On a machine that client and service share, an answer may wait for a processor: this much is not held against it.
GRACE_SECONDS = 0.5
REFUSED_SECONDS_MAX = 0.5
LATE_SHARE_MAX = 0.01
# Of the refused, how many may have been done all the same.
DONE_SHARE_MAX = 0.01
# A refusal costs a seventh of a decision, so of three times the capacity two thirds of it could be accepted at best.
ACCEPTED_SHARE_MIN = 0.3
OFFERED_SHARE_MIN = 0.9
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
    busy: float  # share of a processor that the client itself took

    def seconds(self, *statuses: int) -> list[float]:
        """How long answers of these kinds took, sorted."""
        return sorted((call.answered_at or 0.0) - call.sent_at for call in self.calls if call.status in statuses)


async def overload(ground: Ground, dialect: str, seconds: int, progress: Progress) -> Row:
    """What is accepted is answered in time, the rest is refused at once, and the memory stays as it is."""
    async with trial(ground, dialect, seed=17, request_deadline_ms=int(DEADLINE_SECONDS * 1000)) as one:
        await one.create(FLOODED)
        calm_seconds = max(2.0, seconds / 20)
        calm = await _flood(one, "c", rate=0, seconds=calm_seconds, connections=CALM_CONNECTIONS)
        capacity = len(calm.seconds(200)) / calm_seconds
        memory: list[int] = []
        sampling = asyncio.create_task(_sample(one, memory, progress))
        flooded = await _flood(one, "f", rate=OVERLOAD * capacity, seconds=seconds, connections=CONNECTIONS)
        sampling.cancel()
        one.injections = len(flooded.calls)
        growth = memory[-1] / memory[len(memory) // 3] - 1
        strict = seconds >= STRICT_SECONDS_MIN
        found = list(_found(flooded, capacity, seconds, growth)) if strict else []
        done = {row.decision_id for row in read_books(one.url)[FLOODED["id"]].decisions}
        found += list(_kept_word(flooded, done, strict=strict))
        for kind, what in found:
            one.note(kind, what)
        one.replays_max = AGAIN_MAX if strict else AGAIN_MAX // 5
        _remember(one, calm.calls + flooded.calls, one.replays_max)
        note = _told(flooded, capacity, seconds, growth)
        return await one.verdict("overload at three times capacity", dialect, note=note, replay=False)


def _remember(one: Trial, calls: list[Call], again_max: int) -> None:
    """All that was acknowledged, and of what was refused as much as can be asked again in reasonable time."""
    refused = [call for call in calls if not call.is_acknowledged]
    one.chance.shuffle(refused)
    one.history.calls += [call for call in calls if call.is_acknowledged] + refused[:again_max]
    one.history.given_up += refused[again_max:]


def _found(flooded: Flooded, capacity: float, seconds: float, growth: float) -> Any:
    """What a long flood holds against the service, or against itself."""
    accepted, refused = flooded.seconds(200), flooded.seconds(503)
    late = sum(took > DEADLINE_SECONDS + GRACE_SECONDS for took in accepted)
    if late > LATE_SHARE_MAX * len(accepted):
        yield "late", f"{late} of {len(accepted)} came after {DEADLINE_SECONDS + GRACE_SECONDS} s"
    slow = sum(took > REFUSED_SECONDS_MAX for took in refused)
    if slow > LATE_SHARE_MAX * len(refused):
        yield "late", f"{slow} of {len(refused)} refusals took longer than {REFUSED_SECONDS_MAX} s"
    if len(accepted) < ACCEPTED_SHARE_MIN * capacity * seconds:
        yield "few", f"{len(accepted) / seconds:.0f} a second accepted, {capacity:.0f} without the flood"
    if len(flooded.calls) < OFFERED_SHARE_MIN * OVERLOAD * capacity * seconds:
        yield "unclear", f"only {len(flooded.calls) / seconds:.0f} a second were offered"
    if growth > MEMORY_GROWTH_MAX:
        yield "memory", f"grew by {growth:.0%} in the last two thirds of the flood"


def _kept_word(flooded: Flooded, done: set[str], *, strict: bool) -> Any:
    """Whether refusals are what they say: `queue-full` was not done, and the others are few."""
    others = {call.status for call in flooded.calls} - {200, 503}
    if others:
        yield "unclear", f"answers {others} under overload"
    refused = [call for call in flooded.calls if call.status == 503]
    broken = [call for call in refused if call.answer == b"queue-full" and call.body["decision_id"] in done]
    if broken:
        yield "unclear", f"{len(broken)} were refused with queue-full and done"
    doubtful = sum(call.body["decision_id"] in done for call in refused)
    if strict and doubtful > DONE_SHARE_MAX * len(refused):
        yield "unclear", f"{doubtful} of {len(refused)} refused were done all the same"


def _told(flooded: Flooded, capacity: float, seconds: float, growth: float) -> str:
    accepted, refused = flooded.seconds(200), flooded.seconds(503)
    kinds = Counter((call.answer or b"").decode() for call in flooded.calls if call.status == 503)
    return (
        f"{capacity:,.0f} a second calm; {len(flooded.calls) / seconds:,.0f} a second sent for {seconds} s, "
        f"{len(accepted) / seconds:,.0f} a second accepted ({_quantiles(accepted)}), {len(refused):,} refused "
        f"({_quantiles(refused)}; {', '.join(f'{kind} {number:,}' for kind, number in kinds.items())}), "
        f"{flooded.unsent:,} not sent because all of {CONNECTIONS:,} connections waited; the client took "
        f"{flooded.busy:.0%} of a processor; memory grew by {growth:.1%}"
    )


def _quantiles(took: list[float]) -> str:
    if not took:
        return "–"
    parts = [took[min(len(took) - 1, int(share * len(took)))] for share in (0.5, 0.99)]
    return f"median {parts[0]:.3f} s, 99 % within {parts[1]:.3f} s, all within {took[-1]:.2f} s"


async def _sample(one: Trial, memory: list[int], progress: Progress) -> None:
    assert one.server.child is not None
    while True:
        memory.append(one.server.child.resident_bytes())
        progress()
        await asyncio.sleep(SAMPLE_SECONDS)


async def _flood(one: Trial, label: str, *, rate: float, seconds: float, connections: int) -> Flooded:
    out = one.ground.folder / f"flood-{label}.jsonl"
    order: dict[str, Any] = {
        "port": one.server.port, "key": ADMIN_KEY, "campaign": FLOODED["id"], "label": label, "rate": rate,
        "seconds": seconds, "connections": connections, "out": str(out),
    }  # fmt: skip
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "tests.faults.flood", json.dumps(order))
    assert await process.wait() == 0, "the flood failed"
    calls = []
    with out.open() as lines:
        summary = json.loads(next(lines))
        for line in lines:
            decision_id, sent_at, answered_at, status, answer = json.loads(line)
            body = {"campaign_id": FLOODED["id"], "decision_id": decision_id, "context": CONTEXT}
            calls.append(Call("/decide", body, sent_at, answered_at, status, answer.encode(), port=one.server.port))
    return Flooded(calls, **summary)
