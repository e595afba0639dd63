import pytest

from tests.service.databases import (  # noqa: F401 - pytest finds fixtures by name
    clocked_database,
    database,
    database_url,
    dialect,
    migrated_url,
    postgresql_server,
    sqlite_template,
)
from tests.service.http_client import served
from tests.service.log_lines import logged  # noqa: F401


@pytest.fixture
def call(database):  # noqa: F811 - pytest finds fixtures by name
    """Calls the whole service on an empty database."""
    with served(database) as client:
        yield client
