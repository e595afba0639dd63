"""The client for programs with asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
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


class AsyncClient(BaseClient):
    """A client like `Client`, for the tasks of one event loop.

    >>> import asyncio
    >>> async def arms(visits):
    ...     async with AsyncClient(url, key) as client:
    ...         made = await client.create_campaign({
    ...             "id": "autumn-sale", "horizon": 1000, "arms": [{"id": "banner-a"}],
    ...             "resources": [{"id": "usd", "budget": 250, "max_cost": 0.05}], "context": {"dimension": 1}})
    ...         requests = [client.decide("autumn-sale", [visit / 100], fallback=None, seconds=5) for visit in visits]
    ...         return {decision.arm for decision in await asyncio.gather(*requests)}
    >>> asyncio.run(arms(range(20))) <= {"banner-a", None}
    True
    """

    def _connect(self) -> None:
        self._http = httpx.AsyncHTTPTransport(**transport.options(self.terms))
        self._delivery: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._outbox.close()
        if self._delivery is not None:
            self._wake.set()
            await asyncio.wait([self._delivery], timeout=self.terms.close_seconds + CLOSE_GRACE_SECONDS)
            self._delivery.cancel()
        await self._http.aclose()
        self._raise_undelivered(error)

    async def aclose(self) -> None:
        """Deliver waiting reports for at most `close_seconds`, then disconnect; UndeliveredError has the others."""
        await self.__aexit__(None, None, None)

    async def decide(
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
        """
        ask = Ask(context, decision_id, exclude, actions, baseline_arm, max_cost, max_costs)
        return await self._run(self._decide_steps(campaign_id, ask, explain, fallback, seconds))

    async def decide_batch(
        self, campaign_id: str, asks: Sequence[Ask], *, fallback: Fallback = RAISE, seconds: float | None = None
    ) -> list[Decision | RefusedError]:
        """Decide several requests in one transaction, in order; a refused request has an error in its place."""
        return await self._run(self._decide_batch_steps(campaign_id, asks, fallback, seconds))

    async def feedback(
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
        return await self._call(calls.feedback(report.body()), self.terms.feedback_seconds)

    async def feedback_batch(self, reports: Sequence[Report]) -> list[FeedbackResult | RefusedError]:
        """Send several reports in one transaction, in order; a refused report has an error in its place."""
        self._replicas.check_together({report.campaign_id for report in reports})
        return await self._call(
            calls.feedback_batch([report.body() for report in reports]), self.terms.feedback_seconds
        )

    async def flush(self, seconds: float = 5.0) -> bool:
        """Wait until all reports are delivered; return whether they are."""
        until = time.monotonic() + seconds
        while self.reports_waiting and time.monotonic() < until:
            await asyncio.sleep(FLUSH_POLL_SECONDS)
        return not self.reports_waiting

    async def create_campaign(self, config: Mapping[str, Any]) -> CampaignVersion:
        """Create a campaign; `config` is the body of `POST /campaigns`."""
        return await self._call(calls.create_campaign(config))

    async def ensure_campaign(self, config: Mapping[str, Any]) -> CampaignVersion:
        """Create a campaign unless it exists with this configuration; raise CampaignExistsError if it differs."""
        return await self._call(calls.ensure_campaign(config))

    async def campaign(self, campaign_id: str) -> Campaign:
        """Return the present state of a campaign."""
        return await self._call(calls.campaign(campaign_id))

    async def campaigns(self, status: str | None = None) -> AsyncIterator[CampaignSummary]:
        """Return all campaigns that the key may see, page by page."""
        cursor: str | None = None
        while True:
            page, cursor = await self._call(calls.campaigns(status, cursor))
            for summary in page:
                yield summary
            if cursor is None:
                return

    async def change_campaign(self, campaign_id: str, **changes: Any) -> CampaignVersion:
        """Change max costs, arms, start, end, terms, hold-out or mode: the fields of `PATCH /campaigns/{id}`."""
        return await self._call(calls.change_campaign(campaign_id, changes))

    async def set_budgets(self, campaign_id: str, totals: Mapping[str, float]) -> CampaignVersion:
        """Set the total budgets of resources."""
        return await self._call(calls.set_budgets(campaign_id, totals))

    async def pause(self, campaign_id: str) -> CampaignVersion:
        """Let every decision of a campaign be null until it is resumed."""
        return await self._call(calls.set_status(campaign_id, "pause"))

    async def resume(self, campaign_id: str) -> CampaignVersion:
        """Continue a paused campaign."""
        return await self._call(calls.set_status(campaign_id, "resume"))

    async def archive(self, campaign_id: str) -> CampaignVersion:
        """End a campaign permanently."""
        return await self._call(calls.set_status(campaign_id, "archive"))

    async def budget(self, campaign_id: str) -> Budget:
        """Return the accounts of a campaign."""
        return await self._call(calls.budget(campaign_id))

    async def adjust(self, campaign_id: str, resource: str, amount: float, reason: str) -> Adjusted:
        """Correct the amount spent by a signed amount, for instance by the cost of fallbacks."""
        return await self._call(calls.adjust(campaign_id, resource, amount, reason))

    async def verify(self, campaign_id: str) -> Verification:
        """Recompute the accounts from the log."""
        return await self._call(calls.verify(campaign_id))

    async def create_portfolio(self, config: Mapping[str, Any]) -> Portfolio:
        """Create a portfolio; `config` is the body of `POST /portfolios`."""
        return await self._call(calls.create_portfolio(config))

    async def portfolio(self, portfolio_id: str) -> Portfolio:
        """Return a portfolio with its campaigns."""
        return await self._call(calls.portfolio(portfolio_id))

    async def change_portfolio(self, portfolio_id: str, changes: Mapping[str, Any]) -> Portfolio:
        """Change budgets and windows; `changes` is the body of `PATCH /portfolios/{id}`."""
        return await self._call(calls.change_portfolio(portfolio_id, changes))

    async def portfolio_budget(self, portfolio_id: str) -> PortfolioBudget:
        """Return the accounts of a portfolio."""
        return await self._call(calls.portfolio_budget(portfolio_id))

    async def create_key(
        self,
        name: str,
        role: str,
        campaigns: Sequence[str] | None = None,
        *,
        requests_per_second: float | None = None,
    ) -> NewKey:
        """Create a key, for all campaigns or for some, and limit its requests a second if that is given."""
        return await self._call(calls.create_key(name, role, campaigns, requests_per_second))

    async def _call(self, call: Call[Answer], seconds: float | None = None) -> Answer:
        return await self._run(self._call_steps(call, seconds))

    async def _run(self, steps: Steps[Answer]) -> Answer:
        if self._outbox.is_closed:
            raise ValueError("the client is closed")
        return await self._carry_out(steps, _sleep)

    async def _carry_out(self, steps: Steps[Answer], wait: Callable[[float | None], Awaitable[None]]) -> Answer:
        result: Result = None
        try:
            while True:
                step = steps.send(result)
                if isinstance(step, Send):
                    result = await self._send(step)
                else:
                    await wait(step.seconds)
                    result = None
        except StopIteration as end:
            answer: Answer = end.value
            return answer
        finally:
            steps.close()

    async def _send(self, step: Send) -> Result:
        try:
            response = await self._http.handle_async_request(self._access.request(step))
            try:
                await response.aread()
            finally:
                await response.aclose()
        except httpx.RequestError as error:
            return transport.failure(error)
        return transport.reply(response)

    def _wake_delivery(self) -> None:
        if self._delivery is None:
            self._delivery = asyncio.create_task(self._deliver(), name="cbwk-delivery")
        self._wake.set()

    async def _deliver(self) -> None:
        await self._carry_out(self._outbox.delivery(), self._wait_for_wake)

    async def _wait_for_wake(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return
        finally:
            self._wake.clear()


async def _sleep(seconds: float | None) -> None:
    assert seconds is not None, "only the delivery waits without a limit"
    await asyncio.sleep(seconds)
