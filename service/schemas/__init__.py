"""Bodies of the interface as pydantic models: strict for requests, open to more fields for responses.

The requests of the hot endpoints are in `service.hot.bodies`.
"""

from pydantic import BaseModel

from service.schemas import admin, campaign, deciding, evaluations, portfolio, webhooks
from service.schemas.body import Body
from service.schemas.view import Answered

__all__ = ["ANSWERS", "REQUESTS"]


def _with_examples(kind: type[BaseModel]) -> tuple[type[BaseModel], ...]:
    return tuple(
        model
        for module in (admin, campaign, deciding, evaluations, portfolio, webhooks)
        for model in vars(module).values()
        if isinstance(model, type) and model.__module__ == module.__name__ and issubclass(model, kind)
        if "json_schema_extra" in model.model_config
    )


REQUESTS = _with_examples(Body)
ANSWERS = _with_examples(Answered)
