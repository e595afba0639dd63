"""The list of faults: the databases, and the number of injections in `make test` and in `make faults`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.faults.administered import administered
from tests.faults.balancers import behind_client, behind_haproxy
from tests.faults.clocks import clock_jumps
from tests.faults.corruption import flipped_bytes
from tests.faults.disks import failing_disk, full_disk
from tests.faults.exits import exits
from tests.faults.expiries import expiries
from tests.faults.hangups import feedback, hang_ups
from tests.faults.kills import kills
from tests.faults.machine import machine
from tests.faults.migrations import killed_migrations
from tests.faults.networks import disturbances, lost_commits
from tests.faults.outages import ended_sessions, immediate_stops
from tests.faults.overload import overload
from tests.faults.poolers import poolers
from tests.faults.processes import Testbed
from tests.faults.promotions import promotions, synchronous_promotions
from tests.faults.replicas import frozen, replicas
from tests.faults.report import Progress, Row

Run = Callable[[Testbed, str, int, Progress], Awaitable[Row]]


@dataclass(frozen=True)
class Fault:
    """One kind of fault on one database."""

    run: Run
    database: str
    short: int  # injections in `make test`; seconds for an overload
    full: int  # the same in `make faults`
    is_long: bool = False  # its short version, too: it starts several servers, and `make slow` runs it

    @property
    def name(self) -> str:
        """The name of its test."""
        return f"{self.run.__name__}-{self.database}"


@dataclass(frozen=True)
class Part:
    """Faults that `make faults PART=…` runs together."""

    what: str
    faults: tuple[Fault, ...] = ()


# The part that injects no faults but plants bugs.
BUGS_PART = "bugs"
PARTS = {
    "crashes": Part(
        "the process is killed under load, or exits at a named point of a batch",
        (
            Fault(kills, "sqlite", 3, 300),
            Fault(kills, "postgresql", 2, 200, is_long=True),
            Fault(exits, "sqlite", 5, 100),
            Fault(exits, "postgresql", 5, 60, is_long=True),
        ),
    ),
    "database": Part(
        "PostgreSQL stops, ends its sessions, or its network fails",
        (
            Fault(immediate_stops, "postgresql", 2, 20),
            Fault(ended_sessions, "postgresql", 3, 60),
            Fault(lost_commits, "postgresql", 3, 90),
            Fault(disturbances, "postgresql", 4, 60, is_long=True),
        ),
    ),
    "replicas": Part(
        "one of several processes on one database is killed or frozen, also while campaigns are changed and pruned",
        (
            Fault(replicas, "postgresql", 2, 60, is_long=True),
            Fault(frozen, "postgresql", 2, 12, is_long=True),
            Fault(administered, "postgresql", 2, 60, is_long=True),
        ),
    ),
    "balancers": Part(
        "a replica is killed or frozen behind HAProxy, and behind the client with several addresses",
        (
            Fault(behind_haproxy, "postgresql", 2, 56, is_long=True),
            Fault(behind_client, "postgresql", 2, 56, is_long=True),
        ),
    ),
    "promotion": Part(
        "a standby is promoted under running replicas: one that lacks the last decisions, and a synchronous one",
        (
            Fault(promotions, "postgresql", 1, 12, is_long=True),
            Fault(synchronous_promotions, "postgresql", 1, 30, is_long=True),
        ),
    ),
    "pooler": Part(
        "PgBouncer in session mode is killed, or shares sessions for a while",
        (Fault(poolers, "postgresql", 2, 40, is_long=True),),
    ),
    "expiry": Part(
        "the table of holds is away for a while, or one hold cannot expire",
        (Fault(expiries, "sqlite", 2, 20), Fault(expiries, "postgresql", 2, 20)),
    ),
    "clients": Part(
        "clients hang up, and report twice, late, too much or never",
        (
            Fault(hang_ups, "sqlite", 30, 1_000),
            Fault(hang_ups, "postgresql", 30, 1_000),
            Fault(feedback, "sqlite", 60, 5_000),
            Fault(feedback, "postgresql", 60, 5_000),
        ),
    ),
    "storage": Part(
        "the disk is full or fails, the clock jumps, a migration is killed, a stored byte changes",
        (
            Fault(full_disk, "sqlite", 2, 30),
            Fault(failing_disk, "sqlite", 2, 20),
            Fault(clock_jumps, "sqlite", 1, 12),
            Fault(clock_jumps, "postgresql", 2, 12, is_long=True),
            Fault(killed_migrations, "sqlite", 3, 60),
            Fault(killed_migrations, "postgresql", 3, 30),
            Fault(flipped_bytes, "sqlite", 1, 10),
            Fault(flipped_bytes, "postgresql", 1, 10),
        ),
    ),
    "model": Part(
        "random sequences of operations, compared with a model of the service",
        (Fault(machine, "sqlite", 8, 400), Fault(machine, "postgresql", 5, 250)),
    ),
    "overload": Part(
        "three times as many requests as the service can answer",
        (Fault(overload, "sqlite", 2, 120), Fault(overload, "postgresql", 2, 120)),
    ),
    BUGS_PART: Part("bugs are planted into the service, and the suite must find each of them"),
}
SUITE = tuple(fault for part in PARTS.values() for fault in part.faults)
