"""One transaction for one batch of commands.

It locks the campaigns that are free (`turns.py` says which it waits for), reads what they need in later statements,
settles, expires, decides, writes and commits. `batch.py` decides what happens when it fails.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog
from sqlalchemy import Connection, select

from service.domain.ledger import Ledger
from service.domain.stage_one import is_handed_out
from service.engine import administer, decide, models, settle, stage_one, windows
from service.engine.cache import (
    Cache,
    CachedCampaign,
    FarBehind,
    Remainder,
    accounts,
    creation_times,
    current,
    is_far_behind,
    lessons_since,
    stored_traffic,
)
from service.engine.changes import Changes, LockedCampaign
from service.engine.commands import (
    Adjust,
    Answer,
    Command,
    CreateCampaign,
    CreateKey,
    CreatePortfolio,
    CreateWebhook,
    Decide,
    DeleteWebhook,
    EndStage,
    Expire,
    Feedback,
    ImportModel,
    Item,
    Once,
    PatchCampaign,
    PatchPortfolio,
    RevokeKey,
    SetStatus,
)
from service.engine.notices import Notices
from service.engine.observation import Observation
from service.engine.once import answered_once
from service.engine.portfolios import Portfolios, create_portfolio
from service.engine.snapshots import Snapshots
from service.engine.stored_rows import DECISIONS, DECISIONS_BY_SEQUENCE, due_holds, earlier_versions, records_of
from service.engine.turns import Turns
from service.fault import Reached
from service.metrics import Metrics
from service.problems import NotFound, Problem, UnknownRules
from service.store import keys, tables
from service.store.database import Database
from service.store.statements import Row
from service.words import no_such

# A campaign whose holds could not expire is tried again after this time, alone, so that it does not fail the others.
EXPIRE_AGAIN_SECONDS = 10.0
_HOT = (Decide, Feedback)

log = structlog.get_logger(__name__)


@dataclass
class Attempt:
    """How a transaction is tried."""

    caught_up: set[int] = field(default_factory=set)  # campaigns whose log was folded before
    one_by_one: bool = False  # outcomes are learnt one by one, and one that would spoil the model is not learnt
    refused: dict[int, UnknownRules] = field(default_factory=dict)  # campaigns this process must not decide for
    awaited: set[int] = field(default_factory=set)  # campaigns that were waited for until they were free


class Transactions:
    """Runs transactions on one database; one thread only."""

    def __init__(
        self,
        database: Database,
        *,
        memory_bytes_max: int,
        lock_timeout_ms: int,
        work_max: int,
        metrics: Metrics,
        reached: Reached | None,
    ) -> None:
        self._database, self._reached = database, reached
        self._observation, self.notices = Observation(metrics), Notices()
        self._writer = database.writer
        self.cache = Cache(memory_bytes_max, work_max)
        self._work_max = work_max
        self.snapshots = Snapshots(database, self.cache)
        self._portfolios = Portfolios(database, lock_timeout_ms)
        self._turns = Turns(database, lock_timeout_ms)
        self._numbers: dict[str, int] = {}
        self._created_at: dict[int, int] = {}
        self.handed_out: set[int] = set()  # campaigns whose stage one waits for its last outcomes
        self._unknown: set[int] = set()  # campaigns with rules that this process does not know: their holds stay
        self._postponed: dict[int, float] = {}  # campaigns whose holds could not expire, and when to try them alone

    def run(self, items: Sequence[Item], attempt: Attempt) -> None:
        """Answer the items whose campaigns are free in one transaction, or raise; others wait, and have no answer."""
        changes = Changes()
        with self._writer.begin(self) as connection:
            if self._writer.history != self.cache.history:
                self._forget_all(self._writer.history)
            now = self._writer.now_micros()
            by_campaign: dict[str, list[Item]] = {}
            alone: list[Item] = []
            for item in items:
                item.answer = None  # of an attempt that failed
                name = getattr(item.command, "campaign_id", None)
                if name is None:
                    alone.append(item)
                else:
                    by_campaign.setdefault(name, []).append(item)
            for item in alone:
                item.answer = self._without_campaign(connection, item.command, now, changes, attempt)
            if by_campaign:
                if not by_campaign.keys() <= self._numbers.keys():
                    self._find(connection, by_campaign)
                numbers = sorted([self._numbers[name] for name in by_campaign if name in self._numbers])
                self._open(connection, changes, numbers, now, attempt, items, fresh=not alone)
                if len(changes.campaigns) < len(by_campaign):
                    self._leave_out(connection, changes, by_campaign, attempt)
                self._serve(connection, changes, by_campaign)
            if changes.campaigns and self.notices.webhooks != ():
                self.notices.write(connection, changes.campaigns.values())
            if changes.campaigns or changes.portfolios:
                changes.write(connection, self._reached)
            epoch = self._writer.epoch
        self._remember(changes, len(items), epoch)
        if changes.campaigns and self._reached is not None:
            self._reached("after-commit")

    def _remember(self, changes: Changes, commands: int, epoch: int | None) -> None:
        """Cache the committed states and report the transaction to the metrics; never raises."""
        try:
            self._observation.committed(changes, commands)
            if changes.portfolios:
                self._portfolios.remember(changes, epoch)
            for locked in changes.campaigns.values():
                campaign, number = locked.campaign, locked.campaign.number
                ledger, traffic = locked.ledger, locked.traffic
                remainder = Remainder(locked.status, locked.now, ledger.accounts, ledger.limits, epoch, traffic)
                self.cache.put(
                    campaign, locked.state, locked.sequence, locked.model_version, remainder, learnt=locked.learnt
                )
                if not locked.state.stage.running[0]:
                    waits = is_handed_out(campaign, locked.state)
                    (self.handed_out.add if waits else self.handed_out.discard)(number)
                elif number in self.handed_out:
                    self.handed_out.discard(number)
        except Exception as error:
            log.error("the committed campaigns are read again", exc_info=error)
            self._distrust()

    def forget(self, items: Sequence[Item]) -> None:
        """Forget the campaigns of a transaction that failed: it may or may not have happened."""
        for number in self.take_back(items):
            self.cache.forget(number)

    def take_back(self, items: Sequence[Item]) -> list[int]:
        """Forget the numbers of a transaction that has not happened, which may have created campaigns; returns them.

        What is cached of its campaigns is as good as before. Without it each of them would be far behind the log.
        """
        found = [self._numbers.pop(getattr(item.command, "campaign_id", ""), None) for item in items]
        numbers = [number for number in found if number is not None]
        for number in numbers:
            self._created_at.pop(number, None)
        self._distrust()
        return numbers

    def _distrust(self) -> None:
        self.cache.distrust()
        self._portfolios.forget()

    def _forget_all(self, history: object) -> None:
        """Forget everything that was read from a database with another history: its rows may be gone."""
        if self.cache.history is not None:
            log.warning("the database was replaced; everything is read again")
        self.cache.clear()
        self._portfolios.forget()
        self.cache.history = history
        for remembered in (self._numbers, self._created_at, self.handed_out, self._unknown):
            remembered.clear()
        self._portfolios.members.clear()
        self._postponed.clear()
        self._observation.forget()
        self.notices.forget()

    def catch_up(self, number: int) -> None:
        """Fold the log of a campaign without its lock."""
        state = tables.campaign_state
        with self._database.read() as connection:
            row = connection.execute(select(state).where(state.c.campaign == number)).mappings().one()
            try:
                known = current(connection, self.cache, dict(row))
            except UnknownRules:
                return  # the transaction that follows refuses the campaign
        self.cache.put(known.campaign, known.state, known.sequence, known.model_version)
        self.cache.count_folded(known)

    def _without_campaign(
        self, connection: Connection, command: Command, now: int, changes: Changes, attempt: Attempt
    ) -> Answer | Problem | None:
        if isinstance(command, Once):
            inner = partial(self._without_campaign, connection, command.command, now, changes, attempt)
            return answered_once(connection, command, now, inner)
        try:
            if isinstance(command, Expire):
                return Answer({"expired": self._expire(connection, changes, now, attempt, command.number)})
            if isinstance(command, CreateCampaign):
                return administer.create_campaign(connection, command, now)
            if isinstance(command, CreatePortfolio):
                return create_portfolio(connection, command, now)
            if isinstance(command, PatchPortfolio):
                return self._portfolios.patch(connection, changes, command)
            if isinstance(command, CreateKey):
                made, text = keys.create_key(
                    connection,
                    command.name,
                    command.role,
                    command.campaigns,
                    now,
                    requests_per_second=command.requests_per_second,
                    actor=command.actor,
                )
                return Answer({"id": made, "key": text}, status=201)
            if isinstance(command, CreateWebhook | DeleteWebhook):
                return self.notices.administer(connection, command, now)
            if isinstance(command, RevokeKey):
                keys.revoke_key(connection, command.key_id, now, actor=command.actor)
                return Answer({"id": command.key_id, "revoked": True})
        except Problem as problem:
            return problem
        return None

    def _find(self, connection: Connection, names: Collection[str]) -> None:
        """Read the numbers of campaigns."""
        campaign = tables.campaign
        missing = [name for name in names if name not in self._numbers]
        columns = (campaign.c.id, campaign.c.number, campaign.c.portfolio)
        found = connection.execute(select(*columns).where(campaign.c.id.in_(missing))).all()
        self._numbers.update({row.id: row.number for row in found})
        self._portfolios.members.update({row.number: row.portfolio for row in found if row.portfolio is not None})

    def _open(
        self,
        connection: Connection,
        changes: Changes,
        numbers: Sequence[int],
        now: int,
        attempt: Attempt,
        items: Sequence[Item] = (),
        *,
        fresh: bool = False,
    ) -> None:
        """Lock the campaigns that are free, and add them to the changes. For `items`, their commands, it may wait."""
        opened, unread, members, turns = [], [], self._portfolios.members, self._turns
        named, awaited = self._numbers, attempt.awaited
        has_waited = turns.wait_first(connection, items, named, members, awaited, fresh=fresh)
        free = numbers
        if members:
            free = self._portfolios.open(connection, changes, numbers, now, self._writer.epoch)
        for number in free:
            known = self.cache.unchanged(number, self._writer.epoch)
            if known is None:
                unread.append(number)
            else:
                opened.append(known)
        if len(opened) < len(numbers):
            may_wait = () if has_waited else items
            rows = turns.lock(connection, unread, may_wait, named, members, awaited, fresh=fresh)
            opened += self._read(connection, rows, now, attempt)
        if turns.has_waited:  # a decision belongs to the time at which its campaign is locked
            now = self._database.now_micros(connection)
        for known in opened:
            campaign, remainder = known.campaign, known.remainder
            assert remainder is not None, "the campaign is complete"
            locked = LockedCampaign(
                campaign,
                known.state,
                Ledger(remainder.accounts, remainder.limits),
                remainder.status,
                known.sequence,
                known.model_version,
                max(now, remainder.last_event_at),
                self._created_at[campaign.number],
                changes,
            )
            locked.one_by_one, locked.traffic = attempt.one_by_one, remainder.traffic
            locked.before = known
            changes.campaigns[campaign.id] = locked
        if changes.portfolios:
            self._portfolios.join(changes)

    def _read(self, connection: Connection, rows: Sequence[Row], now: int, attempt: Attempt) -> list[CachedCampaign]:
        """Read what others have written to locked campaigns since they were cached."""
        numbers = [row["campaign"] for row in rows]
        if not numbers:
            return []
        balances = accounts(connection, numbers)
        new = [number for number in numbers if number not in self._created_at]
        if new:
            self._created_at.update(creation_times(connection, new))
        for row in rows:
            if row["campaign"] not in attempt.caught_up and is_far_behind(self.cache, row):
                raise FarBehind(row["campaign"])
        lessons = lessons_since(connection, self.cache, rows)
        found: list[CachedCampaign] = []
        for row in rows:
            number = row["campaign"]
            try:
                known = current(connection, self.cache, row, lessons.get(number))
            except UnknownRules as problem:
                if number not in self._unknown:
                    log.warning("campaign refused", number=number, error=problem.detail)
                self._unknown.add(number)
                attempt.refused[number] = problem
                continue
            self.cache.count_folded(known)
            remainder = Remainder(row["status"], row["last_event_at"], balances[number], traffic=stored_traffic(row))
            found.append(known._replace(remainder=remainder))
        if not (limited := [known.campaign.number for known in found if known.campaign.windows]):
            return found
        limits = windows.present_limits(connection, limited, now)
        return [
            known._replace(remainder=known.remainder and known.remainder._replace(limits=limits[known.campaign.number]))
            for known in found
        ]

    def _leave_out(
        self, connection: Connection, changes: Changes, by_campaign: dict[str, list[Item]], attempt: Attempt
    ) -> None:
        """Answer the items of campaigns that are not there, and leave those of campaigns that were not free."""
        missing = {name for name in by_campaign if name not in changes.campaigns}
        # A remembered number may have lost its row: read it again.
        lost = [name for name in missing if self._numbers.get(name) in attempt.awaited]
        for name in lost:
            self._numbers.pop(name, None)
        if lost:
            self._find(connection, lost)
        blocked: list[str] = []
        for name in missing:
            number = self._numbers.get(name)
            problem: Problem | None = None
            if number is None:
                problem = NotFound(no_such("campaign", name), kind="campaign-not-found")
            else:
                problem = attempt.refused.get(number)
            if problem is None:
                blocked.append(name)
            for item in by_campaign[name]:
                item.answer = problem
        if blocked:
            self._turns.leave(by_campaign, blocked)
            for name in [*changes.campaigns]:
                if not by_campaign[name]:
                    del changes.campaigns[name]

    def _serve(self, connection: Connection, changes: Changes, by_campaign: Mapping[str, Sequence[Item]]) -> None:
        """Outcomes first, then changes, then decisions."""
        wanted: dict[tuple[int, str], None] = {}  # each decision once
        stored: dict[int, dict[str, Any]] = {}
        for name, locked in changes.campaigns.items():
            number = locked.campaign.number
            stored[number] = {}
            for item in by_campaign[name]:
                if isinstance(item.command, _HOT) and item.command.decision_id is not None:
                    wanted[number, item.command.decision_id] = None
        for row in DECISIONS.fetch(connection, [*wanted]):
            stored[row["campaign"]][row["decision_id"]] = row
        requests: list[decide.Requests] = []
        for name, locked in changes.campaigns.items():
            items = by_campaign[name]
            decides = [item for item in items if isinstance(item.command, Decide)]
            existing = stored[locked.campaign.number]
            if len(decides) < len(items):
                self._settle(connection, locked, items, existing)
            if locked.campaign.counts_traffic:
                administer.renew_estimate(connection, locked, len(decides))
            if existing:
                locked.earlier = earlier_versions(connection, locked, decides, existing)
            if decides and locked.campaign.windows:
                windows.roll_over(connection, locked)
            if decides and locked.member is not None:
                self._portfolios.prepare(connection, changes, locked)
            if decides:
                requests.append(decide.Requests(locked, decides, existing))
        if requests:
            decide.decide_all(requests, self._work_max)

    def _settle(
        self, connection: Connection, locked: LockedCampaign, items: Sequence[Item], existing: Mapping[str, Any]
    ) -> None:
        feedback = [(item, item.command) for item in items if isinstance(item.command, Feedback)]
        if feedback:
            named = {command.decision_id for _, command in feedback}
            known = [row for each, row in existing.items() if each in named]
            records = {record.row["decision_id"]: record for record in records_of(connection, locked, known)}
            for item, command in feedback:
                item.answer = settle.settle(locked, command, records.get(command.decision_id))
            settle.teach(locked)
        for item in items:
            if not isinstance(item.command, _HOT):
                item.answer = _administered(connection, locked, item.command)
                if locked.member is not None:
                    locked.member.expects_again()

    def overdue(self) -> list[int]:
        """The campaigns that have holds past their time and are not postponed."""
        return [number for number in self._overdue() if number not in self._postponed]

    def postponed(self) -> list[int]:
        """The postponed campaigns to try now, the first to be tried first; one without overdue holds is released."""
        now = time.monotonic()
        ready = [number for number, again in self._postponed.items() if again <= now]
        overdue = set(self._overdue() if ready else ())
        for number in ready:
            if number not in overdue:
                del self._postponed[number]
        return [number for number in ready if number in overdue]

    def _overdue(self) -> list[int]:
        hold = tables.hold
        with self._database.read() as connection:
            due = hold.c.expires_at <= self._database.now_micros(connection)
            numbers = connection.execute(select(hold.c.campaign).where(due).distinct().order_by(hold.c.campaign))
            return [number for number in numbers.scalars() if number not in self._unknown]

    def postpone_expiry(self, number: int) -> None:
        """Leave a campaign out of the joint expiry until its holds have expired alone: they could not expire."""
        self._postponed.pop(number, None)  # it goes to the end
        self._postponed[number] = time.monotonic() + EXPIRE_AGAIN_SECONDS

    def has_expired_alone(self, number: int, expired: int) -> None:
        """Let a postponed campaign join the others again, unless nothing has expired: it was locked."""
        if expired:
            self._postponed.pop(number, None)
        elif number in self._postponed:
            self.postpone_expiry(number)

    def _expire(
        self, connection: Connection, changes: Changes, now: int, attempt: Attempt, number: int | None = None
    ) -> int:
        """Expire holds past their time, of all campaigns or of one; return how many have expired."""
        left_out = self._unknown | self._postponed.keys() if number is None else self._unknown
        due = due_holds(connection, now, besides=left_out, of=number)
        if not due:
            return 0
        self._portfolios.find_members(connection, [*due])
        self._turns.wait_for_due(connection, due, self._portfolios.members)
        self._open(connection, changes, sorted(due), now, attempt)
        self._turns.leave_out_due(due.keys() - {locked.campaign.number for locked in changes.campaigns.values()})
        # Before the locks another process may have ended some of them.
        still = due_holds(connection, now, besides=left_out, of=number)
        expired = 0
        for locked in changes.campaigns.values():
            decisions = sorted(still.get(locked.campaign.number, ()))
            if decisions:
                found = DECISIONS_BY_SEQUENCE.fetch(connection, decisions, number=locked.campaign.number)
                expired += len(found)
                for record in records_of(connection, locked, found):
                    settle.expire(locked, record)
            settle.teach(locked)
        return expired


def _administered(connection: Connection, locked: LockedCampaign, command: Command) -> Answer | Problem | None:
    if isinstance(command, Once):
        inner = partial(_administered, connection, locked, command.command)
        return answered_once(connection, command, locked.now, inner)
    if isinstance(command, SetStatus):
        return administer.set_status(connection, locked, command)
    if isinstance(command, PatchCampaign):
        return administer.patch_campaign(connection, locked, command)
    if isinstance(command, Adjust):
        return administer.adjust(connection, locked, command)
    if isinstance(command, ImportModel):
        return models.import_model(connection, locked, command)
    if isinstance(command, EndStage):
        return stage_one.end_stage(locked, command)
    return None
