"""Add webhooks and their messages."""

from alembic import op
from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Integer,
    PrimaryKeyConstraint,
    Text,
    UniqueConstraint,
)

revision = "20261118_2130"
down_revision = "20261118_2100"


def upgrade() -> None:
    """Add two tables."""
    op.create_table(
        "webhook",
        Column("id", Text, nullable=False),
        Column("url", Text, nullable=False),
        Column("events", Text, nullable=False),
        Column("thresholds", Text, nullable=False),
        Column("campaigns", Text, nullable=True),
        Column("secret", Text, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        PrimaryKeyConstraint("id", name=op.f("pk_webhook")),
    )
    op.create_table(
        "delivery",
        Column("number", Integer, nullable=False),
        Column("webhook", Text, nullable=False),
        Column("mark", Text, nullable=False),
        Column("id", Text, nullable=False),
        Column("event", Text, nullable=False),
        Column("campaign_id", Text, nullable=True),
        Column("body", Text, nullable=False),
        Column("at", BigInteger, nullable=False),
        Column("status", Text, nullable=False),
        Column("attempts", Integer, nullable=False),
        Column("next_at", BigInteger, nullable=True),
        Column("response_status", Integer, nullable=True),
        Column("error", Text, nullable=True),
        Column("finished_at", BigInteger, nullable=True),
        CheckConstraint("status IN ('waiting', 'delivered', 'failed')", name=op.f("ck_delivery_status")),
        CheckConstraint("(next_at IS NULL) = (status <> 'waiting')", name=op.f("ck_delivery_waiting")),
        ForeignKeyConstraint(["webhook"], ["webhook.id"], name=op.f("fk_delivery_webhook")),
        PrimaryKeyConstraint("number", name=op.f("pk_delivery")),
        UniqueConstraint("webhook", "mark", name=op.f("uq_delivery_webhook_mark")),
    )
    op.create_index("ix_delivery_next_at", "delivery", ["next_at"])
