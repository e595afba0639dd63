"""Messages to webhooks, written in the transaction that they are about.

A campaign that no webhook is about costs one lookup for each transaction; without webhooks there is not even that.
"""

from __future__ import annotations

import secrets
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, insert, select

from service.domain.notices import (
    DRIFT_NOTICED,
    EVALUATION_DONE,
    Notice,
    Position,
    Webhook,
    drift,
    notices,
    only_holds,
)
from service.engine.administer import write_audit
from service.engine.changes import LockedCampaign, to_json
from service.engine.commands import Answer, CreateWebhook, DeleteWebhook
from service.ids import is_id, uuid7
from service.limits import WEBHOOKS_MAX
from service.problems import Conflict, NotFound, Problem
from service.store import tables, webhooks
from service.times import moment_text
from service.words import no_such

SECRET_BYTES = 32


def known_webhooks(connection: Connection) -> tuple[Webhook, ...]:
    """The webhooks of the database."""
    found = map(webhooks.decoded, webhooks.stored_webhooks(connection))
    return tuple(
        Webhook(
            row["id"],
            frozenset(row["events"]),
            tuple(row["thresholds"]),
            None if row["campaigns"] is None else frozenset(row["campaigns"]),
            row["created_at"],
        )
        for row in found
    )


class Notices:
    """The webhooks as the engine's thread knows them."""

    def __init__(self) -> None:
        self.webhooks: tuple[Webhook, ...] | None = None  # None: to be read
        self._of: dict[str, tuple[Webhook, ...]] = {}

    def forget(self) -> None:
        """Read the webhooks again in the next transaction; any thread may call this."""
        self.webhooks = None

    def write(self, connection: Connection, campaigns: Iterable[LockedCampaign]) -> None:
        """Add the messages of what this transaction has changed."""
        if self.webhooks is None:
            self.webhooks, self._of = known_webhooks(connection), {}
        if not self.webhooks:
            return
        rows: list[dict[str, Any]] = []
        for locked in campaigns:
            name = locked.campaign.id
            wanting = self._of.get(name)
            if wanting is None:
                wanting = self._of[name] = tuple(hook for hook in self.webhooks if hook.wants(name))
            if wanting:
                rows += messages(_noticed(locked, wanting), wanting, locked.now, name)
        if rows:
            webhooks.add_deliveries(connection, rows)

    def administer(self, connection: Connection, command: CreateWebhook | DeleteWebhook, now: int) -> Answer | Problem:
        """Create or delete a webhook."""
        self.forget()
        if isinstance(command, CreateWebhook):
            return _create(connection, command, now)
        if not webhooks.remove(connection, command.webhook_id):
            return NotFound(no_such("webhook", command.webhook_id), kind="webhook-not-found")
        write_audit(connection, now, command.actor, "webhook.delete", None, {"id": command.webhook_id})
        return Answer({"id": command.webhook_id, "deleted": True})


def _noticed(locked: LockedCampaign, wanting: Sequence[Webhook]) -> list[Notice]:
    before = locked.before
    rest = before.remainder
    was = Position(before.campaign, rest.accounts, rest.limits, before.state.round.item())
    now = Position(locked.campaign, locked.ledger.accounts, locked.ledger.limits, locked.state.round.item())
    if not locked.learnt and only_holds(was, now):
        return []
    found = [*notices(was, now, sorted({share for hook in wanting for share in hook.thresholds}))]
    learnt = locked.learnt and before.model_version == locked.model_version
    if learnt and any(DRIFT_NOTICED in hook.events for hook in wanting):
        restarts = int(locked.campaign.policy.changes(locked.state)[0])
        if restarts > int(before.campaign.policy.changes(before.state)[0]):
            found.append(drift(locked.campaign, locked.model_version, restarts))
    return found


def messages(found: Iterable[Notice], hooks: Iterable[Webhook], now: int, campaign_id: str) -> list[dict[str, Any]]:
    """The messages that webhooks get of these notices."""
    return [
        webhooks.delivery_row(
            hook.id,
            notice.mark,
            notice.event,
            f"msg_{uuid7(now)}",
            now,
            campaign_id=campaign_id,
            body=to_json({"type": notice.event, "timestamp": moment_text(now), "data": notice.data}),
        )
        for notice in found
        for hook in hooks
        if notice.event in hook.events and (notice.threshold is None or notice.threshold in hook.thresholds)
    ]


def notice_evaluation(connection: Connection, campaign_id: str, evaluation_id: str, status: str, now: int) -> None:
    """Add the messages that an evaluation has ended."""
    data = {"campaign_id": campaign_id, "evaluation_id": evaluation_id, "status": status}
    hooks = [hook for hook in known_webhooks(connection) if hook.wants(campaign_id)]
    rows = messages([Notice(EVALUATION_DONE, f"evaluation:{evaluation_id}", data)], hooks, now, campaign_id)
    if rows:
        webhooks.add_deliveries(connection, rows)


def _create(connection: Connection, command: CreateWebhook, now: int) -> Answer | Problem:
    if len(webhooks.stored_webhooks(connection)) >= WEBHOOKS_MAX:
        return Conflict(f"there are {WEBHOOKS_MAX} webhooks, and more are not possible", kind="webhooks-full")
    if command.campaigns is not None:
        known = select(tables.campaign.c.id).where(tables.campaign.c.id.in_(filter(is_id, command.campaigns)))
        unknown = {*command.campaigns} - set(connection.execute(known).scalars())
        if unknown:
            return NotFound(no_such("campaign", min(unknown)), kind="campaign-not-found")
    secret = f"whsec_{b64encode(secrets.token_bytes(SECRET_BYTES)).decode()}"
    row = {
        "id": f"webhook-{secrets.token_hex(8)}",
        "url": command.url,
        "events": to_json(sorted(command.events)),
        "thresholds": to_json(sorted(command.thresholds)),
        "campaigns": None if command.campaigns is None else to_json(sorted(command.campaigns)),
        "secret": secret,
        "created_at": now,
    }
    connection.execute(insert(tables.webhook).values(**row))
    shown = {"id": row["id"], "url": command.url, "events": sorted(command.events), "campaigns": command.campaigns}
    write_audit(connection, now, command.actor, "webhook.create", None, shown)
    return Answer({"id": row["id"], "secret": secret}, status=201)
