"""The campaigns that a process caches between transactions; never the truth.

The oracle of a campaign is a fold of its log. The cache has the fold up to some sequence number; a transaction that
locks the campaign first folds what other processes have written since. Forgetting costs time, nothing else.

The rest of a campaign (`Remainder`) is used without reading the database where no other process can have written. So it
must be what was committed last, and after any failure it is not used.
"""

from __future__ import annotations

import json
from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import structlog
from sqlalchemy import Connection, select

from cbwk_core import State
from cbwk_core.snapshot import SnapshotError
from service.domain.campaign import Campaign
from service.domain.decision_rows import lessons_from, tickets_from
from service.domain.ledger import Account, Limit
from service.domain.traffic import Counts, decoded
from service.engine.admission import LargeCampaign, is_large
from service.engine.models import begun_model
from service.limits import DECIDE_WORK_MAX
from service.store import tables
from service.store.opening_balance import opening_state
from service.store.statements import Prepared
from service.store.taught_rows import taught_between, taught_rows

# Outcomes folded by one statement when catching up.
FOLD_ROWS_MAX = 5_000
# A process further behind the log than this many rows catches up before it takes the lock.
BEHIND_ROWS_MAX = 1_000
# A snapshot is due after this many outcomes learnt since the last one.
SNAPSHOT_OUTCOMES = 1_000

_ACCOUNTS = Prepared(
    lambda among: (
        select(tables.account)
        .where(among.has(tables.account.c.campaign))
        .order_by(tables.account.c.campaign, tables.account.c.resource)
    )
)
_CREATION_TIMES = Prepared(
    lambda among: select(tables.campaign.c.number, tables.campaign.c.created_at).where(
        among.has(tables.campaign.c.number)
    )
)

log = structlog.get_logger(__name__)


class FarBehind(Exception):  # noqa: N818
    """There is more of the log to fold than others should wait for: the transaction gives up its locks first."""

    def __init__(self, number: int) -> None:
        super().__init__(f"far behind the log of campaign {number}")
        self.number = number


class Remainder(NamedTuple):
    """What a campaign consists of besides its configuration and its policy's state."""

    status: str
    last_event_at: int
    accounts: Sequence[Account]
    limits: Sequence[Limit] = ()
    epoch: int | None = None  # of the transaction: see `Writer.epoch`
    traffic: Counts | None = None  # as in `LockedCampaign`


class CachedCampaign(NamedTuple):
    """A campaign's configuration and its policy's state after the log up to `sequence`."""

    campaign: Campaign
    state: State
    sequence: int
    model_version: int
    bytes: int
    unsaved: int = 0  # outcomes and halves that had to be folded because no snapshot has them
    remainder: Remainder | None = None


class Cache:
    """Campaigns by number; the least recently used are forgotten first when they take more than `bytes_max`.

    It counts what campaigns have learnt since their last snapshots; `snapshots.py` writes them.
    """

    def __init__(self, bytes_max: int, work_max: int = DECIDE_WORK_MAX) -> None:
        self.history: object = None  # of the database that has what is cached: see `store.writer.history_of`
        self.unsaved: dict[int, int] = defaultdict(int)  # outcomes and halves learnt since a campaign's last snapshot
        self.due: set[int] = set()  # campaigns that need a snapshot
        self.large: dict[str, LargeCampaign] = {}  # by id; one that is dropped stays here, because it comes back
        self._bytes_max, self._work_max = bytes_max, work_max
        self._campaigns: OrderedDict[int, CachedCampaign] = OrderedDict()
        self._bytes = 0

    def get(self, number: int) -> CachedCampaign | None:
        """The campaign, if it is cached."""
        found = self._campaigns.get(number)
        if found is not None:
            self._campaigns.move_to_end(number)
        return found

    def unchanged(self, number: int, epoch: int | None) -> CachedCampaign | None:
        """The campaign with its remainder, if it is cached and no other process has written since."""
        found = self._campaigns.get(number)
        if epoch is None or found is None or found.remainder is None or found.remainder.epoch != epoch:
            return None
        return found

    def distrust(self) -> None:
        """Drop all remainders: something failed, and it may have been after a commit."""
        for number, known in self._campaigns.items():
            self._campaigns[number] = known._replace(remainder=None)

    def put(
        self,
        campaign: Campaign,
        state: State,
        sequence: int,
        model_version: int,
        remainder: Remainder | None = None,
        learnt: int = 0,
    ) -> None:
        """Cache a state that was committed; it has learnt this many more outcomes and halves."""
        number = campaign.number
        known = self._campaigns.get(number)
        # The arrays keep their shapes until the configuration changes or the first half is learnt alone.
        if known is not None and known.campaign is campaign and type(known.state.oracle) is type(state.oracle):
            size = known.bytes
        else:
            size = _size_of(state)
            self.large.pop(campaign.id, None)
            if is_large(campaign, self._work_max):
                self.large[campaign.id] = LargeCampaign(campaign.arm_work, len(campaign.arms))
        cached = CachedCampaign(campaign, state, sequence, model_version, size, 0, remainder)
        self._campaigns[number] = cached
        self._campaigns.move_to_end(number)
        self._bytes += size - (0 if known is None else known.bytes)
        while self._bytes > self._bytes_max and len(self._campaigns) > 1:
            self.forget(next(iter(self._campaigns)))
        if learnt:
            self.unsaved[number] += learnt
            if self.unsaved[number] >= SNAPSHOT_OUTCOMES:
                self.due.add(number)

    def count_folded(self, known: CachedCampaign) -> None:
        """A campaign was brought up to its log: no snapshot has the outcomes that were folded."""
        number = known.campaign.number
        self.unsaved[number] = max(self.unsaved[number], known.unsaved)
        if self.unsaved[number] >= SNAPSHOT_OUTCOMES:
            self.due.add(number)

    def clear(self) -> None:
        """Drop all campaigns, and what is to be saved of them."""
        self._campaigns.clear()
        self._bytes = 0
        self.large.clear()
        self.unsaved.clear()
        self.due.clear()

    def forget(self, number: int) -> None:
        """Drop a campaign."""
        dropped = self._campaigns.pop(number, None)
        if dropped is not None:
            self._bytes -= dropped.bytes


