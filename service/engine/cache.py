"""What a process remembers of campaigns between transactions: a cache, never the truth.

The oracle of a campaign is a fold of its log. What is remembered is the fold up to some sequence number; whoever locks
the campaign first folds what others have written since. Forgetting costs time, nothing else.

How a transaction has left a campaign besides (`Left`) is believed without a look at the database where nobody else can
have written. So it must be what was committed last, and after any failure nothing of it is believed.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import structlog
from sqlalchemy import Connection, select

from cbwk_core import State
from cbwk_core.snapshot import SnapshotError
from service.domain.campaign import Campaign
from service.domain.ledger import Account
from service.domain.tickets import tickets_from
from service.engine.models import begun_model
from service.store import tables
from service.store.opening_balance import opening_state

# Outcomes folded by one statement when catching up.
FOLD_ROWS_MAX = 5_000
# Who is further behind the log than this many rows catches up before taking the lock.
BEHIND_ROWS_MAX = 1_000

log = structlog.get_logger(__name__)


class FarBehind(Exception):  # noqa: N818
    """There is more to fold than others should wait for; whoever meets this lets go of the lock first."""

    def __init__(self, number: int) -> None:
        super().__init__(f"far behind the log of campaign {number}")
        self.number = number


class Left(NamedTuple):
    """The rest of how a transaction left a campaign."""

    status: str
    last_event_at: int
    accounts: Sequence[Account]
    epoch: int | None = None  # of the transaction: see `Database.epoch`


class Remembered(NamedTuple):
    """A campaign's configuration and its policy's state after the log up to `sequence`."""

    campaign: Campaign
    state: State
    sequence: int
    model_version: int
    bytes: int
    unsaved: int = 0  # outcomes that had to be folded because no snapshot has them
    left: Left | None = None


class Memory:
    """Campaigns by number, the least recently used forgotten first when they take more than `bytes_max`."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._campaigns: OrderedDict[int, Remembered] = OrderedDict()
        self._bytes = 0

    def recall(self, number: int) -> Remembered | None:
        """What is remembered, if anything."""
        found = self._campaigns.get(number)
        if found is not None:
            self._campaigns.move_to_end(number)
        return found

    def recall_whole(self, number: int, epoch: int | None) -> tuple[Remembered, Left] | None:
        """All there is to know of a campaign without reading it, if nobody else has written since."""
        found = self._campaigns.get(number)
        if epoch is None or found is None or found.left is None or found.left.epoch != epoch:
            return None
        return found, found.left

    def doubt(self) -> None:
        """Believe nothing of how campaigns were left: something went wrong, and it may have been after a commit."""
        for number, known in self._campaigns.items():
            self._campaigns[number] = known._replace(left=None)

    def remember(
        self, campaign: Campaign, state: State, sequence: int, model_version: int, left: Left | None = None
    ) -> Remembered:
        """Keep a state that was committed, or is to be forgotten if that fails; it as it is kept."""
        known = self._campaigns.get(campaign.number)
        # A state's arrays keep their shapes as long as its campaign is what it was.
        size = known.bytes if known is not None and known.campaign is campaign else _size_of(state)
        kept = Remembered(campaign, state, sequence, model_version, size, 0, left)
        self._campaigns[campaign.number] = kept
        self._campaigns.move_to_end(campaign.number)
        self._bytes += size - (0 if known is None else known.bytes)
        while self._bytes > self._bytes_max and len(self._campaigns) > 1:
            self.forget(next(iter(self._campaigns)))
        return kept

    def forget(self, number: int) -> None:
        """Drop a campaign whose last transaction may or may not have happened."""
        dropped = self._campaigns.pop(number, None)
        if dropped is not None:
            self._bytes -= dropped.bytes


def _size_of(part: Any) -> int:
    if isinstance(part, np.ndarray):
        return int(part.nbytes)
    if isinstance(part, tuple):
        return sum(_size_of(inner) for inner in part)
    return 0


def is_far_behind(memory: Memory, row: Mapping[str, Any]) -> bool:
    """Whether much has to be read and folded to be where a `campaign_state` row is; a cold start counts from 0."""
    known = memory.recall(row["campaign"])
    sequence = known.sequence if known is not None and _is_of(known, row) else 0
    return bool(row["sequence"] - sequence > BEHIND_ROWS_MAX)


