"""The client for programs with asyncio."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from service.client import calls, transport
from service.client.answers import (
    FALLBACK_PREFIX,
    Adjusted,
    Budget,
    Campaign,
    CampaignSummary,
    CampaignVersion,
    Decision,
    FeedbackResult,
    NewKey,
    Verification,
)
from service.client.calls import UNSAID, Ask, Call, Context
from service.client.conversation import Conversation, Send, Told, asked
from service.client.deciding import RAISE, Fallback, decided, decided_together
from service.client.errors import RefusedError
from service.client.outbox import OnRefused, Outbox, Report, log_refused
from service.client.terms import TERMS, Terms

Answer = TypeVar("Answer")
# How often `flush` looks.
_LOOK_SECONDS = 0.005
# What the last delivery may take beyond the time `close` has.
_JOIN_GRACE_SECONDS = 1.0


class AsyncClient:
    """The same service for tasks of one event loop.

    >>> import asyncio
    >>> async def arms(visits):
    ...     async with AsyncClient(url, key) as client:
    ...         made = await client.create_campaign({
    ...             "id": "autumn-sale", "horizon": 1000, "arms": [{"id": "banner-a"}],
    ...             "resources": [{"id": "usd", "budget": 250, "max_cost": 0.05}], "context": {"dimension": 1}})
    ...         asked = [client.decide("autumn-sale", [visit / 100], fallback=None, seconds=5) for visit in visits]
    ...         return {decision.arm for decision in await asyncio.gather(*asked)}
    >>> asyncio.run(arms(range(20))) <= {"banner-a", None}
    True
    """

    def __init__(self, url: str, key: str, *, terms: Terms = TERMS, on_refused: OnRefused = log_refused) -> None:
        self.terms = terms
        self._outbox = Outbox(terms, time.monotonic, random.random, on_refused)
        self._address = transport.Address(url, key)
        self._http = httpx.AsyncHTTPTransport(**transport.arguments(terms))
        self._courier: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._shut()
        left = self._outbox.left_over()
        if left is not None:
            if error is None:
                raise left
            error.add_note(f"besides, {left}")  # must not take the place of what went wrong first

    async def aclose(self) -> None:
        """Deliver what waits, for `close_seconds` at the most, and hang up; UndeliveredError has what is left."""
        await self.__aexit__(None, None, None)

    async def decide(
        self,
        campaign_id: str,
        context: Context,
        *,
        decision_id: str | None = None,
        exclude: Sequence[str] = (),
        actions: Sequence[Mapping[str, Any]] | None = None,
        baseline_arm: str | None = UNSAID,
        explain: bool = False,
        fallback: Fallback = RAISE,
        seconds: float | None = None,
    ) -> Decision:
        """Which arm to play, within `decide_seconds`; then the fallback: an arm, or None to play none.

        Without a fallback it is a NoAnswerError. Refusals, such as an unknown campaign, are raised in any case.
        """
        conversation = decided(
            campaign_id,
            Ask(context, decision_id, exclude, actions, baseline_arm),
            explain=explain,
            fallback=fallback,
            seconds=seconds or self.terms.decide_seconds,
            clock=time.monotonic,
            chance=random.random,
            void_later=self._void_later,
        )
        return await self._held(conversation)

    async def decide_batch(
        self, campaign_id: str, asks: Sequence[Ask], *, fallback: Fallback = RAISE, seconds: float | None = None
    ) -> list[Decision | RefusedError]:
        """Arms for several requests in one transaction, in order; what was refused is an error in its place."""
        conversation = decided_together(
            campaign_id,
            asks,
            fallback=fallback,
            seconds=seconds or self.terms.batch_seconds,
            clock=time.monotonic,
            chance=random.random,
            void_later=self._void_later,
        )
        return await self._held(conversation)

    def report(
        self,
        campaign_id: str,
        decision_id: str,
        *,
        reward: float | None = None,
        costs: Mapping[str, float] | None = None,
        void: bool = False,
    ) -> None:
        """Keep feedback and deliver it in the background, together with others, however often it takes."""
        report = Report(campaign_id, decision_id, reward, costs, void)
        if not decision_id.startswith(FALLBACK_PREFIX) and self._outbox.add(report):
            self._wake_courier()

    async def feedback(
        self,
        campaign_id: str,
        decision_id: str,
        *,
        reward: float | None = None,
        costs: Mapping[str, float] | None = None,
        void: bool = False,
    ) -> FeedbackResult:
        """Give feedback now and wait for what it made of the decision."""
        report = Report(campaign_id, decision_id, reward, costs, void)
        if decision_id.startswith(FALLBACK_PREFIX):
            return FeedbackResult.ignored(campaign_id, decision_id)
        return await self._ask(calls.feedback(report.body()), self.terms.feedback_seconds)

    async def feedback_batch(self, reports: Sequence[Report]) -> list[FeedbackResult | RefusedError]:
        """Feedback on several decisions in one transaction, in order; what was refused is an error in its place."""
        return await self._ask(calls.feedback_batch([report.body() for report in reports]), self.terms.feedback_seconds)

    @property
    def reports_waiting(self) -> int:
        """Reports not yet taken or refused."""
        return self._outbox.reports_waiting

    @property
    def voids_waiting(self) -> int:
        """Late decisions that may still have to be voided."""
        return self._outbox.voids_waiting

    @property
    def last_failure(self) -> str | None:
        """Why reports were last not delivered."""
        return self._outbox.last_failure

    async def flush(self, seconds: float = 5.0) -> bool:
        """Wait until all reports are delivered; whether they were in time."""
        until = time.monotonic() + seconds
        while self.reports_waiting and time.monotonic() < until:
            await asyncio.sleep(_LOOK_SECONDS)
        return not self.reports_waiting

    async def create_campaign(self, config: Mapping[str, Any]) -> CampaignVersion:
        """Make a campaign; `config` is the body of `POST /campaigns`."""
        return await self._ask(calls.create_campaign(config))

    async def campaign(self, campaign_id: str) -> Campaign:
        """A campaign as it stands."""
        return await self._ask(calls.campaign(campaign_id))

    async def campaigns(self, status: str | None = None) -> AsyncIterator[CampaignSummary]:
        """All campaigns the key may see, page after page."""
        cursor: str | None = None
        while True:
            page, cursor = await self._ask(calls.campaigns(status, cursor))
            for summary in page:
                yield summary
            if cursor is None:
                return

    async def change_campaign(self, campaign_id: str, **changes: Any) -> CampaignVersion:
        """Change horizon, arms, feedback terms; `changes` are the fields of `PATCH /campaigns/{id}`."""
        return await self._ask(calls.change_campaign(campaign_id, changes))

    async def set_budgets(self, campaign_id: str, totals: Mapping[str, float]) -> CampaignVersion:
        """New total budgets by resource."""
        return await self._ask(calls.set_budgets(campaign_id, totals))

    async def pause(self, campaign_id: str) -> CampaignVersion:
        """Answer every request with no arm until resumed."""
        return await self._ask(calls.set_status(campaign_id, "pause"))

    async def resume(self, campaign_id: str) -> CampaignVersion:
        """Decide again."""
        return await self._ask(calls.set_status(campaign_id, "resume"))

    async def archive(self, campaign_id: str) -> CampaignVersion:
        """End a campaign for good."""
        return await self._ask(calls.set_status(campaign_id, "archive"))

    async def budget(self, campaign_id: str) -> Budget:
        """The accounts of a campaign."""
        return await self._ask(calls.budget(campaign_id))

    async def adjust(self, campaign_id: str, resource: str, amount: float, reason: str) -> Adjusted:
        """Correct what was spent by a signed amount, for instance by what fallbacks cost."""
        return await self._ask(calls.adjust(campaign_id, resource, amount, reason))

    async def verify(self, campaign_id: str) -> Verification:
        """Compute the accounts anew from the log."""
        return await self._ask(calls.verify(campaign_id))

    async def create_key(self, name: str, role: str, campaigns: Sequence[str] | None = None) -> NewKey:
        """Make a key, if wanted for some campaigns only."""
        return await self._ask(calls.create_key(name, role, campaigns))

    async def _ask(self, call: Call[Answer], seconds: float | None = None) -> Answer:
        return await self._held(asked(call, seconds or self.terms.admin_seconds, time.monotonic, random.random))

    async def _held(
        self, conversation: Conversation[Answer], sleep: Callable[[float | None], Awaitable[None]] | None = None
    ) -> Answer:
        """Have a conversation with the service; after the end only the courier, who sleeps in his own way, has one."""
        if sleep is None and self._outbox.is_closed:
            raise ValueError("the client is closed")
        told: Told = None
        try:
            while True:
                step = conversation.send(told)
                if isinstance(step, Send):
                    told = await self._sent(step)
                else:
                    await (sleep or _sleep)(step.seconds)
                    told = None
        except StopIteration as end:
            answer: Answer = end.value
            return answer
        finally:
            conversation.close()

    async def _sent(self, step: Send) -> Told:
        try:
            response = await self._http.handle_async_request(self._address.request(step))
            try:
                await response.aread()
            finally:
                await response.aclose()
        except httpx.RequestError as error:
            return transport.failure(error)
        return transport.reply(response)

    def _void_later(self, campaign_id: str, decision_ids: Iterable[str]) -> None:
        self._outbox.void_later(campaign_id, decision_ids)
        self._wake_courier()

    def _wake_courier(self) -> None:
        if self._courier is None:
            self._courier = asyncio.create_task(self._deliver(), name="cbwk-courier")
        self._wake.set()

    async def _deliver(self) -> None:
        await self._held(self._outbox.delivering(), self._doze)

    async def _doze(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return  # it is time
        finally:
            self._wake.clear()

    async def _shut(self) -> None:
        self._outbox.close()
        if self._courier is not None:
            self._wake.set()
            await asyncio.wait([self._courier], timeout=self.terms.close_seconds + _JOIN_GRACE_SECONDS)
            self._courier.cancel()
        await self._http.aclose()


async def _sleep(seconds: float | None) -> None:
    assert seconds is not None, "only the courier waits for something to do"
    await asyncio.sleep(seconds)
