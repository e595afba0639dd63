"""One transaction for one batch of commands.

It locks the campaigns in order, reads what they need in later statements, settles, expires, decides, writes and
commits. `batch.py` decides what happens when it fails.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import structlog
from sqlalchemy import Connection, bindparam, select

from service.domain.campaign import Campaign
from service.domain.ledger import Ledger
from service.domain.stage_one import is_handed_out
from service.domain.status import DecisionRecord
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
    load_campaign,
    stored_traffic,
)
from service.engine.changes import Changes, LockedCampaign
from service.engine.commands import (
    Adjust,
    Answer,
    CreateCampaign,
    CreateKey,
    Decide,
    EndStage,
    Expire,
    Feedback,
    ImportModel,
    Item,
    PatchCampaign,
    RevokeKey,
    SetStatus,
)
from service.engine.snapshots import Snapshots
from service.fault import Reached
from service.metrics import Metrics
from service.problems import NotFound, Problem, Unavailable, UnknownRules
from service.store import keys, tables
from service.store.database import Database
from service.store.statements import Lookup, Prepared

# The most holds that expire in one transaction.
EXPIRE_ROWS_MAX = 1_000
# A campaign whose holds could not expire is tried again after this time, alone, so that it does not fail the others.
EXPIRE_AGAIN_SECONDS = 10.0
_HOT = (Decide, Feedback)

_DECISIONS = Lookup(tables.decision, "decision_id")
_OUTCOMES = Lookup(tables.outcome, "decision")
_DECISIONS_BY_SEQUENCE = Prepared(
    lambda among: (
        select(tables.decision)
        .where(tables.decision.c.campaign == bindparam("number"), among.has(tables.decision.c.sequence))
        .order_by(tables.decision.c.sequence)
    )
)

log = structlog.get_logger(__name__)


@dataclass
class Attempt:
    """How a transaction is tried."""

    caught_up: set[int] = field(default_factory=set)  # campaigns whose log was folded before
    one_by_one: bool = False  # outcomes are learnt one by one, and one that would spoil the model is not learnt
    refused: dict[int, UnknownRules] = field(default_factory=dict)  # campaigns this process must not decide for


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
        self._database, self._metrics, self._reached = database, metrics, reached
        self._writer = database.writer
        self.cache = Cache(memory_bytes_max, work_max)
        self._work_max = work_max
        self.snapshots = Snapshots(database, self.cache)
        self._lock_timeout_ms = lock_timeout_ms
        self._numbers: dict[str, int] = {}
        self._created_at: dict[int, int] = {}
        self.handed_out: set[int] = set()  # campaigns whose stage one waits for its last outcomes
        self._unknown: set[int] = set()  # campaigns with rules that this process does not know: their holds stay
        self._postponed: dict[int, float] = {}  # campaigns whose holds could not expire, and when to try them alone
        self._restarts: dict[int, tuple[int, int]] = {}  # each campaign's model and its restarts so far

    def run(self, items: Sequence[Item], attempt: Attempt) -> None:
        """Answer every item in one transaction, or raise."""
        changes = Changes()
        with self._writer.begin(self) as connection:
            if self._writer.history != self.cache.history:
                self._forget_all(self._writer.history)
            now = self._writer.now_micros()
            by_campaign: dict[str, list[Item]] = {}
            alone: list[Item] = []
            for item in items:
                name = getattr(item.command, "campaign_id", None)
                if name is None:
                    alone.append(item)
                else:
                    by_campaign.setdefault(name, []).append(item)
            for item in alone:
                item.answer = self._without_campaign(connection, item, now, changes, attempt)
            if by_campaign:
                if not by_campaign.keys() <= self._numbers.keys():
                    self._find(connection, by_campaign)
                numbers = sorted([self._numbers[name] for name in by_campaign if name in self._numbers])
                self._open(connection, changes, numbers, now, attempt, fresh=not alone)
                if len(changes.campaigns) < len(by_campaign):
                    self._refuse(connection, changes, by_campaign, attempt)
                self._serve(connection, changes, by_campaign)
            if changes.campaigns:
                changes.write(connection, self._reached)
            epoch = self._writer.epoch
        self._remember(changes, len(items), epoch)
        if changes.campaigns and self._reached is not None:
            self._reached("after-commit")

    def _remember(self, changes: Changes, commands: int, epoch: int | None) -> None:
        """Cache the committed states and report the transaction to the metrics; never raises."""
        try:
            self._metrics.batch_size.observe(commands)
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
                if "outcome" in locked.rows:
                    self._observe(locked)
        except Exception as error:
            log.error("the committed campaigns are read again", exc_info=error)
            self.cache.distrust()

    def forget(self, items: Sequence[Item]) -> None:
        """Forget the campaigns of a transaction that failed: it may or may not have happened."""
        for item in items:
            # Its number, too: the transaction that failed may have created the campaign.
            number = self._numbers.pop(getattr(item.command, "campaign_id", ""), None)
            if number is not None:
                self._created_at.pop(number, None)
                self.cache.forget(number)
        self.cache.distrust()

    def _forget_all(self, history: object) -> None:
        """Forget everything that was read from a database with another history: its rows may be gone."""
        if self.cache.history is not None:
            log.warning("the database was replaced; everything is read again")
        self.cache.clear()
        self.cache.history = history
        for remembered in (self._numbers, self._created_at, self.handed_out, self._unknown, self._restarts):
            remembered.clear()
        self._postponed.clear()

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
        self, connection: Connection, item: Item, now: int, changes: Changes, attempt: Attempt
    ) -> Answer | Problem | None:
        command = item.command
        try:
            if isinstance(command, Expire):
                return Answer({"expired": self._expire(connection, changes, now, attempt, command.number)})
            if isinstance(command, CreateCampaign):
                return administer.create_campaign(connection, command, now)
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
        found = connection.execute(select(campaign.c.id, campaign.c.number).where(campaign.c.id.in_(missing)))
        self._numbers.update({row.id: row.number for row in found})

    def _open(
        self,
        connection: Connection,
        changes: Changes,
        numbers: Sequence[int],
        now: int,
        attempt: Attempt,
        *,
        fresh: bool = False,
    ) -> None:
        """Lock campaigns in the order of their numbers, and add them to the changes; some may not be free."""
        opened, unread = [], []
        for number in numbers:
            known = self.cache.unchanged(number, self._writer.epoch)
            if known is None:
                unread.append(number)
            else:
                opened.append(known)
        if unread:
            opened += self._read(connection, unread, now, attempt, fresh=fresh)
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
            changes.campaigns[campaign.id] = locked

    def _read(
        self, connection: Connection, numbers: Sequence[int], now: int, attempt: Attempt, *, fresh: bool
    ) -> list[CachedCampaign]:
        """Lock campaigns and read what others have written since they were cached."""
        locked = self._database.lock_rows(connection, numbers, timeout_ms=self._lock_timeout_ms, fresh=fresh)
        balances = accounts(connection, numbers)
        new = [number for number in numbers if number not in self._created_at]
        if new:
            self._created_at.update(creation_times(connection, new))
        found: list[CachedCampaign] = []
        for row in locked:
            number = row["campaign"]
            if number not in attempt.caught_up and is_far_behind(self.cache, row):
                raise FarBehind(number)
            try:
                known = current(connection, self.cache, row)
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

    def _refuse(
        self, connection: Connection, changes: Changes, by_campaign: Mapping[str, Sequence[Item]], attempt: Attempt
    ) -> None:
        """Answer the items of campaigns that could not be locked."""
        refused = [name for name in by_campaign if name not in changes.campaigns]
        # A remembered number may have lost its row: read them again.
        for name in refused:
            self._numbers.pop(name, None)
        self._find(connection, refused)
        for name in refused:
            items = by_campaign[name]
            problem: Problem
            if name not in self._numbers:
                problem = NotFound("there is no such campaign", kind="campaign-not-found")
            elif self._numbers[name] in attempt.refused:
                problem = attempt.refused[self._numbers[name]]
            else:
                problem = Unavailable("another process keeps the campaign locked; try again", kind="campaign-busy")
            for item in items:
                item.answer = problem

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
        for row in _DECISIONS.fetch(connection, [*wanted]):
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
                locked.earlier = _earlier(connection, locked, decides, existing)
            if decides and locked.campaign.windows:
                windows.roll_over(connection, locked)
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
            records = {record.row["decision_id"]: record for record in _records(connection, locked, known)}
            for item, command in feedback:
                item.answer = settle.settle(locked, command, records.get(command.decision_id))
            settle.teach(locked)
        for item in items:
            if not isinstance(item.command, _HOT):
                item.answer = _administered(connection, locked, item)

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
        due = _due_holds(connection, now, besides=left_out, of=number)
        if not due:
            return 0
        self._open(connection, changes, sorted(due), now, attempt)
        # Before the locks another process may have ended some of them.
        still = _due_holds(connection, now, besides=left_out, of=number)
        expired = 0
        for locked in changes.campaigns.values():
            decisions = sorted(still.get(locked.campaign.number, ()))
            if decisions:
                found = _DECISIONS_BY_SEQUENCE.fetch(connection, decisions, number=locked.campaign.number)
                expired += len(found)
                for record in _records(connection, locked, found):
                    settle.expire(locked, record)
            settle.teach(locked)
        return expired

    def _observe(self, locked: LockedCampaign) -> None:
        """Report committed outcomes to the metrics."""
        metrics, name = self._metrics, locked.campaign.id
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
            policy = locked.campaign.policy
            errors = policy.mean_squared_errors(locked.state)[0].tolist()
            for target, loss in zip(("reward", *locked.campaign.resources), errors, strict=True):
                metrics.oracle_loss.labels(name, target).set(loss)
            restarts = int(policy.changes(locked.state)[0])
            metrics.changes_noticed.labels(name).set(restarts)
            metrics.alarms_dismissed.labels(name).set(int(policy.dismissed_alarms(locked.state)[0]))
            version, before = self._restarts.get(locked.campaign.number, (locked.model_version, restarts))
            if version == locked.model_version and restarts > before:  # an imported model brings its own restarts
                log.info("the world has changed; the model restarts", campaign=name, changes=restarts)
            self._restarts[locked.campaign.number] = locked.model_version, restarts


def _records(connection: Connection, locked: LockedCampaign, rows: Sequence[Any]) -> list[DecisionRecord]:
    """These decisions of the campaign with their outcomes; the ledger gets the accounts that they are booked in."""
    if locked.campaign.windows:
        windows.read_earlier(connection, locked, rows)
    outcomes: dict[int, list[Any]] = {row["sequence"]: [] for row in rows}
    found = _OUTCOMES.fetch(connection, [(locked.campaign.number, sequence) for sequence in outcomes])
    for one in [*sorted(found, key=itemgetter("sequence")), *locked.rows.get("outcome", ())]:
        if one["decision"] in outcomes:
            outcomes[one["decision"]].append(one)
    return [DecisionRecord.of(row, outcomes[row["sequence"]]) for row in rows]


def _earlier(
    connection: Connection, locked: LockedCampaign, decides: Sequence[Item], existing: Mapping[str, Any]
) -> dict[int, Campaign]:
    """The older versions of the campaign in which decisions were made that requests want explained again."""
    asked = [item.command for item in decides if isinstance(item.command, Decide) and item.command.explain]
    versions = {row["config_version"] for command in asked if (row := existing.get(command.decision_id or ""))}
    return {version: load_campaign(connection, locked.campaign.number, version) for version in versions}


def _due_holds(
    connection: Connection, now: int, *, besides: Collection[int], of: int | None = None
) -> dict[int, list[int]]:
    """The earliest decisions whose holds are past their time, by campaign; none of the campaigns `besides`."""
    hold = tables.hold
    due = select(hold.c.campaign, hold.c.decision).where(hold.c.expires_at <= now)
    if of is not None:
        due = due.where(hold.c.campaign == of)
    if besides:
        due = due.where(hold.c.campaign.not_in(besides))
    found: dict[int, list[int]] = defaultdict(list)
    for number, decision in connection.execute(due.order_by(hold.c.expires_at).limit(EXPIRE_ROWS_MAX)):
        found[number].append(decision)
    return found


def _administered(connection: Connection, locked: LockedCampaign, item: Item) -> Answer | Problem | None:
    command = item.command
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
