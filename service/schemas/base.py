"""Base models and field types of all bodies."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, StringConstraints

from cbwk_core.features.feature import NAME_LENGTH_MAX
from service.ids import ID_PATTERN
from service.limits import TEXT_LENGTH_MAX, VALUE_LENGTH_MAX
from service.money import AMOUNT_MAX, amount, micros
from service.problems import Misfit
from service.times import moment_microseconds, moment_text

DECISION_ID = "0197f0c4-8a00-7000-8000-5d1c2f0b9e11"  # of the examples


class Body(BaseModel):
    """A request body or a part of one. Strings are not numbers; NaN, infinity and unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True, hide_input_in_errors=True)


class Answered(BaseModel):
    """A response body or a part of one, for the OpenAPI document and for tests; fields may be added."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False, frozen=True)


def _add_example(schema: dict[str, Any], model: type[View]) -> None:
    schema["examples"] = [model.example()]


class View(Answered):
    """A response body whose example is composed of the examples of its fields."""

    model_config = ConfigDict(json_schema_extra=_add_example)

    @classmethod
    def example(cls) -> dict[str, Any]:
        """Return one body; a field without an example shows the first example of its type."""
        return {
            name: field.examples[0] if field.examples else _example_of(field.annotation)
            for name, field in cls.model_fields.items()
        }


def _example_of(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, View):
        return annotation.example()
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is list:
        return [_example_of(arguments[0])]
    if origin is Literal:
        return arguments[0]
    return None  # a type that allows null


class Page(View):
    """One page of a list; `next_cursor` fetches the next page and is null on the last."""

    next_cursor: str | None


def shown(example: Any, description: str | None = None) -> Any:
    """Return a required field with this example."""
    return Field(examples=[example], description=description)


def example(body: dict[str, Any]) -> dict[str, Any]:
    """Return the example of a request body in the form that JSON Schema has for it."""
    return {"examples": [body]}


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must have printable characters only")
    return text


def unique(field: str, items: Iterable[Hashable], what: str = "id") -> None:
    """Refuse repeated items with a Misfit."""
    listed = [*items]
    if len(set(listed)) != len(listed):
        raise Misfit(field, f"must not have the same {what} twice")


def _unique_ids(ids: list[str]) -> list[str]:
    if len(set(ids)) != len(ids):
        raise ValueError("must not have the same id twice")
    return ids


# An amount is checked as a decimal; the serializer keeps a whole number whole in JSON.
_exact = (
    AfterValidator(lambda value: amount(micros(value))),
    PlainSerializer(lambda value: value),
    Field(description="at most six decimals"),
)

Id = Annotated[str, StringConstraints(pattern=ID_PATTERN)]
UniqueIds = Annotated[list[Id], AfterValidator(_unique_ids), Field(json_schema_extra={"uniqueItems": True})]
Name = Annotated[str, StringConstraints(min_length=1, max_length=NAME_LENGTH_MAX), AfterValidator(_printable)]
Value = Annotated[str, StringConstraints(max_length=VALUE_LENGTH_MAX)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=TEXT_LENGTH_MAX), AfterValidator(_printable)]
Moment = Annotated[
    str,
    AfterValidator(lambda text: moment_text(moment_microseconds(text))),
    Field(json_schema_extra={"format": "date-time"}),
]

# An amount with at most six decimals.
Amount = Annotated[float, Field(ge=0, le=AMOUNT_MAX), *_exact]
PositiveAmount = Annotated[float, Field(gt=0, le=AMOUNT_MAX), *_exact]
SignedAmount = Annotated[float, Field(ge=-AMOUNT_MAX, le=AMOUNT_MAX), *_exact]

# By feature name, or a list of numbers if the campaign declares a dimension. Without left_to_right pydantic tries every
# member of the union, which takes as long as the rest of the body.
_Feature = Annotated[float | Value, Field(union_mode="left_to_right")]
Features = Annotated[dict[str, _Feature] | list[float], Field(union_mode="left_to_right")]

Amounts = dict[str, float]

# Fields of responses with their examples.
Status = Literal["active", "paused", "archived"]
CampaignName = Annotated[str, Field(examples=["summer-sale"])]
DecisionName = Annotated[str, Field(examples=[DECISION_ID])]
At = Annotated[str, Field(examples=["2026-11-16T09:00:00Z"])]
