"""The client for programs with threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Any, Self

import httpx

from cbwk_client import calls, transport
from cbwk_client.answers import (
    FALLBACK_PREFIX,
    Adjusted,
    Budget,
    Campaign,
    CampaignSummary,
    CampaignVersion,
    Decision,
    FeedbackResult,
    NewKey,
    Portfolio,
    PortfolioBudget,
    Verification,
)
from cbwk_client.base import CLOSE_GRACE_SECONDS, FLUSH_POLL_SECONDS, BaseClient
from cbwk_client.calls import UNSET, Ask, Call, Context
from cbwk_client.decisions import RAISE, Fallback
from cbwk_client.errors import RefusedError
from cbwk_client.reports import Report
from cbwk_client.steps import Answer, Result, Send, Steps


class Client(BaseClient):
    """A client of the service at one or several URLs, with an API key; several threads may use it at once.

    >>> with Client(url, key) as client:
    ...     made = client.create_campaign({
    ...         "id": "summer-sale", "seed": 7, "horizon": 100_000,
    ...         "arms": [{"id": "banner-a"}, {"id": "banner-b"}],
    ...         "resources": [{"id": "usd", "budget": 250, "max_cost": 0.05}],
    ...         "context": {"features": [{"name": "device", "type": "category", "values": ["mobile", "desktop"]}]}})
    ...     decision = client.decide("summer-sale", {"device": "mobile"}, fallback="banner-a")
    ...     if decision.needs_feedback:
    ...         client.report("summer-sale", decision.decision_id, reward=1, costs={"usd": 0.031})
    >>> with Client(url, key) as client:  # the end of the block above has delivered the report
    ...     client.budget("summer-sale")["usd"].spent
    0.031

    Of several replicas on one database each campaign has one that it prefers. Where that one fails, the others are
    asked, with the same decision id:

    >>> with Client(["http://127.0.0.1:9", url], key) as client:
    ...     client.decide("summer-sale", {"device": "desktop"}, fallback=None, seconds=5).is_fallback
    False

    With cells, each a database of its own, the URLs are given by cell, and `cells` is the map file of HAProxy or what
    is in it: the cell of a campaign, of a portfolio (`"acme:"` for all campaigns `acme:…`), and `"*"` for all others.

    >>> cells = {"north": [url], "south": ["http://127.0.0.1:9"]}
    >>> with Client(cells, key, cells={"*": "north", "winter-sale": "south"}) as client:
    ...     [client.decide(name, {"device": "desktop"}, fallback=None, seconds=5).is_fallback
    ...      for name in ("summer-sale", "winter-sale")]
    [False, True]
    """

    def _connect(self) -> None:
        self._http = httpx.HTTPTransport(**transport.options(self.terms))
        self._delivery: Thread | None = None
        self._delivery_lock = Lock()
        self._wake = Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._outbox.close()
        if self._delivery is not None:
            self._wake.set()
            self._delivery.join(self.terms.close_seconds + CLOSE_GRACE_SECONDS)
        self._http.close()
        self._raise_undelivered(error)

    def close(self) -> None:
        """Deliver waiting reports for at most `close_seconds`, then disconnect; UndeliveredError has the others."""
        self.__exit__(None, None, None)

    def decide(
        self,
        campaign_id: str,
        context: Context,
        *,
        decision_id: str | None = None,
        exclude: Sequence[str] = (),
        actions: Sequence[Mapping[str, Any]] | None = None,
        baseline_arm: str | None = UNSET,
        max_cost: Mapping[str, float] | None = None,
        max_costs: Mapping[str, Mapping[str, float]] | None = None,
        explain: bool = False,
        fallback: Fallback = RAISE,
        seconds: float | None = None,
    ) -> Decision:
        """Return the arm to play within `decide_seconds`, or else the fallback: an arm, or None to play none.

        Without a fallback it raises NoAnswerError. It always raises refusals, such as an unknown campaign.

        >>> Client("http://127.0.0.1:9", "no-one-listens-there").decide("summer-sale", {}, fallback=None).reason
        'fallback'
        """
        ask = Ask(context, decision_id, exclude, actions, baseline_arm, max_cost, max_costs)
        return self._run(self._decide_steps(campaign_id, ask, explain, fallback, seconds))

    def decide_batch(
        self, campaign_id: str, asks: Sequence[Ask], *, fallback: Fallback = RAISE, seconds: float | None = None
    ) -> list[Decision | RefusedError]:
        """Decide several requests in one transaction, in order; a refused request has an error in its place."""
        return self._run(self._decide_batch_steps(campaign_id, asks, fallback, seconds))

    def feedback(
        self,
        campaign_id: str,
        decision_id: str,
        *,
        reward: float | None = None,
        costs: Mapping[str, float] | None = None,
        void: bool = False,
    ) -> FeedbackResult:
        """Send feedback now and return the new state of the decision."""
        report = Report(campaign_id, decision_id, reward, costs, void)
        if decision_id.startswith(FALLBACK_PREFIX):
            return FeedbackResult.ignored(campaign_id, decision_id)
        return self._call(calls.feedback(report.body()), self.terms.feedback_seconds)

    def feedback_batch(self, reports: Sequence[Report]) -> list[FeedbackResult | RefusedError]:
        """Send several reports in one transaction, in order; a refused report has an error in its place."""
        self._replicas.check_together({report.campaign_id for report in reports})
        return self._call(calls.feedback_batch([report.body() for report in reports]), self.terms.feedback_seconds)

    def flush(self, seconds: float = 5.0) -> bool:
        """Wait until all reports are delivered; return whether they are."""
        until = time.monotonic() + seconds
        while self.reports_waiting and time.monotonic() < until:
            time.sleep(FLUSH_POLL_SECONDS)
        return not self.reports_waiting

    def create_campaign(self, config: Mapping[str, Any]) -> CampaignVersion:
        """Create a campaign; `config` is the body of `POST /campaigns`."""
        return self._call(calls.create_campaign(config))

    def ensure_campaign(self, config: Mapping[str, Any]) -> CampaignVersion:
        """Create a campaign unless it exists with this configuration; raise CampaignExistsError if it differs."""
        return self._call(calls.ensure_campaign(config))

    def campaign(self, campaign_id: str) -> Campaign:
        """Return the present state of a campaign."""
        return self._call(calls.campaign(campaign_id))

    def campaigns(self, status: str | None = None) -> Iterator[CampaignSummary]:
        """Return all campaigns that the key may see, page by page."""
        cursor: str | None = None
        while True:
            page, cursor = self._call(calls.campaigns(status, cursor))
            yield from page
            if cursor is None:
                return

    def change_campaign(self, campaign_id: str, **changes: Any) -> CampaignVersion:
        """Change max costs, arms, start, end, terms, hold-out or mode: the fields of `PATCH /campaigns/{id}`."""
        return self._call(calls.change_campaign(campaign_id, changes))

    def set_budgets(self, campaign_id: str, totals: Mapping[str, float]) -> CampaignVersion:
        """Set the total budgets of resources."""
        return self._call(calls.set_budgets(campaign_id, totals))

    def pause(self, campaign_id: str) -> CampaignVersion:
        """Let every decision of a campaign be null until it is resumed."""
        return self._call(calls.set_status(campaign_id, "pause"))

    def resume(self, campaign_id: str) -> CampaignVersion:
        """Continue a paused campaign."""
        return self._call(calls.set_status(campaign_id, "resume"))

    def archive(self, campaign_id: str) -> CampaignVersion:
        """End a campaign permanently."""
        return self._call(calls.set_status(campaign_id, "archive"))

    def budget(self, campaign_id: str) -> Budget:
        """Return the accounts of a campaign."""
        return self._call(calls.budget(campaign_id))

    def adjust(self, campaign_id: str, resource: str, amount: float, reason: str) -> Adjusted:
        """Correct the amount spent by a signed amount, for instance by the cost of fallbacks."""
        return self._call(calls.adjust(campaign_id, resource, amount, reason))

    def verify(self, campaign_id: str) -> Verification:
        """Recompute the accounts from the log."""
        return self._call(calls.verify(campaign_id))

    def create_portfolio(self, config: Mapping[str, Any]) -> Portfolio:
        """Create a portfolio; `config` is the body of `POST /portfolios`."""
        return self._call(calls.create_portfolio(config))

    def portfolio(self, portfolio_id: str) -> Portfolio:
        """Return a portfolio with its campaigns."""
        return self._call(calls.portfolio(portfolio_id))

    def change_portfolio(self, portfolio_id: str, changes: Mapping[str, Any]) -> Portfolio:
        """Change budgets and windows; `changes` is the body of `PATCH /portfolios/{id}`."""
        return self._call(calls.change_portfolio(portfolio_id, changes))

    def portfolio_budget(self, portfolio_id: str) -> PortfolioBudget:
        """Return the accounts of a portfolio."""
        return self._call(calls.portfolio_budget(portfolio_id))

    def create_key(
        self,
        name: str,
        role: str,
        campaigns: Sequence[str] | None = None,
        *,
        requests_per_second: float | None = None,
    ) -> NewKey:
        """Create a key, for all campaigns or for some, and limit its requests a second if that is given."""
        return self._call(calls.create_key(name, role, campaigns, requests_per_second))

    def _call(self, call: Call[Answer], seconds: float | None = None) -> Answer:
        return self._run(self._call_steps(call, seconds))

    def _run(self, steps: Steps[Answer]) -> Answer:
        if self._outbox.is_closed:
            raise ValueError("the client is closed")
        return self._carry_out(steps, _sleep)

    def _carry_out(self, steps: Steps[Answer], wait: Callable[[float | None], None]) -> Answer:
        result: Result = None
        try:
            while True:
                step = steps.send(result)
                if isinstance(step, Send):
                    result = self._send(step)
                else:
                    wait(step.seconds)
                    result = None
        except StopIteration as end:
            answer: Answer = end.value
            return answer
        finally:
            steps.close()

    def _send(self, step: Send) -> Result:
        try:
            response = self._http.handle_request(self._access.request(step))
            try:
                response.read()
            finally:
                response.close()
        except httpx.RequestError as error:
            return transport.failure(error)
        return transport.reply(response)

    def _wake_delivery(self) -> None:
        if self._delivery is None:
            with self._delivery_lock:
                if self._delivery is None:
                    self._delivery = Thread(target=self._deliver, name="cbwk-delivery", daemon=True)
                    self._delivery.start()
        self._wake.set()

    def _deliver(self) -> None:
        self._carry_out(self._outbox.delivery(), self._wait_for_wake)

    def _wait_for_wake(self, seconds: float | None) -> None:
        self._wake.wait(seconds)
        self._wake.clear()


def _sleep(seconds: float | None) -> None:
    assert seconds is not None, "only the delivery waits without a limit"
    time.sleep(seconds)
