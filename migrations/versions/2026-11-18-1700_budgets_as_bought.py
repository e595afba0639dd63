"""Add what budgets as people buy them need: the traffic of a campaign, and the max costs that a request brings."""

from alembic import op
from sqlalchemy import Column, LargeBinary, Text

revision = "20261118_1700"
down_revision = "20261118_1400"


def upgrade() -> None:
    """Add the columns; traffic that exists is counted when it is first needed."""
    op.add_column("campaign_state", Column("traffic", LargeBinary, nullable=True))
    op.add_column("opening", Column("traffic", Text, nullable=True))
    op.add_column("decision", Column("max_costs", Text, nullable=True))
