"""The times and limits of a client."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final


@dataclass(frozen=True)
class Terms:
    """Times in seconds, each for a whole call with all its attempts, and limits.

    decide, batch, feedback: time of `decide`, of `decide_batch`, and of `feedback` or one delivery of reports.
    try: time of one attempt where there is another replica to ask.
    admin: time of every other call. close: how long `close` tries to deliver waiting reports.
    server_deadline: the service's CBWK_REQUEST_DEADLINE_MS; the client voids a late decision after it.
    linger: how long a report may wait for others that are sent with it.
    reports_max: number of waiting reports. connections_max: number of open connections.
    batch_items_max: reports in one batch, which the service books in one transaction while other requests wait.
    """

    decide_seconds: float = 0.1
    batch_seconds: float = 1.0
    feedback_seconds: float = 5.0
    try_seconds: float = 1.0
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
