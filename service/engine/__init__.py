"""The engine: everything queued goes into one transaction, and is answered when it is committed."""

from service.engine.engine import FULL, Engine, answers_of

__all__ = ["FULL", "Engine", "answers_of"]
