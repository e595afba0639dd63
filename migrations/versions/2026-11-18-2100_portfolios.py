"""Add portfolios: budgets that several campaigns share."""

from alembic import op
from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
)

revision = "20261118_2100"
down_revision = "20261118_1700"


def upgrade() -> None:
    """Add the tables and the column; no campaign that exists is in a portfolio."""
    op.add_column("campaign", Column("portfolio", Integer, nullable=True))
    op.create_index("ix_campaign_portfolio", "campaign", ["portfolio"])
    op.create_table(
        "portfolio_state",
        Column("campaign", Integer, nullable=False, autoincrement=False),
        Column("config_version", Integer, nullable=False),
        Column("sequence", BigInteger, nullable=False),
        Column("call", BigInteger, nullable=False),
        Column("numbers", LargeBinary, nullable=False),
        Column("expected", BigInteger, nullable=False),
        Column("expected_at", BigInteger, nullable=False),
        Column("last_event_at", BigInteger, nullable=False),
        Column("traffic", LargeBinary, nullable=False),
        CheckConstraint("sequence >= 0 AND call >= 0", name=op.f("ck_portfolio_state_counts")),
        PrimaryKeyConstraint("campaign", name=op.f("pk_portfolio_state")),
        ForeignKeyConstraint(["campaign"], ["campaign.number"], name=op.f("fk_portfolio_state_campaign")),
    )
    op.create_table(
        "portfolio_call",
        Column("campaign", Integer, nullable=False),
        Column("sequence", BigInteger, nullable=False),
        Column("call", BigInteger, nullable=False),
        Column("numbers", LargeBinary, nullable=False),
        PrimaryKeyConstraint("campaign", "sequence", name=op.f("pk_portfolio_call")),
    )
