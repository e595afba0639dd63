"""Exports a campaign's model."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from cbwk_core.snapshot import CHECKSUM_BYTES
from service.engine.cache import Cache, current
from service.store.campaigns import state_of


@dataclass(frozen=True, slots=True)
class ExportedModel:
    """The bytes of a model and its versions."""

    data: bytes
    model_version: int
    policy_version: int

    @property
    def checksum(self) -> str:
        """The last bytes, in hexadecimal."""
        return self.data[-CHECKSUM_BYTES:].hex()


def exported_model(connection: Connection, campaign_id: str) -> ExportedModel:
    """What the campaign has learnt so far, folded from its log and not from the cache; raises NotFound."""
    known = current(connection, Cache(0), state_of(connection, campaign_id))
    data = known.campaign.policy.encode_model(known.state)
    return ExportedModel(data, known.model_version, int(known.state.learnt[0]))