def _size_of(part: Any) -> int:
    if isinstance(part, np.ndarray):
        return int(part.nbytes)
    if isinstance(part, tuple):
        return sum(_size_of(inner) for inner in part)
    return 0


def accounts(connection: Connection, numbers: Sequence[int]) -> dict[int, list[Account]]:
    """The accounts of campaigns, in the order of their resources."""
    found: dict[int, list[Account]] = defaultdict(list)
    for row in _ACCOUNTS.fetch(connection, numbers):
        found[row["campaign"]].append(Account(row["granted"], row["held"], row["spent"], row["overrun"]))
    return found


def creation_times(connection: Connection, numbers: Sequence[int]) -> dict[int, int]:
    """When campaigns were created."""
    return {row["number"]: row["created_at"] for row in _CREATION_TIMES.fetch(connection, numbers)}


def stored_traffic(row: Mapping[str, Any]) -> Counts | None:
    """The traffic of a `campaign_state` row; None if it is not counted, or not by the version that wrote last."""
    counts = None if row["traffic"] is None else decoded(row["traffic"])
    return counts if counts is not None and counts.sum() == row["round"] else None


def is_far_behind(cache: Cache, row: Mapping[str, Any]) -> bool:
    """Whether more than BEHIND_ROWS_MAX rows of the log separate the cache from a `campaign_state` row."""
    known = cache.get(row["campaign"])
    sequence = known.sequence if known is not None and _is_of(known, row) else 0
    return bool(row["sequence"] - sequence > BEHIND_ROWS_MAX)


def lessons_since(
    connection: Connection, cache: Cache, rows: Sequence[Mapping[str, Any]]
) -> dict[int, Sequence[Mapping[str, Any]]]:
    """What others have taught since campaigns of locked `campaign_state` rows were cached, for those that are current.

    Where neither counter of outcomes has moved, nothing was taught: every lesson settles its decision or completes it.
    """
    found: dict[int, Sequence[Mapping[str, Any]]] = {}
    behind = []
    for row in rows:
        known = cache.get(row["campaign"])
        if known is not None and _is_of(known, row) and known.campaign.version == row["config_version"]:
            found[row["campaign"]] = []
            state = known.state._replace(books=known.campaign.policy.read_books(np.frombuffer(row["books"], "<f8")))
            if (state.settled != known.state.settled).any() or (state.learnt != known.state.learnt).any():
                behind.append((row["campaign"], known.sequence, row["sequence"]))
    return found | taught_between(connection, behind)


