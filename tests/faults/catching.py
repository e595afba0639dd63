"""Tests of the tests: the suite must find every bug of `seeded.py` when it is planted.

A bug counts as caught only if the same scenario finds nothing without it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tests.faults import scenarios
from tests.faults.processes import Testbed, Zygote
from tests.faults.seeded import BUGS, VARIABLE, planted

Scenario = Callable[[Testbed, str], list[str]]
WORDS_MAX = 110


@dataclass(frozen=True)
class Trap:
    """A scenario on one database, and the bugs that it must find."""

    by: str  # the name in the table
    scenario: Scenario
    database: str
    bugs: tuple[str, ...]
    quick: bool = False  # fast enough for `make slow`
    apart: bool = False  # the service runs in separate processes

    @property
    def name(self) -> str:
        """The name of its test."""
        return f"{self.scenario.__name__}-{self.database}"


@dataclass(frozen=True)
class Catch:
    """The result of one bug in one trap."""

    bug: str
    by: str
    database: str
    caught: bool
    sound: bool  # the scenario found nothing without the bug
    found: str


IN_BOOKS = ("float-money", "hold-released-twice", "expiry-keeps-hold")
IN_WINDOWS = ("cost-on-report-day", "window-not-rolled")
IN_MODEL = (
    *IN_BOOKS,
    *IN_WINDOWS,
    "ids-in-memory",
    "outcome-folded-twice",
    "stale-snapshot",
    "portfolio-keeps-hold",
    "floor-forgotten",
)
BETWEEN_REPLICAS = (
    "no-row-lock",
    "portfolio-outside-lock",
    "accounts-with-lock",
    "outcome-folded-twice",
    "ids-in-memory",
)
OVERLOOKED = ("patch-overlooked", "paused-arm-cached", "pause-overlooked", "adjust-overlooked")
TRAPS = (
    Trap("state machine", scenarios.model, "sqlite", IN_MODEL, quick=True),
    Trap("state machine", scenarios.model, "postgresql", (*IN_MODEL, "hold-on-wrong-day", "paused-arm-cached")),
    Trap("an arm paused elsewhere", scenarios.paused_arm, "postgresql", ("paused-arm-cached",), quick=True),
    Trap("three days", scenarios.days, "postgresql", (*IN_WINDOWS, "hold-on-wrong-day"), quick=True),
    Trap("an intruder in the transaction", scenarios.intruder, "sqlite", ("deferred-begin",), quick=True),
    Trap("an intruder in the transaction", scenarios.intruder, "postgresql", ("no-row-lock",), quick=True),
    Trap(
        "two replicas at one moment",
        scenarios.overtaken,
        "postgresql",
        ("accounts-with-lock", "no-row-lock"),
        quick=True,
    ),
    Trap(
        "two campaigns of a portfolio at one moment",
        scenarios.overtaken_portfolio,
        "postgresql",
        ("portfolio-outside-lock",),
        quick=True,
    ),
    Trap("test_access", scenarios.scopes, "sqlite", ("key-without-scope",), quick=True),
    Trap("kill -9, checker", scenarios.killed, "sqlite", ("answer-before-commit",), quick=True, apart=True),
    Trap("kill -9 as hours end, checker", scenarios.killed, "sqlite", IN_WINDOWS, apart=True),
    Trap("kill -9, checker", scenarios.killed, "postgresql", ("answer-before-commit", "ids-in-memory"), apart=True),
    Trap("replicas, checker", scenarios.crowd, "postgresql", BETWEEN_REPLICAS, apart=True),
    Trap("replicas with changes, checker", scenarios.changed, "postgresql", OVERLOOKED, quick=True, apart=True),
    Trap("irregular feedback, checker", scenarios.reports, "sqlite", IN_BOOKS, apart=True),
)


def sprung(trap: Trap, testbed: Testbed) -> Iterator[Catch]:
    """Run a trap without a bug, then with each of its bugs."""
    before = tried(trap, testbed)
    for bug in trap.bugs:
        if trap.apart:
            with _with_bug(testbed, bug) as spoilt:
                found = tried(trap, spoilt)
        else:
            with planted(bug):
                found = tried(trap, testbed)
        words = _in_words(found if not before else [f"without it: {before[-1]}"])
        yield Catch(bug, trap.by, trap.database, bool(found) and not before, not before, words)


def tried(trap: Trap, testbed: Testbed) -> list[str]:
    """Return the findings of a scenario; an exception is a finding, too."""
    try:
        return trap.scenario(testbed, trap.database)
    except Exception as error:  # noqa: BLE001 - a service with a bug can fail in any way
        return [f"{type(error).__name__}: {error}"]


@contextmanager
def _with_bug(testbed: Testbed, bug: str) -> Iterator[Testbed]:
    """Yield the same test bed with processes that have the bug."""
    zygote = Zygote(environment={VARIABLE: bug})
    try:
        yield replace(testbed, zygote=zygote)
    finally:
        zygote.close()


def _in_words(found: Sequence[str]) -> str:
    """Return the first finding of a trial, or the last line of a sequence, shortened."""
    if not found:
        return ""
    words = found[0] if len(found) == 1 or not found[-1].startswith("AssertionError") else found[-1]
    line = " ".join(words.removeprefix("AssertionError: ").split()).replace("|", "/")
    return line if len(line) <= WORDS_MAX else line[: WORDS_MAX - 1] + "…"


def markdown(catches: Sequence[Catch]) -> str:
    """Return a table with one row for each bug: the traps that caught it, and the first finding."""
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
    """Return the names of traps, each with its databases."""
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
    """Return the bugs that no trap has caught."""
    return [name for name in BUGS if not any(one.caught for one in catches if one.bug == name)]
