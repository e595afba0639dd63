"""Errors of opening a database. Each message is one line for the person who starts the process.

DatabaseError
├── DatabaseUrlInvalid      the URL names no database that this program can open
├── DatabaseInUse           another process uses the SQLite file
├── DatabaseUnusable        the SQLite file is not writable, is not a database, or the disk is full
├── DatabaseUnreachable     PostgreSQL does not answer or refuses, or a pooler shares its sessions
└── DatabaseNotMigrated     the tables are not those of this version (see service.store.migrate)

An open database raises SQLAlchemy's errors; `Database.is_connection_error` separates failures of the database from
errors in the data.
"""


class DatabaseError(Exception):
    """A database cannot be opened."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class DatabaseUrlInvalid(DatabaseError):  # noqa: N818 - as all below: the name states the condition
    """The URL names no database that this program can open."""


class DatabaseInUse(DatabaseError):  # noqa: N818
    """Another process uses the SQLite file."""


class DatabaseUnusable(DatabaseError):  # noqa: N818
    """The SQLite file cannot be used."""


class DatabaseUnreachable(DatabaseError):  # noqa: N818
    """PostgreSQL does not answer or refuses the connection."""


class DatabaseNotMigrated(DatabaseError):  # noqa: N818
    """The tables are not those of this version."""
