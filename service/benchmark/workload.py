"""The measured campaign and the requests to it: 10 arms, 20 features of mixed types, 3 resources."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from service.benchmark.load import Call

ARMS, NUMBERS, CATEGORIES, HASHES = 10, 12, 6, 2
VALUES = ("a", "b", "c")
# Enough different contexts to defeat caches, few enough to create quickly.
CONTEXTS = 2_000
RESOURCES = {"usd": 0.05, "impressions": 1, "sends": 2}
# Budgets never bind, so that every request is decided in full.
HORIZON, BUDGET = 10**8, 9 * 10**8
PORTFOLIO = "bench"


def campaign(name: str, *, arms: int = ARMS, numbers: int = NUMBERS) -> dict[str, Any]:
    """Returns a campaign whose budgets never bind."""
    features: list[dict[str, Any]] = [{"name": f"n{i}", "type": "number", "min": 0, "max": 10} for i in range(numbers)]
    features += [{"name": f"c{i}", "type": "category", "values": list(VALUES)} for i in range(CATEGORIES)]
    features += [{"name": f"h{i}", "type": "hash", "buckets": 8} for i in range(HASHES)]
    return {
        "id": name,
        "arms": [{"id": f"arm-{i}"} for i in range(arms)],
        "resources": [{"id": name, "budget": BUDGET, "max_cost": most} for name, most in RESOURCES.items()],
        "horizon": HORIZON,
        "context": {"features": features},
        "feedback": {"ttl_seconds": 86_400},
        "seed": 7,
    }


def portfolio() -> dict[str, Any]:
    """Returns a portfolio whose budgets never bind."""
    return {"id": PORTFOLIO, "resources": [{"id": name, "budget": 10 * BUDGET} for name in RESOURCES]}


def contexts(seed: int = 0, *, numbers: int = NUMBERS) -> list[bytes]:
    """Returns contexts as JSON."""
    rng = random.Random(seed)
    documents = []
    for _ in range(CONTEXTS):
        context: dict[str, Any] = {f"n{i}": round(rng.uniform(0, 10), 3) for i in range(numbers)}
        context |= {f"c{i}": rng.choice(VALUES) for i in range(CATEGORIES)}
        context |= {f"h{i}": f"site-{rng.randrange(1000)}.example" for i in range(HASHES)}
        documents.append(json.dumps(context, separators=(",", ":")).encode())
    return documents


class Requests:
    """Requests of one client; every decision has its own id."""

    def __init__(self, key: str, seed: int = 0, *, numbers: int = NUMBERS) -> None:
        self._key = key
        self._contexts = contexts(seed, numbers=numbers)
        self._rng = random.Random(seed)
        self._prefix = f"{self._rng.randrange(16**8):08x}"
        self._count = 0

    def _post(self, path: str, body: bytes, tag: Any) -> Call:
        head = (
            f"POST {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {self._key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return Call(head.encode() + body, tag)

    def _next_id(self) -> str:
        self._count += 1
        return f"{self._prefix}-{self._count:09d}"

    def _context(self) -> bytes:
        return self._contexts[self._count % CONTEXTS]

    def decides(self, campaigns: Iterable[str]) -> Iterator[Call]:
        """Yields `POST /decide` to the campaigns in turn, without end; the tag is (campaign, decision)."""
        names = list(campaigns)
        while True:
            campaign_id = names[self._count % len(names)]
            decision_id = self._next_id()
            yield self._post("/decide", self._decide(campaign_id, decision_id), (campaign_id, decision_id))

    def _decide(self, campaign_id: str, decision_id: str) -> bytes:
        return b'{"campaign_id":"%b","decision_id":"%b","context":%b}' % (
            campaign_id.encode(),
            decision_id.encode(),
            self._context(),
        )

    def batches(self, campaigns: Iterable[str], size: int) -> Iterator[Call]:
        """Yields `POST /decide/batch`, without end; the tag is (campaign, decisions)."""
        names = list(campaigns)
        while True:
            campaign_id, ids, items = names[(self._count // size) % len(names)], [], []
            for _ in range(size):
                ids.append(self._next_id())
                items.append(b'{"decision_id":"%b","context":%b}' % (ids[-1].encode(), self._context()))
            body = b'{"campaign_id":"%b","items":[%b]}' % (campaign_id.encode(), b",".join(items))
            yield self._post("/decide/batch", body, (campaign_id, ids))

    def feedback(self, decisions: Iterable[tuple[str, str]]) -> Iterator[Call]:
        """Yields `POST /feedback` for each of these decisions."""
        for campaign_id, decision_id in decisions:
            yield self._post("/feedback", self._outcome(campaign_id, decision_id), None)

    def feedback_batches(self, decisions: Iterator[tuple[str, str]], size: int) -> Iterator[Call]:
        """Yields `POST /feedback/batch` for these decisions."""
        while items := [self._outcome(*pair) for pair in islice(decisions, size)]:
            yield self._post("/feedback/batch", b'{"items":[%b]}' % b",".join(items), None)

    def _outcome(self, campaign_id: str, decision_id: str) -> bytes:
        click = self._rng.random() < 0.1
        return b'{"campaign_id":"%b","decision_id":"%b","reward":%d,"costs":{"usd":%b,"impressions":1,"sends":1}}' % (
            campaign_id.encode(),
            decision_id.encode(),
            click,
            b"0.031" if click else b"0",
        )
