"""The log lines that the service writes during a test."""

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
    """A function that returns the lines since its last call, each as a dictionary."""
    root, stream = logging.getLogger(), io.StringIO()
    before = root.handlers[:], root.level
    root.handlers.clear()  # configure_logs would close the handlers of pytest
    configure_logs("info", stream)

    def lines() -> list[dict[str, Any]]:
        written = [json.loads(line) for line in stream.getvalue().splitlines()]
        stream.truncate(0)
        stream.seek(0)
        return written

    yield lines
    root.handlers[:], root.level = before
    structlog.reset_defaults()