def current(connection: Connection, memory: Memory, row: Mapping[str, Any]) -> Remembered:
    """The campaign of a locked `campaign_state` row as it stands, from memory, snapshot and log."""
    number = row["campaign"]
    known = memory.recall(number)
    cold = known is None or not _is_of(known, row)
    if known is None or cold:
        known = _from_snapshot(connection, row)
    campaign, state = known.campaign, known.state
    if campaign.version != row["config_version"]:
        newer = load_campaign(connection, number, row["config_version"])
        state = newer.policy.adopt(campaign.policy, state)
        campaign = newer
    if known.sequence < row["sequence"]:
        state = _folded(connection, campaign, state, known.sequence, row["sequence"])
    books = campaign.policy.read_books(np.frombuffer(row["books"], dtype="<f8"))
    now = state._replace(books=books)
    unsaved = int(now.learnt[0] - known.state.learnt[0]) if cold else 0
    return Remembered(campaign, now, row["sequence"], row["model_version"], known.bytes, unsaved)


def _is_of(known: Remembered, row: Mapping[str, Any]) -> bool:
    """Whether the log still leads from what is remembered to the row: same model, and nothing pruned in between."""
    return bool(known.model_version == row["model_version"] and known.sequence >= row["pruned_through"])


def load_campaign(connection: Connection, number: int, version: int) -> Campaign:
    """One version of a campaign's configuration."""
    config = tables.config
    body = connection.execute(
        select(config.c.body).where(config.c.campaign == number, config.c.version == version)
    ).scalar_one()
    name = connection.execute(select(tables.campaign.c.id).where(tables.campaign.c.number == number)).scalar_one()
    return Campaign(number, name, version, json.loads(body))


def _from_snapshot(connection: Connection, row: Mapping[str, Any]) -> Remembered:
    """The newest snapshot of this model version that can be read, or the version's beginning."""
    snapshot = tables.snapshot
    found = connection.execute(
        select(snapshot)
        .where(
            snapshot.c.campaign == row["campaign"],
            snapshot.c.model_version == row["model_version"],
            snapshot.c.sequence >= row["pruned_through"],
        )
        .order_by(snapshot.c.sequence.desc())
    ).mappings()
    for kept in found:
        campaign = load_campaign(connection, row["campaign"], kept["config_version"])
        try:
            state = campaign.policy.decode(kept["data"])
        except SnapshotError as error:
            log.warning("snapshot passed over", campaign=campaign.id, sequence=kept["sequence"], error=str(error))
            continue
        return Remembered(campaign, state, kept["sequence"], row["model_version"], 0)
    return _beginning(connection, row)


def _beginning(connection: Connection, row: Mapping[str, Any]) -> Remembered:
    """The state before the first round, the one that pruning left, or that the last change of the model brought."""
    change, number, version = tables.change, row["campaign"], row["model_version"]
    opening = opening_state(connection, number) if row["pruned_through"] else None
    if opening is not None and opening["model_version"] == version:
        campaign = load_campaign(connection, number, opening["config_version"])
        return Remembered(campaign, campaign.policy.decode(opening["state"]), opening["through"], version, 0)
    if version == 1:
        campaign = load_campaign(connection, number, 1)
        return Remembered(campaign, campaign.policy.init(), 0, version, 0)
    brought = connection.execute(
        select(change)
        .where(change.c.campaign == number, change.c.model.is_not(None))
        .order_by(change.c.sequence.desc())
        .limit(1)
    ).one()
    campaign = load_campaign(connection, number, json.loads(brought.body)["config_version"])
    state = begun_model(campaign, brought.body, brought.model)
    return Remembered(campaign, state, brought.sequence, version, 0)


def _folded(connection: Connection, campaign: Campaign, state: State, after: int, until: int) -> State:
    """The state with everything learnt in (after, until], in the order of the log."""
    outcome, decision = tables.outcome, tables.decision
    while True:
        rows = (
            connection.execute(
                select(
                    outcome.c.sequence.label("learnt_at"),
                    outcome.c.taught,
                    decision.c.arm,
                    decision.c.round,
                    decision.c.context,
                    decision.c.actions,
                    decision.c.numbers,
                    decision.c.hold,
                )
                .join(
                    decision,
                    (decision.c.campaign == outcome.c.campaign) & (decision.c.sequence == outcome.c.decision),
                )
                .where(
                    outcome.c.campaign == campaign.number,
                    outcome.c.sequence > after,
                    outcome.c.sequence <= until,
                    outcome.c.taught.is_not(None),
                )
                .order_by(outcome.c.sequence)
                .limit(FOLD_ROWS_MAX)
            )
            .mappings()
            .all()
        )
        if not rows:
            return state
        state = _taught(campaign, state, [dict(row) for row in rows])
        after = rows[-1]["learnt_at"]


def _taught(campaign: Campaign, state: State, rows: Sequence[Mapping[str, Any]]) -> State:
    taught = np.array([json.loads(row["taught"]) for row in rows], dtype=np.float64)
    return campaign.policy.teach(state, tickets_from(campaign, rows), taught[:, 0], taught[:, 1:])
