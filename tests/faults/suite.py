"""The list of faults: on which databases, and how often each is injected by `make test` and by `make faults`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.faults.clocks import clock_jumps
from tests.faults.corruption import flipped_bytes
from tests.faults.disks import failing_disk, full_disk
from tests.faults.exits import exits
from tests.faults.hangups import feedback, hang_ups
from tests.faults.kills import kills
from tests.faults.machine import machine
from tests.faults.migrations import killed_migrations
from tests.faults.networks import disturbances, lost_commits
from tests.faults.outages import ended_sessions, immediate_stops
from tests.faults.overload import overload
from tests.faults.processes import Ground
from tests.faults.replicas import frozen, replicas
from tests.faults.report import Progress, Row

Run = Callable[[Ground, str, int, Progress], Awaitable[Row]]


@dataclass(frozen=True)
class Fault:
    """A family of faults on one database."""

    run: Run
    database: str
    short: int  # injections in the ordinary tests; of an overload the seconds
    full: int

    @property
    def name(self) -> str:
        """As tests are called."""
        return f"{self.run.__name__}-{self.database}"


SUITE = (
    Fault(kills, "sqlite", 3, 300),
    Fault(kills, "postgresql", 2, 150),
    Fault(exits, "sqlite", 5, 100),
    Fault(exits, "postgresql", 5, 60),
    Fault(immediate_stops, "postgresql", 2, 20),
    Fault(ended_sessions, "postgresql", 3, 60),
    Fault(lost_commits, "postgresql", 3, 90),
    Fault(disturbances, "postgresql", 4, 60),
    Fault(replicas, "postgresql", 2, 60),
    Fault(frozen, "postgresql", 2, 12),
    Fault(hang_ups, "sqlite", 30, 1_000),
    Fault(hang_ups, "postgresql", 30, 1_000),
    Fault(feedback, "sqlite", 60, 5_000),
    Fault(feedback, "postgresql", 60, 5_000),
    Fault(full_disk, "sqlite", 2, 30),
    Fault(failing_disk, "sqlite", 2, 20),
    Fault(clock_jumps, "sqlite", 1, 12),
    Fault(clock_jumps, "postgresql", 2, 12),
    Fault(killed_migrations, "sqlite", 3, 60),
    Fault(killed_migrations, "postgresql", 3, 30),
    Fault(flipped_bytes, "sqlite", 1, 10),
    Fault(flipped_bytes, "postgresql", 1, 10),
    Fault(machine, "sqlite", 8, 400),
    Fault(machine, "postgresql", 5, 250),
    Fault(overload, "sqlite", 2, 120),
    Fault(overload, "postgresql", 2, 120),
)
