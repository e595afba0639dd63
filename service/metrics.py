"""Prometheus metrics: counters, gauges and histograms of this process; `service.gauges` has those of the database."""

import platform
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.metadata import version
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from cbwk_core import RULES_VERSION
from service.limits import LABELS_MAX

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_DECIDE_BUCKETS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
# The label of campaigns beyond the first `campaigns_max`.
OTHER = "other"
_DELAY_BUCKETS = (0.1, 1, 5, 15, 60, 300, 900, 3600, 6 * 3600, 86_400, 7 * 86_400)


class Metrics:
    """The metrics of one application, in their own registry."""

    def __init__(self, campaigns_max: int = LABELS_MAX) -> None:
        self.campaigns_max = campaigns_max
        self._campaigns: set[str] = set()
        self.registry = registry = CollectorRegistry()
        counter, gauge = partial(Counter, labelnames=["campaign"], registry=registry), partial(Gauge, registry=registry)
        self.queue_depth = gauge("cbwk_queue_depth", "Commands waiting for a transaction.")
        self.expired_holds = counter("cbwk_expired_holds_total", "Holds that expired without feedback.")
        self.cost_above_hold = counter("cbwk_cost_above_hold_total", "Reported costs above the hold.")
        self.quarantined_updates = counter(
            "cbwk_quarantined_updates_total",
            "Outcomes that were booked but not learnt, because a parameter would not have stayed finite.",
        )
        self.changes_noticed = gauge(
            "cbwk_changes_noticed", "Restarts of the model after a change was detected in the outcomes.", ["campaign"]
        )
        self.alarms_dismissed = gauge(
            "cbwk_alarms_dismissed", "Suspected changes that later outcomes did not confirm.", ["campaign"]
        )
        self.oracle_loss = gauge(
            "cbwk_oracle_loss",
            "Running mean of squared prediction errors, in units of the target's range.",
            ["campaign", "target"],
        )
        self.decide_seconds = Distribution(
            "cbwk_decide_seconds", "Time from a decide request to its response.", _DECIDE_BUCKETS
        )
        self.batch_size = Distribution("cbwk_batch_size", "Commands in one transaction.", _BATCH_BUCKETS)
        self.feedback_delay_seconds = Distribution(
            "cbwk_feedback_delay_seconds", "Time from a decision to its reported costs.", _DELAY_BUCKETS
        )
        self._requests = _Counts(
            "cbwk_requests", "Requests answered, by route and status.", ("method", "route", "status")
        )
        self._decisions = _Counts(
            "cbwk_decisions", "Decisions made, in batches too; repeated requests do not count.", ("campaign", "reason")
        )
        distributions = (self.decide_seconds, self.batch_size, self.feedback_delay_seconds)
        for collector in (*distributions, self._requests, self._decisions):
            registry.register(collector)
        build = gauge("cbwk_build_info", "1, with what runs as labels.", ["version", "python", "rules"])
        build.labels(version("cbwk"), platform.python_version(), str(RULES_VERSION)).set(1)
        ProcessCollector(registry=registry)

    def count_request(self, method: str, route: str, status: int) -> None:
        """Count one answered request; only the event loop calls this."""
        self._requests.add((method, route, str(status)), 1)

    def count_decisions(self, campaign_id: str, reason: str, count: int) -> None:
        """Count decisions; only the engine's thread calls this."""
        self._decisions.add((self.label(campaign_id), reason), count)

    def label(self, campaign_id: str) -> str:
        """Return the label of a campaign: its id for the first `campaigns_max`; the engine's thread only."""
        if campaign_id in self._campaigns:
            return campaign_id
        if len(self._campaigns) >= self.campaigns_max:
            return OTHER
        self._campaigns.add(campaign_id)
        return campaign_id

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


class _Counts(Collector):
    """A counter with labels that one thread updates and any thread reads."""

    def __init__(self, name: str, documentation: str, labels: Sequence[str]) -> None:
        self._name, self._documentation, self._labels = name, documentation, labels
        self._counts: dict[tuple[str, ...], int] = {}

    def add(self, values: tuple[str, ...], count: int) -> None:
        """Add to the count of these values of the labels."""
        self._counts[values] = self._counts.get(values, 0) + count

    def collect(self) -> Iterator[Metric]:
        """Yield the counts by their labels."""
        family = CounterMetricFamily(self._name, self._documentation, labels=self._labels)
        for values, count in [*self._counts.items()]:
            family.add_metric(values, count)
        yield family
