"""A campaign's log as the arrays of `cbwk_core.evaluation`: amounts in millionths, rewards scaled to [0, 1]."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from sqlalchemy import Connection, select

from cbwk_core import NULL_ARM
from cbwk_core.evaluation import Log
from service.domain.campaign import Campaign
from service.domain.explanation import EXPLAINED_ARMS_MAX, shares
from service.domain.holdout import SHADOW
from service.engine.cache import load_campaign
from service.reads.shared import StoredCampaign, stored_campaign
from service.store import tables
from service.store.database import Database
from service.store.opening_balance import opening_of

# Numbers of the log that are read at a time, each in a read of its own: nobody waits for a long one.
WINDOW = 5_000
# Numbers kept of the log, 8 bytes each; where a campaign would have more, its newest rounds are taken.
NUMBERS_MAX = 100_000_000
# Arrays of one number for each arm that an evaluation makes of every round.
ARRAYS_PER_ARM = 4

_COLUMNS = (
    "sequence",
    "config_version",
    "arm",
    "reason",
    "probability",
    "context",
    "exclude",
    "actions",
    "explanation",
)
_ENDS = ("settled", "voided", "expired", "late")

Floats = NDArray[np.float64]
Advanced = Callable[[int, int], None]


class NothingLogged(Exception):  # noqa: N818 - as the problems of the service, it is told and not fixed
    """There is nothing in the log that could be evaluated; the message says why."""


@dataclass(frozen=True)
class Logged:
    """The rounds of a campaign that can be evaluated, and how many cannot."""

    campaign: Campaign
    log: Log
    left_out: dict[str, int]

    @property
    def reward_range(self) -> tuple[float, float]:
        """What a reward may be, as callers report it."""
        declared = self.campaign.config["reward"]
        return float(declared["min"]), float(declared["max"])

    @property
    def in_callers_rewards(self) -> Log:
        """The same log with rewards as callers report them; a null round earns nothing on any scale."""
        low, high = self.reward_range
        return replace(self.log, reward=np.where(self.log.played, low + self.log.reward * (high - low), 0.0))


def read_log(database: Database, campaign_id: str, *, rounds_max: int, advanced: Advanced) -> Logged:
    """The newest rounds up to now whose outcome was learnt, and the null rounds between them.

    Left out are decisions without an outcome yet, those that taught nothing (void, late, a missing reward that counts
    for nothing) and those with arms of their own, since there is no log of what other requests' arms would have done.
    """
    with database.read() as connection:
        one = stored_campaign(connection, campaign_id)
        opening = opening_of(connection, one.campaign.number)
        after, older = _start(connection, one, min(rounds_max, _rounds_max(one.campaign)))
        versions = _versions(connection, one)
    left_out = {"unsettled": 0, "untaught": 0, "actions": 0, "older": older}
    left_out["pruned"] = opening.decisions if opening is not None else 0
    windows = _windows(database, one, after, advanced)
    parts = [_part(one.campaign, versions, window, left_out) for window in windows]
    free = _free_before(database, one) if len(one.campaign.arms) > EXPLAINED_ARMS_MAX else None
    joined = _joined(parts)
    if not (joined.arm != NULL_ARM).any():
        raise NothingLogged("no decision for one of the campaign's arms has an outcome that was learnt")
    return Logged(one.campaign, _log(one.campaign, versions, joined, free), left_out)


def _rounds_max(campaign: Campaign) -> int:
    arms = max(1, len(campaign.arms))
    seen_of_arms = arms if campaign.arm_encoder is not None else 1
    return max(2, NUMBERS_MAX // (campaign.dimension * seen_of_arms + ARRAYS_PER_ARM * arms))


def _start(connection: Connection, one: StoredCampaign, rounds_max: int) -> tuple[int, int]:
    """After which number the newest rounds begin, and how many rounds are older."""
    decision = tables.decision
    mine = (decision.c.campaign == one.campaign.number, decision.c.sequence <= one.sequence)
    first = connection.execute(
        select(decision.c.sequence, decision.c.round)
        .where(*mine)
        .order_by(decision.c.sequence.desc())
        .offset(rounds_max - 1)
        .limit(1)
    ).first()
    if first is None:
        return 0, 0
    oldest = connection.execute(select(decision.c.round).where(*mine).order_by(decision.c.sequence).limit(1)).scalar()
    return int(first.sequence) - 1, int(first.round) - int(oldest or 0)


def _versions(connection: Connection, one: StoredCampaign) -> dict[int, Campaign]:
    return {
        version: load_campaign(connection, one.campaign.number, version)
        for version in range(1, one.campaign.version + 1)
    }


@dataclass(frozen=True)
class _Window:
    """Some decisions in order, what each taught, and which of them have come to an end."""

    rows: Sequence[Any]
    taught: dict[int, str]
    over: set[int]


def _windows(database: Database, one: StoredCampaign, after: int, advanced: Advanced) -> Iterator[_Window]:
    decision, outcome = tables.decision, tables.outcome
    decisions = select(*(decision.c[name] for name in _COLUMNS)).order_by(decision.c.sequence)
    outcomes = select(outcome.c.decision, outcome.c.status, outcome.c.taught)
    number, last = one.campaign.number, one.sequence
    for start in range(after, last, WINDOW):
        until = min(start + WINDOW, last)
        with database.read() as connection:
            rows = connection.execute(
                decisions.where(
                    decision.c.campaign == number, decision.c.sequence > start, decision.c.sequence <= until
                )
            ).all()
            came = connection.execute(
                outcomes.where(
                    outcome.c.campaign == number,
                    outcome.c.decision > start,
                    outcome.c.decision <= until,
                    outcome.c.sequence <= last,
                )
            ).all()
        advanced(until - after, last - after)
        if rows:
            taught = {sequence: lesson for sequence, _, lesson in came if lesson is not None}
            yield _Window(rows, taught, {sequence for sequence, status, _ in came if status in _ENDS})


@dataclass(frozen=True)
class _Part:
    """Some rounds in the order of the log."""

    sequence: NDArray[np.int64]
    version: NDArray[np.int64]
    arm: NDArray[np.int64]
    probability: Floats
    context: Floats  # (n, p)
    outcome: Floats  # (n, 1 + d): reward in [0, 1], costs in millionths
    drawn: Floats  # (n, arms): with which probability each arm would have been drawn, where that was kept
    offered: NDArray[np.bool_]  # (n, arms)
    shadow: NDArray[np.bool_]  # (n,): the caller decided, whatever the policy would have drawn


def _part(campaign: Campaign, versions: Mapping[int, Campaign], window: _Window, left_out: dict[str, int]) -> _Part:
    kept = []
    for row in window.rows:
        if row.actions is not None:
            left_out["actions"] += 1
        elif row.arm != NULL_ARM and row.sequence not in window.taught:
            left_out["untaught" if row.sequence in window.over else "unsettled"] += 1
        else:
            kept.append(row)
    size, arms, resources = len(kept), len(campaign.arms), len(campaign.resources)
    outcome, offered = np.zeros((size, 1 + resources)), np.zeros((size, arms), dtype=bool)
    masks: dict[tuple[int, str | None], NDArray[np.bool_]] = {}
    for index, row in enumerate(kept):
        key = (row.config_version, row.exclude)
        if key not in masks:
            masks[key] = _offered(versions[row.config_version], row.exclude, arms)
        offered[index] = masks[key]
        lesson = window.taught.get(row.sequence)
        if lesson is not None:
            outcome[index] = orjson.loads(lesson)
    return _Part(
        sequence=np.array([row.sequence for row in kept], dtype=np.int64),
        version=np.array([row.config_version for row in kept], dtype=np.int64),
        arm=np.array([row.arm for row in kept], dtype=np.int64),
        probability=np.array([row.probability for row in kept], dtype=np.float64),
        context=campaign.encoder.encode_many(orjson.loads(row.context) for row in kept).vectors,
        outcome=outcome,
        drawn=shares([row.explanation for row in kept], resources, arms),
        offered=offered,
        shadow=np.array([row.reason == SHADOW for row in kept], dtype=bool),
    )


def _offered(then: Campaign, exclude: str | None, arms: int) -> NDArray[np.bool_]:
    """Arms that could have been played had money been no matter."""
    mask = np.zeros(arms, dtype=bool)
    mask[: len(then.arms)] = True
    mask[list(then.retired)] = False
    for arm in orjson.loads(exclude) if exclude is not None else ():
        if arm in then.arm_index:
            mask[then.arm_index[arm]] = False
    return mask


def _joined(parts: Sequence[_Part]) -> _Part:
    if not parts:
        raise NothingLogged("nothing was decided yet")
    names = _Part.__dataclass_fields__
    return _Part(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def _log(campaign: Campaign, versions: Mapping[int, Campaign], part: _Part, free: _Free | None) -> Log:
    rows, played = np.arange(part.arm.size), part.arm != NULL_ARM
    if free is None:
        eligible = part.drawn > 0.0
    else:
        left = free.before(part.sequence)
        eligible = part.offered.copy()
        for version, then in versions.items():
            mine = part.version == version
            holds = np.array(then.holds, dtype=np.int64)
            eligible[mine, : holds.shape[0]] &= (left[mine, None, :] >= holds).all(axis=2)
    # A round that had no choice is known to have had none.
    eligible[~played & (part.probability >= 1.0) & ~part.shadow] = False
    part.drawn[part.shadow] = 0.0
    eligible[rows[played], part.arm[played]] = True
    part.drawn[rows[played], part.arm[played]] = part.probability[played]
    return Log.of(
        features=campaign.features(part.context, campaign.arm_vectors),
        eligible=eligible,
        offered=part.offered | eligible,
        arm=part.arm,
        propensity=np.minimum(part.probability, 1.0),
        reward=part.outcome[:, 0],
        costs=part.outcome[:, 1:],
        probabilities=None if free is not None else np.where(eligible, part.drawn, 0.0),
    )


@dataclass(frozen=True)
class _Free:
    """What was free of every resource, at every movement of the accounts."""

    sequence: NDArray[np.int64]  # (movements,), in order
    moved: NDArray[np.int64]  # (movements + 1, d): by how much what is free moves from here to the end
    end: NDArray[np.int64]  # (d,)

    def before(self, sequences: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n, d), just before these numbers of the log."""
        return np.asarray(self.end - self.moved[np.searchsorted(self.sequence, sequences)])


