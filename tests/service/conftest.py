from tests.service.databases import (  # noqa: F401 - pytest finds fixtures by name
    clocked_database,
    database,
    database_url,
    dialect,
    migrated_url,
    postgresql_server,
    sqlite_template,
)
from tests.service.log_lines import logged  # noqa: F401
