"""Every fault a few times, with the checker's verdict; `make faults` injects each up to a thousand times."""

from __future__ import annotations

import asyncio

import pytest

from tests.faults.processes import new_testbed
from tests.faults.suite import SUITE


@pytest.fixture(scope="module")
def testbed():
    """Processes and a PostgreSQL server for all faults of a worker."""
    with new_testbed() as one:
        yield one


TRIALS = [pytest.param(fault, id=fault.name, marks=[pytest.mark.slow] * fault.is_long) for fault in SUITE]


@pytest.mark.parametrize("fault", TRIALS)
def test_nothing_acknowledged_is_lost_or_counted_twice_and_no_budget_is_exceeded(testbed, fault):
    async def tried():
        return await fault.run(testbed, fault.database, fault.short, lambda: None)

    row = asyncio.run(tried())
    if row.skipped:
        pytest.skip(row.skipped)
    assert row.ok, row.details
    assert row.injections >= fault.short
