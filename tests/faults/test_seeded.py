"""The suite finds planted bugs: a scenario that finds nothing without a bug catches it."""

from __future__ import annotations

import pytest

from tests.faults.catching import TRAPS, Catch, markdown, sprung, uncaught
from tests.faults.processes import new_testbed
from tests.faults.seeded import BUGS

pytestmark = pytest.mark.slow

QUICK = [trap for trap in TRAPS if trap.quick]


@pytest.fixture(scope="module")
def testbed():
    """Processes and a PostgreSQL server for all traps of a worker."""
    with new_testbed() as one:
        yield one


@pytest.mark.parametrize("trap", QUICK, ids=lambda trap: trap.name)
def test_a_scenario_that_finds_nothing_without_a_bug_catches_it_when_it_is_planted(testbed, trap):
    catches = list(sprung(trap, testbed))
    assert [one.bug for one in catches if one.caught] == list(trap.bugs), catches


def test_every_bug_is_in_a_quick_trap():
    assert {bug for trap in QUICK for bug in trap.bugs} == set(BUGS)


def test_the_table_shows_what_caught_each_bug_and_what_missed_it():
    catches = [
        Catch("float-money", "state machine", "sqlite", True, True, "one millionth | too much"),
        Catch("float-money", "state machine", "postgresql", True, True, "one millionth too little"),
        Catch("float-money", "checker", "sqlite", False, True, ""),
        Catch("no-row-lock", "checker", "postgresql", False, False, "without it: something"),
    ]
    table = markdown(catches).splitlines()
    assert len(table) == 2 + len(BUGS)
    row = next(row for row in table if "float-money" in row).split(" | ")[2]
    assert row == "state machine (sqlite, postgresql); missed by checker (sqlite)"
    assert "**nothing**" in next(row for row in table if "no-row-lock" in row)
    assert uncaught(catches) == [name for name in BUGS if name != "float-money"]
