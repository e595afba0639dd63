"""Snapshots of states. The log is the truth: a snapshot saves the time to fold it again."""

from __future__ import annotations

import structlog
from sqlalchemy import Connection, delete, select

from service.engine.cache import Cache, CachedCampaign
from service.store import tables
from service.store.database import Database

SNAPSHOTS_KEPT = 2

log = structlog.get_logger(__name__)


class Snapshots:
    """Writes snapshots of cached campaigns; one thread only."""

    def __init__(self, database: Database, cache: Cache) -> None:
        self._database, self._cache = database, cache

    def save_due(self, user: object) -> BaseException | None:
        """Write every snapshot that is due in its own transaction; return an error of the database's file, if any."""
        cache = self._cache
        while cache.due:
            number = cache.due.pop()
            known = cache.get(number)
            cache.unsaved.pop(number, None)
            if known is None:
                continue
            try:
                with self._database.writer.begin(user) as connection:
                    if self._database.writer.history == cache.history:
                        self._save(connection, known)
            except Exception as error:  # noqa: BLE001 - the next snapshot may succeed
                log.warning("snapshot not written", error=type(error).__name__)
                if self._database.is_file_error(error):
                    return error
        return None

    def save_all(self, user: object) -> BaseException | None:
        """The same for every campaign that has learnt since its last snapshot: before the process stops."""
        self._cache.due.update(number for number, learnt in self._cache.unsaved.items() if learnt)
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
                at=self._database.writer.now_micros(),
            )
        )
        old = kept[SNAPSHOTS_KEPT - 1 :]
        if old:
            connection.execute(delete(snapshot).where(snapshot.c.campaign == number, snapshot.c.sequence.in_(old)))
