"""Tests of the tests: every bug of `seeded.py` is planted, and what is there to find it must find it.

A bug counts as caught only if the same scenario, run without it, finds nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tests.faults import scenarios
from tests.faults.processes import Ground, Zygote
from tests.faults.seeded import BUGS, VARIABLE, planted

Scenario = Callable[[Ground, str], list[str]]
WORDS_MAX = 110


@dataclass(frozen=True)
class Trap:
    """A scenario on one database, and the bugs that it should find."""

    by: str  # what finds them
    scenario: Scenario
    database: str
    bugs: tuple[str, ...]
    quick: bool = False  # for the ordinary tests
    apart: bool = False  # the service runs in processes of its own

    @property
    def name(self) -> str:
        """As tests are called."""
        return f"{self.scenario.__name__}-{self.database}"


@dataclass(frozen=True)
class Catch:
    """What came of one bug in one trap."""

    bug: str
    by: str
    database: str
    caught: bool
    sound: bool  # nothing was found without the bug
    found: str


IN_BOOKS = ("float-money", "hold-released-twice", "expiry-keeps-hold")
IN_MODEL = (*IN_BOOKS, "ids-in-memory", "outcome-folded-twice", "stale-snapshot")
BETWEEN_REPLICAS = ("no-row-lock", "accounts-with-lock", "outcome-folded-twice", "ids-in-memory")
TRAPS = (
    Trap("state machine", scenarios.model, "sqlite", IN_MODEL, quick=True),
    Trap("state machine", scenarios.model, "postgresql", IN_MODEL),
    Trap("an intruder in the transaction", scenarios.intruder, "sqlite", ("deferred-begin",), quick=True),
    Trap("an intruder in the transaction", scenarios.intruder, "postgresql", ("no-row-lock",), quick=True),
    Trap(
        "two replicas at one moment",
        scenarios.overtaken,
        "postgresql",
        ("accounts-with-lock", "no-row-lock"),
        quick=True,
    ),
    Trap("test_access", scenarios.scopes, "sqlite", ("key-without-scope",), quick=True),
    Trap("kill -9, checker", scenarios.killed, "sqlite", ("answer-before-commit",), quick=True, apart=True),
    Trap("kill -9, checker", scenarios.killed, "postgresql", ("answer-before-commit", "ids-in-memory"), apart=True),
    Trap("replicas, checker", scenarios.crowd, "postgresql", BETWEEN_REPLICAS, apart=True),
    Trap("irregular feedback, checker", scenarios.reports, "sqlite", IN_BOOKS, apart=True),
)


def sprung(trap: Trap, ground: Ground) -> Iterator[Catch]:
    """Every bug of a trap, after a run without any."""
    before = tried(trap, ground)
    for bug in trap.bugs:
        if trap.apart:
            with _with_bug(ground, bug) as spoilt:
                found = tried(trap, spoilt)
        else:
            with planted(bug):
                found = tried(trap, ground)
        words = _in_words(found if not before else [f"without it: {before[-1]}"])
        yield Catch(bug, trap.by, trap.database, bool(found) and not before, not before, words)


def tried(trap: Trap, ground: Ground) -> list[str]:
    """What a scenario finds; that it cannot go on is a finding, too."""
    try:
        return trap.scenario(ground, trap.database)
    except Exception as error:  # noqa: BLE001 - a service with a bug may fail in any way
        return [f"{type(error).__name__}: {error}"]


@contextmanager
def _with_bug(ground: Ground, bug: str) -> Iterator[Ground]:
    """The same ground with processes that have the bug."""
    zygote = Zygote(environment={VARIABLE: bug})
    try:
        yield replace(ground, zygote=zygote)
    finally:
        zygote.close()


def _in_words(found: Sequence[str]) -> str:
    """The first finding of a trial, the last line of a sequence, in a few words."""
    if not found:
        return ""
    words = found[0] if len(found) == 1 or not found[-1].startswith("AssertionError") else found[-1]
    line = " ".join(words.removeprefix("AssertionError: ").split()).replace("|", "/")
    return line if len(line) <= WORDS_MAX else line[: WORDS_MAX - 1] + "…"


def markdown(catches: Sequence[Catch]) -> str:
    """One row for each bug: by what it was caught, and what the first to catch it said."""
    lines = ["| bug | what is wrong | caught by | found |", "|---|---|---|---|"]
    for name, bug in BUGS.items():
        mine = [one for one in catches if one.bug == name]
        by = _named([one for one in mine if one.caught])
        missed = _named([one for one in mine if not one.caught])
        found = next((one.found for one in mine if one.caught), "")
        cells = (name, bug.what, (by or "**nothing**") + (f"; missed by {missed}" if missed else ""), found)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _named(catches: Sequence[Catch]) -> str:
    """What has caught, or missed, each with its databases."""
    databases: dict[str, list[str]] = {}
    for one in catches:
        databases.setdefault(one.by, []).append(one.database)
    return "; ".join(f"{by} ({', '.join(where)})" for by, where in databases.items())


def write(catches: Sequence[Catch], folder: Path) -> None:
    """Write the table as `bugs.md` and `catches.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bugs.md").write_text(markdown(catches), encoding="utf-8")
    content = json.dumps([asdict(catch) for catch in catches], indent=1)
    (folder / "catches.json").write_text(content + "\n", encoding="utf-8")


def uncaught(catches: Sequence[Catch]) -> list[str]:
    """Bugs that nothing has caught."""
    return [name for name in BUGS if not any(one.caught for one in catches if one.bug == name)]
