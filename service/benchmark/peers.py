"""`cbwk bench --peers`: the service beside what a team would build instead, with the same requests in one run.

Each side has one core for all its processes. Rates alternate between the sides; then each side spends a small budget
with 64 clients, all its processes are killed, and it goes on from what is on the disk.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from service.benchmark import workload
from service.benchmark.bench import Announce, Extent
from service.benchmark.figures import Figure, Report
from service.benchmark.load import Load, closed_loop
from service.benchmark.processes import Cores, Server, pinned, redis_peer, served

CONNECTIONS = 64
# The scarce budget pays for this many decisions at their max cost; more are asked for.
PAYABLE, ASKED = 400, 1_200
SCARCE = next(iter(workload.RESOURCES))
LARGE, SMALL, KILLED = "large", "small", "killed"
START_SECONDS_MAX = 10.0


class Side(Protocol):
    """One side of the comparison."""

    @property
    def name(self) -> str:
        """What the table calls it."""

    def running(self, cores: Cores, folder: Path) -> AbstractContextManager[Server]:
        """Runs it on what the folder holds; at the end of the block all its processes are killed."""

    def learnt(self, server: Server) -> int:
        """Returns the number of outcomes that the large campaign's policy has learnt."""

    def held(self, server: Server, campaign: str) -> int:
        """Returns the number of decisions of a campaign that are held."""


@dataclass(frozen=True)
class Ours:
    """The service on SQLite."""

    name: str = "cbwk on SQLite"

    @contextmanager
    def running(self, cores: Cores, folder: Path) -> Iterator[Server]:
        """Runs it."""
        url, key = f"sqlite:///{folder}/cbwk.db", "k" * 32
        with served(cores, url, key=key, request_deadline_ms=10_000) as server:
            yield server
            server.process.kill()

    def learnt(self, server: Server) -> int:
        """Asks for a decision, which says it."""
        with server.client() as client:
            asked = next(workload.Requests(server.key, seed=1).decides([LARGE])).data.partition(b"\r\n\r\n")[2]
            answer = client.post("/decide", content=asked, headers={"Content-Type": "application/json"})
            return int(answer.raise_for_status().json()["policy_version"])

    def held(self, server: Server, campaign: str) -> int:
        """Asks for the account of the scarce budget; all decisions hold the same."""
        with server.client() as client:
            accounts = client.get(f"/campaigns/{campaign}").raise_for_status().json()["accounts"]
            (account,) = [each for each in accounts if each["id"] == SCARCE]
            return round(float(account["held"]) / workload.RESOURCES[SCARCE])


@dataclass(frozen=True)
class WithRedis:
    """FastAPI with a bandit in the process and budgets in Redis: one process each, as the model is in it."""

    name: str
    is_durable: bool

    @contextmanager
    def running(self, cores: Cores, folder: Path) -> Iterator[Server]:
        """Runs both processes."""
        socket = folder / "redis.sock"
        options = ["--appendonly", "yes", "--appendfsync", "always"] if self.is_durable else ["--appendonly", "no"]
        command = ["redis-server", "--port", "0", "--unixsocket", str(socket), "--dir", str(folder), "--save", ""]
        redis = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL)
        os.sched_setaffinity(redis.pid, {cores.server})
        try:
            until = time.monotonic() + START_SECONDS_MAX
            while not socket.exists():
                if time.monotonic() > until or redis.poll() is not None:
                    raise RuntimeError("redis-server does not start")
                time.sleep(0.01)
            with redis_peer(cores, socket) as server:
                yield server
                server.process.kill()
        finally:
            redis.kill()
            redis.wait()
            socket.unlink(missing_ok=True)

    def learnt(self, server: Server) -> int:
        """Asks for the counts of all bandits; one that does not exist has learnt nothing."""
        with server.client() as client:
            return int(client.get("/readyz").json().get(LARGE, 0))

    def held(self, server: Server, campaign: str) -> int:
        """Asks for the number of open holds."""
        with server.client() as client:
            return int(client.get(f"/campaigns/{campaign}").raise_for_status().json()["held"])


def sides() -> list[Side]:
    """Returns the sides that this machine can run: those with Redis need `redis-server`."""
    found: list[Side] = [Ours()]
    if shutil.which("redis-server") and find_spec("redis") and find_spec("hiredis"):
        found.append(WithRedis("FastAPI + Redis, appendfsync always", is_durable=True))
        found.append(WithRedis("FastAPI + Redis, in memory", is_durable=False))
    return found


