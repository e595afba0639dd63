"""The tables. Rows of append-only tables are numbered by the campaign's own sequence, under the lock of its row.

Amounts are whole millionths of the resource's unit; times are microseconds since 1970. Vectors over a campaign's
resources are JSON arrays in the order of its configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import orjson
from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

ROLES = ("decider", "reader", "admin")


# These tables have no foreign key: their rows are added under the lock of the campaign's state, so that the campaign
# exists, and the check of a key would take a quarter of PostgreSQL's time for a row.
_HOT = ("decision", "outcome", "portfolio_call")
# Small rows that change often: SQLite stores them in the order of their key, without a separate index.
_IN_KEY_ORDER = ("account", "window_account")


def _of_campaign(name: str, *columns: Column[object] | CheckConstraint | UniqueConstraint | Index, key: str) -> Table:
    """A table whose key begins with the campaign, so that a distributed database can split all tables alike.

    key: the other columns of the key.
    """
    return Table(
        name,
        metadata,
        Column("campaign", Integer, nullable=False),
        *columns,
        PrimaryKeyConstraint("campaign", *key.split()),
        *([] if name in _HOT else [ForeignKeyConstraint(["campaign"], ["campaign.number"])]),
        sqlite_with_rowid=name not in _IN_KEY_ORDER,
    )


# A portfolio has a number among those of campaigns, and rows of `config`, `account`, `window_account`, `grant` and
# `change`; its id begins with PORTFOLIO_PREFIX, which no id of a campaign does.
campaign = Table(
    "campaign",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("id", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("portfolio", Integer, nullable=True),  # the number of the portfolio of a campaign; it never changes
    UniqueConstraint("id"),
    Index("ix_campaign_portfolio", "portfolio"),
)
PORTFOLIO_PREFIX = "portfolio/"

# All versions of a campaign's configuration; `campaign_state` names the current one.
config = _of_campaign(
    "config",
    Column("version", Integer, nullable=False),
    Column("body", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    key="version",
)

# One row per campaign; its lock is the only one that writers wait for.
campaign_state = Table(
    "campaign_state",
    metadata,
    Column("campaign", Integer, primary_key=True, autoincrement=False),
    Column("status", Text, nullable=False),
    Column("config_version", Integer, nullable=False),
    Column("model_version", Integer, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("round", BigInteger, nullable=False),
    Column("books", LargeBinary, nullable=False),  # float64, cbwk_core.state.columns
    Column("last_event_at", BigInteger, nullable=False),
    Column("pruned_through", BigInteger, nullable=False),  # rows up to this number may be missing: see `opening`
    # Decisions by hour of the week, uint32: see domain.traffic. NULL: not counted so far, because nothing needs it.
    Column("traffic", LargeBinary, nullable=True),
    ForeignKeyConstraint(["campaign"], ["campaign.number"]),
    CheckConstraint("status IN ('active', 'paused', 'archived')", name="status"),
    CheckConstraint("sequence >= 0 AND round >= 0", name="counts"),
)

# One row per portfolio. Its lock is taken before those of its campaigns, so that these serialise.
portfolio_state = Table(
    "portfolio_state",
    metadata,
    Column("campaign", Integer, primary_key=True, autoincrement=False),  # its own number
    Column("config_version", Integer, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("call", BigInteger, nullable=False),  # the last one of `portfolio_call`
    Column("numbers", LargeBinary, nullable=False),  # float64, cbwk_core.shared_prices
    Column("expected", BigInteger, nullable=False),  # decisions of all its campaigns at their ends, an estimate
    Column("expected_at", BigInteger, nullable=False),  # when it was made; 0: never
    Column("last_event_at", BigInteger, nullable=False),
    Column("traffic", LargeBinary, nullable=False),  # as in `campaign_state`
    ForeignKeyConstraint(["campaign"], ["campaign.number"]),
    CheckConstraint("sequence >= 0 AND call >= 0", name="counts"),
)

account = _of_campaign(
    "account",
    Column("resource", SmallInteger, nullable=False),
    Column("granted", BigInteger, nullable=False),
    Column("held", BigInteger, nullable=False),
    Column("spent", BigInteger, nullable=False),
    Column("overrun", BigInteger, nullable=False),
    CheckConstraint("granted >= 0 AND held >= 0 AND spent >= 0 AND overrun >= 0", name="not_negative"),
    CheckConstraint("spent + held <= granted + overrun", name="covered"),
    key="resource",
)

# What a window has in one period, as `account`; the sums of the decisions made from `starts_at` until before `ends_at`.
window_account = _of_campaign(
    "window_account",
    Column("resource", SmallInteger, nullable=False),
    Column("period", Text, nullable=False),
    Column("starts_at", BigInteger, nullable=False),
    Column("ends_at", BigInteger, nullable=False),
    Column("granted", BigInteger, nullable=False),
    Column("held", BigInteger, nullable=False),
    Column("spent", BigInteger, nullable=False),
    Column("overrun", BigInteger, nullable=False),
    Column("pruned_spent", BigInteger, nullable=False),  # the part of `spent` whose decisions were pruned
    Index("ix_window_account_campaign_ends_at", "campaign", "ends_at"),
    CheckConstraint("granted >= 0 AND held >= 0 AND spent >= 0 AND overrun >= 0", name="not_negative"),
    CheckConstraint("spent + held <= granted + overrun", name="covered"),
    CheckConstraint("starts_at < ends_at", name="bounds"),
    key="resource period starts_at",
)

decision = _of_campaign(
    "decision",
    Column("sequence", BigInteger, nullable=False),
    Column("decision_id", Text, nullable=False),
    Column("request_digest", LargeBinary, nullable=False),  # empty if the request was a context only
    Column("config_version", Integer, nullable=False),
    Column("policy_version", BigInteger, nullable=False),
    Column("round", BigInteger, nullable=False),
    Column("place", SmallInteger, nullable=False),  # in the call of the policy; 0 begins a call
    Column("arm", Integer, nullable=False),  # index in the configuration or in `actions`; -1 is the null arm
    Column("arm_id", Text, nullable=True),
    Column("reason", Text, nullable=False),
    Column("probability", Float, nullable=False),
    Column("gamma", Float, nullable=False),
    Column("context", Text, nullable=False),
    Column("exclude", Text, nullable=True),
    Column("actions", Text, nullable=True),
    Column("shadow", Text, nullable=True),  # in shadow mode the caller's and the policy's choice: see domain.holdout
    Column("numbers", LargeBinary, nullable=False),  # float64, of cbwk_core.Ticket: see domain.decision_rows
    Column("prices", LargeBinary, nullable=False),  # float64 per resource, per max cost
    Column("explanation", LargeBinary, nullable=True),  # the policy's estimates of each arm: see domain.decision_rows
    Column("hold", Text, nullable=True),
    Column("decided_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=True),
    Column("max_costs", Text, nullable=True),  # that the request brings: an object of its fields max_cost and max_costs
    # Generated ids grow with time, so that new rows of all campaigns are at one place of the index.
    UniqueConstraint("decision_id", "campaign"),
    CheckConstraint("probability > 0 AND probability <= 1.000001", name="probability"),
    key="sequence",
)

# What the portfolio of a campaign contributed to one call of the policy: see domain.portfolio.
portfolio_call = _of_campaign(
    "portfolio_call",
    Column("sequence", BigInteger, nullable=False),  # of the first decision of the call
    Column("call", BigInteger, nullable=False),  # among those of the portfolio, without gaps
    Column("numbers", LargeBinary, nullable=False),
    key="sequence",
)

# Open holds only; the decision keeps amounts and expiry for good. The key begins with the expiry, which then needs no
# index of its own, and new rows of all campaigns are at one place.
hold = Table(
    "hold",
    metadata,
    Column("expires_at", BigInteger, nullable=False),
    Column("campaign", Integer, nullable=False),
    Column("decision", BigInteger, nullable=False),
    Column("amounts", Text, nullable=False),
    PrimaryKeyConstraint("expires_at", "campaign", "decision"),
    sqlite_with_rowid=False,
)

# The outcomes of decisions: one row per reported half, void, expiry or late cost.
outcome = _of_campaign(
    "outcome",
    Column("sequence", BigInteger, nullable=False),
    Column("decision", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("status", Text, nullable=False),  # of the decision afterwards, as the interface names it
    Column("reward", Float, nullable=True),
    Column("costs", Text, nullable=True),  # as booked
    Column("spent", Text, nullable=True),  # the change of `spent`
    Column("released", Boolean, nullable=False),  # whether it releases the hold
    # What the oracle learns: reward in [0, 1], null before it is known, then costs; NULL: nothing.
    Column("taught", Text, nullable=True),
    Column("policy_version", BigInteger, nullable=False),
    Column("warnings", Text, nullable=True),
    Column("at", BigInteger, nullable=False),
    Column("digest", LargeBinary, nullable=False),  # of the other columns: `outcome_digest`
    Index("ix_outcome_campaign_decision", "campaign", "decision"),
    CheckConstraint("kind IN ('reported', 'void', 'expired', 'late')", name="kind"),
    key="sequence",
)
OUTCOME_DIGEST_BYTES = 8
_BEFORE_REWARD = ("campaign", "sequence", "decision", "kind", "status")
_AFTER_REWARD = ("costs", "spent", "released", "taught", "policy_version", "warnings", "at")


def outcome_digest(row: Mapping[str, Any]) -> bytes:
    """The digest of all other columns of an outcome, the same before writing and after reading from either database.

    It shows damage of the row: accounts depend on it, and disks fail.
    """
    values = [row[name] for name in _BEFORE_REWARD]
    values.append(None if row["reward"] is None else float(row["reward"]))
    values += [row[name] for name in _AFTER_REWARD]
    return blake2b(orjson.dumps(values), digest_size=OUTCOME_DIGEST_BYTES).digest()


# Joins an outcome with its decision.
decision_of_outcome = (decision.c.campaign == outcome.c.campaign) & (decision.c.sequence == outcome.c.decision)

# Whether the oracle has learnt the decision of an outcome with it; the costs of a charged one are a half of it.
is_learnt = outcome.c.taught.is_not(None) & (outcome.c.status != "charged")

# Changes of budgets, and corrections of `spent`.
grant = _of_campaign(
    "grant",
    Column("sequence", BigInteger, nullable=False),
    Column("resource", SmallInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("amount", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    CheckConstraint("kind IN ('budget', 'adjust')", name="kind"),
    key="sequence",
)

change = _of_campaign(
    "change",
    Column("sequence", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("model", LargeBinary, nullable=True),
    Column("at", BigInteger, nullable=False),
    key="sequence",
)

snapshot = _of_campaign(
    "snapshot",
    Column("sequence", BigInteger, nullable=False),
    Column("config_version", Integer, nullable=False),
    Column("model_version", Integer, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Column("at", BigInteger, nullable=False),
    key="sequence",
)

# The sums of the rows that pruning has deleted from a campaign's log, and the policy's state where it is whole again.
opening = Table(
    "opening",
    metadata,
    Column("campaign", Integer, primary_key=True, autoincrement=False),
    Column("through", BigInteger, nullable=False),  # no later row was deleted
    Column("config_version", Integer, nullable=False),
    Column("model_version", Integer, nullable=False),
    Column("state", LargeBinary, nullable=False),  # of the policy after `through`, as in `snapshot`
    Column("row_count", BigInteger, nullable=False),  # rows deleted from `decision` and `outcome`
    Column("number_sum", BigInteger, nullable=False),  # of their sequence numbers
    Column("last_number", BigInteger, nullable=False),  # the highest of them
    Column("last_at", BigInteger, nullable=False),
    Column("decisions", BigInteger, nullable=False),
    Column("spent", Text, nullable=False),  # their change of `spent`
    Column("arms", Text, nullable=False),  # their sums by arm: see store.opening_balance
    Column("traffic", Text, nullable=True),  # the decisions by hour of the week; NULL: pruned by version 0.1
    Column("limits", Text, nullable=True),  # of the ledger after `through`, JSON; NULL for none
    ForeignKeyConstraint(["campaign"], ["campaign.number"]),
    CheckConstraint("last_number <= through AND decisions <= row_count", name="counts"),
)

# Evaluations on a campaign's log; each runs in a process of its own.
evaluation = _of_campaign(
    "evaluation",
    Column("id", Text, nullable=False),  # later ones are larger
    Column("status", Text, nullable=False),
    Column("request", Text, nullable=False),
    Column("progress", Float, nullable=False),  # from 0 to 1
    Column("error", Text, nullable=True),
    Column("result", Text, nullable=True),
    Column("created_at", BigInteger, nullable=False),
    Column("started_at", BigInteger, nullable=True),
    Column("finished_at", BigInteger, nullable=True),
    Column("beat_at", BigInteger, nullable=False),  # the last sign of life of the server that runs it
    CheckConstraint("status IN ('queued', 'running', 'done', 'failed')", name="status"),
    CheckConstraint("progress >= 0 AND progress <= 1", name="progress"),
    key="id",
)

api_key = Table(
    "api_key",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("campaigns", Text, nullable=True),  # JSON array of campaign ids; NULL: all
    Column("digest", LargeBinary, nullable=False),  # SHA-256 of the key
    Column("created_at", BigInteger, nullable=False),
    Column("revoked_at", BigInteger, nullable=True),
    Column("requests_per_second", Float, nullable=True),  # NULL: any number
    UniqueConstraint("digest"),
    CheckConstraint("role IN ('decider', 'reader', 'admin')", name="role"),
)

# Addresses that get messages.
webhook = Table(
    "webhook",
    metadata,
    Column("id", Text, primary_key=True),
    Column("url", Text, nullable=False),
    Column("events", Text, nullable=False),  # JSON array
    Column("thresholds", Text, nullable=False),  # JSON array, in percent
    Column("campaigns", Text, nullable=True),  # JSON array of campaign ids; NULL: all
    Column("secret", Text, nullable=False),  # signs every message, so it is stored as it is
    Column("created_at", BigInteger, nullable=False),
)

# Messages to webhooks, written by the transaction that they are about and sent afterwards.
delivery = Table(
    "delivery",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("webhook", Text, nullable=False),
    Column("mark", Text, nullable=False),  # a webhook gets one message for each: see domain.notices
    Column("id", Text, nullable=False),  # of the message, the same in every attempt
    Column("event", Text, nullable=False),
    Column("campaign_id", Text, nullable=True),
    Column("body", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("status", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_at", BigInteger, nullable=True),  # of the next attempt, or when the present one has failed
    Column("response_status", Integer, nullable=True),
    Column("error", Text, nullable=True),
    Column("finished_at", BigInteger, nullable=True),
    UniqueConstraint("webhook", "mark"),
    ForeignKeyConstraint(["webhook"], ["webhook.id"]),
    Index("ix_delivery_next_at", "next_at"),
    CheckConstraint("status IN ('waiting', 'delivered', 'failed')", name="status"),
    CheckConstraint("(next_at IS NULL) = (status <> 'waiting')", name="waiting"),
)

# Answers to requests with an Idempotency-Key: see store.idempotency.
idempotency = Table(
    "idempotency",
    metadata,
    Column("actor", Text, nullable=False),  # id of the API key
    Column("key", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False),  # of the request
    Column("status", SmallInteger, nullable=False),
    Column("body", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    PrimaryKeyConstraint("actor", "key"),
    Index("ix_idempotency_at", "at"),
)

audit = Table(
    "audit",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("campaign_id", Text, nullable=True),
    Column("body", Text, nullable=False),
)
