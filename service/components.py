"""The components of an application."""

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
class Components:
    """The application's `state`; its attributes are read faster than those of Starlette's `State`."""

    settings: Settings
    metrics: Metrics
    read_limiter: CapacityLimiter  # bounds concurrent reads of the database
    evaluations: Evaluations
    database: Database | None = None
    engine: Any = None  # an `Engine`, or a `CommandRunner` in tests
    keyring: KeyRing | None = None