@dataclass
class Clients:
    """The requests to one side, and what was acknowledged."""

    requests: workload.Requests
    arms: list[tuple[str, str]] = field(default_factory=list)  # decisions for an arm

    def decide(self, server: Server, campaign: str, *, seconds: float, count: int | None = None) -> Load:
        """Asks for decisions with all connections."""
        calls = islice(self.requests.decides([campaign]), count)
        load = closed_loop(
            [server.port], calls, connections=CONNECTIONS, seconds=seconds, on_response=self._acknowledged
        )
        return load.check()

    def report(self, server: Server, *, seconds: float) -> int:
        """Reports the outcomes of all decisions for an arm; returns how many."""
        decided, self.arms = self.arms, []
        load = closed_loop([server.port], self.requests.feedback(decided), connections=CONNECTIONS, seconds=seconds)
        return load.check().statuses[200] if decided else 0

    def _acknowledged(self, tag: Any, body: bytes) -> None:
        if b'"arm":null' not in body:
            self.arms.append(tag)


@dataclass(frozen=True)
class Peers:
    """One run of the comparison."""

    extent: Extent
    report: Report
    cores: Cores
    announce: Announce

    def run(self) -> None:
        """Measures every side."""
        with pinned(self.cores), ExitStack() as stack:
            folders = {
                side.name: Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cbwk-peer-")))
                for side in sides()
            }
            clients = {side.name: Clients(workload.Requests("k" * 32)) for side in sides()}
            learnt = self._compare_rates(folders, clients)
            for side in sides():
                self.announce(f"{side.name}: kill -9 while a budget is spent")
                self._spend(side, folders[side.name], clients[side.name], learnt[side.name])

    def _compare_rates(self, folders: dict[str, Path], clients: dict[str, Clients]) -> dict[str, int]:
        """Measure the rates of all sides alternately; return what each large campaign has learnt."""
        report, extent = self.report, self.extent
        with ExitStack() as stack:
            servers = {}
            for side in sides():
                servers[side.name] = stack.enter_context(side.running(self.cores, folders[side.name]))
                _create(servers[side.name], LARGE, workload.BUDGET)
                for _ in range(4):  # an untrained policy explores, which takes longer
                    clients[side.name].decide(servers[side.name], LARGE, seconds=60, count=CONNECTIONS)
                    clients[side.name].report(servers[side.name], seconds=60)
            for index in range(extent.rounds):
                for name, server in servers.items():
                    self.announce(f"{name}, round {index + 1} of {extent.rounds}")
                    load = clients[name].decide(server, LARGE, seconds=extent.seconds)
                    report.note(f"{name}, /decide", load.rate)
                    report.note(f"{name}, /decide p99", 1000 * load.percentile(99))
                    started = time.perf_counter()
                    reported = clients[name].report(server, seconds=60)
                    report.note(f"{name}, /feedback", reported / (time.perf_counter() - started))
            learnt = {side.name: side.learnt(servers[side.name]) for side in sides()}
        ours = Ours().name
        for name in learnt:
            for path in ("/decide", "/feedback"):
                ratio, rate = report.ratio(f"{name}, {path}", f"{ours}, {path}"), report.middle(f"{name}, {path}")
                report.figures.append(Figure(f"{name}: {path} ÷ ours", ratio, remark=f"{rate:,.0f} a second"))
            report.figures.append(Figure(f"{name}: p99 of /decide", report.middle(f"{name}, /decide p99"), "ms"))
        return learnt

    def _spend(self, side: Side, folder: Path, clients: Clients, learnt: int) -> None:
        """Spend a budget with all connections; spend half of another one, kill everything, and spend the rest."""
        with side.running(self.cores, folder) as server:
            self._add(side, "learnt outcomes left after kill -9", side.learnt(server) / learnt)
            _create(server, SMALL, PAYABLE * workload.RESOURCES[SCARCE])
            clients.decide(server, SMALL, seconds=60, count=ASKED)
            over = max(0, len(clients.arms) - PAYABLE)
            self._add(side, f"overspent with {CONNECTIONS} clients ÷ budget", over / PAYABLE)
            clients.arms.clear()
            _create(server, KILLED, PAYABLE * workload.RESOURCES[SCARCE])
            clients.decide(server, KILLED, seconds=60, count=PAYABLE // 2)
            acknowledged = len(clients.arms)
        with side.running(self.cores, folder) as server:
            _create(server, KILLED, PAYABLE * workload.RESOURCES[SCARCE])
            lost = acknowledged - side.held(server, KILLED)
            self._add(side, "acknowledged holds lost at kill -9", lost / acknowledged)
            clients.decide(server, KILLED, seconds=60, count=ASKED)
        self._add(side, "held before and after kill -9 ÷ budget", len(clients.arms) / PAYABLE)

    def _add(self, side: Side, name: str, value: float) -> None:
        self.report.figures.append(Figure(f"{side.name}: {name}", value))


def _create(server: Server, name: str, budget: float) -> None:
    body = workload.campaign(name)
    body["resources"][0]["budget"] = budget
    if name != LARGE:
        body["horizon"] = ASKED
    with server.client() as client:
        answer = client.post("/campaigns", json=body)
        if answer.status_code != 409:  # it has survived
            answer.raise_for_status()
