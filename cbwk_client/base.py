"""What the client with threads and the client with asyncio share."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from cbwk_client import decisions
from cbwk_client.answers import FALLBACK_PREFIX, Decision
from cbwk_client.calls import Ask, Call
from cbwk_client.decisions import Fallback
from cbwk_client.errors import RefusedError
from cbwk_client.outbox import OnRefused, Outbox, log_refused
from cbwk_client.replicas import Addresses, Cells, Replicas
from cbwk_client.reports import Report
from cbwk_client.steps import Answer, Steps, call_steps
from cbwk_client.terms import TERMS, Terms
from cbwk_client.transport import Access

# How often `flush` looks.
FLUSH_POLL_SECONDS: Final = 0.005
# How much longer than `close_seconds` the last delivery may take.
CLOSE_GRACE_SECONDS: Final = 1.0


class BaseClient(ABC):
    """The state of a client, and its calls that do no input or output."""

    def __init__(
        self,
        url: Addresses,
        key: str,
        *,
        cells: Cells | None = None,
        terms: Terms = TERMS,
        on_refused: OnRefused = log_refused,
    ) -> None:
        self.terms = terms
        self._replicas = Replicas(url, cells, time.monotonic)
        self._outbox = Outbox(terms, time.monotonic, random.random, self._replicas, on_refused)
        self._access = Access(key, self._replicas.urls)
        self._connect()

    @abstractmethod
    def _connect(self) -> None:
        """Make what does the input and output; nothing is sent yet."""

    def report(
        self,
        campaign_id: str,
        decision_id: str,
        *,
        reward: float | None = None,
        costs: Mapping[str, float] | None = None,
        void: bool = False,
    ) -> None:
        """Keep feedback and deliver it in the background, in batches and as often as it takes."""
        report = Report(campaign_id, decision_id, reward, costs, void)
        if not decision_id.startswith(FALLBACK_PREFIX) and self._outbox.add(report):
            self._wake_delivery()

    @property
    def reports_waiting(self) -> int:
        """Number of reports that the service has neither accepted nor refused."""
        return self._outbox.reports_waiting

    @property
    def voids_waiting(self) -> int:
        """Number of late decisions that the client may still have to void."""
        return self._outbox.voids_waiting

    @property
    def last_failure(self) -> str | None:
        """Why the last failed delivery of reports failed."""
        return self._outbox.last_failure

    @abstractmethod
    def _wake_delivery(self) -> None:
        """Start the background delivery, or let it look at the outbox again."""

    def _void_later(self, campaign_id: str, decision_ids: Iterable[str]) -> None:
        self._outbox.void_later(campaign_id, decision_ids)
        self._wake_delivery()

    def _call_steps(self, call: Call[Answer], seconds: float | None) -> Steps[Answer]:
        seconds = seconds or self.terms.admin_seconds
        return call_steps(call, seconds, time.monotonic, random.random, self._replicas, self.terms.try_seconds)

    def _decide_steps(
        self, campaign_id: str, ask: Ask, explain: bool, fallback: Fallback, seconds: float | None
    ) -> Steps[Decision]:
        return decisions.decide(
            campaign_id,
            ask,
            explain=explain,
            fallback=fallback,
            seconds=seconds or self.terms.decide_seconds,
            clock=time.monotonic,
            chance=random.random,
            replicas=self._replicas,
            try_seconds=self.terms.try_seconds,
            void_later=self._void_later,
        )

    def _decide_batch_steps(
        self, campaign_id: str, asks: Sequence[Ask], fallback: Fallback, seconds: float | None
    ) -> Steps[list[Decision | RefusedError]]:
        return decisions.decide_batch(
            campaign_id,
            asks,
            fallback=fallback,
            seconds=seconds or self.terms.batch_seconds,
            clock=time.monotonic,
            chance=random.random,
            replicas=self._replicas,
            try_seconds=self.terms.try_seconds,
            void_later=self._void_later,
        )

    def _raise_undelivered(self, error: BaseException | None) -> None:
        """Raise an error about undelivered reports, or add it as a note to the error that ends the `with` block."""
        undelivered = self._outbox.undelivered()
        if undelivered is None:
            return
        if error is None:
            raise undelivered
        error.add_note(f"besides, {undelivered}")
