"""Create the tables."""

from typing import Any

from alembic import op
from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKeyConstraint,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Text,
    UniqueConstraint,
)

revision = "20261116_1200"
down_revision = None


def upgrade() -> None:
    """Create the tables with explicit names, which do not depend on the naming conventions of later versions."""
    _campaigns()
    _accounts()
    _decisions()
    _outcomes()
    _changes()
    _evaluations()
    _people()


# Without a foreign key: rows are added under the lock of the campaign's state, so that the campaign exists.
HOT = ("decision", "outcome")


def _of_campaign(name: str, *columns: Any, key: str) -> None:
    op.create_table(
        name,
        Column("campaign", Integer, nullable=False),
        *columns,
        PrimaryKeyConstraint("campaign", key, name=op.f(f"pk_{name}")),
        *(
            []
            if name in HOT
            else [ForeignKeyConstraint(["campaign"], ["campaign.number"], name=op.f(f"fk_{name}_campaign"))]
        ),
        sqlite_with_rowid=name != "account",
    )


def _check(name: str, condition: str) -> CheckConstraint:
    return CheckConstraint(condition, name=op.f(f"ck_{name}"))


def _campaigns() -> None:
    op.create_table(
        "campaign",
        Column("number", Integer, nullable=False),
        Column("id", Text, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        PrimaryKeyConstraint("number", name=op.f("pk_campaign")),
        UniqueConstraint("id", name=op.f("uq_campaign_id")),
    )
    _of_campaign(
        "config",
        Column("version", Integer, nullable=False),
        Column("body", Text, nullable=False),
        Column("at", BigInteger, nullable=False),
        key="version",
    )
    op.create_table(
        "campaign_state",
        Column("campaign", Integer, autoincrement=False, nullable=False),
        Column("status", Text, nullable=False),
        Column("config_version", Integer, nullable=False),
        Column("model_version", Integer, nullable=False),
        Column("sequence", BigInteger, nullable=False),
        Column("round", BigInteger, nullable=False),
        Column("books", LargeBinary, nullable=False),
        Column("last_event_at", BigInteger, nullable=False),
        Column("pruned_through", BigInteger, nullable=False),
        PrimaryKeyConstraint("campaign", name=op.f("pk_campaign_state")),
        ForeignKeyConstraint(["campaign"], ["campaign.number"], name=op.f("fk_campaign_state_campaign")),
        _check("campaign_state_status", "status IN ('active', 'paused', 'archived')"),
        _check("campaign_state_counts", "sequence >= 0 AND round >= 0"),
    )


def _accounts() -> None:
    _of_campaign(
        "account",
        Column("resource", SmallInteger, nullable=False),
        Column("granted", BigInteger, nullable=False),
        Column("held", BigInteger, nullable=False),
        Column("spent", BigInteger, nullable=False),
        Column("overrun", BigInteger, nullable=False),
        _check("account_not_negative", "granted >= 0 AND held >= 0 AND spent >= 0 AND overrun >= 0"),
        _check("account_covered", "spent + held <= granted + overrun"),
        key="resource",
    )


def _decisions() -> None:
    _of_campaign(
        "decision",
        Column("sequence", BigInteger, nullable=False),
        Column("decision_id", Text, nullable=False),
        Column("request_digest", LargeBinary, nullable=False),
        Column("config_version", Integer, nullable=False),
        Column("policy_version", BigInteger, nullable=False),
        Column("round", BigInteger, nullable=False),
        Column("place", SmallInteger, nullable=False),
        Column("arm", Integer, nullable=False),
        Column("arm_id", Text, nullable=True),
        Column("reason", Text, nullable=False),
        Column("probability", Float, nullable=False),
        Column("gamma", Float, nullable=False),
        Column("context", Text, nullable=False),
        Column("exclude", Text, nullable=True),
        Column("actions", Text, nullable=True),
        Column("shadow", Text, nullable=True),
        Column("numbers", LargeBinary, nullable=False),
        Column("prices", LargeBinary, nullable=False),
        Column("explanation", LargeBinary, nullable=True),
        Column("hold", Text, nullable=True),
        Column("decided_at", BigInteger, nullable=False),
        Column("expires_at", BigInteger, nullable=True),
        UniqueConstraint("decision_id", "campaign", name=op.f("uq_decision_decision_id_campaign")),
        _check("decision_probability", "probability > 0 AND probability <= 1.000001"),
        key="sequence",
    )
    op.create_table(
        "hold",
        Column("expires_at", BigInteger, nullable=False),
        Column("campaign", Integer, nullable=False),
        Column("decision", BigInteger, nullable=False),
        Column("amounts", Text, nullable=False),
        PrimaryKeyConstraint("expires_at", "campaign", "decision", name=op.f("pk_hold")),
        sqlite_with_rowid=False,
    )


def _outcomes() -> None:
    _of_campaign(
        "outcome",
        Column("sequence", BigInteger, nullable=False),
        Column("decision", BigInteger, nullable=False),
        Column("kind", Text, nullable=False),
        Column("status", Text, nullable=False),
        Column("reward", Float, nullable=True),
        Column("costs", Text, nullable=True),
        Column("spent", Text, nullable=True),
        Column("released", Boolean, nullable=False),
        Column("taught", Text, nullable=True),
        Column("policy_version", BigInteger, nullable=False),
        Column("warnings", Text, nullable=True),
        Column("at", BigInteger, nullable=False),
        Column("digest", LargeBinary, nullable=False),
        _check("outcome_kind", "kind IN ('reported', 'void', 'expired', 'late')"),
        key="sequence",
    )
    op.create_index("ix_outcome_campaign_decision", "outcome", ["campaign", "decision"])


def _changes() -> None:
    _of_campaign(
        "grant",
        Column("sequence", BigInteger, nullable=False),
        Column("resource", SmallInteger, nullable=False),
        Column("kind", Text, nullable=False),
        Column("amount", BigInteger, nullable=False),
        Column("reason", Text, nullable=False),
        Column("at", BigInteger, nullable=False),
        _check("grant_kind", "kind IN ('budget', 'adjust')"),
        key="sequence",
    )
    _of_campaign(
        "change",
        Column("sequence", BigInteger, nullable=False),
        Column("kind", Text, nullable=False),
        Column("body", Text, nullable=False),
        Column("model", LargeBinary, nullable=True),
        Column("at", BigInteger, nullable=False),
        key="sequence",
    )
    _of_campaign(
        "snapshot",
        Column("sequence", BigInteger, nullable=False),
        Column("config_version", Integer, nullable=False),
        Column("model_version", Integer, nullable=False),
        Column("data", LargeBinary, nullable=False),
        Column("at", BigInteger, nullable=False),
        key="sequence",
    )
    op.create_table(
        "opening",
        Column("campaign", Integer, autoincrement=False, nullable=False),
        Column("through", BigInteger, nullable=False),
        Column("config_version", Integer, nullable=False),
        Column("model_version", Integer, nullable=False),
        Column("state", LargeBinary, nullable=False),
        Column("row_count", BigInteger, nullable=False),
        Column("number_sum", BigInteger, nullable=False),
        Column("last_number", BigInteger, nullable=False),
        Column("last_at", BigInteger, nullable=False),
        Column("decisions", BigInteger, nullable=False),
        Column("spent", Text, nullable=False),
        Column("arms", Text, nullable=False),
        PrimaryKeyConstraint("campaign", name=op.f("pk_opening")),
        ForeignKeyConstraint(["campaign"], ["campaign.number"], name=op.f("fk_opening_campaign")),
        _check("opening_counts", "last_number <= through AND decisions <= row_count"),
    )


def _evaluations() -> None:
    _of_campaign(
        "evaluation",
        Column("id", Text, nullable=False),
        Column("status", Text, nullable=False),
        Column("request", Text, nullable=False),
        Column("progress", Float, nullable=False),
        Column("error", Text, nullable=True),
        Column("result", Text, nullable=True),
        Column("created_at", BigInteger, nullable=False),
        Column("started_at", BigInteger, nullable=True),
        Column("finished_at", BigInteger, nullable=True),
        Column("beat_at", BigInteger, nullable=False),
        _check("evaluation_status", "status IN ('queued', 'running', 'done', 'failed')"),
        _check("evaluation_progress", "progress >= 0 AND progress <= 1"),
        key="id",
    )


def _people() -> None:
    op.create_table(
        "api_key",
        Column("id", Text, nullable=False),
        Column("name", Text, nullable=False),
        Column("role", Text, nullable=False),
        Column("campaigns", Text, nullable=True),
        Column("digest", LargeBinary, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("revoked_at", BigInteger, nullable=True),
        PrimaryKeyConstraint("id", name=op.f("pk_api_key")),
        UniqueConstraint("digest", name=op.f("uq_api_key_digest")),
        _check("api_key_role", "role IN ('decider', 'reader', 'admin')"),
    )
    op.create_table(
        "audit",
        Column("number", Integer, nullable=False),
        Column("at", BigInteger, nullable=False),
        Column("actor", Text, nullable=False),
        Column("action", Text, nullable=False),
        Column("campaign_id", Text, nullable=True),
        Column("body", Text, nullable=False),
        PrimaryKeyConstraint("number", name=op.f("pk_audit")),
    )
