"""Model versions: a change in the log that carries the whole model, from which the fold continues."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from sqlalchemy import Connection

from cbwk_core import State
from cbwk_core.arrays import frozen
from cbwk_core.model import decode, shape_of, with_model
from service.domain.campaign import Campaign
from service.engine.administer import write_audit
from service.engine.changes import LockedCampaign, to_json
from service.engine.commands import Answer, ImportModel
from service.problems import Conflict, Problem

# What a change logs of the stage.
STAGE_FIELDS = ("running", "radius", "start", "granted")


def import_model(connection: Connection, locked: LockedCampaign, command: ImportModel) -> Answer | Problem:
    """Replaces the model; round, prices and accounts stay."""
    campaign = locked.campaign
    if not locked.state.stage.running[0]:
        return Conflict("stage one still collects what the campaign will learn from", kind="stage-one")
    if shape_of(campaign.policy) != command.shape:
        return Conflict("the campaign has changed since the model was checked; try again", kind="model-differs")
    locked.state = with_model(locked.state, command.model)
    begin_model(locked, "model", command.data)
    body = {
        "campaign_id": campaign.id,
        "model_version": locked.model_version,
        "policy_version": locked.policy_version,
        "bytes": len(command.data),
    }
    write_audit(connection, locked.now, command.actor, "campaign.model", campaign.id, body)
    return Answer(body)


def begin_model(locked: LockedCampaign, kind: str, data: bytes, **details: Any) -> None:
    """Logs the current state as the start of the next model version, with details for the reader of the log."""
    locked.model_version += 1
    body = {
        "config_version": locked.campaign.version,
        "model_version": locked.model_version,
        "stage": {name: getattr(locked.state.stage, name)[0].tolist() for name in STAGE_FIELDS},
        **details,
    }
    locked.append("change", kind=kind, body=to_json(body), model=data, at=locked.now)


def begun_model(campaign: Campaign, body: str, data: bytes) -> State:
    """Returns the state that `begin_model` logged, without its books; `campaign` is the configuration of that time."""
    policy, logged = campaign.policy, json.loads(body)["stage"]
    blank = policy.init()
    fields = {name: np.array([logged[name]], dtype=getattr(blank.stage, name).dtype) for name in STAGE_FIELDS}
    stage = blank.stage._replace(**{name: frozen(field) for name, field in fields.items()})
    # Logs of earlier versions have models that name no units: what they had was taken as it was.
    return with_model(blank._replace(stage=stage), decode(policy, data, is_own=True))
