"""One server with its own database for many tests; each test uses its own campaigns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.service.server_process import RunningServer, running_server


@contextmanager
def server_on(
    dialect: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, **settings: int
) -> Iterator[tuple[RunningServer, str]]:
    """Start a server; yield it and the URL of its database."""
    with ExitStack() as stack:
        if dialect == "sqlite":
            url = f"sqlite:///{tmp_path_factory.mktemp('shared')}/cbwk.db"
        else:
            url = stack.enter_context(request.getfixturevalue("postgresql_server").database())
        yield stack.enter_context(running_server(database_url=url, **settings)), url
