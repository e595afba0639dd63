"""Two stages (Algorithm 2): the log holds the sample of stage one, and a change in the log ends the stage.

When all rounds of stage one are taken and none of its decisions is open, its sample is final and the same for every
process. Any process may then solve the linear program, without a lock and in the background. The first radius that
arrives for the current configuration ends the stage; later ones are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sqlalchemy import Connection, exists, select

from cbwk_core import stage_estimate, two_stage
from cbwk_core.state import Stage
from service.domain.campaign import Campaign
from service.domain.stage_one import STAGE, drawn_rounds_of, is_handed_out, rounds_of, sample_of
from service.domain.status import FINAL
from service.engine.cache import load_campaign
from service.engine.changes import LockedCampaign
from service.engine.commands import Answer, EndStage
from service.engine.models import begin_model
from service.store import tables
from service.store.database import Database


def end_stage(locked: LockedCampaign, command: EndStage) -> Answer:
    """Starts stage two, unless it has started or the radius belongs to another configuration."""
    ends = is_handed_out(locked.campaign, locked.state) and locked.campaign.version == command.config_version
    if ends:
        policy = locked.campaign.policy
        locked.state = two_stage.second_stage(policy, locked.state, np.array([command.radius]))
        data = policy.encode_model(locked.state)
        begin_model(locked, STAGE, data, optimum=command.optimum, margin=command.margin)
    return Answer({"campaign_id": locked.campaign.id, "ended": ends})


def conclusion(database: Database, number: int) -> EndStage | None:
    """Returns the command that ends stage one; None while it is not over, and after it was ended."""
    with database.read() as connection:
        found = _final_sample(connection, number)
    if found is None:
        return None
    campaign, sample = found
    estimate = stage_estimate.estimate(campaign.policy, sample, two_stage.mode_of(campaign.policy))
    optimum, margin, radius = (float(value[0]) for value in estimate)
    return EndStage(campaign.id, campaign.version, radius, optimum, margin)


def is_unended(connection: Connection, campaign: Campaign) -> bool:
    """Whether the campaign has a stage one that no change has ended."""
    change = tables.change
    ended = exists().where(change.c.campaign == campaign.number, change.c.kind == STAGE)
    return rounds_of(campaign) > 0 and not connection.execute(select(ended)).scalar_one()


def _final_sample(connection: Connection, number: int) -> tuple[Campaign, Stage] | None:
    state, decision, hold = tables.campaign_state, tables.decision, tables.hold
    row = connection.execute(select(state).where(state.c.campaign == number)).mappings().one()
    campaign = load_campaign(connection, number, row["config_version"])
    if row["round"] < rounds_of(campaign) or not is_unended(connection, campaign):
        return None
    drawn = drawn_rounds_of(campaign)
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
    columns = ("sequence", "round", "arm", "context", "actions", "numbers", "hold")
    query = (
        select(*(decision.c[name] for name in columns))
        .where(decision.c.campaign == number, decision.c.round < rounds_of(campaign))
        .order_by(decision.c.round)
    )
    decisions = connection.execute(query).mappings().all()
    return campaign, sample_of(campaign, decisions, _final_outcomes(connection, number, drawn))


def _final_outcomes(connection: Connection, number: int, drawn: int) -> Sequence[Mapping[Any, Any]]:
    """Returns the outcome that ended each decision of the first `drawn` rounds, in the order of the log."""
    decision, outcome = tables.decision, tables.outcome
    query = (
        select(outcome.c.decision, outcome.c.taught)
        .join(decision, tables.decision_of_outcome)
        .where(outcome.c.campaign == number, decision.c.round < drawn)
        .where(outcome.c.kind != "late", outcome.c.status.in_(FINAL))
        .order_by(outcome.c.sequence)
    )
    return connection.execute(query).mappings().all()
