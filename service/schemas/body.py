"""The base model of request bodies and the types of their fields."""

from typing import Annotated, Any, Literal
from zoneinfo import available_timezones

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    StringConstraints,
)
from pydantic_core import CoreSchema

from cbwk_core.features.feature import NAME_LENGTH_MAX
from service.ids import ID_PATTERN
from service.limits import METADATA_MAX, TEXT_LENGTH_MAX, UNIT_LENGTH_MAX, VALUE_LENGTH_MAX
from service.money import AMOUNT_MAX, amount, micros
from service.times import moment_microseconds, moment_text
from service.words import suggestion


class Body(BaseModel):
    """A request body or a part of one. Strings are not numbers; NaN, infinity and unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True, hide_input_in_errors=True)


class Change(Body):
    """A request body that changes what it names. An absent field changes nothing, so the schema shows no defaults."""

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The schema without the defaults, which no change uses."""
        made = handler(schema)
        for field in handler.resolve_ref_schema(made).get("properties", {}).values():
            field.pop("default", None)
        return made


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must have printable characters only")
    return text


def _unique_ids(ids: list[str]) -> list[str]:
    if len(set(ids)) != len(ids):
        raise ValueError("must not have the same id twice")
    return ids


def _time_zone(name: str) -> str:
    if name not in available_timezones() or name in ("localtime", "Factory"):  # these differ by machine
        region = name.partition("/")[0]
        hint = suggestion(name, sorted(zone for zone in available_timezones() if zone.startswith(f"{region}/")))
        raise ValueError(f"must be a name of the IANA time zone database, such as Europe/Berlin{hint}")
    return name


# An amount is checked as a decimal; the serializer keeps a whole number whole in JSON.
_exact = (
    AfterValidator(lambda value: amount(micros(value))),
    PlainSerializer(lambda value: value),
    Field(description="at most six decimals"),
)

Status = Literal["scheduled", "active", "paused", "ended", "archived"]
Id = Annotated[str, StringConstraints(pattern=ID_PATTERN)]
UniqueIds = Annotated[list[Id], AfterValidator(_unique_ids), Field(json_schema_extra={"uniqueItems": True})]
Name = Annotated[str, StringConstraints(min_length=1, max_length=NAME_LENGTH_MAX), AfterValidator(_printable)]
Value = Annotated[str, StringConstraints(max_length=VALUE_LENGTH_MAX)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=TEXT_LENGTH_MAX), AfterValidator(_printable)]
Unit = Annotated[str, StringConstraints(min_length=1, max_length=UNIT_LENGTH_MAX), AfterValidator(_printable)]
Metadata = Annotated[dict[Name, Value], Field(max_length=METADATA_MAX)]
Moment = Annotated[
    str,
    AfterValidator(lambda text: moment_text(moment_microseconds(text))),
    Field(json_schema_extra={"format": "date-time"}),
]
TimeZone = Annotated[str, AfterValidator(_time_zone)]

# An amount with at most six decimals.
Amount = Annotated[float, Field(ge=0, le=AMOUNT_MAX), *_exact]
PositiveAmount = Annotated[float, Field(gt=0, le=AMOUNT_MAX), *_exact]
SignedAmount = Annotated[float, Field(ge=-AMOUNT_MAX, le=AMOUNT_MAX), *_exact]

# By feature name, or a list of numbers if the campaign declares a dimension. Without left_to_right pydantic tries every
# member of the union, which takes as long as the rest of the body.
_Feature = Annotated[float | Value, Field(union_mode="left_to_right")]
Features = Annotated[dict[str, _Feature] | list[float], Field(union_mode="left_to_right")]
