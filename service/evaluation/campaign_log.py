"""Reads a campaign's log as the arrays of `cbwk_core.evaluation`: amounts in millionths, rewards scaled to [0, 1]."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray
from sqlalchemy import Connection, select

from cbwk_core import NULL_ARM
from cbwk_core.evaluation import Log
from service.domain.campaign import Campaign
from service.domain.decision_rows import EXPLAINED_ARMS_MAX, shares
from service.domain.holdout import SHADOW
from service.domain.request_holds import request_holds
from service.engine.cache import load_campaign
from service.engine.log_fold import free_before
from service.engine.portfolio_config import places_of
from service.reads.shared import StoredCampaign, stored_campaign
from service.store import tables
from service.store.database import Database
from service.store.opening_balance import opening_of

# Sequence numbers per read transaction, so that none is long.
WINDOW = 5_000
# Numbers in memory, 8 bytes each; of a longer log the newest rounds are read.
NUMBERS_MAX = 100_000_000
# Arrays with one number per round and arm that an evaluation allocates.
ARRAYS_PER_ARM = 4

# fmt: off
_COLUMNS = (
    "sequence", "config_version", "arm", "reason", "probability", "context", "exclude", "actions", "max_costs",
    "explanation",
)
# fmt: on
_FINAL_STATUSES = ("settled", "voided", "expired", "late")

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Advanced = Callable[[int, int], None]


class EmptyLog(Exception):  # noqa: N818 - the result of an evaluation, not a bug
    """The log has nothing that can be evaluated; the message says why."""


@dataclass(frozen=True)
class CampaignLog:
    """The rounds of a campaign that can be evaluated, and the numbers of rounds left out."""

    campaign: Campaign
    log: Log
    left_out: dict[str, int]

    @property
    def reward_range(self) -> tuple[float, float]:
        """The campaign's smallest and largest reward."""
        reward = self.campaign.config["reward"]
        return float(reward["min"]), float(reward["max"])

    @property
    def in_callers_rewards(self) -> Log:
        """The same log with rewards as callers report them; a null round earns 0 on any scale."""
        low, high = self.reward_range
        return replace(self.log, reward=np.where(self.log.played, low + self.log.reward * (high - low), 0.0))


def read_log(database: Database, campaign_id: str, *, rounds_max: int, advanced: Advanced) -> CampaignLog:
    """Returns the newest rounds whose outcome was learnt, and the null rounds between them.

    Left out are decisions without an outcome yet, decisions that taught nothing (void, late, a missing reward that is
    not counted) and decisions with actions of their own: no log says what the actions of other requests would earn.
    """
    with database.read() as connection:
        head = stored_campaign(connection, campaign_id)
        opening = opening_of(connection, head.campaign.number)
        after, older = _start(connection, head, min(rounds_max, _rounds_max(head.campaign)))
        versions = {
            version: load_campaign(connection, head.campaign.number, version)
            for version in range(1, head.campaign.version + 1)
        }
    left_out = {"unsettled": 0, "untaught": 0, "actions": 0, "older": older}
    left_out["pruned"] = opening.decisions if opening is not None else 0
    windows = [
        _rounds(head.campaign, versions, decisions, outcomes, left_out)
        for decisions, outcomes in _windows(database, head, after, advanced)
    ]
    if not windows:
        raise EmptyLog("nothing was decided yet")
    rounds = _Rounds(*(np.concatenate(column) for column in zip(*windows, strict=True)))
    free = None
    if len(head.campaign.arms) > EXPLAINED_ARMS_MAX:
        kept, free = _free_before(database, head, rounds.sequence)
        left_out["older"] += int((~kept).sum())
        rounds = rounds.of(kept)
    if not (rounds.arm != NULL_ARM).any():
        raise EmptyLog("no decision for one of the campaign's arms has an outcome that was learnt")
    return CampaignLog(head.campaign, _log(head.campaign, versions, rounds, free), left_out)


