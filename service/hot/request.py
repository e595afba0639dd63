"""What a request asks of the engine, and how the answers become one; one command or several."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from starlette.responses import Response

from service.engine.commands import Answer, Command
from service.problems import Problem
from service.responses import REPLAYED, command_answer, json_answer


class Asked(NamedTuple):
    """Commands of one transaction, and what makes an answer of theirs; it may raise a Problem of the whole."""

    commands: Sequence[Command]
    answered: Callable[[Sequence[Answer | Problem]], Response]


def one(command: Command) -> Asked:
    """A request that is one command."""
    return Asked([command], _answer_of_one)


def _answer_of_one(answers: Sequence[Answer | Problem]) -> Response:
    (answer,) = answers
    if isinstance(answer, Problem):
        raise answer
    return command_answer(answer)


def several(commands: Sequence[Command | Problem], name: str, *, of_all: Collection[str] = ()) -> Asked:
    """A request of several: everything is answered in order, and a problem stands in its place, as `error`.

    A batch in which everything was a repeat is itself one. Problems of the kinds `of_all` are of the whole batch.
    """
    taken = [command for command in commands if not isinstance(command, Problem)]

    def answered(answers: Sequence[Answer | Problem]) -> Response:
        results = answers
        if len(taken) < len(commands):
            given = iter(answers)
            results = [command if isinstance(command, Problem) else next(given) for command in commands]
        bodies: list[dict[str, Any]] = []
        replayed = bool(results)
        for result in results:
            if isinstance(result, Problem):
                if result.kind in of_all:
                    raise result
                bodies.append({"error": result.document()})
                replayed = False
            else:
                bodies.append(result.body)
                replayed = replayed and result.replayed
        return json_answer({name: bodies}, headers=REPLAYED if replayed else None)

    return Asked(taken, answered)
