"""Alembic's environment: runs a command in one transaction, on the given connection or on the settings' database."""

from alembic import context
from sqlalchemy import Connection

from service.settings import Settings
from service.store.database import Database
from service.store.tables import metadata


def run(connection: Connection) -> None:
    """Run the command in the connection's transaction, so that a migration is atomic, also on SQLite."""
    context.configure(
        connection=connection,
        target_metadata=metadata,
        transactional_ddl=True,
        # SQLite cannot alter a constraint: new revisions copy the table there.
        render_as_batch=True,
        autogenerate_plugins=["alembic.autogenerate.*", "alembic.ext.checkconstraint_byname"],
    )
    context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    with Database.of(Settings()) as database, database.write() as own:
        run(own)
