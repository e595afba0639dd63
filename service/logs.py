"""Log lines in JSON on stderr, with the id of their request and without secrets."""

import logging
import os
import re
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, TextIO, cast

import orjson
import structlog
from structlog.typing import Processor

# `service.middleware` sets it for the duration of a request.
request_id: ContextVar[str | None] = ContextVar("request_id", default=None)

HIDDEN = "[hidden]"
_SECRET_NAMES = re.compile(r"authori[sz]ation|api[-_]?key|password|secret|token|database_url|admin_key", re.IGNORECASE)
# Keys, with and without a header, and passwords in database URLs, anywhere in a text.
_SECRET_TEXTS = (
    (re.compile(r"(?i)\b(bearer|x-api-key:?)\s+[^\s\"',;]+"), rf"\1 {HIDDEN}"),
    (re.compile(r"\bcbwk_[A-Za-z0-9_-]{40,}"), HIDDEN),
    (re.compile(r"(\w+://[^\s:/@]+):[^\s@]+@"), rf"\1:{HIDDEN}@"),
)

Event = MutableMapping[str, Any]


class LossyStream:
    """A stream that drops what it cannot write: a full disk or a closed pipe does not stop the service."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the text if possible."""
        with suppress(OSError, ValueError):  # ValueError: the stream is closed
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream if possible."""
        with suppress(OSError, ValueError):
            self._stream.flush()


def configure_logs(level: str = "info", stream: TextIO | None = None) -> None:
    """Write what structlog and the standard library log, from this level on, to stderr as JSON."""
    stream = cast("TextIO", LossyStream(stream or sys.stderr))
    number = logging.getLevelNamesMapping()[level.upper()]
    processors: list[Processor] = [
        add_request_id,
        add_process,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
        # Only the text of the traceback: local variables of a frame may contain a key.
        structlog.processors.format_exc_info,
        hide_secrets,
        structlog.processors.JSONRenderer(serializer=_dumped),
    ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=stream),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *processors],
        )
    )
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[handler], force=True)


def add_request_id(logger: Any, method: str, event: Event) -> Event:
    """Add the id of the current request."""
    current = request_id.get()
    if current is not None:
        event.setdefault("request_id", current)
    return event


def add_process(logger: Any, method: str, event: Event) -> Event:
    """Add the number of the process: several workers write to one stderr."""
    event["process"] = os.getpid()
    return event


def hide_secrets(logger: Any, method: str, event: Event) -> Event:
    """Hide values with the name of a secret, and secrets within other text.

    >>> hide_secrets(None, "info", {"api_key": "k", "event": "Authorization: Bearer abc"})
    {'api_key': '[hidden]', 'event': 'Authorization: Bearer [hidden]'}
    """
    for name, value in event.items():
        event[name] = HIDDEN if _SECRET_NAMES.search(name) else _without_secrets(value)
    return event


def _without_secrets(value: Any) -> Any:
    if isinstance(value, str):
        for pattern, shown in _SECRET_TEXTS:
            value = pattern.sub(shown, value)
        return value
    if isinstance(value, dict):
        return hide_secrets(None, "", {str(name): part for name, part in value.items()})
    if isinstance(value, list | tuple):
        return [_without_secrets(part) for part in value]
    return value


def _dumped(event: Event, **_: Any) -> str:
    return orjson.dumps(event, default=repr, option=orjson.OPT_NON_STR_KEYS).decode()
