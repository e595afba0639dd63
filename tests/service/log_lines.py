"""What is logged during a test."""

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog

from service.logs import configure_logs

Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def logged() -> Iterator[Lines]:
    """The lines since the last time it was asked."""
    root, stream = logging.getLogger(), io.StringIO()
    before = root.handlers[:], root.level
    root.handlers.clear()  # or pytest's own would be closed
    configure_logs("info", stream)

    def lines() -> list[dict[str, Any]]:
        written = [json.loads(line) for line in stream.getvalue().splitlines()]
        stream.truncate(0)
        stream.seek(0)
        return written

    yield lines
    root.handlers[:], root.level = before
    structlog.reset_defaults()
