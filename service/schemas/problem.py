"""The body of every error (RFC 9457)."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from service.schemas.base import Answered, example


class FieldError(Answered):
    """One field that has a value it cannot have; the value is never repeated."""

    field: str = Field(description="its path, such as resources.0.budget")
    message: str


class ProblemDocument(Answered):
    """What went wrong; clients switch on `type`."""

    model_config = ConfigDict(
        json_schema_extra=example(
            {
                "type": "urn:cbwk:problem:invalid",
                "title": "A field has a value it cannot have",
                "status": 422,
                "detail": "the body cannot be taken as it is",
                "errors": [{"field": "resources.0.budget", "message": "must have at most 6 decimals"}],
            }
        )
    )

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldError] | None = None
