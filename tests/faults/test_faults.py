"""Every fault a few times, with the checker's verdict; `make faults` injects them by the hundred."""

from __future__ import annotations

import asyncio

import pytest

from tests.faults.processes import new_ground
from tests.faults.suite import SUITE


@pytest.fixture(scope="module")
def ground():
    """Processes and a PostgreSQL for all faults that a worker injects."""
    with new_ground() as one:
        yield one


@pytest.mark.parametrize("fault", SUITE, ids=lambda fault: fault.name)
def test_nothing_acknowledged_is_lost_or_counted_twice_and_no_budget_is_exceeded(ground, fault):
    async def tried():
        return await fault.run(ground, fault.database, fault.short, lambda: None)

    row = asyncio.run(tried())
    if row.skipped:
        pytest.skip(row.skipped)
    assert row.ok, row.details
    assert row.injections >= fault.short
