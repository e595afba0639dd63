"""One run of `cbwk bench`: the measurements, their order and their comparisons.

Ratios are medians over rounds that alternate between the two sides: the speed of a shared machine changes by the
minute.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from service.benchmark import workload
from service.benchmark.figures import Figure, Report
from service.benchmark.load import Load, closed_loop
from service.benchmark.measured_service import BATCH, CONNECTIONS, MeasuredService
from service.benchmark.postgres import Postgres
from service.benchmark.processes import Cores, baseline, pinned, served

Announce = Callable[[str], None]
Sizes = dict[str, Any]

# Memory is read after each of these steps of the long log.
LOG_STEPS = 10
READS = 20


@dataclass(frozen=True)
class Extent:
    """Durations and sizes of a run."""

    seconds: float = 5.0
    rounds: int = 5
    decisions: int = 1_000_000
    holds: int = 100_000
    campaigns: int = 1_000
    replica_campaigns: int = 100
    portfolio_campaigns: int = 20

    @classmethod
    def quick(cls) -> Extent:
        """Returns a short check; its figures mean nothing."""
        return cls(
            seconds=0.3, rounds=1, decisions=2_000, holds=200, campaigns=3, replica_campaigns=2, portfolio_campaigns=2
        )


@dataclass(frozen=True)
class Bench:
    """One run of the benchmark."""

    extent: Extent
    report: Report
    cores: Cores
    postgres: Postgres | None
    announce: Announce

    def run(self) -> None:
        """Measures everything."""
        with pinned(self.cores):
            self.compare_with_baseline()
            self.measure_growth()
            self.measure_portfolio()
            self.measure_long_log()
            self.measure_replicas()

    @contextmanager
    def service(
        self, url: str | None = None, replicas: int = 1, sizes: Sizes | None = None
    ) -> Iterator[MeasuredService]:
        """Starts servers on a new SQLite database, or on the database of the URL."""
        with tempfile.TemporaryDirectory(prefix="cbwk-bench-") as folder, ExitStack() as stack:
            url = url or f"sqlite:///{folder}/cbwk.db"
            first = stack.enter_context(served(self.cores, url, request_deadline_ms=10_000))
            more = [
                stack.enter_context(served(self.cores, url, key=first.key, request_deadline_ms=10_000))
                for _ in range(replicas - 1)
            ]
            yield MeasuredService([first, *more], **(sizes or {}))

    def compare_with_baseline(self) -> None:
        """Measures the ratios to an empty handler."""
        extent, report = self.extent, self.report
        with ExitStack() as stack:
            empty_server = stack.enter_context(baseline(self.cores))
            lite = stack.enter_context(self.service())
            other = None
            if self.postgres is not None:
                other = stack.enter_context(self.service(stack.enter_context(self.postgres.database())))

            def empty(connections: int = CONNECTIONS) -> Load:
                return closed_loop(
                    [empty_server.port], lite.calls(), connections=connections, seconds=extent.seconds
                ).check()

            for index in range(extent.rounds):
                self.announce(f"against the baseline, round {index + 1} of {extent.rounds}")
                _one_by_one(report, lite, empty, extent.seconds)
                if other is not None:
                    report.note("baseline beside PostgreSQL", empty().rate)
                    report.note("decide, PostgreSQL", other.decide(extent.seconds).rate)
                    other.settle()
                report.note("baseline beside batches", empty().rate)
                report.note("batch", lite.batches(extent.seconds).rate * BATCH)
                lite.settle()
                report.note("baseline p50, one connection", empty(1).percentile(50))
                report.note("decide p50, one connection", lite.decide(extent.seconds, 1).percentile(50))
                half = lite.decide_at(report.raw["decide"][-1] / 2, extent.seconds)
                report.note("half load p99", 1000 * half.percentile(99))
                report.note("half load p99.9", 1000 * half.percentile(99.9))
        report.figures += _ratios(report)

    def measure_growth(self) -> None:
        """Measures the throughput of larger cases relative to the base case."""
        extent, report = self.extent, self.report
        cases: dict[str, tuple[Sizes, float | None]] = {
            "K = 100 arms": ({"arms": 100}, 0.4),
            "K = 1,000 arms": ({"arms": 1000}, None),
            "m = 100 features": ({"numbers": 100 - workload.CATEGORIES - workload.HASHES}, 0.4),
            f"{extent.campaigns:,} campaigns": ({"campaigns": extent.campaigns}, 0.4),
        }
        with self.service() as base:
            for name, (sizes, least) in cases.items():
                self.announce(f"growth: {name}")
                with self.service(sizes=sizes) as larger:
                    self._alternate(name, base, larger)
                report.figures.append(Figure(f"{name} ÷ base case", report.ratio(name, f"{name}, base"), least=least))
            name = f"{extent.holds:,} open holds"
            self.announce(f"growth: {name}")
            with self.service() as larger:
                before = larger.server.memory_bytes()
                while len(larger.open) < extent.holds:
                    larger.batches(min(1.0, extent.seconds))
                each = (larger.server.memory_bytes() - before) / len(larger.open)
                self._alternate(name, base, larger)
        report.figures.append(Figure(f"{name} ÷ base case", report.ratio(name, f"{name}, base"), least=0.4))
        report.figures.append(Figure("memory per open hold", max(0.0, each), "bytes", most=1024.0))

    def _alternate(self, name: str, base: MeasuredService, larger: MeasuredService) -> None:
        for _ in range(self.extent.rounds):
            self.report.note(f"{name}, base", base.decide(self.extent.seconds).rate)
            self.report.note(name, larger.decide(self.extent.seconds).rate)
            base.settle()

    def measure_portfolio(self) -> None:
        """Measures a hot portfolio, and the campaigns outside it, against as many campaigns without portfolio."""
        report, count = self.report, self.extent.portfolio_campaigns
        databases: list[str | None] = [None]
        with ExitStack() as stack:
            if self.postgres is not None:
                databases.append(stack.enter_context(self.postgres.database()))
            for url in databases:
                kind = "SQLite" if url is None else "PostgreSQL"
                names = [f"{part}, {kind}" for part in ("portfolio", "beside a portfolio", "without")]
                self.announce(f"a hot portfolio of {count} campaigns, {kind}")
                with self.service(url, sizes={"campaigns": count, "portfolio": count}) as both:
                    plain = stack.enter_context(self.service(sizes={"campaigns": count})) if url is None else both
                    for _ in range(self.extent.rounds):
                        report.note(names[0], both.decide_members(self.extent.seconds).rate)
                        report.note(names[1], both.decide(self.extent.seconds).rate)
                        report.note(names[2], plain.decide(self.extent.seconds).rate)
                        both.settle()
                    both.check()
                rate = f"{report.middle(names[0]):,.0f} a second"
                name = f"a hot portfolio of {count} campaigns ÷ as many outside it, {kind}"
                report.figures.append(Figure(name, report.ratio(names[0], names[1]), remark=rate))
                if url is None:
                    name = "campaigns beside a portfolio ÷ without one, SQLite"
                    report.figures.append(Figure(name, report.ratio(names[1], names[2]), least=0.97))

    def measure_long_log(self) -> None:
        """Measures start, memory, size and reads with a long log."""
        extent, report = self.extent, self.report
        total = f"{extent.decisions:,} decisions"
        with tempfile.TemporaryDirectory(prefix="cbwk-bench-") as folder:
            path = Path(folder, "cbwk.db")
            url = f"sqlite:///{path}"
            with served(self.cores, url, request_deadline_ms=60_000) as server:
                service = MeasuredService([server], campaigns=extent.campaigns)
                for step in range(LOG_STEPS):
                    self.announce(f"{total} in the log: {100 * step // LOG_STEPS} %")
                    service.fill(extent.decisions // LOG_STEPS)
                    report.note("memory while the log grows", server.memory_bytes())
                self._read_while_deciding(service)
            sizes = report.raw["memory while the log grows"]
            report.figures.append(Figure(f"memory after {total} ÷ after a fifth", sizes[-1] / sizes[1], most=1.1))
            report.figures.append(_bytes_per_decision(path))
            self.announce(f"start with {total}")
            with served(self.cores, url) as server:
                report.figures.append(Figure(f"start with {total}", server.ready_seconds, "s", most=3.0))

    def _read_while_deciding(self, service: MeasuredService) -> None:
        report, budgets = self.report, service.budgets()
        for _ in range(self.extent.rounds):
            report.note("budgets", 1000 * service.read(budgets, READS).percentile(50))
            report.note("decide, nobody reading", service.decide(self.extent.seconds).rate)
            report.note("decide, somebody reading", service.decide(self.extent.seconds, beside=budgets).rate)
            service.settle()
        name = f"GET /admin/budgets, {self.extent.campaigns:,} campaigns"
        report.figures.append(Figure(name, report.middle("budgets"), "ms", most=100.0))
        ratio = report.ratio("decide, somebody reading", "decide, nobody reading")
        report.figures.append(Figure("/decide beside a reader of budgets", ratio, least=0.9, remark="once a second"))

    def measure_replicas(self) -> None:
        """Measures several processes on one PostgreSQL."""
        if self.postgres is None:
            return
        for campaigns in (1, self.extent.replica_campaigns):
            for replicas in (1, 2, 3):
                name = f"{replicas} on PostgreSQL, {campaigns} campaign{'s' if campaigns > 1 else ''}"
                self.announce(name)
                with (
                    self.postgres.database() as url,
                    self.service(url, replicas, {"campaigns": campaigns}) as service,
                ):
                    rate = service.decide(self.extent.seconds).rate
                    service.settle()
                    service.check()
                remark = "accounts are right; all share one core"
                self.report.figures.append(Figure(name, rate, "decisions/s", remark=remark))


def _one_by_one(report: Report, lite: MeasuredService, empty: Callable[[], Load], seconds: float) -> None:
    """Measures decisions, outcomes and pairs, with a baseline before each."""
    base, before = empty(), len(lite.open)
    ours = lite.decide(seconds)
    for name, load in (("baseline", base), ("decide", ours)):
        report.note(name, load.rate)
        report.note(f"{name} p99", load.percentile(99))
        report.note(f"{name}, generator busy", load.busy)
    report.note("arms", (len(lite.open) - before) / ours.statuses[200])
    report.note("baseline beside feedback", empty().rate)
    report.note("feedback", lite.feedback(seconds).rate)
    report.note("baseline beside pairs", empty().rate)
    decided = lite.decide(seconds / 2)
    settled = lite.feedback(10 * seconds)
    report.note("pairs", settled.statuses[200] / (decided.seconds + settled.seconds))


def _ratios(report: Report) -> Iterator[Figure]:
    busy = max(report.middle("baseline, generator busy"), report.middle("decide, generator busy"))
    yield Figure("load generator's share of its core", busy, most=0.9, remark="it is not what limits")
    yield Figure("decisions for an arm, not null", report.middle("arms"), least=0.8)
    rate = f"{report.middle('decide'):,.0f} a second"
    yield Figure("/decide, SQLite ÷ baseline", report.ratio("decide", "baseline"), least=1.2, remark=rate)
    if "decide, PostgreSQL" in report.raw:
        ratio = report.ratio("decide, PostgreSQL", "baseline beside PostgreSQL")
        yield Figure("/decide, PostgreSQL ÷ baseline", ratio, least=1.0)
    yield Figure("/feedback, SQLite ÷ baseline", report.ratio("feedback", "baseline beside feedback"), least=1.0)
    yield Figure("decide + feedback pairs ÷ baseline", report.ratio("pairs", "baseline beside pairs"), least=0.5)
    yield Figure("/decide/batch, decisions ÷ baseline", report.ratio("batch", "baseline beside batches"), least=6.0)
    yield Figure("p99 of /decide ÷ baseline, 64 connections", report.ratio("decide p99", "baseline p99"), most=2.5)
    one = report.ratio("decide p50, one connection", "baseline p50, one connection")
    yield Figure("p50 of /decide ÷ baseline, one connection", one, most=3.0)
    yield Figure("p99 at half load, open loop", report.middle("half load p99"), "ms", most=10.0)
    yield Figure("p99.9 at half load, open loop", report.middle("half load p99.9"), "ms", most=30.0)


def _bytes_per_decision(path: Path) -> Figure:
    """Measures the log alone: snapshots do not grow with it, and their share depends on the number of campaigns."""
    with closing(sqlite3.connect(path)) as connection:
        (rows,) = connection.execute("SELECT count(*) FROM decision").fetchone()
        snapshots = [size for (size,) in connection.execute("SELECT length(data) FROM snapshot")]
    each = (path.stat().st_size - sum(snapshots)) / rows - mean(map(len, workload.contexts()))
    remark = f"without {len(snapshots):,} snapshots, {sum(snapshots) / 1e6:,.0f} MB"
    return Figure("database, decision + outcome beyond the context", each, "bytes", most=600.0, remark=remark)


def machine() -> dict[str, Any]:
    """Returns a description of this machine."""
    return {"python": platform.python_version(), "cores": os.cpu_count(), "processor": platform.machine()}