def _free_before(database: Database, one: StoredCampaign) -> _Free:
    """Counted back from the accounts as they stand, since the log's beginning may have been pruned."""
    number, size, account = one.campaign.number, len(one.campaign.resources), tables.account
    with database.read() as connection:
        last = stored_campaign(connection, one.campaign.id).sequence
        accounts = connection.execute(
            select(account).where(account.c.campaign == number).order_by(account.c.resource)
        ).mappings()
        end = np.array([row["granted"] - row["held"] - row["spent"] for row in accounts], dtype=np.int64)
        moves = _moves(connection, number, last, size)
    moves.sort(key=lambda move: move[0])
    amounts = np.array([amounts for _, amounts in moves], dtype=np.int64).reshape(-1, size)
    to_the_end = np.concatenate([amounts[::-1].cumsum(axis=0)[::-1], np.zeros((1, size), dtype=np.int64)])
    return _Free(np.array([sequence for sequence, _ in moves], dtype=np.int64), to_the_end, end)


def _moves(connection: Connection, number: int, last: int, size: int) -> list[tuple[int, list[int]]]:
    """By how much each row of the log moved what is free."""
    decision, outcome, grant = tables.decision, tables.outcome, tables.grant
    held = connection.execute(
        select(decision.c.sequence, decision.c.hold).where(
            decision.c.campaign == number, decision.c.sequence <= last, decision.c.hold.is_not(None)
        )
    )
    holds: dict[int, list[int]] = {row.sequence: orjson.loads(row.hold) for row in held}
    moves = [(sequence, [-amount for amount in amounts]) for sequence, amounts in holds.items()]
    nothing = [0] * size
    settled = connection.execute(
        select(outcome.c.sequence, outcome.c.decision, outcome.c.released, outcome.c.spent).where(
            outcome.c.campaign == number, outcome.c.sequence <= last
        )
    )
    for row in settled:
        freed = holds.get(row.decision, nothing) if row.released else nothing
        spent = orjson.loads(row.spent) if row.spent is not None else nothing
        moves.append((row.sequence, [back - cost for back, cost in zip(freed, spent, strict=True)]))
    granted = connection.execute(select(grant).where(grant.c.campaign == number, grant.c.sequence <= last))
    for grant_row in granted:
        moved = grant_row.amount if grant_row.kind == "budget" else -grant_row.amount
        moves.append((grant_row.sequence, [moved if index == grant_row.resource else 0 for index in range(size)]))
    return moves
