"""What committed transactions report: to the metrics, and to the log."""

from __future__ import annotations

from collections import Counter

import structlog

from service.engine.changes import Changes, LockedCampaign
from service.metrics import OTHER, Metrics
from service.store.bulk_insert import ConstantColumn

log = structlog.get_logger(__name__)


class Observation:
    """Counts transactions after their commit; the engine's thread only."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._restarts: dict[int, tuple[int, int]] = {}  # each campaign's model and its restarts so far

    def forget(self) -> None:
        """Forget what the models of campaigns were, because the database was replaced."""
        self._restarts.clear()

    def committed(self, changes: Changes, commands: int) -> None:
        """Count one transaction: the time of this does not grow with its decisions, except for their reasons."""
        self._metrics.batch_size.observe(commands)
        if changes.decisions:
            self._count_decisions(changes)
        for locked in changes.campaigns.values():
            for reason, count in locked.unstored.items():
                self._metrics.count_decisions(locked.campaign.id, reason, count)
            if "outcome" in locked.rows:
                self._observe(locked)

    def _count_decisions(self, changes: Changes) -> None:
        names = {locked.campaign.number: name for name, locked in changes.campaigns.items()}
        for columns in changes.decisions:
            numbers, reasons = columns["campaign"], columns["reason"]
            if isinstance(numbers, ConstantColumn) and isinstance(reasons, ConstantColumn):
                self._metrics.count_decisions(names[numbers.value], reasons.value, len(reasons))
                continue
            for (number, reason), count in Counter(zip(numbers, reasons, strict=True)).items():
                self._metrics.count_decisions(names[number], reason, count)

    def _observe(self, locked: LockedCampaign) -> None:
        """Report committed outcomes."""
        metrics, name = self._metrics, self._metrics.label(locked.campaign.id)
        for delay in locked.delays:
            metrics.feedback_delay_seconds.observe(delay)
        for counter, count in (
            (metrics.expired_holds, locked.expired),
            (metrics.cost_above_hold, locked.above_hold),
            (metrics.quarantined_updates, locked.quarantined),
        ):
            if count:
                counter.labels(name).inc(count)
        if locked.learnt:
            self._observe_model(locked, name)

    def _observe_model(self, locked: LockedCampaign, name: str) -> None:
        metrics, policy = self._metrics, locked.campaign.policy
        restarts = int(policy.changes(locked.state)[0])
        if name != OTHER:  # a gauge of several campaigns would have the value of the last one
            errors = policy.mean_squared_errors(locked.state)[0].tolist()
            for target, loss in zip(("reward", *locked.campaign.resources), errors, strict=True):
                metrics.oracle_loss.labels(name, target).set(loss)
            metrics.changes_noticed.labels(name).set(restarts)
            metrics.alarms_dismissed.labels(name).set(int(policy.dismissed_alarms(locked.state)[0]))
        version, before = self._restarts.get(locked.campaign.number, (locked.model_version, restarts))
        if version == locked.model_version and restarts > before:  # an imported model brings its own restarts
            log.info("the world has changed; the model restarts", campaign=locked.campaign.id, changes=restarts)
        self._restarts[locked.campaign.number] = locked.model_version, restarts
