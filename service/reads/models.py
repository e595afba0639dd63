"""Checks of a model that a client sends."""

from __future__ import annotations

from typing import Any

import numpy as np
from sqlalchemy import Connection

from cbwk_core.model import ForeignModelError, Model, shape_of
from cbwk_core.model_units import ForeignUnitsError
from cbwk_core.snapshot import BadChecksumError, NotASnapshotError, SnapshotError, UnknownVersionError
from service.money import ONE
from service.problems import BadRequest, Conflict, Invalid
from service.reads.shared import stored_campaign
from service.words import error_at

UNREADABLE = (NotASnapshotError, UnknownVersionError, BadChecksumError)


def fitting_model(connection: Connection, campaign_id: str, data: bytes) -> tuple[Model, dict[str, Any]]:
    """The model in the bytes and its shape; raises a Problem if it is unreadable or not of the campaign's shape."""
    policy = stored_campaign(connection, campaign_id).campaign.policy
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
    except ForeignUnitsError as error:
        found, wanted = (np.divide(units, ONE).tolist() for units in (error.found, error.wanted))
        message = "the model counts costs in other units, which cannot be converted to those of the campaign"
        errors = [{"field": error.field, "message": f"must be {wanted}, got {found}"}]
        raise Invalid(message, kind="invalid-model", errors=errors) from None
    except SnapshotError as error:
        message = "the body is whole, but not a model that can be used"
        errors = [error_at((), str(error))]
        raise Invalid(message, kind="invalid-model", errors=errors) from None
