"""`cbwk bench --replicas`: what a decision costs on one replica and on several that share one PostgreSQL.

The figure is processor time of all services and of the database, which depends less on what else the machine does than
time does. Cases alternate within a round; a window is the median of its rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import psycopg

from cbwk_client.replicas import ranked
from service.benchmark.figures import Figure, Report
from service.benchmark.load import Load
from service.benchmark.measured_service import MeasuredService
from service.benchmark.postgres import Postgres
from service.benchmark.processes import Cores, Server, served
from service.benchmark.processor_time import family_of, parent_of, processor_micros
from service.benchmark.routed_load import Route, by_campaign, round_robin, routed_closed_loop, routed_open_loop
from service.benchmark.scalability import Law, fitted

CLOSED_CONNECTIONS = 96
OPEN_CONNECTIONS = 256
MANY, HOT = "100 campaigns", "one campaign"
Progress = Callable[[str], None]  # called before each measurement with its name


class Case(NamedTuple):
    """Replicas that are asked, for which campaigns, and whether each is asked for campaigns of its own."""

    replicas: int
    campaigns: str
    affinity: bool = False

    @property
    def name(self) -> str:
        """Returns the name in tables."""
        if self.replicas == 1:
            return f"1 replica, {self.campaigns}"
        return f"{self.replicas} replicas, {self.campaigns}{', affinity' if self.affinity else ''}"

    @property
    def base(self) -> Case:
        """Returns the same load on one replica."""
        return Case(1, self.campaigns)


TARGETS = {
    Case(1, MANY): None,
    Case(3, MANY, affinity=True): 1.25,
    Case(3, MANY): 2.0,
    Case(1, HOT): None,
    Case(3, HOT): 2.0,
}
# Throughput for the law; those of one and three replicas are measured with the targets.
LAW = [Case(count, MANY, affinity) for affinity in (True, False) for count in (2, 4)]


@dataclass(frozen=True)
class ReplicaExtent:
    """Durations and sizes of a run."""

    seconds: float = 4.0
    warm_seconds: float = 0.5
    rounds: int = 3
    windows: int = 2
    campaigns: int = 100

    @classmethod
    def quick(cls) -> ReplicaExtent:
        """Returns a short check; its figures mean nothing."""
        return cls(seconds=0.3, warm_seconds=0.1, rounds=1, windows=1, campaigns=6)

    @property
    def steps(self) -> int:
        """Returns the number of measurements."""
        return 2 + self.windows * self.rounds * (2 * len(TARGETS) + len(LAW))


class ReplicaBench:
    """One run: servers on one database, and the cases on them."""

    def __init__(self, extent: ReplicaExtent, report: Report, postgres: Postgres, progress: Progress) -> None:
        self._extent, self._report, self._postgres, self._progress = extent, report, postgres, progress
        self._servers: list[Server] = []
        self._loads: dict[str, MeasuredService] = {}
        self._rates: dict[str, float] = {}

    def run(self) -> list[Law]:
        """Measures everything and returns the laws of scaling."""
        extent = self._extent
        with self._started():
            for campaigns in self._loads:
                self._progress(f"what one replica bears, {campaigns}")
                borne = [self._measured(Case(1, campaigns), self._closed)[0].rate for _ in range(extent.rounds)]
                self._rates[campaigns] = median(borne) / 2
            for window in range(extent.windows):
                for round_ in range(extent.rounds):
                    of = f"window {window + 1} of {extent.windows}, round {round_ + 1} of {extent.rounds}"
                    self._round(window, of)
            for load in self._loads.values():
                load.check()
        self._summarise()
        return self._laws()

    @contextmanager
    def _started(self) -> Iterator[None]:
        with ExitStack() as stack:
            url = stack.enter_context(self._postgres.database())
            with psycopg.connect(url) as connection:
                row = connection.execute("SELECT pg_backend_pid()").fetchone()
                assert row is not None, "every session has a process"
                self._postmaster = parent_of(row[0])
            if not self._postmaster:
                raise RuntimeError("the database must run on this machine: its processor time is measured")
            key, cores = None, Cores()
            settings = {"request_deadline_ms": 10_000, "lock_timeout_ms": 5_000}  # nothing is refused
            for _ in range(max(case.replicas for case in [*TARGETS, *LAW])):
                server = stack.enter_context(served(cores, url, key=key, pin=False, **settings))
                self._servers.append(server)
                key = server.key
            self._loads = {
                MANY: MeasuredService(self._servers, campaigns=self._extent.campaigns),
                HOT: MeasuredService(self._servers, prefix="hot"),
            }
            yield

    def _round(self, window: int, of: str) -> None:
        for case in TARGETS:
            self._progress(f"{of}: {case.name}, open loop")
            load, micros = self._measured(case, self._open)
            self._note(window, case, "µs", micros)
            self._note(window, case, "p50", 1000 * load.percentile(50))
            self._note(window, case, "p99", 1000 * load.percentile(99))
        for case in [*TARGETS, *LAW]:
            self._progress(f"{of}: {case.name}, closed loop")
            load, micros = self._measured(case, self._closed)
            self._note(window, case, "decisions a second", load.rate)
            self._note(window, case, "µs, closed loop", micros)

    def _note(self, window: int, case: Case, what: str, value: float) -> None:
        self._report.note(f"{case.name}, window {window + 1}: {what}", value)

    def _measured(self, case: Case, loop: Callable[[Case, float], Load]) -> tuple[Load, float]:
        """Returns the load and the processor time per decision in microseconds."""
        loop(case, self._extent.warm_seconds)
        pids = [server.process.pid for server in self._servers[: case.replicas]]
        before = processor_micros([*pids, *family_of(self._postmaster)])
        load = loop(case, self._extent.seconds)
        used = processor_micros([*pids, *family_of(self._postmaster)]) - before
        self._loads[case.campaigns].settle()
        return load, used / load.statuses[200]

    def _closed(self, case: Case, seconds: float) -> Load:
        load = self._loads[case.campaigns]
        return routed_closed_loop(
            self._ports(case),
            load.calls(),
            self._route(case),
            connections=CLOSED_CONNECTIONS,
            seconds=seconds,
            on_response=load.add,
        ).check()

    def _open(self, case: Case, seconds: float) -> Load:
        load = self._loads[case.campaigns]
        return routed_open_loop(
            self._ports(case),
            load.calls(),
            self._route(case),
            connections=OPEN_CONNECTIONS,
            seconds=seconds,
            rate=self._rates[case.campaigns],
            on_response=load.add,
        ).check()

    def _ports(self, case: Case) -> list[int]:
        return [server.port for server in self._servers[: case.replicas]]

    def _route(self, case: Case) -> Route:
        if not case.affinity:
            return round_robin(case.replicas)
        urls = [server.url for server in self._servers[: case.replicas]]
        return by_campaign(lambda campaign: urls.index(ranked(campaign, urls)[0]))

    def _summarise(self) -> None:
        windows = range(1, self._extent.windows + 1)
        for case, most in TARGETS.items():
            for window in windows:
                name = f"{case.name}, window {window}"
                micros = self._report.middle(f"{name}: µs")
                rate = self._rates[case.campaigns]
                waits = [self._report.middle(f"{name}: {what}") for what in ("p50", "p99")]
                remark = f"at {rate:,.0f} a second; p50 {waits[0]:.1f} ms, p99 {waits[1]:.1f} ms"
                self._report.figures.append(Figure(name, micros, "µs", remark=remark))
                if most is not None:
                    ratio = self._report.ratio(f"{name}: µs", f"{case.base.name}, window {window}: µs")
                    self._report.figures.append(Figure(f"{name} ÷ 1 replica", ratio, most=most))
        for case in [*TARGETS, *LAW]:
            for window in windows:
                name = f"{case.name}, window {window}"
                micros = self._report.middle(f"{name}: µs, closed loop")
                rate = self._report.middle(f"{name}: decisions a second")
                remark = f"{CLOSED_CONNECTIONS} connections, {micros:,.0f} µs each"
                self._report.figures.append(Figure(f"{name}, closed loop", rate, "decisions/s", remark=remark))

    def _laws(self) -> list[Law]:
        laws = []
        for affinity in (True, False):
            cases = sorted({Case(1, MANY), *(each for each in [*TARGETS, *LAW] if each[1:] == (MANY, affinity))})
            for what in ("decisions a second", "µs, closed loop"):
                points = {}
                for case in cases:
                    found = median(
                        value
                        for window in range(1, self._extent.windows + 1)
                        for value in self._report.raw[f"{case.name}, window {window}: {what}"]
                    )
                    points[case.replicas] = found if what[0] == "d" else case.replicas * 1_000_000 / found
                remark = "one machine" if what[0] == "d" else "cores of their own, from processor time"
                laws.append(fitted(f"{MANY}, {'affinity' if affinity else 'round robin'}, {remark}", points))
        return laws
