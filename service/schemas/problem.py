"""The body of every error (RFC 9457)."""

from __future__ import annotations

from pydantic import Field

from service.schemas.base import View, shown


class FieldError(View):
    """A field with a value that is not allowed; the value is not repeated."""

    field: str = shown("resources.0.budget", "path of the field in the body")
    message: str = shown("must have at most 6 decimals")


class ProblemDocument(View):
    """An error; clients switch on `type`."""

    type: str = shown("urn:cbwk:problem:invalid")
    title: str = shown("A field has a value it cannot have")
    status: int = shown(422)
    detail: str = shown("the body does not fit CampaignConfig; /docs shows what it may be")
    errors: list[FieldError] | None = Field(default=None, examples=[[FieldError.example()]])
