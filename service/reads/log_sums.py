"""Sums over a campaign's log in leaves of equal length, remembered once a leaf is full.

The log only grows, so that the sums of a full leaf stay true: for whoever looks at a campaign again and again, as a
dashboard does, only the end of its log is read. Leaves double in length as the log grows, so there are never many.
Pruning takes rows out, and then all is read anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import NamedTuple
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, exists, func, select

from service.limits import TIMELINE_POINTS_MAX
from service.reads.shared import Seen, element, real_element
from service.store import tables
from service.store.opening_balance import Opening

# A leaf for every point that a timeline can have.
LEAVES_MAX = TIMELINE_POINTS_MAX
# Numbers of the log that one statement goes through: a tenth of a second, far from any timeout.
NUMBERS_PER_STATEMENT = 1 << 16
# Sums of arms that are remembered, of all campaigns together: some 100 MB.
SUMS_MAX = 400_000


class Decided(NamedTuple):
    """Decisions for one arm."""

    made: int
    last: int  # number of the last one
    at: int

    def plus(self, other: Decided) -> Decided:
        """Of both."""
        return Decided(self.made + other.made, max(self.last, other.last), max(self.at, other.at))


class Settled(NamedTuple):
    """Outcomes of decisions for one arm."""

    last: int  # number of the last one
    at: int
    rewards: int  # how many taught one
    reward: float  # their sum, in [0, 1] each
    priced: int  # decisions that moved `spent` for the first time
    spent: tuple[int, ...]  # millionths by resource

    def plus(self, other: Settled) -> Settled:
        """Of both."""
        return Settled(
            max(self.last, other.last),
            max(self.at, other.at),
            self.rewards + other.rewards,
            self.reward + other.reward,
            self.priced + other.priced,
            tuple(one + more for one, more in zip(self.spent, other.spent, strict=True)),
        )


class Leaf(NamedTuple):
    """A part of the log, by arm; None is the null arm."""

    decided: dict[str | None, Decided]
    settled: dict[str | None, Settled]

    @property
    def sums(self) -> int:
        """How much there is to remember."""
        return len(self.decided) + len(self.settled)


def together(leaves: Sequence[Leaf]) -> Leaf:
    """The sums of several leaves."""
    decided: dict[str | None, Decided] = {}
    settled: dict[str | None, Settled] = {}
    for leaf in leaves:
        for arm, plays in leaf.decided.items():
            decided[arm] = decided[arm].plus(plays) if arm in decided else plays
        for arm, results in leaf.settled.items():
            settled[arm] = settled[arm].plus(results) if arm in settled else results
    return Leaf(decided, settled)


class Leaves(NamedTuple):
    """A log: leaf i has the numbers from i·2^bits on, 2^bits of them but for the last."""

    bits: int
    leaves: tuple[Leaf, ...]

    def coarser(self, bits: int) -> Leaves:
        """The same in longer leaves, as far as there are enough to fill them."""
        if bits == self.bits:
            return self
        size = 1 << (bits - self.bits)
        whole = range(0, len(self.leaves) - size + 1, size)
        return Leaves(bits, tuple(together(self.leaves[start : start + size]) for start in whole))


class _Memory:
    """The full leaves of the campaigns looked at last, of one database."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: OrderedDict[tuple[int, int], Leaves] = OrderedDict()  # by campaign and rows taken out of its log
        self._sums = 0

    def recall(self, key: tuple[int, int]) -> Leaves | None:
        with self._lock:
            return self._known.get(key)

    def remember(self, key: tuple[int, int], leaves: Leaves) -> None:
        with self._lock:
            outdated = [known for known in self._known if known[0] == key[0]]
            for known in outdated:
                self._forget(known)
            self._known[key] = leaves
            self._sums += sum(leaf.sums for leaf in leaves.leaves)
            while self._sums > SUMS_MAX:
                self._forget(next(iter(self._known)))

    def _forget(self, key: tuple[int, int]) -> None:
        self._sums -= sum(leaf.sums for leaf in self._known.pop(key).leaves)


_memories: WeakKeyDictionary[Engine, _Memory] = WeakKeyDictionary()
_memories_lock = Lock()


def leaves_of(connection: Connection, one: Seen, opening: Opening | None) -> Leaves:
    """The log of a campaign as far as it was seen."""
    with _memories_lock:
        memory = _memories.setdefault(connection.engine, _Memory())
    key = one.campaign.number, 0 if opening is None else opening.row_count
    bits = (one.sequence // LEAVES_MAX).bit_length()
    full = (one.sequence + 1) >> bits
    known = memory.recall(key)
    # Another reader may know more of the log than this one sees.
    kept = known.coarser(bits).leaves[:full] if known is not None and known.bits <= bits else ()
    found = list(kept)
    step = max(1, NUMBERS_PER_STATEMENT >> bits)
    for start in range(len(found), (one.sequence >> bits) + 1, step):
        until = min(start + step, (one.sequence >> bits) + 1)
        found += _read(connection, one, bits, start, until)
    if full > len(kept):
        memory.remember(key, Leaves(bits, tuple(found[:full])))
    return Leaves(bits, tuple(found))


def _read(connection: Connection, one: Seen, bits: int, start: int, until: int) -> list[Leaf]:
    """Leaves from `start` to just before `until`."""
    leaves = [Leaf({}, {}) for _ in range(start, until)]
    first, last, size = start << bits, min((until << bits) - 1, one.sequence), 1 << bits
    decision, outcome = tables.decision, tables.outcome
    leaf = (decision.c.sequence // size).label("leaf")
    plays = connection.execute(
        select(leaf, decision.c.arm_id, func.count(), func.max(decision.c.sequence), func.max(decision.c.decided_at))
        .where(decision.c.campaign == one.campaign.number, decision.c.sequence.between(first, last))
        .group_by(leaf, decision.c.arm_id)
    )
    for index, arm, *counts in plays:
        leaves[index - start].decided[arm] = Decided(*counts)
    earlier = tables.outcome.alias("earlier")
    priced_earlier = exists().where(
        earlier.c.campaign == outcome.c.campaign,
        earlier.c.decision == outcome.c.decision,
        earlier.c.sequence + 0 < outcome.c.sequence,  # or SQLite would walk all numbers before instead of the index
        earlier.c.spent.is_not(None),
    )
    leaf = (outcome.c.sequence // size).label("leaf")
    results = connection.execute(
        select(
            leaf,
            decision.c.arm_id,
            func.max(outcome.c.sequence),
            func.max(outcome.c.at),
            func.count(outcome.c.taught),
            func.sum(real_element(connection, outcome.c.taught, 0)),
            func.count().filter(outcome.c.spent.is_not(None), ~priced_earlier),
            *(func.sum(element(connection, outcome.c.spent, i)) for i in range(len(one.campaign.resources))),
        )
        .join(decision, (decision.c.campaign == outcome.c.campaign) & (decision.c.sequence == outcome.c.decision))
        .where(outcome.c.campaign == one.campaign.number, outcome.c.sequence.between(first, last))
        .group_by(leaf, decision.c.arm_id)
    )
    for index, arm, number, at, rewards, reward, priced, *spent in results:
        amounts = tuple(int(amount or 0) for amount in spent)
        leaves[index - start].settled[arm] = Settled(number, at, rewards, reward or 0.0, priced, amounts)
    return leaves
