"""What Prometheus sees. Counters and histograms are moved by whoever does the work; budgets are read at each scrape."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from service.money import ONE

if TYPE_CHECKING:
    from service.reads import Gauges

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

log = structlog.get_logger(__name__)

_DECIDE_BUCKETS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_DELAY_BUCKETS = (0.1, 1, 5, 15, 60, 300, 900, 3600, 6 * 3600, 86_400, 7 * 86_400)


class Metrics:
    """The metrics of one application, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.decide_seconds = Distribution(
            "cbwk_decide_seconds", "Time from a decide request to its answer.", _DECIDE_BUCKETS
        )
        self.batch_size = Distribution("cbwk_batch_size", "Commands in one transaction.", _BATCH_BUCKETS)
        self.queue_depth = Gauge("cbwk_queue_depth", "Commands that wait for a transaction.", registry=self.registry)
        self.expired_holds = Counter(
            "cbwk_expired_holds_total", "Holds whose feedback never came.", ["campaign"], registry=self.registry
        )
        self.feedback_delay_seconds = Distribution(
            "cbwk_feedback_delay_seconds", "Time from a decision to its costs.", _DELAY_BUCKETS
        )
        self.oracle_loss = Gauge(
            "cbwk_oracle_loss",
            "Running mean of squared prediction errors, in units of the target's range.",
            ["campaign", "target"],
            registry=self.registry,
        )
        self.changes_noticed = Gauge(
            "cbwk_changes_noticed",
            "How often the model has begun anew because outcomes said that the world has changed.",
            ["campaign"],
            registry=self.registry,
        )
        self.quarantined_updates = Counter(
            "cbwk_quarantined_updates_total",
            "Outcomes that were booked and not learnt, since a parameter would not have stayed finite.",
            ["campaign"],
            registry=self.registry,
        )
        self.cost_above_hold = Counter(
            "cbwk_cost_above_hold_total", "Reported costs above the hold.", ["campaign"], registry=self.registry
        )
        self._requests = _Requests()
        for collector in (self.decide_seconds, self.batch_size, self.feedback_delay_seconds, self._requests):
            self.registry.register(collector)
        ProcessCollector(registry=self.registry)

    def count_request(self, method: str, route: str, status: int) -> None:
        """Count one answered request; in the event loop."""
        counts, name = self._requests.counts, (method, route, status)
        counts[name] = counts.get(name, 0) + 1

    def read_budgets_from(self, read: Callable[[], Gauges]) -> None:
        """Collect accounts, holds and prices with this function at every scrape."""
        self.registry.register(_FromDatabase(read))

    def text(self) -> bytes:
        """The exposition; it reads the database, so it belongs in a thread."""
        return generate_latest(self.registry)


class Distribution(Collector):
    """A histogram that one thread alone moves, for every request; any may read it.

    The library's own is for several threads, and its three locks take longer than what it counts.
    """

    def __init__(self, name: str, documentation: str, bounds: Sequence[float]) -> None:
        self._name, self._documentation, self._bounds = name, documentation, bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value, in the first bucket whose bound it does not exceed."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def collect(self) -> Iterator[Metric]:
        """How many values are at most each bound."""
        names = [*map(floatToGoString, self._bounds), "+Inf"]
        buckets = [*zip(names, accumulate([*self._counts]), strict=True)]
        yield HistogramMetricFamily(self._name, self._documentation, buckets=buckets, sum_value=self._sum)


class _Requests(Collector):
    """Answered requests, counted by the event loop alone."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str, int], int] = {}

    def collect(self) -> Iterator[Metric]:
        """By route and status."""
        family = CounterMetricFamily(
            "cbwk_requests", "Requests answered, by route and status.", labels=["method", "route", "status"]
        )
        for (method, route, status), count in [*self.counts.items()]:
            family.add_metric([method, route, str(status)], count)
        yield family


class _FromDatabase(Collector):
    """Gauges that are columns of the database: the same on every replica, and right after a restart."""

    def __init__(self, read: Callable[[], Gauges]) -> None:
        self._read = read

    def describe(self) -> Iterable[Metric]:
        """Nothing is read when it is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Accounts, open holds and prices; without a database the process still shows the rest."""
        up = GaugeMetricFamily("cbwk_database_up", "Whether the database answered this scrape.")
        try:
            found = self._read()
        except Exception:
            log.exception("the scrape could not read the database")
            up.add_metric([], 0)
            yield up
            return
        up.add_metric([], 1)
        yield up
        for part in ("granted", "held", "spent", "overrun"):
            family = GaugeMetricFamily(
                f"cbwk_budget_{part}_units", f"Budget {part}, in units.", labels=["campaign", "resource"]
            )
            for account in found.accounts:
                family.add_metric([account.campaign_id, account.resource], getattr(account, part) / ONE)
            yield family
        holds = GaugeMetricFamily("cbwk_open_holds", "Decisions that wait for feedback.", labels=["campaign"])
        for campaign_id, count in found.open_holds.items():
            holds.add_metric([campaign_id], count)
        yield holds
        quoted = GaugeMetricFamily(
            "cbwk_price", "Price of a unit at the last decision, in reward.", labels=["campaign", "resource"]
        )
        for (campaign_id, resource), price in found.prices.items():
            quoted.add_metric([campaign_id, resource], price)
        yield quoted
