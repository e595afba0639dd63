"""Vowpal Wabbit in its usual form: SquareCB on text, one action per line."""

from __future__ import annotations

import numpy as np
from vowpalwabbit import Workspace  # type: ignore[import-untyped]

from cbwk_core.arrays import Array
from tests.benchmarks.clock import Contender, each
from tests.benchmarks.workloads import Round, Size

# One context for all arms needs the products of context and arm to tell the arms apart.
OPTIONS = {
    "per_arm": "--cb_explore_adf --squarecb -q sa --quiet",
    "shared": "--cb_explore_adf --squarecb --quiet",
}


def contenders(size: Size, rounds: list[Round], rng: np.random.Generator) -> list[Contender]:
    """Return predict and learn on text and on parsed examples; the model has learnt every round once."""
    workspace = Workspace(OPTIONS[size.model])
    texts = [lines_of(size, one.features[0]) for one in rounds]
    reported = [_labelled(workspace, lines, one, rng) for lines, one in zip(texts, rounds, strict=True)]
    parsed = [workspace.parse(lines) for lines in texts]
    parsed_reported = [workspace.parse(lines) for lines in reported]
    _check(workspace, size, texts[0], parsed[0])
    return [
        Contender("VW predict", each(texts, workspace.predict)),
        Contender("VW learn", each(reported, workspace.learn)),
        Contender("VW predict, parsed before", each(parsed, workspace.predict)),
        Contender("VW learn, parsed before", each(parsed_reported, workspace.learn)),
    ]


def lines_of(size: Size, features: Array) -> list[str]:
    """Return one decision as text; VW's single precision has seven digits."""
    if size.model == "shared":
        return [f"|a {_words(row)}" for row in features]
    return [f"shared |s {_words(features)}", *(f"|a arm{arm}" for arm in range(size.arms))]


def _words(values: Array) -> str:
    return " ".join(f"f{index}:{value:.7g}" for index, value in enumerate(values))


def _labelled(workspace: Workspace, lines: list[str], one: Round, rng: np.random.Generator) -> list[str]:
    """Return the decision with action:cost:probability on the line of the action that VW drew, after learning it."""
    probabilities = np.array(workspace.predict(lines))
    action = int(rng.choice(probabilities.size, p=probabilities / probabilities.sum()))
    line = len(lines) - probabilities.size + action
    label = f"{action}:{-one.reward[0]:.7g}:{probabilities[action]:.7g} "
    reported = [*lines[:line], label + lines[line], *lines[line + 1 :]]
    workspace.learn(reported)
    return reported


def _check(workspace: Workspace, size: Size, lines: list[str], parsed: list[object]) -> None:
    """Check that text and parsed examples give the same prediction, with one probability per arm."""
    from_text, from_parsed = workspace.predict(lines), workspace.predict(parsed)
    assert len(from_text) == size.arms, from_text
    assert abs(sum(from_text) - 1.0) < 1e-3, from_text
    assert np.allclose(from_text, from_parsed), (from_text, from_parsed)
