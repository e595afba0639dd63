"""Two stages (Algorithm 2): the log is what stage one collects, and one change in it ends the stage.

Stage one draws its arms uniformly. When all its rounds are taken and none of its decisions is open any more, its sample
is final, whoever reads it: any process may solve the linear program, without a lock and beside its engine. The first
one to hand in a radius for the configuration it was found for ends the stage; what others found is dropped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, exists, select

from cbwk_core import NULL_ARM, stage_estimate, two_stage
from cbwk_core.state import Stage
from service.domain.campaign import Campaign
from service.domain.stage_one import STAGE
from service.domain.tickets import tickets_from
from service.engine.cache import load_campaign
from service.engine.changes import Work
from service.engine.commands import Answer, EndStage
from service.engine.models import begin_model
from service.store import tables
from service.store.database import Database

# What a decision has come to when nothing is left to wait for.
FINAL = ("settled", "voided", "expired")


def rounds_of(campaign: Campaign) -> int:
    """How many rounds stage one takes: T0 for every arm, and T0 that only look at contexts."""
    return (campaign.policy.arms + 1) * two_stage.length(campaign.policy)


def is_under_way(work: Work) -> bool:
    """Whether the next decision is one of stage one."""
    return not work.state.stage.running[0] and int(work.state.round[0]) < rounds_of(work.campaign)


def is_handed_out(work: Work) -> bool:
    """Whether all decisions of stage one are made, and nobody has ended it."""
    return not work.state.stage.running[0] and int(work.state.round[0]) >= rounds_of(work.campaign)


def end_stage(work: Work, command: EndStage) -> Answer:
    """Start stage two, unless somebody has, or the configuration is another than the radius was found for."""
    ends = is_handed_out(work) and work.campaign.version == command.config_version
    if ends:
        policy = work.campaign.policy
        work.state = two_stage.second_stage(policy, work.state, np.array([command.radius]))
        told = {"optimum": command.optimum, "margin": command.margin}
        begin_model(work, STAGE, told, policy.encode_model(work.state))
    return Answer({"campaign_id": work.campaign.id, "ended": ends})


def conclusion(database: Database, number: int) -> EndStage | None:
    """What stage one of a campaign has found; None while it is not over, and when it was ended before."""
    with database.read() as connection:
        read = _read(connection, number)
    if read is None:
        return None
    campaign, stage = read
    found = stage_estimate.estimate(campaign.policy, stage, two_stage.mode_of(campaign.policy))
    optimum, margin, radius = (float(part[0]) for part in found)
    return EndStage(campaign.id, campaign.version, radius, optimum, margin)


def unended(connection: Connection, row: Mapping[Any, Any]) -> Campaign | None:
    """The campaign of a `campaign_state` row if its stage one, or a part of it, is still to be concluded from."""
    change = tables.change
    campaign = load_campaign(connection, row["campaign"], row["config_version"])
    ended = exists().where(change.c.campaign == campaign.number, change.c.kind == STAGE)
    if not rounds_of(campaign) or connection.execute(select(ended)).scalar_one():
        return None
    return campaign


def _read(connection: Connection, number: int) -> tuple[Campaign, Stage] | None:
    state, decision, hold = tables.campaign_state, tables.decision, tables.hold
    row = connection.execute(select(state).where(state.c.campaign == number)).mappings().one()
    campaign = unended(connection, row)
    if campaign is None or row["round"] < rounds_of(campaign):
        return None
    drawn = campaign.policy.arms * two_stage.length(campaign.policy)
    first = (
        select(decision.c.sequence, decision.c.round, decision.c.expires_at)
        .where(decision.c.campaign == number)
        .order_by(decision.c.sequence)
        .limit(drawn)
        .subquery()
    )
    open_ = exists().where(
        first.c.round < drawn,
        hold.c.expires_at == first.c.expires_at,
        hold.c.campaign == number,
        hold.c.decision == first.c.sequence,
    )
    if connection.execute(select(open_)).scalar_one():
        return None
    return campaign, _sample(connection, campaign, drawn)


def _sample(connection: Connection, campaign: Campaign, drawn: int) -> Stage:
    """Outcomes in the order of the log, and the contexts of the rounds behind the first `drawn`."""
    decision, policy = tables.decision, campaign.policy
    rows = (
        connection.execute(
            select(
                decision.c.sequence,
                decision.c.round,
                decision.c.arm,
                decision.c.context,
                decision.c.actions,
                decision.c.numbers,
                decision.c.hold,
            )
            .where(decision.c.campaign == campaign.number, decision.c.round < rounds_of(campaign))
            .order_by(decision.c.round)
        )
        .mappings()
        .all()
    )
    played = {row["sequence"]: row for row in rows if row["round"] < drawn and row["arm"] != NULL_ARM}
    outcomes = _outcomes(connection, campaign.number, drawn)
    assert {outcome["decision"] for outcome in outcomes} == set(played), "every decision of stage one has one end"
    contexts = np.stack([campaign.encode(json.loads(row["context"])) for row in rows if row["round"] >= drawn])
    features = campaign.features(contexts, campaign.arm_vectors)
    nothing = [0.0] * (1 + policy.resources)
    taught = [nothing if one["taught"] is None else json.loads(one["taught"]) for one in outcomes]
    values = np.array(taught, dtype=np.float64).reshape(-1, 1 + policy.resources)
    return two_stage.gathered(
        policy,
        tickets_from(campaign, [played[outcome["decision"]] for outcome in outcomes]),
        values[:, 0],
        values[:, 1:],
        np.array([float(outcome["taught"] is not None) for outcome in outcomes]),
        features if features.ndim == 3 else features[:, None],
    )


def _outcomes(connection: Connection, number: int, drawn: int) -> Sequence[Any]:
    """The outcome that ended each decision of the first rounds, with what it taught, in the order of the log."""
    decision, outcome = tables.decision, tables.outcome
    return (
        connection.execute(
            select(outcome.c.decision, outcome.c.taught)
            .join(decision, (decision.c.campaign == outcome.c.campaign) & (decision.c.sequence == outcome.c.decision))
            .where(
                outcome.c.campaign == number,
                outcome.c.kind != "late",
                outcome.c.status.in_(FINAL),
                decision.c.round < drawn,
            )
            .order_by(outcome.c.sequence)
        )
        .mappings()
        .all()
    )


def _stacked(parts: Sequence[NDArray[np.float64]], width: int) -> NDArray[np.float64]:
    return np.concatenate([np.zeros((0, width)), *parts])
