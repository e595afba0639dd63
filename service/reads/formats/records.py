"""What all forms are made from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

PLAIN_COLUMNS = (
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
    """A decision with its outcome: as the interface shows it, and its row."""

    record: dict[str, Any]
    row: Mapping[Any, Any]

    @property
    def is_learnt(self) -> bool:
        """Whether a real arm was played, and reward and costs are known and were learnt."""
        return bool(self.record["learned"])


class Form(Protocol):
    """An export under way."""

    def page(self, decisions: Sequence[Exported]) -> bytes:
        """The bytes of some more decisions."""

    def end(self) -> Iterable[bytes]:
        """What comes after the last of them."""
