import signal

import httpx
import pytest

from tests.service.server_process import running_server


def test_a_running_server_is_alive():
    with running_server() as server:
        answer = httpx.get(server.url + "/livez", trust_env=False)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {"status": "ok"}


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT], ids=lambda stop: stop.name)
def test_a_signal_stops_the_server_with_code_0_even_while_a_client_is_connected(stop):
    with running_server() as server, httpx.Client(trust_env=False) as client:
        client.get(server.url + "/livez")
        server.process.send_signal(stop)
        _, errors = server.process.communicate(timeout=5)
    assert server.process.returncode == 0
    assert errors == f"cbwk serves on {server.url}\n"
