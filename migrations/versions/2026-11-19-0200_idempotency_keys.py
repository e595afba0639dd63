"""Add the answers to requests with an Idempotency-Key."""

from alembic import op
from sqlalchemy import BigInteger, Column, LargeBinary, PrimaryKeyConstraint, SmallInteger, Text

revision = "20261119_0200"
down_revision = "20261118_2130"


def upgrade() -> None:
    """Add a table."""
    op.create_table(
        "idempotency",
        Column("actor", Text, nullable=False),
        Column("key", Text, nullable=False),
        Column("digest", LargeBinary, nullable=False),
        Column("status", SmallInteger, nullable=False),
        Column("body", Text, nullable=False),
        Column("at", BigInteger, nullable=False),
        PrimaryKeyConstraint("actor", "key", name=op.f("pk_idempotency")),
    )
    op.create_index("ix_idempotency_at", "idempotency", ["at"])
