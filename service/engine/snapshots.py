"""When states are saved as snapshots, and how. The log is the truth: a snapshot saves the time to fold it again."""

from __future__ import annotations

from collections import defaultdict

import structlog
from sqlalchemy import Connection, delete, select

from service.engine.cache import Memory, Remembered
from service.store import tables
from service.store.database import Database

# A snapshot is due after so many outcomes learnt since the last one.
SNAPSHOT_OUTCOMES = 1_000
SNAPSHOTS_KEPT = 2

log = structlog.get_logger(__name__)


class Snapshots:
    """What the campaigns in memory have learnt since their last snapshots; one thread only."""

    def __init__(self, database: Database, memory: Memory) -> None:
        self._database, self._memory = database, memory
        self._unsaved: dict[int, int] = defaultdict(int)  # outcomes learnt since a campaign's last snapshot
        self._due: set[int] = set()  # campaigns with so many of them that a snapshot should be made

    def count(self, number: int, outcomes: int) -> None:
        """A campaign has learnt so many more."""
        self._unsaved[number] += outcomes
        if self._unsaved[number] >= SNAPSHOT_OUTCOMES:
            self._due.add(number)

    def count_folded(self, known: Remembered) -> None:
        """A campaign was brought up to its log: what had to be folded is in no snapshot."""
        number = known.campaign.number
        self.count(number, max(0, known.unsaved - self._unsaved[number]))

    def save_due(self, user: object) -> BaseException | None:
        """Save what is due, each in a transaction of its own; an error of the database's file, if there was one."""
        while self._due:
            number = self._due.pop()
            known = self._memory.recall(number)
            self._unsaved.pop(number, None)
            if known is None:
                continue
            try:
                with self._database.write_standing(user) as connection:
                    self._save(connection, known)
            except Exception as error:  # noqa: BLE001 - whatever it is, the next one may be written
                log.warning("snapshot not written", error=type(error).__name__)
                if self._database.is_file_error(error):
                    return error
        return None

    def save_all(self, user: object) -> BaseException | None:
        """The same of everything that has learnt since its last snapshot: before the process stops."""
        self._due.update(number for number, learnt in self._unsaved.items() if learnt)
        return self.save_due(user)

    def _save(self, connection: Connection, known: Remembered) -> None:
        snapshot, number = tables.snapshot, known.campaign.number
        kept = (
            connection.execute(
                select(snapshot.c.sequence).where(snapshot.c.campaign == number).order_by(snapshot.c.sequence.desc())
            )
            .scalars()
            .all()
        )
        if known.sequence in kept:
            return
        connection.execute(
            snapshot.insert().values(
                campaign=number,
                sequence=known.sequence,
                config_version=known.campaign.version,
                model_version=known.model_version,
                data=known.campaign.policy.encode(known.state),
                at=self._database.now_micros(connection),
            )
        )
        old = kept[SNAPSHOTS_KEPT - 1 :]
        if old:
            connection.execute(delete(snapshot).where(snapshot.c.campaign == number, snapshot.c.sequence.in_(old)))