def current(
    connection: Connection,
    cache: Cache,
    row: Mapping[str, Any],
    lessons: Sequence[Mapping[str, Any]] | None = None,
) -> CachedCampaign:
    """The campaign of a locked `campaign_state` row as it stands, from cache, snapshot and log.

    `lessons`: those of `lessons_since`, which are then not read again.
    """
    number = row["campaign"]
    known = cache.get(number)
    cold = known is None or not _is_of(known, row)
    if known is None or cold:
        known = _from_snapshot(connection, row)
    campaign, state = known.campaign, known.state
    if campaign.version != row["config_version"]:
        newer = load_campaign(connection, number, row["config_version"])
        state = newer.policy.adopt(campaign.policy, state)
        campaign = newer
    folded = 0
    if lessons:
        state, folded = _taught(campaign, state, lessons), len(lessons)
    elif lessons is None and known.sequence < row["sequence"]:
        state, folded = _folded(connection, campaign, state, known.sequence, row["sequence"])
    books = campaign.policy.read_books(np.frombuffer(row["books"], dtype="<f8"))
    now, unsaved = state._replace(books=books), folded if cold else 0
    return CachedCampaign(campaign, now, row["sequence"], row["model_version"], known.bytes, unsaved)


def _is_of(known: CachedCampaign, row: Mapping[str, Any]) -> bool:
    """Whether the log leads from the cached state to the row: same model, and nothing pruned in between.

    A cached state can be ahead of the row where the database has lost what it had committed.
    """
    same = known.model_version == row["model_version"]
    return bool(same and row["pruned_through"] <= known.sequence <= row["sequence"])


def load_campaign(connection: Connection, number: int, version: int) -> Campaign:
    """One version of a campaign's configuration."""
    config = tables.config
    body = connection.execute(
        select(config.c.body).where(config.c.campaign == number, config.c.version == version)
    ).scalar_one()
    name = connection.execute(select(tables.campaign.c.id).where(tables.campaign.c.number == number)).scalar_one()
    return Campaign(number, name, version, json.loads(body))


def _from_snapshot(connection: Connection, row: Mapping[str, Any]) -> CachedCampaign:
    """The newest snapshot of this model version that can be read, or the version's beginning."""
    snapshot = tables.snapshot
    found = connection.execute(
        select(snapshot)
        .where(
            snapshot.c.campaign == row["campaign"],
            snapshot.c.model_version == row["model_version"],
            snapshot.c.sequence.between(row["pruned_through"], row["sequence"]),
        )
        .order_by(snapshot.c.sequence.desc())
    ).mappings()
    for stored in found:
        campaign = load_campaign(connection, row["campaign"], stored["config_version"])
        try:
            state = campaign.policy.decode(stored["data"])
        except SnapshotError as error:
            log.warning("snapshot not usable", campaign=campaign.id, sequence=stored["sequence"], error=str(error))
            continue
        return CachedCampaign(campaign, state, stored["sequence"], row["model_version"], 0)
    return _beginning(connection, row)


def _beginning(connection: Connection, row: Mapping[str, Any]) -> CachedCampaign:
    """The state before the first round, at the opening balance of pruning, or after the last import of a model."""
    change, number, version = tables.change, row["campaign"], row["model_version"]
    opening = opening_state(connection, number) if row["pruned_through"] else None
    if opening is not None and opening["model_version"] == version:
        campaign = load_campaign(connection, number, opening["config_version"])
        return CachedCampaign(campaign, campaign.policy.decode(opening["state"]), opening["through"], version, 0)
    if version == 1:
        campaign = load_campaign(connection, number, 1)
        return CachedCampaign(campaign, campaign.policy.init(), 0, version, 0)
    imported = connection.execute(
        select(change)
        .where(change.c.campaign == number, change.c.model.is_not(None))
        .order_by(change.c.sequence.desc())
        .limit(1)
    ).one()
    campaign = load_campaign(connection, number, json.loads(imported.body)["config_version"])
    state = begun_model(campaign, imported.body, imported.model)
    return CachedCampaign(campaign, state, imported.sequence, version, 0)


def _folded(connection: Connection, campaign: Campaign, state: State, after: int, until: int) -> tuple[State, int]:
    """The state with everything learnt in (after, until], in the order of the log, and how many rows that were."""
    folded = 0
    while rows := taught_rows(connection, campaign.number, after, until, FOLD_ROWS_MAX):
        state = _taught(campaign, state, rows)
        after, folded = rows[-1]["learnt_at"], folded + len(rows)
    return state, folded


def _taught(campaign: Campaign, state: State, rows: Sequence[Mapping[str, Any]]) -> State:
    return campaign.policy.teach(state, tickets_from(campaign, rows), *lessons_from(campaign, rows))
