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
from tests.faults.processes import Testbed
from tests.faults.report import Progress, Row
from tests.faults.trial import Trial, new_trial
from tests.service.http_client import ADMIN_KEY

OVERLOAD = 3
# Many arms and features, so that a client can offer three times what the service can take. Budget and horizon suffice
# and no hold expires, so that the load is the same during the whole flood.
FLOODED = campaign(
    "flooded",
    arms=[{"id": f"arm-{number}"} for number in range(1_000)],
    context={"dimension": len(CONTEXT)},
    budget=10_000_000,
    horizon=10_000_000,
    feedback={"ttl_seconds": 3_600},
)
# So short that fewer requests are accepted than there are connections.
DEADLINE_SECONDS = 0.25
# Enough for all accepted requests, so that a new request finds a free connection.
CONNECTIONS = 4_000
# Enough for full batches, and too few to fill the queue.
CALM_CONNECTIONS = 200
# The delay of an answer that is allowed because client and service share the processors.
GRACE_SECONDS = 0.5
REFUSED_SECONDS_MAX = 0.5
LATE_SHARE_MAX = 0.01
# The share of refused requests that may have been carried out.
DONE_SHARE_MAX = 0.01
# A refusal costs a seventh of a decision, so at three times the capacity at most two thirds of it can be accepted.
ACCEPTED_SHARE_MIN = 0.3
OFFERED_SHARE_MIN = 0.9
MEMORY_GROWTH_MAX = 0.10
SAMPLE_SECONDS = 0.5
STRICT_SECONDS_MIN = 20
# How many acknowledged and how many refused requests are repeated afterwards.
AGAIN_MAX = 1_000


@dataclass(frozen=True)
class FloodResult:
    """The results of a flood."""

    calls: list[Call]
    unsent: int
    busy: float  # share of a processor that the client itself took

    def seconds(self, *statuses: int) -> list[float]:
        """Return the sorted durations of the answers with these statuses."""
        return sorted((call.answered_at or 0.0) - call.sent_at for call in self.calls if call.status in statuses)


async def overload(testbed: Testbed, dialect: str, seconds: int, progress: Progress) -> Row:
    """Accepted requests are answered in time, the others are refused at once, and the memory does not grow."""
    async with new_trial(testbed, dialect, seed=17, request_deadline_ms=int(DEADLINE_SECONDS * 1000)) as trial:
        await trial.create(FLOODED)
        calm_seconds = max(2.0, seconds / 20)
        calm = await _flood(trial, "c", rate=0, seconds=calm_seconds, connections=CALM_CONNECTIONS)
        capacity = len(calm.seconds(200)) / calm_seconds
        memory: list[int] = []
        sampling = asyncio.create_task(_sample(trial, memory, progress))
        flooded = await _flood(trial, "f", rate=OVERLOAD * capacity, seconds=seconds, connections=CONNECTIONS)
        sampling.cancel()
        trial.injections = len(flooded.calls)
        growth = memory[-1] / memory[len(memory) // 3] - 1
        strict = seconds >= STRICT_SECONDS_MIN
        found = list(_found(flooded, capacity, seconds, growth)) if strict else []
        done = {row.decision_id for row in read_books(trial.url)[FLOODED["id"]].decisions}
        found += list(_kept_word(flooded, done, strict=strict))
        for kind, what in found:
            trial.note(kind, what)
        trial.replays_max = AGAIN_MAX if strict else AGAIN_MAX // 5
        _remember(trial, calm.calls + flooded.calls, trial.replays_max)
        note = _told(flooded, capacity, seconds, growth)
        return await trial.verdict("overload at three times capacity", dialect, note=note, replay=False)


def _remember(trial: Trial, calls: list[Call], again_max: int) -> None:
    """Add all acknowledged calls to the history, and as many refused ones as can be repeated in reasonable time."""
    refused = [call for call in calls if not call.is_acknowledged]
    trial.chance.shuffle(refused)
    trial.history.calls += [call for call in calls if call.is_acknowledged] + refused[:again_max]
    trial.history.given_up += refused[again_max:]


def _found(flooded: FloodResult, capacity: float, seconds: float, growth: float) -> Any:
    """Yield the findings of a long flood about the service, or about the flood."""
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


def _kept_word(flooded: FloodResult, done: set[str], *, strict: bool) -> Any:
    """Yield refused requests that were carried out: none with `queue-full`, few others."""
    others = {call.status for call in flooded.calls} - {200, 503}
    if others:
        yield "unclear", f"answers {others} under overload"
    refused = [call for call in flooded.calls if call.status == 503]
    broken = [call for call in refused if call.answer == b"queue-full" and call.body["decision_id"] in done]
    if broken:
        yield "unclear", f"{len(broken)} were refused with queue-full but carried out"
    doubtful = sum(call.body["decision_id"] in done for call in refused)
    if strict and doubtful > DONE_SHARE_MAX * len(refused):
        yield "unclear", f"{doubtful} of {len(refused)} refused requests were carried out"


def _told(flooded: FloodResult, capacity: float, seconds: float, growth: float) -> str:
    accepted, refused = flooded.seconds(200), flooded.seconds(503)
    kinds = Counter((call.answer or b"").decode() for call in flooded.calls if call.status == 503)
    return (
        f"{capacity:,.0f} a second calm; {len(flooded.calls) / seconds:,.0f} a second sent for {seconds} s, "
        f"{len(accepted) / seconds:,.0f} a second accepted ({_quantiles(accepted)}), {len(refused):,} refused "
        f"({_quantiles(refused)}; {', '.join(f'{kind} {number:,}' for kind, number in kinds.items())}), "
        f"{flooded.unsent:,} not sent because all {CONNECTIONS:,} connections were waiting; the client took "
        f"{flooded.busy:.0%} of a processor; memory grew by {growth:.1%}"
    )


def _quantiles(took: list[float]) -> str:
    if not took:
        return "–"
    parts = [took[min(len(took) - 1, int(share * len(took)))] for share in (0.5, 0.99)]
    return f"median {parts[0]:.3f} s, 99 % within {parts[1]:.3f} s, all within {took[-1]:.2f} s"


async def _sample(trial: Trial, memory: list[int], progress: Progress) -> None:
    assert trial.server.child is not None
    while True:
        memory.append(trial.server.child.resident_bytes())
        progress()
        await asyncio.sleep(SAMPLE_SECONDS)


async def _flood(trial: Trial, label: str, *, rate: float, seconds: float, connections: int) -> FloodResult:
    out = trial.testbed.folder / f"flood-{label}.jsonl"
    order: dict[str, Any] = {
        "port": trial.server.port, "key": ADMIN_KEY, "campaign": FLOODED["id"], "label": label, "rate": rate,
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
            calls.append(Call("/decide", body, sent_at, answered_at, status, answer.encode(), port=trial.server.port))
    return FloodResult(calls, **summary)
