"""Snapshots of states. The log is the truth: a snapshot saves the time to fold it again."""

from __future__ import annotations

from collections import defaultdict

import structlog
from sqlalchemy import Connection, delete, select

from service.engine.cache import Cache, CachedCampaign
from service.store import tables
from service.store.database import Database

# A snapshot is due after this many outcomes learnt since the last one.
SNAPSHOT_OUTCOMES = 1_000
SNAPSHOTS_KEPT = 2

log = structlog.get_logger(__name__)


class Snapshots:
    """Counts what cached campaigns have learnt since their last snapshots, and writes new ones; one thread only."""

    def __init__(self, database: Database, cache: Cache) -> None:
        self._database, self._cache = database, cache
        self._unsaved: dict[int, int] = defaultdict(int)  # outcomes learnt since a campaign's last snapshot
        self.due: set[int] = set()  # campaigns that need a snapshot

    def count(self, number: int, outcomes: int) -> None:
        """A campaign has learnt this many more outcomes."""
        self._unsaved[number] += outcomes
        if self._unsaved[number] >= SNAPSHOT_OUTCOMES:
            self.due.add(number)

    def count_folded(self, known: CachedCampaign) -> None:
        """A campaign was brought up to its log: no snapshot has the outcomes that were folded."""
        number = known.campaign.number
        self.count(number, max(0, known.unsaved - self._unsaved[number]))

    def save_due(self, user: object) -> BaseException | None:
        """Write every snapshot that is due in its own transaction; return an error of the database's file, if any."""
        while self.due:
            number = self.due.pop()
            known = self._cache.get(number)
            self._unsaved.pop(number, None)
            if known is None:
                continue
            try:
                with self._database.write_dedicated(user) as connection:
                    self._save(connection, known)
            except Exception as error:  # noqa: BLE001 - the next snapshot may succeed
                log.warning("snapshot not written", error=type(error).__name__)
                if self._database.is_file_error(error):
                    return error
        return None

    def save_all(self, user: object) -> BaseException | None:
        """The same for every campaign that has learnt since its last snapshot: before the process stops."""
        self.due.update(number for number, learnt in self._unsaved.items() if learnt)
        return self.save_due(user)

    def _save(self, connection: Connection, known: CachedCampaign) -> None:
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
