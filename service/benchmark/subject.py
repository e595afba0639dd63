"""A server under measurement, and what is done to it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from service.benchmark import work
from service.benchmark.load import Call, Load, closed_loop, open_loop
from service.benchmark.processes import Server

CONNECTIONS = 64
# The limit of an open loop: at half the load a server can bear, far fewer are under way.
OPEN_CONNECTIONS = 256
BATCH = 100
BATCH_CONNECTIONS = 8
# Outcomes a campaign is taught before it is measured: one that knows nothing holds back.
TAUGHT = 200
TAUGHT_EACH = 50
LONG_SECONDS = 3600.0


class Subject:
    """Servers on one database, with campaigns that know enough to be measured."""

    def __init__(
        self, servers: Sequence[Server], *, arms: int = work.ARMS, numbers: int = work.NUMBERS, campaigns: int = 1
    ) -> None:
        self.server = servers[0]
        self.ports = [server.port for server in servers]
        self.names = [f"bench-{i}" for i in range(campaigns)]
        self.open: list[tuple[str, str]] = []  # decisions for an arm, not settled
        self._requests = work.Requests(self.server.key, numbers=numbers)
        with self.server.client() as client:
            for name in self.names:
                client.post("/campaigns", json=work.campaign(name, arms=arms, numbers=numbers)).raise_for_status()
        for _ in range((TAUGHT if campaigns == 1 else TAUGHT_EACH) // 25):
            calls = itertools.islice(self._requests.batches(self.names, 25), campaigns)
            self._closed(calls, LONG_SECONDS, 4, self._keep_all)
            self.settle()

    def calls(self) -> Any:
        """Requests like those that are measured, for another server."""
        return self._requests.decides(self.names)

    def decide(self, seconds: float, connections: int = CONNECTIONS, beside: Call | None = None) -> Load:
        """Decisions one by one."""
        calls = self._requests.decides(self.names)
        return closed_loop(
            self.ports, calls, connections=connections, seconds=seconds, answered=self._keep, beside=beside
        ).check()

    def decide_at(self, rate: float, seconds: float) -> Load:
        """Decisions at a rate that does not wait for answers."""
        calls = self._requests.decides(self.names)
        return open_loop(self.ports, calls, connections=OPEN_CONNECTIONS, seconds=seconds, rate=rate).check()

    def feedback(self, seconds: float) -> Load:
        """Outcomes one by one, each of a decision that is open."""
        taken, self.open = self.open, []
        return self._closed(self._requests.feedback(taken), seconds, CONNECTIONS)

    def batches(self, seconds: float) -> Load:
        """Decisions a hundred at a time."""
        return self._closed(self._requests.batches(self.names, BATCH), seconds, BATCH_CONNECTIONS, self._keep_all)

    def fill(self, decisions: int, size: int = 500) -> None:
        """So many decisions with their outcomes, as fast as they go."""
        rounds = max(1, decisions // (20 * size))
        for _ in range(rounds):
            self._closed(
                itertools.islice(self._requests.batches(self.names, size), 20), LONG_SECONDS, 4, self._keep_all
            )
            self.settle()

    def settle(self) -> None:
        """Outcomes for everything that is open, by one of the servers: several would wait for each other's locks."""
        calls = self._requests.feedback_batches(iter(self.open), 500)
        load = closed_loop(self.ports[:1], calls, connections=4, seconds=LONG_SECONDS)
        if load.statuses:
            load.check()
        self.open = []

    def budgets(self) -> Call:
        """`GET /admin/budgets`."""
        head = f"GET /admin/budgets HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {self.server.key}\r\n\r\n"
        return Call(head.encode())

    def read(self, call: Call, times: int) -> Load:
        """One request again and again."""
        return self._closed(iter([call] * times), LONG_SECONDS, 1)

    def check(self) -> None:
        """All accounts are what the log says."""
        with self.server.client() as client:
            for name in self.names:
                found = client.get(f"/admin/campaigns/{name}/verify").raise_for_status().json()
                if not found["ok"]:
                    raise RuntimeError(f"the accounts of {name} are not what its log says: {found['checks']}")

    def _closed(self, calls: Any, seconds: float, connections: int, answered: Any = None) -> Load:
        load = closed_loop(self.ports, calls, connections=connections, seconds=seconds, answered=answered)
        return load.check() if load.statuses else load

    def _keep(self, tag: Any, body: bytes) -> None:
        if b'"arm":null' not in body:
            self.open.append(tag)

    def _keep_all(self, tag: Any, body: bytes) -> None:
        campaign_id, ids = tag
        for decision_id, answer in zip(ids, body.split(b'{"decision_id"')[1:], strict=True):
            if b'"arm":null' not in answer:
                self.open.append((campaign_id, decision_id))
