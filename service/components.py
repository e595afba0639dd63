"""What an application is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anyio import CapacityLimiter

from service.auth import KeyRing
from service.evaluation.runner import Evaluations
from service.metrics import Metrics
from service.settings import Settings
from service.store.database import Database


@dataclass(slots=True)
class Parts:
    """What requests need: the application's `state`, and quicker to ask than Starlette's, which calls for each name."""

    settings: Settings
    metrics: Metrics
    read_limiter: CapacityLimiter  # for long reads of the database
    evaluations: Evaluations
    database: Database | None = None
    engine: Any = None  # an `Engine`, or in tests what submits as it does
    keyring: KeyRing | None = None
