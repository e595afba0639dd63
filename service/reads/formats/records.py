"""The records and columns that all formats share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

VALUE_COLUMNS = (
    "decision_id",
    "campaign_id",
    "round",
    "decided_at",
    "arm",
    "reason",
    "probability",
    "policy_version",
    "config_version",
    "expires_at",
    "status",
    "reward",
    "learned",
)
JSON_COLUMNS = ("context", "exclude", "actions")


@dataclass(frozen=True, slots=True)
class Exported:
    """A decision with its outcome as the interface shows it, and its row."""

    record: dict[str, Any]
    row: Mapping[Any, Any]

    @property
    def is_learnt(self) -> bool:
        """Whether the oracle learnt from it: a real arm, with reward and costs."""
        return bool(self.record["learned"])


class Form(Protocol):
    """A running export."""

    def page(self, decisions: Sequence[Exported]) -> bytes:
        """The bytes of the next decisions."""

    def end(self) -> Iterable[bytes]:
        """The bytes after the last page; none by default."""
        return ()


class ByteSink:
    """A file that is only written to; `take` empties it."""

    closed = False

    def __init__(self) -> None:
        self._chunks: list[bytes] = []

    def write(self, data: bytes) -> int:
        """Keep a copy, because the caller may reuse the buffer."""
        self._chunks.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Nothing is buffered."""

    def close(self) -> None:
        """No more is written."""
        self.closed = True

    def take(self) -> bytes:
        """The bytes written since the last call."""
        chunks, self._chunks = self._chunks, []
        return b"".join(chunks)


def amount_columns(resources: Sequence[str]) -> list[str]:
    """The names of the columns of holds and costs."""
    return [f"{kind}.{name}" for kind in ("hold", "cost") for name in resources]


def flat_values(record: dict[str, Any], resources: Sequence[str]) -> list[Any]:
    """The values of VALUE_COLUMNS, of JSON_COLUMNS as JSON, and of `amount_columns`."""
    costs = record["costs"] or {}
    return [
        *(record[name] for name in VALUE_COLUMNS),
        *(orjson.dumps(record[name]).decode() for name in JSON_COLUMNS),
        *(record["hold"].get(name) for name in resources),
        *(costs.get(name) for name in resources),
    ]
