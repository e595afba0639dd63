"""One campaign inside one transaction: what was read, what changes, what is to be written."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from cbwk_core import State
from service.domain.campaign import Campaign
from service.domain.ledger import Ledger
from service.times import MICROS_PER_SECOND

# Rows of a table, column by column, all of one length.
Columns = dict[str, Sequence[Any]]


class Lesson(NamedTuple):
    """An outcome that the policy has not heard of yet."""

    row: Any  # of table decision
    reward: float  # scaled
    costs: list[int]
    booked: bool  # its costs are booked now: the policy's own account and prices move
    learn: bool  # both halves are known: the oracle learns


class Work:
    """A locked campaign. Its state and ledger move here; where a transaction fails nothing of it is remembered."""

    one_by_one = False  # each outcome is told at once, and one that would spoil the model is not learnt
    to_learn = 0  # lessons that the oracle learns from
    learnt = 0  # outcomes learnt in this transaction
    expired = 0
    above_hold = 0
    quarantined = 0

    # By hand: one is made for every campaign of every transaction, and a dataclass takes twice as long.
    def __init__(
        self,
        campaign: Campaign,
        state: State,
        ledger: Ledger,
        status: str,
        sequence: int,
        model_version: int,
        now: int,
        created_at: int,
    ) -> None:
        self.campaign, self.state, self.ledger, self.status = campaign, state, ledger, status
        self.sequence, self.model_version, self.created_at = sequence, model_version, created_at
        self.now = now  # microseconds; never below the campaign's last event
        self.decided: list[Columns] = []  # new rows of the table decision
        self.held: list[Columns] = []  # of the table hold
        self.rows: dict[str, list[dict[str, Any]]] = {}  # of other tables
        self.closed_holds: list[tuple[int, int]] = []  # (expires_at, decision) of hold rows that go
        self.emptied_holds: list[tuple[int, int]] = []  # charged, still waiting for a reward
        self.lessons: list[Lesson] = []  # outcomes that the policy is told of together
        self.delays: list[float] = []  # seconds from a decision to its costs

    def begin(self, now: int, *, one_by_one: bool) -> Work:
        """The same at the beginning of a transaction."""
        self.now, self.one_by_one = max(now, self.now), one_by_one
        return self

    def append(self, table: str, **columns: Any) -> int:
        """Number a row of the campaign's log and keep it for writing."""
        self.sequence += 1
        row = {"campaign": self.campaign.number, "sequence": self.sequence, **columns}
        self.rows.setdefault(table, []).append(row)
        return self.sequence

    def uniforms(self, rounds: int) -> NDArray[np.float64]:
        """Those of the next rounds."""
        return self.campaign.uniforms(self.state.round.item(), rounds)

    @property
    def policy_version(self) -> int:
        """Outcomes learnt so far."""
        return self.state.learnt.item() + self.to_learn


def to_json(value: Any) -> str:
    """Compact JSON for a column."""
    return orjson.dumps(value).decode()


def iso_time(micros: int) -> str:
    """A time as the interface writes it.

    >>> iso_time(1_700_000_000_000_000)
    '2023-11-14T22:13:20Z'
    """
    return _iso_second(micros // MICROS_PER_SECOND)


@lru_cache(maxsize=256)  # what is decided in one second expires in one second, and there are few terms
def _iso_second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC).isoformat()[:19]}Z"
