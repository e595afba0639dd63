"""Where a campaign's model begins anew: a change in the log that carries all of it, and the fold goes on from there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from sqlalchemy import Connection

from cbwk_core import State
from cbwk_core.arrays import frozen
from cbwk_core.model import shape_of, with_model
from service.domain.campaign import Campaign
from service.engine.administer import write_audit
from service.engine.changes import Work, to_json
from service.engine.commands import Answer, ImportModel
from service.problems import Conflict, Problem


def import_model(connection: Connection, work: Work, command: ImportModel) -> Answer | Problem:
    """Go on from another model; round, prices and accounts stay."""
    campaign = work.campaign
    if not work.state.stage.running[0]:
        return Conflict("stage one still collects what the campaign will learn from", kind="stage-one")
    if shape_of(campaign.policy) != command.shape:
        return Conflict("the campaign has changed since the model was checked; try again", kind="model-differs")
    work.state = with_model(work.state, command.model)
    begin_model(work, "model", {}, command.data)
    body = {
        "campaign_id": campaign.id,
        "model_version": work.model_version,
        "policy_version": work.policy_version,
        "bytes": len(command.data),
    }
    write_audit(connection, work.now, command.actor, "campaign.model", campaign.id, body)
    return Answer(body)


def begin_model(work: Work, kind: str, told: Mapping[str, Any], data: bytes) -> None:
    """Log the work's state as the beginning of its next model version, with what else there is to tell."""
    work.model_version += 1
    stage = work.state.stage
    body = {
        "config_version": work.campaign.version,
        "model_version": work.model_version,
        "stage": {
            "running": bool(stage.running[0]),
            "radius": float(stage.radius[0]),
            "start": int(stage.start[0]),
            "granted": stage.granted[0].tolist(),
        },
        **told,
    }
    work.append("change", kind=kind, body=to_json(body), model=data, at=work.now)


def begun_model(campaign: Campaign, body: str, data: bytes) -> State:
    """The state that `begin_model` logged, its books apart; the campaign is the configuration of that time."""
    policy, told = campaign.policy, json.loads(body)["stage"]
    blank = policy.init()
    stage = blank.stage._replace(
        running=frozen(np.array([told["running"]])),
        radius=frozen(np.array([told["radius"]])),
        start=frozen(np.array([told["start"]])),
        granted=frozen(np.array([told["granted"]], dtype=np.float64)),
    )
    return with_model(blank._replace(stage=stage), policy.decode_model(data))
