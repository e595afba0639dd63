"""Exports a campaign's model."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection

from cbwk_core.snapshot import CHECKSUM_BYTES
from service.engine.cache import Cache, current
from service.store.campaigns import state_of


class ExportedModel(NamedTuple):
    """The bytes of a model, the last of them in hexadecimal, and its versions."""

    data: bytes
    checksum: str
    model_version: int
    policy_version: int


def exported_model(connection: Connection, campaign_id: str) -> ExportedModel:
    """What the campaign has learnt so far, folded from its log and not from the cache; raises NotFound."""
    known = current(connection, Cache(0), state_of(connection, campaign_id))
    data = known.campaign.policy.encode_model(known.state)
    return ExportedModel(data, data[-CHECKSUM_BYTES:].hex(), known.model_version, int(known.state.learnt[0]))