def _rounds_max(campaign: Campaign) -> int:
    arms = max(1, len(campaign.arms))
    vectors = arms if campaign.arm_encoder is not None else 1
    return max(2, NUMBERS_MAX // (campaign.dimension * vectors + ARRAYS_PER_ARM * arms))


def _start(connection: Connection, head: StoredCampaign, rounds_max: int) -> tuple[int, int]:
    """Returns the sequence number after which the newest rounds begin, and the number of older rounds."""
    decision = tables.decision
    mine = (decision.c.campaign == head.campaign.number, decision.c.sequence <= head.sequence)
    query = select(decision.c.sequence, decision.c.round).where(*mine)
    newest_first = query.order_by(decision.c.sequence.desc()).offset(rounds_max - 1)
    first = connection.execute(newest_first.limit(1)).first()
    if first is None:
        return 0, 0
    oldest = connection.execute(query.order_by(decision.c.sequence).limit(1)).one()
    return int(first.sequence) - 1, int(first.round - oldest.round)


def _windows(
    database: Database, head: StoredCampaign, after: int, advanced: Advanced
) -> Iterator[tuple[Sequence[Any], Sequence[Any]]]:
    """Yields consecutive decisions of the log and their outcomes, without those of costs whose reward is missing."""
    decision, outcome = tables.decision, tables.outcome
    number, last = head.campaign.number, head.sequence
    decisions = select(*(decision.c[name] for name in _COLUMNS)).where(decision.c.campaign == number)
    outcomes = select(outcome.c.decision, outcome.c.status, outcome.c.taught).where(
        outcome.c.campaign == number, outcome.c.sequence <= last, outcome.c.status != "charged"
    )
    for start in range(after, last, WINDOW):
        until = min(start + WINDOW, last)
        with database.read() as connection:
            rows = connection.execute(
                decisions.where(decision.c.sequence > start, decision.c.sequence <= until).order_by(decision.c.sequence)
            ).all()
            ends = connection.execute(outcomes.where(outcome.c.decision > start, outcome.c.decision <= until)).all()
        advanced(until - after, last - after)
        if rows:
            yield rows, ends


class _Rounds(NamedTuple):
    """Rounds in the order of the log."""

    sequence: Integers
    version: Integers
    arm: Integers
    probability: Floats
    context: Floats  # (n, p)
    outcome: Floats  # (n, 1 + d): reward in [0, 1], costs in millionths
    drawn: Floats  # (n, arms): probability of each arm, where the explanation has it
    offered: Booleans  # (n, arms)
    shadow: Booleans  # (n,): the caller chose the arm, not the policy
    max_costs: NDArray[np.object_]  # (n,): JSON, empty if the request brought none

    def of(self, kept: Booleans) -> _Rounds:
        """Returns some of the rounds."""
        columns: Sequence[NDArray[Any]] = self
        return _Rounds(*(column[kept] for column in columns))


def _rounds(
    campaign: Campaign,
    versions: Mapping[int, Campaign],
    decisions: Sequence[Any],
    outcomes: Sequence[Any],
    left_out: dict[str, int],
) -> _Rounds:
    lessons = {row.decision: orjson.loads(row.taught) for row in outcomes if row.taught is not None}
    final = {row.decision for row in outcomes if row.status in _FINAL_STATUSES}
    usable = []
    for row in decisions:
        if row.actions is not None:
            left_out["actions"] += 1
        elif row.arm != NULL_ARM and row.sequence not in lessons:
            left_out["untaught" if row.sequence in final else "unsettled"] += 1
        else:
            usable.append(row)
    size, arms, resources = len(usable), len(campaign.arms), len(campaign.resources)
    nothing = [0.0] * (1 + resources)
    offered = cache(lambda version, exclude: _offered(versions[version], exclude, arms))
    return _Rounds(
        sequence=np.array([row.sequence for row in usable], dtype=np.int64),
        version=np.array([row.config_version for row in usable], dtype=np.int64),
        arm=np.array([row.arm for row in usable], dtype=np.int64),
        probability=np.array([row.probability for row in usable], dtype=np.float64),
        context=campaign.encoder.encode_many(orjson.loads(row.context) for row in usable).vectors,
        outcome=np.array([lessons.get(row.sequence, nothing) for row in usable]).reshape(size, 1 + resources),
        drawn=shares([row.explanation for row in usable], resources, arms),
        offered=np.array([offered(row.config_version, row.exclude) for row in usable], dtype=bool).reshape(size, arms),
        shadow=np.array([row.reason == SHADOW for row in usable], dtype=bool),
        max_costs=np.array([row.max_costs or "" for row in usable], dtype=object),
    )


def _offered(campaign: Campaign, exclude: str | None, arms: int) -> Booleans:
    """Returns the arms that a request could get, budgets aside."""
    mask = np.zeros(arms, dtype=bool)
    mask[: len(campaign.arms)] = True
    mask[list(campaign.inactive)] = False
    for arm in orjson.loads(exclude) if exclude is not None else ():
        if arm in campaign.arm_index:
            mask[campaign.arm_index[arm]] = False
    return mask


def _log(campaign: Campaign, versions: Mapping[int, Campaign], rounds: _Rounds, free: Integers | None) -> Log:
    rows, played = np.arange(rounds.arm.size), rounds.arm != NULL_ARM
    if free is None:
        eligible = rounds.drawn > 0.0
    else:
        eligible = rounds.offered.copy()
        own_costs = rounds.max_costs != ""
        for version, then in versions.items():
            mine = (rounds.version == version) & ~own_costs
            holds = np.array(then.holds, dtype=np.int64)
            eligible[mine, : holds.shape[0]] &= (free[mine, None, :] >= holds).all(axis=2)
        for row in np.flatnonzero(own_costs):
            then = versions[int(rounds.version[row])]
            given = orjson.loads(rounds.max_costs[row])
            holds_then = request_holds(then, then.arms, then.policy.problem.hold, **given)
            eligible[row, : len(holds_then)] &= (free[row] >= holds_then).all(axis=1)
    # A null round of probability 1 had no eligible arm.
    eligible[~played & (rounds.probability >= 1.0) & ~rounds.shadow] = False
    rounds.drawn[rounds.shadow] = 0.0
    eligible[rows[played], rounds.arm[played]] = True
    rounds.drawn[rows[played], rounds.arm[played]] = rounds.probability[played]
    return Log.of(
        features=campaign.features(rounds.context, campaign.arm_vectors),
        eligible=eligible,
        offered=rounds.offered | eligible,
        arm=rounds.arm,
        propensity=np.minimum(rounds.probability, 1.0),
        reward=rounds.outcome[:, 0],
        costs=rounds.outcome[:, 1:],
        probabilities=None if free is not None else np.where(eligible, rounds.drawn, 0.0),
    )


def _free_before(database: Database, head: StoredCampaign, sequences: Integers) -> tuple[Booleans, Integers]:
    """Returns which decisions have a complete log before them, and what these could hold, (kept, d)."""
    number = head.campaign.number
    with database.read() as connection:
        places = places_of(connection, head.campaign)
    after, free = free_before(database, number, places, int(sequences.max(initial=0)))
    kept = sequences > after
    amounts = [free[sequence] for sequence in sequences[kept].tolist()]
    return kept, np.array(amounts, dtype=np.int64).reshape(-1, len(head.campaign.resources))
