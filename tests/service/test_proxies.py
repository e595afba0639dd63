"""The proxies of docs/hardening.md, with the configurations from examples/, in front of a real service."""

import os
import shutil
import socket
import ssl
import subprocess
import time
from contextlib import ExitStack, contextmanager

import httpx
import psutil
import pytest

from tests.documents import ROOT
from tests.service.http_calls import campaign, create, decide_body
from tests.service.http_client import ADMIN_KEY
from tests.service.server_process import free_port, running_server

READY_SECONDS_MAX = 30
SLOW_CLIENTS = 20
NGINX = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
CADDY = shutil.which("caddy")
PIECES = """
pid nginx.pid;
error_log stderr;
daemon off;
events {}
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    include cbwk.conf;
}
"""


def example(name, replaced):
    """One of our examples, with other names and numbers; each that is replaced is there."""
    text = (ROOT / "examples" / name).read_text(encoding="utf-8")
    for old, new in replaced.items():
        assert old in text, f"{name} has no {old}"
        text = text.replace(old, new)
    return text


@contextmanager
def nginx(folder, upstream):
    """Run nginx with a certificate of its own; give its port and the certificate to trust."""
    port, certificate = free_port(), folder / "fullchain.pem"
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *name]
    subprocess.run([*made, "-keyout", "privkey.pem", "-out", str(certificate)], cwd=folder, check=True)
    replaced = {"127.0.0.1:8000": f"127.0.0.1:{upstream}", "listen 443": f"listen 127.0.0.1:{port}"}
    replaced |= {"/etc/ssl/cbwk/": f"{folder}/", "cbwk.example.com": "localhost"}
    (folder / "cbwk.conf").write_text(example("nginx.conf", replaced), encoding="utf-8")
    (folder / "nginx.conf").write_text(PIECES, encoding="utf-8")
    with subprocess.Popen([NGINX, "-p", str(folder), "-c", "nginx.conf", "-e", "stderr"]) as process:
        try:
            yield port, certificate
        finally:
            process.terminate()


@contextmanager
def caddy(folder, upstream):
    """Run Caddy with a certificate of its own authority; give its port and the certificate to trust."""
    port = free_port()
    own = "{\n\tadmin off\n\tskip_install_trust\n\tauto_https disable_redirects\n\tservers {"
    replaced = {"127.0.0.1:8000": f"127.0.0.1:{upstream}", "{\n\tservers {": own}
    replaced |= {"cbwk.example.com {": f"https://localhost:{port} {{\n\ttls internal"}
    (folder / "Caddyfile").write_text(example("Caddyfile", replaced), encoding="utf-8")
    run = [CADDY, "run", "--adapter", "caddyfile", "--config", "Caddyfile"]
    home = {"HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    with subprocess.Popen(run, cwd=folder, env=home, stderr=subprocess.DEVNULL) as process:
        try:
            certificate = folder / "caddy" / "pki" / "authorities" / "local" / "root.crt"
            wait_until(certificate.is_file)
            yield port, certificate
        finally:
            process.terminate()


def wait_until(holds):
    deadline = time.monotonic() + READY_SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_ready(client):
    try:
        return client.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False


PROXIES = [
    pytest.param(nginx, marks=pytest.mark.skipif(NGINX is None, reason="nginx is not installed"), id="nginx"),
    pytest.param(caddy, marks=pytest.mark.skipif(CADDY is None, reason="caddy is not installed"), id="caddy"),
]


@contextmanager
def behind(proxy, folder):
    """A service behind a proxy: the service, a client by TLS, the proxy's port, and the certificate to trust."""
    with ExitStack() as stack:
        server = stack.enter_context(running_server())
        port, certificate = stack.enter_context(proxy(folder, server.port))
        trusted = ssl.create_default_context(cafile=certificate)
        client = stack.enter_context(
            httpx.Client(
                base_url=f"https://localhost:{port}",
                headers={"Authorization": f"Bearer {ADMIN_KEY}"},
                verify=trusted,
                trust_env=False,
                timeout=20,
            )
        )
        wait_until(lambda: is_ready(client))
        yield server, client, port, trusted


@pytest.mark.parametrize("proxy", PROXIES)
def test_a_service_behind_a_proxy_answers_by_tls_and_refuses_what_is_too_large(proxy, tmp_path):
    with behind(proxy, tmp_path) as (_, client, _, _):
        create(client, campaign())
        assert client.post("/decide", json=decide_body("d")).json()["round"] == 0
        assert client.get("/metrics").status_code == 200
        too_large = client.post("/decide/batch", content=bytes(9 * 2**20))
        assert too_large.status_code == 413
        long_head = {"X-Long": "x" * 40_000}
        assert client.get("/readyz", headers=long_head).status_code in (400, 431)
        assert client.get("/readyz").status_code == 200


@pytest.mark.parametrize("proxy", PROXIES[:1])
def test_slow_clients_hold_no_connection_of_a_service_behind_nginx(proxy, tmp_path):
    with behind(proxy, tmp_path) as (server, client, port, trusted), ExitStack() as stack:
        for _ in range(SLOW_CLIENTS):
            raw = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            slow = stack.enter_context(trusted.wrap_socket(raw, server_hostname="localhost"))
            head = f"POST /decide HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ADMIN_KEY}\r\n"
            slow.sendall(f"{head}Content-Length: 1000\r\n\r\n{{".encode())
        assert client.get("/readyz").status_code == 200
        at_service = psutil.Process(server.process.pid).net_connections(kind="tcp")
        open_ones = [one for one in at_service if one.status == psutil.CONN_ESTABLISHED]
        assert len(open_ones) < SLOW_CLIENTS / 2
