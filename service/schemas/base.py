"""What all bodies have in common: strict types, no unknown fields, exact amounts, one page form."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, StringConstraints

from cbwk_core.features.feature import NAME_LENGTH_MAX
from service.ids import ID_PATTERN
from service.limits import PAGE_MAX, TEXT_LENGTH_MAX, VALUE_LENGTH_MAX
from service.money import AMOUNT_MAX, amount, micros
from service.times import moment_microseconds, moment_text

TWICE = "must not have the same id twice"


class Body(BaseModel):
    """A request's body or a part of one: a string is no number, NaN and infinity are none either, and a field nobody
    knows is a mistake."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True, hide_input_in_errors=True)


class Answered(BaseModel):
    """An answer's body or a part of one, for the OpenAPI document and for tests; more fields may be added."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False, frozen=True)


def example(body: dict[str, Any]) -> dict[str, Any]:
    """The one example of a body, in the place JSON Schema has for it."""
    return {"examples": [body]}


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must have printable characters only")
    return text


def _whole(value: float) -> float:
    return amount(micros(value))


def _in_utc(text: str) -> str:
    return moment_text(moment_microseconds(text))


class Misfit(ValueError):  # noqa: N818 - it is named in an answer, not raised at anyone
    """A field that does not fit another one, found where both are known."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field} {message}")
        self.field = field
        self.message = message


def unique(field: str, items: Iterable[Hashable], what: str = "id") -> None:
    """Refuse a list in which something stands twice."""
    seen: set[Hashable] = set()
    for item in items:
        if item in seen:
            raise Misfit(field, f"must not have the same {what} twice")
        seen.add(item)


def _no_twins(ids: list[str]) -> list[str]:
    if len(set(ids)) != len(ids):
        raise ValueError(TWICE)
    return ids


def _as_it_is(value: Any) -> Any:
    return value


# Checked as a decimal; a whole number stays one in JSON.
_exact = (AfterValidator(_whole), PlainSerializer(_as_it_is), Field(description="at most six decimals"))

Id = Annotated[str, StringConstraints(pattern=ID_PATTERN)]
UniqueIds = Annotated[list[Id], AfterValidator(_no_twins), Field(json_schema_extra={"uniqueItems": True})]
Name = Annotated[str, StringConstraints(min_length=1, max_length=NAME_LENGTH_MAX), AfterValidator(_printable)]
Value = Annotated[str, StringConstraints(max_length=VALUE_LENGTH_MAX)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=TEXT_LENGTH_MAX), AfterValidator(_printable)]
Moment = Annotated[str, AfterValidator(_in_utc), Field(json_schema_extra={"format": "date-time"})]

# An amount with at most six decimals; a reported cost may have more.
Amount = Annotated[float, Field(ge=0, le=AMOUNT_MAX), *_exact]
PositiveAmount = Annotated[float, Field(gt=0, le=AMOUNT_MAX), *_exact]
SignedAmount = Annotated[float, Field(ge=-AMOUNT_MAX, le=AMOUNT_MAX), *_exact]
Cost = Annotated[float, Field(ge=0, le=AMOUNT_MAX)]

# By feature name, or a list of numbers where a plain dimension is declared. The first kind that fits is the only one:
# to look for a better one takes as long as the rest.
_Feature = Annotated[float | Value, Field(union_mode="left_to_right")]
Features = Annotated[dict[str, _Feature] | list[float], Field(union_mode="left_to_right")]

Limit = Annotated[int, Field(ge=1, le=PAGE_MAX)]
Amounts = dict[str, float]


class Page(Answered):
    """One page of a list; `next_cursor` fetches the next one, null after the last."""

    next_cursor: str | None
