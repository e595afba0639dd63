"""Base models of response bodies, which carry their examples."""

from types import GenericAlias
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, create_model

DECISION_ID = "0197f0c4-8a00-7000-8000-5d1c2f0b9e11"  # of the examples

Amounts = dict[str, float]
CampaignName = Annotated[str, Field(examples=["summer-sale"])]
DecisionName = Annotated[str, Field(examples=[DECISION_ID])]
At = Annotated[str, Field(examples=["2026-11-16T09:00:00Z"])]


class Answered(BaseModel):
    """A response body or a part of one, for the OpenAPI document and for tests; fields may be added."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False, frozen=True)


class View(Answered):
    """A response body whose example is composed of the examples of its fields."""

    model_config = ConfigDict(json_schema_extra=lambda schema, model: schema.update(examples=[model.example()]))

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

    next_cursor: str | None = Field(description="`cursor` of the next page; null on the last")


def page(name: str, item: type[View], description: str) -> type[Page]:
    """Return the model of one page of these items."""
    items: Any = GenericAlias(list, (item,))
    listed = (items, Field(description=description))
    return create_model(name, __base__=Page, __doc__=description, __module__=item.__module__, items=listed)


def shown(example: Any, description: str) -> Any:
    """Return a required field with this example."""
    return Field(examples=[example], description=description)


def example(body: dict[str, Any]) -> ConfigDict:
    """Return the configuration of a model with this example."""
    return ConfigDict(json_schema_extra={"examples": [body]})
