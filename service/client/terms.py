"""How long a client waits and how much it keeps."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final


@dataclass(frozen=True)
class Terms:
    """Times in seconds, each for a whole call with all its attempts.

    decide: of `decide`, which somebody's page waits for. batch: of `decide_batch`. feedback: of `feedback`, and of one
    attempt to deliver reports. admin: of everything else.
    close: how long `close` tries to deliver what is left.
    server_deadline: the service's CBWK_REQUEST_DEADLINE_MS; a decision that came too late is voided after it.
    linger: how long a report may wait for others to be sent with it.
    reports_max: how many may wait. batch_items_max: of one batch; the service books a batch in one transaction, which
    everybody else waits for. connections_max: open at once.
    """

    decide_seconds: float = 0.1
    batch_seconds: float = 1.0
    feedback_seconds: float = 5.0
    admin_seconds: float = 30.0
    close_seconds: float = 5.0
    server_deadline_seconds: float = 1.0
    linger_seconds: float = 0.05
    reports_max: int = 100_000
    batch_items_max: int = 100
    connections_max: int = 100

    def __post_init__(self) -> None:
        for term in fields(self):
            if not getattr(self, term.name) > 0:
                raise ValueError(f"{term.name} must be above 0, got {getattr(self, term.name)}")


TERMS: Final = Terms()
