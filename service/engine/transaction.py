"""One batch of commands, one transaction.

Lock the campaigns in order, read what they need in later statements, settle, expire, decide, write, commit, and
meanwhile remember the new states. A batch that fails for a reason of its own is run again command by command, so that
a poisonous one fails alone; one in which a request may be a repeat is run again with a look for what was decided; a
commit that fails means *unknown*: the campaigns are forgotten and the clients ask again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import structlog
from sqlalchemy import Connection, select
from sqlalchemy.exc import IntegrityError

from service.domain.ledger import Ledger
from service.engine import administer as administration
from service.engine import decide as deciding
from service.engine import horizon as flight
from service.engine import models, rows
from service.engine import settle as settling
from service.engine import stage_one as stages
from service.engine.cache import FarBehind, Left, Memory, Remembered, current, is_far_behind
from service.engine.changes import Work
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
from service.engine.grouping import Kept, One, decide_across, is_simple
from service.engine.meanwhile import Meanwhile
from service.engine.snapshots import Snapshots
from service.fault import Reached, pass_by
from service.metrics import Metrics
from service.problems import NotFound, Problem, Unavailable, UnknownRules
from service.store import keys, tables
from service.store.database import Database

# Holds that one transaction lets expire.
EXPIRE_ROWS_MAX = 1_000
# Who has repeated one request, after a timeout, is about to repeat more: so many transactions then look for decisions
# before they decide. Otherwise that would be a statement in each for what hardly ever happens.
WATCHFUL_TRANSACTIONS = 1_000
# A larger transaction leaves no time of the disk's free: the event loop reads meanwhile, and a third thread made
# batches of a hundred a twentieth slower.
MEANWHILE_COMMANDS_MAX = 64
AWAY = "the database did not answer; try again"

log = structlog.get_logger(__name__)


class Unsure(Exception):  # noqa: N818
    """A request was answered without a new decision, and nobody has looked whether there is an old one."""


class Committed(NamedTuple):
    """A transaction that ends well, unless its COMMIT fails."""

    works: Sequence[Work]
    epoch: int | None
    commands: int


@dataclass
class Attempt:
    """How a transaction is tried."""

    caught_up: set[int] = field(default_factory=set)  # campaigns that are no longer far behind the log
    one_by_one: bool = False
    watchful: bool = False  # look for decisions that were made before
    refused: dict[int, UnknownRules] = field(default_factory=dict)  # campaigns this process must not decide for


class Processor:
    """Runs batches on one database; one thread only."""

    def __init__(
        self,
        database: Database,
        *,
        memory_bytes_max: int,
        lock_timeout_ms: int,
        metrics: Metrics | None = None,
        reached: Reached = pass_by,
        meanwhile: Meanwhile | None = None,
    ) -> None:
        """Without `meanwhile` nothing is done beside a commit, but everything after it."""
        self._reached = reached
        self._meanwhile = meanwhile
        self.failed = False  # for good: SQLite's file cannot be trusted any more
        self._database = database
        self._metrics = metrics or Metrics()
        self._memory = Memory(memory_bytes_max)
        self._snapshots = Snapshots(database, self._memory)
        self._lock_timeout_ms = lock_timeout_ms
        self._numbers: dict[str, int] = {}
        self._births: dict[int, int] = {}  # when each campaign was made
        self._handed_out: set[int] = set()  # campaigns whose stage one waits to be concluded from
        self._unknown: set[int] = set()  # campaigns with rules that this process does not know: their holds stay
        self._noticed: dict[int, tuple[int, int]] = {}  # each campaign's model and the changes of the world it has seen
        self._watchful = 0  # so many transactions still look for repeats
        self._committed: Committed | None = None  # what is being committed, or what `conclude` has still to see to
        self._ready: tuple[Remembered, Work] | None = None  # a campaign as the next transaction will find it

    def run(self, items: Sequence[Item]) -> None:
        """Answer every item and conclude."""
        self.process(items)
        self.conclude()

    def process(self, items: Sequence[Item]) -> None:
        """Answer every item; never raises for what an item asked."""
        # Expiry locks campaigns as it finds them, so it goes alone: nobody then waits for locks out of order.
        timed = [item for item in items if isinstance(item.command, Expire)]
        if timed:
            self._run(timed)
        others = [item for item in items if not isinstance(item.command, Expire)] if timed else items
        if others:
            self._run(others)

    def handed_out(self) -> list[int]:
        """Campaigns whose stage one is over as soon as none of its decisions is open; any thread may ask."""
        return list(self._handed_out)

    def _run(self, items: Sequence[Item]) -> None:
        if self.failed:
            for item in items:
                item.answer = Unavailable(AWAY, kind="database-away")
            return
        try:
            self._transact_caught_up(items)
        except Exception as error:
            self._forget(items)
            self._memory.doubt()
            groups = _groups(items)
            if self._database.is_file_error(error):
                self._fail(error)
            if self._database.is_connection_error(error):
                log.warning("database away", error=type(error).__name__)
                for item in items:
                    item.answer = Unavailable(AWAY, kind="database-away")
            elif len(groups) > 1:
                for group in groups:
                    self._run(group)
            else:
                log.error("command failed", command=type(items[0].command).__name__, exc_info=error)
                for item in items:
                    item.answer = error

    def _transact_caught_up(self, items: Sequence[Item]) -> None:
        """One transaction; a campaign far behind the log is first brought up to it without its lock.

        It is made again where outcomes cannot all be learnt, and those that can are learnt one by one; and where a
        decision was made before, or may have been. Only then that is looked for: otherwise the database tells, which
        refuses a second decision of the same id.
        """
        attempt = Attempt(watchful=self._watchful > 0)
        self._watchful = max(0, self._watchful - 1)
        while True:
            try:
                self._transact(items, attempt)
            except (FarBehind, settling.Unsound, IntegrityError, Unsure) as error:
                for item in items:  # a campaign made in the transaction that was given up is made again
                    self._births.pop(self._numbers.pop(getattr(item.command, "campaign_id", ""), 0), None)
                if isinstance(error, FarBehind):
                    self._catch_up(error.number)
                    attempt.caught_up.add(error.number)
                elif isinstance(error, settling.Unsound):
                    attempt.one_by_one = True
                elif attempt.watchful or not (isinstance(error, Unsure) or self._database.is_second_decision(error)):
                    raise
                else:
                    attempt.watchful = True
                    self._watchful = WATCHFUL_TRANSACTIONS
            else:
                return

    def _catch_up(self, number: int) -> None:
        state = tables.campaign_state
        with self._database.read() as connection:
            row = connection.execute(select(state).where(state.c.campaign == number)).mappings().one()
            try:
                known = current(connection, self._memory, dict(row))
            except UnknownRules:
                return  # the transaction that follows refuses the campaign
        self._memory.remember(known.campaign, known.state, known.sequence, known.model_version)
        self._snapshots.count_folded(known)

    def _fail(self, error: BaseException) -> None:
        """Nobody knows what is on the disk now; whoever starts next finds what was committed."""
        if not self.failed:
            log.critical("the database's file failed; the process ends", error=str(getattr(error, "orig", error)))
        self.failed = True

    def _transact(self, items: Sequence[Item], attempt: Attempt) -> None:
        self.conclude()
        try:
            with self._database.write_standing(self) as connection:
                now = self._database.now_micros(connection)
                mine: dict[str | None, list[Item]] = defaultdict(list)
                for item in items:
                    mine[getattr(item.command, "campaign_id", None)].append(item)
                alone = mine.pop(None, [])
                for item in alone:
                    item.answer = self._without_campaign(connection, item, now)
                works = self._locked(connection, mine, now, attempt, fresh=not alone)
                wanted = {work.campaign.number: _ids(mine[name], attempt.watchful) for name, work in works.items()}
                known = rows.decisions(connection, wanted)
                together, unkept = self._serve(connection, works, mine, known)
                if unkept and not attempt.watchful:
                    raise Unsure
                if any(isinstance(item.command, Expire) for item in alone):
                    expired = self._expire(connection, works, now, attempt)
                    for item in items:
                        item.answer = Answer({"expired": expired})
                if works:
                    self._write(connection, works.values(), together)
                    self._reached("before-commit")
                done = self._committed = Committed([*works.values()], self._database.epoch(), len(items))
                if self._meanwhile is not None and done.commands <= MEANWHILE_COMMANDS_MAX:
                    self._meanwhile.begin(self._remember(done))
        except BaseException:
            self._take_back()
            raise
        if works:
            self._reached("after-commit")

    def _take_back(self) -> None:
        """Forget what was remembered of a transaction whose COMMIT has failed: it may or may not have happened."""
        failed, self._committed = self._committed, None
        if failed is not None:
            if self._meanwhile is not None:
                self._meanwhile.finish()
            self._ready = None
            for work in failed.works:
                self._memory.forget(work.campaign.number)

    def conclude(self) -> None:
        """See to what is left to do of the last transaction, if anything, and tell the metrics; never raises.

        Nobody needs it before the next transaction, so clients can have their answers first.
        """
        done = self._committed
        if done is None:
            return
        if self._meanwhile is not None and done.commands <= MEANWHILE_COMMANDS_MAX:
            self._meanwhile.finish()
        else:
            for _ in self._remember(done):
                pass
        self._committed = None
        try:
            for work in done.works:
                if work.learnt:
                    self._snapshots.count(work.campaign.number, work.learnt)
                (self._handed_out.add if stages.is_handed_out(work) else self._handed_out.discard)(work.campaign.number)
            self._metrics.batch_size.observe(done.commands)
            for work in done.works:
                if "outcome" in work.rows:
                    self._observe(work)
        except Exception as error:
            log.error("what was committed is read again", exc_info=error)
            self._memory.doubt()

    def _remember(self, done: Committed) -> Iterator[None]:
        """Keep, in steps, how a transaction leaves its campaigns, and make what the next needs first; never raises.

        It may be done while the commit waits for the disk: until it is known how that has ended nobody asks.
        """
        try:
            for work in done.works:
                left = Left(work.status, work.now, work.ledger.accounts, done.epoch)
                known = self._memory.remember(work.campaign, work.state, work.sequence, work.model_version, left)
                yield
            # Not where the campaign will be read again all the same.
            if len(done.works) == 1 and done.epoch is not None:
                following = _work_on(known, left, work.created_at)
                yield
                self._ready = known, following
            else:
                self._ready = None
        except Exception as error:
            log.error("what was committed is read again", exc_info=error)
            self._memory.doubt()

    def _without_campaign(self, connection: Connection, item: Item, now: int) -> Answer | Problem | None:
        command = item.command
        try:
            if isinstance(command, CreateCampaign):
                return administration.create_campaign(connection, command, now)
            if isinstance(command, CreateKey):
                made, text = keys.create_key(
                    connection, command.name, command.role, command.campaigns, now, actor=command.actor
                )
                return Answer({"id": made, "key": text}, status=201)
            if isinstance(command, RevokeKey):
                keys.revoke_key(connection, command.key_id, now, actor=command.actor)
                return Answer({"id": command.key_id, "revoked": True})
        except Problem as problem:
            return problem
        return None

    def _locked(
        self,
        connection: Connection,
        mine: Mapping[str | None, Sequence[Item]],
        now: int,
        attempt: Attempt,
        *,
        fresh: bool,
    ) -> dict[str, Work]:
        """The campaigns that items name, locked in the order of their numbers; unknown ones are answered."""
        names = [name for name in mine if name is not None]
        numbers = self._numbers_of(connection, names)
        works = self._opened(connection, sorted(numbers.values()), now, attempt, fresh=fresh)
        for name in names:
            if name in works:
                continue
            problem: Problem
            if name not in numbers:
                problem = NotFound("there is no such campaign", kind="campaign-not-found")
            elif numbers[name] in attempt.refused:
                problem = attempt.refused[numbers[name]]
            else:
                problem = Unavailable("another process keeps the campaign locked; try again", kind="campaign-busy")
            for item in mine[name]:
                item.answer = problem
        return works

    def _opened(
        self, connection: Connection, numbers: Sequence[int], now: int, attempt: Attempt, *, fresh: bool = False
    ) -> dict[str, Work]:
        works: dict[str, Work] = {}
        unread = []
        epoch = self._database.epoch()
        for number in numbers:
            kept = self._memory.recall_whole(number, epoch)
            if kept is None:
                unread.append(number)
            else:
                known, last = kept
                ready, self._ready = self._ready, None  # for one transaction only: what becomes of it stays there
                if ready is not None and ready[0] is known:
                    work = ready[1]
                else:
                    work = _work_on(known, last, self._births[number])
                works[known.campaign.id] = work.begin(now, one_by_one=attempt.one_by_one)
        if not unread:
            return works
        locked = self._database.lock_rows(connection, unread, timeout_ms=self._lock_timeout_ms, fresh=fresh)
        accounts = rows.accounts(connection, unread)
        unborn = [number for number in unread if number not in self._births]
        if unborn:
            self._births.update(rows.births(connection, unborn))
        for row in locked:
            number = row["campaign"]
            if number not in attempt.caught_up and is_far_behind(self._memory, row):
                raise FarBehind(number)
            try:
                known = current(connection, self._memory, row)
            except UnknownRules as problem:
                if number not in self._unknown:
                    log.warning("campaign refused", number=number, error=problem.detail)
                self._unknown.add(number)
                attempt.refused[number] = problem
                continue
            self._snapshots.count_folded(known)
            last = Left(row["status"], row["last_event_at"], accounts[number])
            work = _work_on(known, last, self._births[number])
            works[known.campaign.id] = work.begin(now, one_by_one=attempt.one_by_one)
        return works

    def _numbers_of(self, connection: Connection, names: Iterable[str]) -> dict[str, int]:
        missing = [name for name in names if name not in self._numbers]
        if missing:
            campaign = tables.campaign
            found = connection.execute(select(campaign.c.id, campaign.c.number).where(campaign.c.id.in_(missing)))
            self._numbers.update({row.id: row.number for row in found})
        return {name: self._numbers[name] for name in names if name in self._numbers}

    def _serve(
        self,
        connection: Connection,
        works: Mapping[str, Work],
        mine: Mapping[str | None, Sequence[Item]],
        known: Mapping[int, dict[str, Any]],
    ) -> tuple[list[Kept], int]:
        """Outcomes first, then changes, then decisions; `known` are the stored decisions that items name.

        Returns what several campaigns keep together, which is not in their works, and how many decisions were asked
        for of which nothing new is kept.
        """
        asked: list[tuple[Work, list[Item], list[Decide]]] = []
        for name, work in works.items():
            items = mine[name]
            decides = [item for item in items if isinstance(item.command, Decide)]
            if len(decides) < len(items):
                self._settle(connection, work, items, known[work.campaign.number])
            flight.renew(connection, work)
            if decides:
                asked.append((work, decides, [item.command for item in decides if isinstance(item.command, Decide)]))
        encoded: Sequence[deciding.Vectors | None] = [None] * len(asked)
        found: dict[int, Answer] = {}
        together: list[Kept] = []
        if len(asked) > 1:
            encoded = deciding.encoded_together([(work.campaign, requests) for work, _, requests in asked])
            simple = [
                One(work, requests[0], vectors[0])
                for (work, _, requests), vectors in zip(asked, encoded, strict=True)
                if vectors is not None and is_simple(work, requests, known[work.campaign.number])
            ]
            found, together = decide_across(simple)
        for (work, decides, requests), vectors in zip(asked, encoded, strict=True):
            number = work.campaign.number
            answers = [found[number]] if number in found else deciding.decide(work, requests, known[number], vectors)
            for item, answer in zip(decides, answers, strict=True):
                item.answer = answer
        made = [columns for work in works.values() for columns in work.decided] + [one.decided for one in together]
        unkept = sum(len(decides) for _, decides, _ in asked) - sum(len(columns["arm"]) for columns in made)
        return together, unkept

    def _settle(self, connection: Connection, work: Work, items: Sequence[Item], known: Mapping[str, Any]) -> None:
        feedback = [(item, item.command) for item in items if isinstance(item.command, Feedback)]
        named = {command.decision_id for _, command in feedback}
        standings = rows.standings(connection, work, {each: row for each, row in known.items() if each in named})
        for item, command in feedback:
            item.answer = settling.settle(work, command, standings.get(command.decision_id))
        settling.tell(work)
        for item in items:
            if not isinstance(item.command, Decide | Feedback):
                item.answer = _administered(connection, work, item)

    def _expire(self, connection: Connection, works: dict[str, Work], now: int, attempt: Attempt) -> int:
        """Holds past their time, of campaigns locked here or locked for it; how many."""
        due = rows.due_holds(connection, now, EXPIRE_ROWS_MAX, besides=self._unknown)
        works.update(self._opened(connection, sorted(due), now, attempt))
        # Before the locks somebody else may have ended some of them.
        still = rows.due_holds(connection, now, EXPIRE_ROWS_MAX, besides=self._unknown) if due else {}
        expired = 0
        for work in works.values():
            mine = still.get(work.campaign.number, [])
            expired += len(mine)
            for standing in rows.standings_by_sequence(connection, work, sorted(mine)):
                settling.expire(work, standing)
            settling.tell(work)
        return expired

    def _write(self, connection: Connection, works: Collection[Work], together: Sequence[Kept]) -> None:
        self._reached("before-insert")
        rows.append(self._database, connection, works, together)
        self._reached("after-insert")
        rows.move(connection, works)

    def _observe(self, work: Work) -> None:
        """Tell the metrics what was committed of outcomes."""
        metrics, name = self._metrics, work.campaign.id
        for delay in work.delays:
            metrics.feedback_delay_seconds.observe(delay)
        for counter, count in (
            (metrics.expired_holds, work.expired),
            (metrics.cost_above_hold, work.above_hold),
            (metrics.quarantined_updates, work.quarantined),
        ):
            if count:
                counter.labels(name).inc(count)
        if work.learnt:
            errors = work.campaign.policy.mean_squared_errors(work.state)[0].tolist()
            for target, loss in zip(("reward", *work.campaign.resources), errors, strict=True):
                metrics.oracle_loss.labels(name, target).set(loss)
            noticed = int(work.campaign.policy.changes(work.state)[0])
            metrics.changes_noticed.labels(name).set(noticed)
            version, before = self._noticed.get(work.campaign.number, (work.model_version, noticed))
            if version == work.model_version and noticed > before:  # another model has noticed other things
                log.info("the world has changed; the model begins anew", campaign=name, changes=noticed)
            self._noticed[work.campaign.number] = work.model_version, noticed

    def _forget(self, items: Sequence[Item]) -> None:
        for item in items:
            # Its number, too: the campaign may have been made in the transaction that failed.
            number = self._numbers.pop(getattr(item.command, "campaign_id", ""), None)
            if number is not None:
                self._births.pop(number, None)
                self._memory.forget(number)

    def save_due(self) -> None:
        """Write the states that have learnt enough since their last snapshot, in transactions of their own."""
        self._save(self._snapshots.save_due)

    def save_all(self) -> None:
        """Snapshots of everything that has learnt since its last one: before the process stops."""
        self._save(self._snapshots.save_all)

    def _save(self, save: Callable[[object], BaseException | None]) -> None:
        error = None if self.failed else save(self)
        if error is not None:
            self._fail(error)


def _work_on(known: Remembered, last: Left, created_at: int) -> Work:
    return Work(
        known.campaign,
        known.state,
        Ledger(last.accounts),
        last.status,
        known.sequence,
        known.model_version,
        last.last_event_at,
        created_at,
    )


def _ids(items: Sequence[Item], watchful: bool) -> list[str]:
    """The decisions that outcomes name and, if anybody looks for repeats, those that are asked for."""
    named = []
    for item in items:
        command = item.command
        if isinstance(command, Feedback) or (watchful and isinstance(command, Decide)):
            named.append(command.decision_id)
    return [each for each in named if each is not None]


def _groups(items: Sequence[Item]) -> list[list[Item]]:
    """Items that must stay in one transaction, each group in the order it came."""
    groups: dict[Any, list[Item]] = {}
    for item in items:
        groups.setdefault(item.together or id(item), []).append(item)
    return list(groups.values())


def _administered(connection: Connection, work: Work, item: Item) -> Answer | Problem | None:
    command = item.command
    if isinstance(command, SetStatus):
        return administration.set_status(connection, work, command)
    if isinstance(command, PatchCampaign):
        return administration.patch_campaign(connection, work, command)
    if isinstance(command, Adjust):
        return administration.adjust(connection, work, command)
    if isinstance(command, ImportModel):
        return models.import_model(connection, work, command)
    if isinstance(command, EndStage):
        return stages.end_stage(work, command)
    return None
