"""Add what budgets as people buy them need: traffic, max costs that a request brings, accounts of windows."""

from alembic import op
from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Text,
)

revision = "20261118_1700"
down_revision = "20261118_1400"


def upgrade() -> None:
    """Add columns and tables; traffic that exists is counted when it is first needed."""
    op.add_column("campaign_state", Column("traffic", LargeBinary, nullable=True))
    op.add_column("opening", Column("traffic", Text, nullable=True))
    op.add_column("decision", Column("max_costs", Text, nullable=True))
    _windows()


def _windows() -> None:
    op.create_table(
        "window_account",
        Column("campaign", Integer, nullable=False),
        Column("resource", SmallInteger, nullable=False),
        Column("period", Text, nullable=False),
        Column("starts_at", BigInteger, nullable=False),
        Column("ends_at", BigInteger, nullable=False),
        Column("granted", BigInteger, nullable=False),
        Column("held", BigInteger, nullable=False),
        Column("spent", BigInteger, nullable=False),
        Column("overrun", BigInteger, nullable=False),
        Column("pruned_spent", BigInteger, nullable=False),
        CheckConstraint(
            "granted >= 0 AND held >= 0 AND spent >= 0 AND overrun >= 0",
            name=op.f("ck_window_account_not_negative"),
        ),
        CheckConstraint("spent + held <= granted + overrun", name=op.f("ck_window_account_covered")),
        CheckConstraint("starts_at < ends_at", name=op.f("ck_window_account_bounds")),
        PrimaryKeyConstraint("campaign", "resource", "period", "starts_at", name=op.f("pk_window_account")),
        ForeignKeyConstraint(["campaign"], ["campaign.number"], name=op.f("fk_window_account_campaign")),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_window_account_campaign_ends_at", "window_account", ["campaign", "ends_at"])
    op.add_column("opening", Column("limits", Text, nullable=True))
