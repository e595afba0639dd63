"""Prometheus gauges that are read from the database: the same on every replica, and correct after a restart."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import structlog
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service import reads
from service.metrics import OTHER
from service.money import ONE
from service.store.database import Database

log = structlog.get_logger(__name__)


class DatabaseGauges(Collector):
    """Accounts, windows, open holds and prices of campaigns that are not archived; accounts and windows of portfolios;
    the oldest overdue hold.

    The oldest `campaigns_max` campaigns and as many portfolios have labels of their own; amounts of the others are
    added up as `OTHER`.
    """

    def __init__(self, database: Callable[[], Database | None], campaigns_max: int) -> None:
        self._database, self._campaigns_max = database, campaigns_max

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registration does not read the database."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield `cbwk_database_up` and, if the database answers, its gauges."""
        database, found, up = self._database(), reads.Gauges.nothing(), True
        try:
            if database is not None:
                with database.read() as connection:
                    found = reads.gauges(connection)
        except Exception:
            log.exception("a scrape could not read the database")
            up = False
        yield _gauge("cbwk_database_up", "Whether the database answered this scrape.", (), [((), up)])
        if up:
            yield from _families(found, self._campaigns_max)


def _families(found: reads.Gauges, campaigns_max: int) -> Iterator[Metric]:
    by_resource = ("campaign", "resource")
    named = {*islice(found.open_holds, campaigns_max)}

    def label(campaign_id: str) -> str:
        return campaign_id if campaign_id in named else OTHER

    for part in ("granted", "held", "spent", "overrun"):
        amounts = _sums(((label(one.owner_id), one.resource), getattr(one, part)) for one in found.accounts)
        yield _gauge(f"cbwk_budget_{part}_units", f"Budget {part}, in units.", by_resource, _units(amounts))
    for part in ("limit", "held", "spent"):
        amounts = _sums(((label(one.owner_id), *one[1:3]), getattr(one, part)) for one in found.windows)
        text = f"Of a window in its present period: {part}, in units."
        yield _gauge(f"cbwk_window_{part}_units", text, (*by_resource, "period"), _units(amounts))
    yield from _portfolios(found.portfolios, campaigns_max)
    holds = _sums(((label(campaign),), count) for campaign, count in found.open_holds.items())
    yield _gauge("cbwk_open_holds", "Decisions waiting for feedback.", ("campaign",), holds.items())
    text = "How long ago the oldest hold should have expired."
    yield _gauge("cbwk_overdue_hold_seconds", text, (), [((), found.overdue_seconds)])
    text = "Price of a unit at the last decision, in reward."
    prices = [(of, price) for of, price in found.prices.items() if of[0] in named]
    yield _gauge("cbwk_price", text, by_resource, prices)


def _portfolios(found: reads.PortfolioGauges, portfolios_max: int) -> Iterator[Metric]:
    named = {*islice(dict.fromkeys(one.owner_id for one in found.accounts), portfolios_max)}
    by_resource = ("portfolio", "resource")

    def label(portfolio_id: str) -> str:
        return portfolio_id if portfolio_id in named else OTHER

    for part in ("granted", "held", "spent", "overrun"):
        amounts = _sums(((label(one.owner_id), one.resource), getattr(one, part)) for one in found.accounts)
        yield _gauge(f"cbwk_portfolio_{part}_units", f"Portfolio {part}, in units.", by_resource, _units(amounts))
    for part in ("limit", "held", "spent"):
        amounts = _sums(((label(one.owner_id), *one[1:3]), getattr(one, part)) for one in found.windows)
        text = f"Of a portfolio's window in its present period: {part}, in units."
        yield _gauge(f"cbwk_portfolio_window_{part}_units", text, (*by_resource, "period"), _units(amounts))


def _sums(values: Iterable[tuple[tuple[str, ...], int]]) -> dict[tuple[str, ...], int]:
    """Add up the values of the same labels."""
    sums: dict[tuple[str, ...], int] = {}
    for labels, value in values:
        sums[labels] = sums.get(labels, 0) + value
    return sums


def _units(amounts: dict[tuple[str, ...], int]) -> list[tuple[tuple[str, ...], float]]:
    return [(labels, amount / ONE) for labels, amount in amounts.items()]


def _gauge(
    name: str, documentation: str, labels: Sequence[str], samples: Iterable[tuple[Sequence[str], float]]
) -> Metric:
    """Return a gauge with one value per combination of labels."""
    family = GaugeMetricFamily(name, documentation, labels=labels)
    for values, sample in samples:
        family.add_metric(values, sample)
    return family
