"""The description of a context or of an arm: named features, or a list of numbers."""

from collections.abc import Hashable, Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from cbwk_core.features.feature import BUCKETS_MAX, DIMENSION_MAX
from service.features import encoder_of
from service.limits import FEATURES_MAX
from service.problems import Misfit, misfit_of, without_values
from service.schemas.body import Body, Name, Value


def unique(field: str, items: Iterable[Hashable], what: str = "id") -> None:
    """Refuse repeated items with a Misfit."""
    listed = [*items]
    if len(set(listed)) != len(listed):
        raise Misfit(field, f"must not have the same {what} twice")


class Sparse(Body):
    """A part that is stored and shown without its null fields."""

    @model_serializer(mode="wrap")
    def _without_nulls(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if value is not None}


class _Feature(Sparse):
    name: Name = Field(description="name of the feature in `context`")

    @model_validator(mode="after")
    def _fits_the_library(self) -> Self:
        try:
            encoder_of({"features": [self.model_dump()]})
        except ValueError as error:
            raise ValueError(without_values(str(error)).replace(f"feature {self.name!r}", "a feature")) from None
        return self


class NumberFeature(_Feature):
    """A number, scaled by its range. A number outside the range is clipped, or refused with 422 when strict."""

    type: Literal["number"] = Field(description="a number")
    min: float = Field(description="lower end of the range, which is scaled to 0")
    max: float = Field(description="upper end of the range, which is scaled to 1; above min")
    default: float | None = Field(
        default=None, description="used if a request leaves the feature out; without a default that is 422"
    )
    strict: bool = Field(
        default=False, description="whether a number outside the range is 422; otherwise it is clipped"
    )


class CategoryFeature(_Feature):
    """One of the declared strings. Another string is encoded as zeros, or refused with 422 when strict."""

    type: Literal["category"] = Field(description="one of the declared strings")
    values: Annotated[list[Value], Field(min_length=1, max_length=DIMENSION_MAX)] = Field(
        description="the strings that are known"
    )
    default: Value | None = Field(
        default=None, description="used if a request leaves the feature out; without a default that is 422"
    )
    strict: bool = Field(
        default=False, description="whether an unknown string is 422; otherwise it is encoded as zeros"
    )


class HashFeature(_Feature):
    """Any string, for identifiers that are too many to declare."""

    type: Literal["hash"] = Field(description="any string")
    buckets: Annotated[int, Field(ge=1, le=BUCKETS_MAX)] = Field(
        description="number of cells that strings are hashed into; strings of one cell are the same to the model"
    )
    default: Value | None = Field(
        default=None, description="used if a request leaves the feature out; without a default that is 422"
    )


Feature = Annotated[NumberFeature | CategoryFeature | HashFeature, Field(discriminator="type")]


class Space(Sparse):
    """The description of a context or an arm: named features, or a list of numbers of this dimension."""

    features: Annotated[list[Feature], Field(min_length=1, max_length=FEATURES_MAX)] | None = Field(
        default=None, description="named features; or set dimension"
    )
    dimension: Annotated[int, Field(ge=1, le=DIMENSION_MAX)] | None = Field(
        default=None, description="number of values of a list without names; or set features"
    )

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Self:
        if (self.features is None) == (self.dimension is None):
            raise ValueError("must have either features or dimension")
        unique("features", (feature.name for feature in self.features or ()), "name")
        with misfit_of("features"):
            encoder_of(self.model_dump())
        return self
