"""Several commands in one request."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from service.answers import REPLAYED, json_answer
from service.engine.commands import Answer, Command
from service.problems import Problem, Unavailable
from service.routes.parts import submit_together


async def batch_answer(
    request: Request, commands: Sequence[Command | Problem], name: str, *, of_all: str | None = None
) -> Response:
    """Submit what is a command, and answer everything in order; a problem stands in its place, as `error`.

    A batch in which everything was a repeat is itself one. The kind of problem `of_all` is one of the whole batch.
    """
    good = [command for command in commands if not isinstance(command, Problem)]
    answers = iter(await submit_together(request, good) if good else [])
    results = [command if isinstance(command, Problem) else next(answers) for command in commands]
    for result in results:
        if isinstance(result, Unavailable) or (isinstance(result, Problem) and result.kind == of_all):
            raise result
    bodies = [result.body if isinstance(result, Answer) else {"error": result.document()} for result in results]
    replayed = bool(results) and all(isinstance(result, Answer) and result.replayed for result in results)
    return json_answer({name: bodies}, headers=REPLAYED if replayed else None)
