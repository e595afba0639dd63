"""The digest of an outcome, which shows damage of its row: accounts depend on it, and disks fail."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import orjson

DIGEST_BYTES = 8
_BEFORE_REWARD = ("campaign", "sequence", "decision", "kind", "status")
_AFTER_REWARD = ("costs", "spent", "released", "taught", "policy_version", "warnings", "at")


def outcome_digest(row: Mapping[str, Any]) -> bytes:
    """The digest of all columns of an outcome, the same before writing and after reading from either database."""
    values = [row[name] for name in _BEFORE_REWARD]
    values.append(None if row["reward"] is None else float(row["reward"]))
    values += [row[name] for name in _AFTER_REWARD]
    return blake2b(orjson.dumps(values), digest_size=DIGEST_BYTES).digest()
