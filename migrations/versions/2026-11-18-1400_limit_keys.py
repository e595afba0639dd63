"""Let a key have a number of requests a second."""

from alembic import op
from sqlalchemy import Column, Float

revision = "20261118_1400"
down_revision = "20261116_1200"


def upgrade() -> None:
    """Add the column; the keys that exist may make any number of requests."""
    op.add_column("api_key", Column("requests_per_second", Float, nullable=True))
