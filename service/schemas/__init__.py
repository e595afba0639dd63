"""Bodies of the interface as pydantic models: strict for requests, open to more fields for responses.

The requests of the hot endpoints are in `service.hot.bodies`.
"""

from __future__ import annotations

from typing import TypeVar

from service.schemas import admin, campaign, deciding, evaluations, problem, uplift
from service.schemas.base import Answered, Body

__all__ = ["ANSWERS", "REQUESTS"]

Model = TypeVar("Model", Body, Answered)


def _with_examples(base: type[Model]) -> tuple[type[Model], ...]:
    modules = (admin, campaign, deciding, evaluations, problem, uplift)
    return tuple(
        model
        for module in modules
        for model in vars(module).values()
        if isinstance(model, type) and model.__module__ == module.__name__
        if issubclass(model, base) and "json_schema_extra" in model.model_config
    )


REQUESTS = _with_examples(Body)
ANSWERS = _with_examples(Answered)
