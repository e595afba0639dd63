"""The sender: one task in each server process. It claims messages, so that replicas share the work."""

from __future__ import annotations

import asyncio
import hmac
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from random import uniform
from typing import Any, TypeVar

import httpx
import structlog

from service.domain.notices import CAMPAIGN_ENDED, Webhook
from service.engine import Engine
from service.engine.notices import known_webhooks
from service.store import webhooks
from service.store.database import Database
from service.times import MICROS_PER_SECOND
from service.webhooks.addresses import Refused, target_of
from service.webhooks.ends import Ends

POLL_SECONDS = 1.0
# Without webhooks: another replica may have created one.
IDLE_POLL_SECONDS = 5.0
ENDS_EVERY_SECONDS = 5.0
DROP_EVERY_SECONDS = 3_600.0
AT_ONCE_MAX = 16
ANSWER_SECONDS_MAX = 15.0
# Attempt n + 1 follows attempt n after 5 · 3^(n-1) seconds, at most an hour; after a day there is none.
FIRST_RETRY_SECONDS, RETRY_SECONDS_MAX, TRIED_SECONDS_MAX = 5.0, 3_600.0, 86_400.0
GONE = 410

log = structlog.get_logger(__name__)
Result = TypeVar("Result")


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """Return the header `webhook-signature` of Standard Webhooks.

    >>> signature("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330,
    ...     b'{"test": 2432232314}')
    'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE='
    """
    signed = b"%b.%d.%b" % (message_id.encode(), timestamp, body)
    digest = hmac.digest(b64decode(secret.removeprefix("whsec_")), signed, sha256)
    return f"v1,{b64encode(digest).decode()}"


def retry_seconds(attempts: int) -> float:
    """Return the time after this many attempts until the next one.

    >>> [retry_seconds(attempts) for attempts in (1, 2, 3, 7, 8, 30)]
    [5.0, 15.0, 45.0, 3600.0, 3600.0, 3600.0]
    """
    return min(FIRST_RETRY_SECONDS * 3.0 ** (attempts - 1), RETRY_SECONDS_MAX)


class Sender:
    """Sends the messages of one database."""

    def __init__(self, database: Database, engine: Engine, *, private: bool) -> None:
        self._database, self._engine, self._private = database, engine, private
        self._known: tuple[Webhook, ...] = ()
        self._ends, self._ends_at, self._drop_at = Ends(), 0.0, 0.0

    async def run(self) -> None:
        """Send messages until cancelled."""
        async with httpx.AsyncClient(trust_env=False, timeout=ANSWER_SECONDS_MAX, follow_redirects=False) as client:
            while True:
                try:
                    more = await self._step(client)
                except Exception as error:  # noqa: BLE001 - the next step may reach the database again
                    more = False
                    log.warning("webhooks wait", error=type(error).__name__)
                if not more:
                    await asyncio.sleep(POLL_SECONDS if self._known else IDLE_POLL_SECONDS)

    async def _step(self, client: httpx.AsyncClient) -> bool:
        """Send what is due; return whether there may be more."""
        loop = asyncio.get_running_loop()
        known, due = await asyncio.to_thread(self._look)
        if known != self._known:
            self._known = known
            self._engine.forget_webhooks()  # another process may have created or deleted one
        if any(CAMPAIGN_ENDED in hook.events for hook in known) and loop.time() >= self._ends_at:
            self._ends_at = loop.time() + ENDS_EVERY_SECONDS
            await asyncio.to_thread(self._notice_ends)
        if known and loop.time() >= self._drop_at:
            self._drop_at = loop.time() + DROP_EVERY_SECONDS
            await asyncio.to_thread(self._write, webhooks.drop_old)
        if not due:
            return False
        claimed = await asyncio.to_thread(self._write, partial(webhooks.claim, limit=AT_ONCE_MAX))
        await asyncio.gather(*(self._deliver(client, message) for message in claimed))
        return len(claimed) == AT_ONCE_MAX

    def _look(self) -> tuple[tuple[Webhook, ...], bool]:
        with self._database.read() as connection:
            known = known_webhooks(connection)
            return known, bool(known) and webhooks.has_due(connection, self._database.now_micros(connection))

    def _notice_ends(self) -> None:
        with self._database.read() as connection:
            rows = self._ends.messages(connection, self._known, self._database.now_micros(connection))
        if rows:
            self._write(lambda connection, now: webhooks.add_deliveries(connection, rows))

    def _write(self, work: Callable[..., Result]) -> Result:
        with self._database.write() as connection:
            return work(connection, self._database.now_micros(connection))

    async def _deliver(self, client: httpx.AsyncClient, message: dict[str, Any]) -> None:
        status, error = await self._attempt(client, message)
        good = status is not None and 200 <= status < 300

        def store(connection: Any, now: int) -> None:
            again = now + int(retry_seconds(message["attempts"]) * uniform(0.9, 1.1) * MICROS_PER_SECOND)
            over = status == GONE or again > message["at"] + TRIED_SECONDS_MAX * MICROS_PER_SECOND
            end = {"status": "delivered" if good else "failed", "next_at": None, "finished_at": now}
            webhooks.report(
                connection,
                message,
                response_status=status,
                error=error,
                **(end if good or over else {"next_at": again}),
            )

        await asyncio.to_thread(self._write, store)
        level = log.info if good else log.warning
        shown = {"webhook": message["webhook"], "message": message["id"], "message_event": message["event"]}
        level("a message was sent" if good else "a message was not sent", **shown, status=status, error=error)

    async def _attempt(self, client: httpx.AsyncClient, message: dict[str, Any]) -> tuple[int | None, str | None]:
        """Send a message once; return the status of the response and what went wrong."""
        body, sent_at = message["body"].encode(), int(time.time())
        headers = {
            "content-type": "application/json",
            "user-agent": f"cbwk/{version('cbwk')}",
            "webhook-id": message["id"],
            "webhook-timestamp": str(sent_at),
            "webhook-signature": signature(message["secret"], message["id"], sent_at, body),
        }
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                target = await target_of(message["url"], private=self._private)
                request = client.build_request(
                    "POST",
                    target.url,
                    content=body,
                    headers=headers | {"host": target.host},
                    extensions={"sni_hostname": target.name},
                )
                response = await client.send(request, stream=True)
                await response.aclose()  # only the status counts, and a body may be endless
        except Refused as refused:
            return None, f"url {refused}"
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, OSError) as error:
            return None, type(error).__name__
        good = 200 <= response.status_code < 300
        return response.status_code, None if good else f"answered {response.status_code}"
