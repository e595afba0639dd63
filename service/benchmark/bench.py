"""The run of `cbwk bench`: what is measured, in which order, and what it is compared with.

Whatever becomes a ratio is measured in rounds, ours and the other by turns, and the median over the rounds counts: the
speed of a shared machine changes by the minute.
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

from service.benchmark import work
from service.benchmark.figures import Figure, Report
from service.benchmark.load import Load, closed_loop
from service.benchmark.postgres import Postgres
from service.benchmark.processes import Cores, baseline, pinned, served
from service.benchmark.subject import BATCH, CONNECTIONS, Subject

Say = Callable[[str], None]
Sizes = dict[str, int]

# Parts of the long log after which memory is read.
PARTS = 10
READS = 20


@dataclass(frozen=True)
class Extent:
    """How long and how much."""

    seconds: float = 5.0
    rounds: int = 5
    decisions: int = 1_000_000
    holds: int = 100_000
    campaigns: int = 1_000
    replica_campaigns: int = 100

    @classmethod
    def quick(cls) -> Extent:
        """To see that it works: its figures say nothing."""
        return cls(seconds=0.3, rounds=1, decisions=2_000, holds=200, campaigns=3, replica_campaigns=2)


@dataclass(frozen=True)
class Bench:
    """One run."""

    extent: Extent
    report: Report
    cores: Cores
    postgres: Postgres | None
    say: Say

    def run(self) -> None:
        """Measure everything."""
        with pinned(self.cores):
            self.against_the_baseline()
            self.growth()
            self.with_a_long_log()
            self.replicas()

    @contextmanager
    def subject(self, url: str | None = None, replicas: int = 1, sizes: Sizes | None = None) -> Iterator[Subject]:
        """Servers on a database of their own: SQLite unless it is told another."""
        with tempfile.TemporaryDirectory(prefix="cbwk-bench-") as folder, ExitStack() as stack:
            url = url or f"sqlite:///{folder}/cbwk.db"
            first = stack.enter_context(served(self.cores, url, request_deadline_ms=10_000))
            more = [
                stack.enter_context(served(self.cores, url, key=first.key, request_deadline_ms=10_000))
                for _ in range(replicas - 1)
            ]
            yield Subject([first, *more], **(sizes or {}))

    def against_the_baseline(self) -> None:
        """The ratios to an empty handler."""
        extent, report = self.extent, self.report
        with ExitStack() as stack:
            plain = stack.enter_context(baseline(self.cores))
            lite = stack.enter_context(self.subject())
            other = None
            if self.postgres is not None:
                other = stack.enter_context(self.subject(stack.enter_context(self.postgres.database())))

            def empty(connections: int = CONNECTIONS) -> Load:
                return closed_loop([plain.port], lite.calls(), connections=connections, seconds=extent.seconds).check()

            for turn in range(extent.rounds):
                self.say(f"against the baseline, round {turn + 1} of {extent.rounds}")
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

    def growth(self) -> None:
        """Throughput in larger cases over that of the ordinary one."""
        extent, report = self.extent, self.report
        cases: dict[str, tuple[Sizes, float | None]] = {
            "K = 100 arms": ({"arms": 100}, 0.4),
            "K = 1,000 arms": ({"arms": 1000}, None),
            "m = 100 features": ({"numbers": 100 - work.CATEGORIES - work.HASHES}, 0.4),
            f"{extent.campaigns:,} campaigns": ({"campaigns": extent.campaigns}, 0.4),
        }
        with self.subject() as ordinary:
            for name, (sizes, least) in cases.items():
                self.say(f"growth: {name}")
                with self.subject(sizes=sizes) as larger:
                    self._by_turns(name, ordinary, larger)
                report.figures.append(Figure(f"{name} ÷ base case", report.ratio(name, f"{name}, base"), least=least))
            name = f"{extent.holds:,} open holds"
            self.say(f"growth: {name}")
            with self.subject() as larger:
                before = larger.server.memory_bytes()
                while len(larger.open) < extent.holds:
                    larger.batches(min(1.0, extent.seconds))
                each = (larger.server.memory_bytes() - before) / len(larger.open)
                self._by_turns(name, ordinary, larger)
        report.figures.append(Figure(f"{name} ÷ base case", report.ratio(name, f"{name}, base"), least=0.4))
        report.figures.append(Figure("memory per open hold", max(0.0, each), "bytes", most=1024.0))

    def _by_turns(self, name: str, ordinary: Subject, larger: Subject) -> None:
        for _ in range(self.extent.rounds):
            self.report.note(f"{name}, base", ordinary.decide(self.extent.seconds).rate)
            self.report.note(name, larger.decide(self.extent.seconds).rate)
            ordinary.settle()

    def with_a_long_log(self) -> None:
        """Start, memory, size and reading with very many decisions and outcomes."""
        extent, report = self.extent, self.report
        total = f"{extent.decisions:,} decisions"
        with tempfile.TemporaryDirectory(prefix="cbwk-bench-") as folder:
            path = Path(folder, "cbwk.db")
            url = f"sqlite:///{path}"
            with served(self.cores, url, request_deadline_ms=60_000) as server:
                subject = Subject([server], campaigns=extent.campaigns)
                for part in range(PARTS):
                    self.say(f"{total} in the log: {100 * part // PARTS} %")
                    subject.fill(extent.decisions // PARTS)
                    report.note("memory while the log grows", server.memory_bytes())
                self._read_while_deciding(subject)
            sizes = report.raw["memory while the log grows"]
            report.figures.append(Figure(f"memory after {total} ÷ after a fifth", sizes[-1] / sizes[1], most=1.1))
            report.figures.append(_bytes_each(path))
            self.say(f"start with {total}")
            with served(self.cores, url) as server:
                report.figures.append(Figure(f"start with {total}", server.ready_seconds, "s", most=3.0))

    def _read_while_deciding(self, subject: Subject) -> None:
        report, look = self.report, subject.budgets()
        for _ in range(self.extent.rounds):
            report.note("budgets", 1000 * subject.read(look, READS).percentile(50))
            report.note("decide, nobody reading", subject.decide(self.extent.seconds).rate)
            report.note("decide, somebody reading", subject.decide(self.extent.seconds, beside=look).rate)
            subject.settle()
        name = f"GET /admin/budgets, {self.extent.campaigns:,} campaigns"
        report.figures.append(Figure(name, report.middle("budgets"), "ms", most=100.0))
        ratio = report.ratio("decide, somebody reading", "decide, nobody reading")
        report.figures.append(Figure("/decide beside a reader of budgets", ratio, least=0.9, remark="once a second"))

    def replicas(self) -> None:
        """Several processes on one PostgreSQL."""
        if self.postgres is None:
            return
        for campaigns in (1, self.extent.replica_campaigns):
            for replicas in (1, 2, 3):
                name = f"{replicas} on PostgreSQL, {campaigns} campaign{'s' if campaigns > 1 else ''}"
                self.say(name)
                with (
                    self.postgres.database() as url,
                    self.subject(url, replicas, {"campaigns": campaigns}) as subject,
                ):
                    rate = subject.decide(self.extent.seconds).rate
                    subject.settle()
                    subject.check()
                remark = "accounts are right; all share one core"
                self.report.figures.append(Figure(name, rate, "decisions/s", remark=remark))


def _one_by_one(report: Report, lite: Subject, empty: Callable[[], Load], seconds: float) -> None:
    """Decisions, outcomes and pairs, with a baseline before each."""
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


def _bytes_each(path: Path) -> Figure:
    """Of the log alone: snapshots do not grow with it, and their share depends on how many campaigns there are."""
    with closing(sqlite3.connect(path)) as connection:
        (rows,) = connection.execute("SELECT count(*) FROM decision").fetchone()
        kept = [size for (size,) in connection.execute("SELECT length(data) FROM snapshot")]
    each = (path.stat().st_size - sum(kept)) / rows - mean(map(len, work.contexts()))
    remark = f"without {len(kept):,} snapshots, {sum(kept) / 1e6:,.0f} MB"
    return Figure("database, decision + outcome beyond the context", each, "bytes", most=600.0, remark=remark)


def machine() -> dict[str, Any]:
    """Where it was measured."""
    return {"python": platform.python_version(), "cores": os.cpu_count(), "processor": platform.machine()}
