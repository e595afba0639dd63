"""The replicas of docker-compose.yml: three services on one PostgreSQL behind Caddy with the Caddyfile from there."""

import re
import shutil
import subprocess
import time
from contextlib import ExitStack

import httpx
import pytest

from tests.containers import caddyfile
from tests.service.http_calls import campaign, create, decide_body, failed_checks
from tests.service.http_client import ADMIN_KEY
from tests.service.server_process import free_port, running_server

READY_SECONDS_MAX = 30
CADDY = shutil.which("caddy")


@pytest.mark.skipif(CADDY is None, reason="caddy is not installed: its configuration is not tried")
def test_three_services_behind_the_gateway_are_one_and_one_may_go(postgresql_server, tmp_path):
    with ExitStack() as stack:
        url = stack.enter_context(postgresql_server.database(template="with_tables"))
        servers = [stack.enter_context(running_server(database_url=url)) for _ in range(3)]
        port = free_port()
        here = " ".join(f"127.0.0.1:{server.port}" for server in servers)
        text = re.sub(r"reverse_proxy [^{]+ {", f"reverse_proxy {here} {{", caddyfile()).replace(
            ":8080 {", f":{port} {{"
        )
        file = tmp_path / "Caddyfile"
        file.write_text("{\n\tadmin off\n}\n" + text, encoding="utf-8")
        run = [CADDY, "run", "--adapter", "caddyfile", "--config", str(file)]
        gateway = stack.enter_context(subprocess.Popen(run, stderr=subprocess.DEVNULL, env={"HOME": str(tmp_path)}))
        stack.callback(gateway.kill)
        client = stack.enter_context(
            httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={"X-API-Key": ADMIN_KEY}, trust_env=False)
        )
        _wait_until_ready(client)
        create(client, campaign())
        rounds = [client.post("/decide", json=decide_body(f"d{turn}")).json()["round"] for turn in range(9)]
        assert rounds == list(range(9))
        servers[0].process.kill()
        servers[0].process.wait()
        time.sleep(2.5)  # one look at its health
        answers = [client.post("/decide", json=decide_body(f"e{turn}")) for turn in range(9)]
        assert [answer.status_code for answer in answers] == [200] * 9
        assert [answer.json()["round"] for answer in answers] == list(range(9, 18))
        assert failed_checks(client) == []


def _wait_until_ready(client):
    deadline = time.monotonic() + READY_SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            if client.get("/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError("the gateway does not answer")
