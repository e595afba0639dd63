"""A campaign's model: as bytes for whoever asks, and from bytes that somebody sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from cbwk_core.model import ForeignModelError, Model, shape_of
from cbwk_core.snapshot import CHECKSUM_BYTES, BadChecksumError, NotASnapshotError, SnapshotError, UnknownVersionError
from service.engine.cache import Cache, current
from service.problems import BadRequest, Conflict, Invalid
from service.reads.shared import seen

UNREADABLE = (NotASnapshotError, UnknownVersionError, BadChecksumError)


@dataclass(frozen=True, slots=True)
class ExportedModel:
    """The bytes, and which model they are."""

    data: bytes
    model_version: int
    policy_version: int

    @property
    def checksum(self) -> str:
        """The one that ends the bytes, in hexadecimal."""
        return self.data[-CHECKSUM_BYTES:].hex()


def model(connection: Connection, campaign_id: str) -> ExportedModel:
    """What the campaign has learnt up to now, folded from its log: nothing that is only remembered."""
    known = current(connection, Cache(0), seen(connection, campaign_id).state)
    data = known.campaign.policy.encode_model(known.state)
    return ExportedModel(data, known.model_version, int(known.state.learnt[0]))


def fitting_model(connection: Connection, campaign_id: str, data: bytes) -> tuple[Model, dict[str, Any]]:
    """The model in the bytes and its shape, which is the campaign's; a Problem if they cannot be read or do not fit."""
    policy = seen(connection, campaign_id).campaign.policy
    try:
        return policy.decode_model(data), shape_of(policy)
    except UNREADABLE as error:
        raise BadRequest(f"the body is not a model: {error}", kind="not-a-model") from None
    except ForeignModelError as error:
        wanted = shape_of(policy)
        errors = [{"field": name, "message": f"must be {wanted[name]}"} for name in error.differing]
        raise Conflict(
            "the model is of another shape than the campaign's", kind="model-differs", errors=errors
        ) from None
    except SnapshotError as error:
        message = "the body is whole, but not a model that can be used"
        errors = [{"field": "body", "message": str(error)}]
        raise Invalid(message, kind="invalid-model", errors=errors) from None
