"""Prometheus metrics: counters and histograms of this process, and gauges read from the database at each scrape."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

log = structlog.get_logger(__name__)

_DECIDE_BUCKETS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_DELAY_BUCKETS = (0.1, 1, 5, 15, 60, 300, 900, 3600, 6 * 3600, 86_400, 7 * 86_400)


class Metrics:
    """The metrics of one application, in their own registry."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.queue_depth = Gauge("cbwk_queue_depth", "Commands waiting for a transaction.", registry=registry)
        self.expired_holds = Counter(
            "cbwk_expired_holds_total", "Holds that expired without feedback.", ["campaign"], registry=registry
        )
        self.cost_above_hold = Counter(
            "cbwk_cost_above_hold_total", "Reported costs above the hold.", ["campaign"], registry=registry
        )
        self.quarantined_updates = Counter(
            "cbwk_quarantined_updates_total",
            "Outcomes that were booked but not learnt, because a parameter would not have stayed finite.",
            ["campaign"],
            registry=registry,
        )
        self.changes_noticed = Gauge(
            "cbwk_changes_noticed",
            "Restarts of the model after a change was detected in the outcomes.",
            ["campaign"],
            registry=registry,
        )
        self.oracle_loss = Gauge(
            "cbwk_oracle_loss",
            "Running mean of squared prediction errors, in units of the target's range.",
            ["campaign", "target"],
            registry=registry,
        )
        self.decide_seconds = Distribution(
            "cbwk_decide_seconds", "Time from a decide request to its response.", _DECIDE_BUCKETS
        )
        self.batch_size = Distribution("cbwk_batch_size", "Commands in one transaction.", _BATCH_BUCKETS)
        self.feedback_delay_seconds = Distribution(
            "cbwk_feedback_delay_seconds", "Time from a decision to its reported costs.", _DELAY_BUCKETS
        )
        self._requests = _Requests()
        for collector in (self.decide_seconds, self.batch_size, self.feedback_delay_seconds, self._requests):
            registry.register(collector)
        ProcessCollector(registry=registry)

    def count_request(self, method: str, route: str, status: int) -> None:
        """Count one answered request; only the event loop calls this."""
        counts, name = self._requests.counts, (method, route, status)
        counts[name] = counts.get(name, 0) + 1

    def read_gauges_with(self, read: Callable[[], Iterable[Metric]]) -> None:
        """Collect the gauges of the database with this function at every scrape."""
        self.registry.register(_DatabaseGauges(read))

    def text(self) -> bytes:
        """Return the metrics as text; reads the database, so it must run in a thread."""
        return generate_latest(self.registry)


class Distribution(Collector):
    """A histogram that one thread updates and any thread reads.

    The histogram of prometheus_client takes three locks per value, longer than the update itself.
    """

    def __init__(self, name: str, documentation: str, bounds: Sequence[float]) -> None:
        self._name, self._documentation, self._bounds = name, documentation, bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value in the first bucket whose bound it does not exceed."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def collect(self) -> Iterator[Metric]:
        """Yield the number of values up to each bound."""
        names = [*map(floatToGoString, self._bounds), "+Inf"]
        buckets = [*zip(names, accumulate([*self._counts]), strict=True)]
        yield HistogramMetricFamily(self._name, self._documentation, buckets=buckets, sum_value=self._sum)


class _Requests(Collector):
    """Counts of answered requests; only the event loop updates them."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str, int], int] = {}

    def collect(self) -> Iterator[Metric]:
        """Yield the counts by method, route and status."""
        family = CounterMetricFamily(
            "cbwk_requests", "Requests answered, by route and status.", labels=["method", "route", "status"]
        )
        for (method, route, status), count in [*self.counts.items()]:
            family.add_metric([method, route, str(status)], count)
        yield family


class _DatabaseGauges(Collector):
    """Gauges read from the database: the same on every replica, and correct after a restart."""

    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registration does not read the database."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield `cbwk_database_up` and, if the database answers, its gauges."""
        gauges: list[Metric] | None = None
        try:
            gauges = [*self._read()]
        except Exception:
            log.exception("a scrape could not read the database")
        yield gauge("cbwk_database_up", "Whether the database answered this scrape.", (), [((), gauges is not None)])
        yield from gauges or ()


def gauge(
    name: str, documentation: str, labels: Sequence[str], samples: Iterable[tuple[Sequence[str], float]]
) -> Metric:
    """Return a gauge with one value per combination of labels."""
    family = GaugeMetricFamily(name, documentation, labels=labels)
    for values, sample in samples:
        family.add_metric(values, sample)
    return family
