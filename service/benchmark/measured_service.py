"""The service under measurement, and the loads on it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from service.benchmark import workload
from service.benchmark.load import Call, Load, closed_loop, open_loop
from service.benchmark.processes import Server

CONNECTIONS = 64
# More than an open loop needs at half load.
OPEN_CONNECTIONS = 256
BATCH = 100
BATCH_CONNECTIONS = 8
# Outcomes a campaign learns before it is measured: an untrained policy plays the null arm more often.
TRAINING_OUTCOMES = 200
TRAINING_OUTCOMES_OF_MANY = 50
TRAINING_BATCH = 10  # small enough for 1,000 arms: see limits.DECIDE_WORK_MAX
LONG_SECONDS = 3600.0


class MeasuredService:
    """Servers on one database, with trained campaigns."""

    def __init__(
        self,
        servers: Sequence[Server],
        *,
        arms: int = workload.ARMS,
        numbers: int = workload.NUMBERS,
        campaigns: int = 1,
        portfolio: int = 0,
        prefix: str = "bench",
    ) -> None:
        self.server = servers[0]
        self.ports = [server.port for server in servers]
        self.names = [f"{prefix}-{i}" for i in range(campaigns)]
        self.members = [f"member-{i}" for i in range(portfolio)]  # campaigns of one portfolio, beside the others
        self.open: list[tuple[str, str]] = []  # decisions for an arm, not settled
        self._requests = workload.Requests(self.server.key, numbers=numbers)
        with self.server.client() as client:
            for name in self.names:
                client.post("/campaigns", json=workload.campaign(name, arms=arms, numbers=numbers)).raise_for_status()
            if self.members:
                client.post("/portfolios", json=workload.portfolio()).raise_for_status()
            for name in self.members:
                member = {**workload.campaign(name, arms=arms, numbers=numbers), "portfolio": workload.PORTFOLIO}
                client.post("/campaigns", json=member).raise_for_status()
        for _ in range((TRAINING_OUTCOMES if campaigns == 1 else TRAINING_OUTCOMES_OF_MANY) // TRAINING_BATCH):
            calls = itertools.islice(self._requests.batches(self.names, TRAINING_BATCH), campaigns)
            self._closed(calls, LONG_SECONDS, 4, self._add_all)
            self.settle()

    def calls(self) -> Any:
        """Returns decide requests, for another server."""
        return self._requests.decides(self.names)

    def decide(self, seconds: float, connections: int = CONNECTIONS, beside: Call | None = None) -> Load:
        """Measures single decisions."""
        calls = self._requests.decides(self.names)
        return closed_loop(
            self.ports, calls, connections=connections, seconds=seconds, on_response=self.add, beside=beside
        ).check()

    def decide_members(self, seconds: float) -> Load:
        """Measures single decisions of the campaigns of the portfolio."""
        calls = self._requests.decides(self.members)
        return closed_loop(self.ports, calls, connections=CONNECTIONS, seconds=seconds, on_response=self.add).check()

    def decide_at(self, rate: float, seconds: float) -> Load:
        """Measures single decisions at a fixed rate."""
        calls = self._requests.decides(self.names)
        return open_loop(self.ports, calls, connections=OPEN_CONNECTIONS, seconds=seconds, rate=rate).check()

    def feedback(self, seconds: float) -> Load:
        """Measures single outcomes of open decisions."""
        open_decisions, self.open = self.open, []
        return self._closed(self._requests.feedback(open_decisions), seconds, CONNECTIONS)

    def batches(self, seconds: float) -> Load:
        """Measures batches of decisions."""
        return self._closed(self._requests.batches(self.names, BATCH), seconds, BATCH_CONNECTIONS, self._add_all)

    def fill(self, decisions: int, size: int = 500) -> None:
        """Makes about this number of decisions with outcomes."""
        rounds = max(1, decisions // (20 * size))
        for _ in range(rounds):
            self._closed(itertools.islice(self._requests.batches(self.names, size), 20), LONG_SECONDS, 4, self._add_all)
            self.settle()

    def settle(self) -> None:
        """Settles every open decision through one server: several would wait for each other's locks."""
        calls = self._requests.feedback_batches(iter(self.open), 500)
        load = closed_loop(self.ports[:1], calls, connections=4, seconds=LONG_SECONDS)
        if load.statuses:
            load.check()
        self.open = []

    def budgets(self) -> Call:
        """Returns the request `GET /admin/budgets`."""
        head = f"GET /admin/budgets HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {self.server.key}\r\n\r\n"
        return Call(head.encode())

    def read(self, call: Call, times: int) -> Load:
        """Repeats one request."""
        return self._closed(iter([call] * times), LONG_SECONDS, 1)

    def check(self) -> None:
        """Raises unless all accounts match the log."""
        with self.server.client() as client:
            for name in [*self.names, *self.members]:
                found = client.get(f"/admin/campaigns/{name}/verify").raise_for_status().json()
                if not found["ok"]:
                    raise RuntimeError(f"the accounts of {name} differ from its log: {found['checks']}")

    def _closed(self, calls: Any, seconds: float, connections: int, on_response: Any = None) -> Load:
        load = closed_loop(self.ports, calls, connections=connections, seconds=seconds, on_response=on_response)
        return load.check() if load.statuses else load

    def add(self, tag: Any, body: bytes) -> None:
        """Keeps a decision for an arm to be settled."""
        if b'"arm":null' not in body:
            self.open.append(tag)

    def _add_all(self, tag: Any, body: bytes) -> None:
        campaign_id, ids = tag
        for decision_id, decision in zip(ids, body.split(b'{"decision_id"')[1:], strict=True):
            if b'"arm":null' not in decision:
                self.open.append((campaign_id, decision_id))
