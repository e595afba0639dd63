"""The query parameters that select decisions, for lists and exports."""

from typing import Annotated

from fastapi import Depends, Query
from starlette.requests import Request

from service.limits import SEED_MAX
from service.problems import Invalid
from service.reads import Selection
from service.schemas.admin import DecisionStatus
from service.times import moment_microseconds
from service.words import not_among, shown

SELECTING = ("arm", "status", "from", "to", "after")
_ID_LENGTH_MAX = 128


async def selection_of(
    arm: Annotated[str | None, Query(max_length=_ID_LENGTH_MAX, description="only decisions for this arm")] = None,
    status: Annotated[
        DecisionStatus | None, Query(description="only decisions with this status; null for the null arm")
    ] = None,
    start: Annotated[
        str | None,
        Query(alias="from", description="not before this moment", examples=["2026-11-16T09:00:00Z"]),
    ] = None,
    end: Annotated[
        str | None, Query(alias="to", description="before this moment", examples=["2026-11-17T00:00:00Z"])
    ] = None,
    after: Annotated[int, Query(ge=0, le=SEED_MAX, description="only decisions with a sequence above this")] = 0,
) -> Selection:
    """Return the selection of a request."""
    return Selection(arm, status, _moment("from", start), _moment("to", end), after)


Selected = Annotated[Selection, Depends(selection_of)]


def _moment(name: str, text: str | None) -> int | None:
    try:
        return None if text is None else moment_microseconds(text)
    except ValueError as error:
        raise _invalid(name, str(error)) from None


def only_parameters(request: Request, *known: str) -> None:
    """Raise Invalid if the query has another parameter: a selection with a typo would select everything."""
    for name in request.query_params:
        if name not in known:
            raise _invalid(shown(name), not_among("parameters of this path", name, known))


def _invalid(name: str, message: str) -> Invalid:
    return Invalid("the query cannot be taken as it is", errors=[{"field": name, "message": message}])
