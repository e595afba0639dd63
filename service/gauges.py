"""Prometheus gauges that are read from the database: the same on every replica, and correct after a restart."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import structlog
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service import reads
from service.money import ONE
from service.store.database import Database

log = structlog.get_logger(__name__)


class DatabaseGauges(Collector):
    """Accounts, open holds and prices of campaigns that are not archived; the age of the oldest overdue hold."""

    def __init__(self, database: Callable[[], Database | None]) -> None:
        self._database = database

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registration does not read the database."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield `cbwk_database_up` and, if the database answers, its gauges."""
        database, found, up = self._database(), reads.Gauges([], {}, {}), True
        try:
            if database is not None:
                with database.read() as connection:
                    found = reads.gauges(connection)
        except Exception:
            log.exception("a scrape could not read the database")
            up = False
        yield _gauge("cbwk_database_up", "Whether the database answered this scrape.", (), [((), up)])
        if up:
            yield from _families(found)


def _families(found: reads.Gauges) -> Iterator[Metric]:
    by_resource = ("campaign", "resource")
    for part in ("granted", "held", "spent", "overrun"):
        amounts = [
            ((account.campaign_id, account.resource), getattr(account, part) / ONE) for account in found.accounts
        ]
        yield _gauge(f"cbwk_budget_{part}_units", f"Budget {part}, in units.", by_resource, amounts)
    holds = [((campaign,), count) for campaign, count in found.open_holds.items()]
    yield _gauge("cbwk_open_holds", "Decisions waiting for feedback.", ("campaign",), holds)
    text = "How long ago the oldest hold should have expired."
    yield _gauge("cbwk_overdue_hold_seconds", text, (), [((), found.overdue_seconds)])
    text = "Price of a unit at the last decision, in reward."
    yield _gauge("cbwk_price", text, by_resource, found.prices.items())


def _gauge(
    name: str, documentation: str, labels: Sequence[str], samples: Iterable[tuple[Sequence[str], float]]
) -> Metric:
    """Return a gauge with one value per combination of labels."""
    family = GaugeMetricFamily(name, documentation, labels=labels)
    for values, sample in samples:
        family.add_metric(values, sample)
    return family
