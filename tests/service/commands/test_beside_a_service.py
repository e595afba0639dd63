"""Commands on a SQLite file that a running service uses."""

from __future__ import annotations

import json

import pytest

from service.cli import main
from tests.service.http_calls import calls, campaign, create, decide_body
from tests.service.http_client import ADMIN_KEY
from tests.service.server_process import running_server


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('beside')}/cbwk.db"


@pytest.fixture(scope="module")
def server(url):
    with running_server(database_url=url) as running:
        with calls(running) as client:
            create(client, campaign("c"))
            for name in ("d1", "d2", "d3"):
                client.post("/decide", json=decide_body(name)).raise_for_status()
        yield running


@pytest.fixture(autouse=True)
def _environment(server, monkeypatch):
    monkeypatch.setenv("CBWK_URL", server.url)
    monkeypatch.setenv("CBWK_API_KEY", ADMIN_KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def run(capsys, *arguments, code=0):
    assert main(arguments) == code
    return capsys.readouterr()


def test_verify_and_replay_read_the_file_beside_the_service_and_say_so(server, url, capsys, monkeypatch):
    monkeypatch.delenv("CBWK_API_KEY")  # reading the file needs no key
    for name in ("verify", "replay"):
        written = run(capsys, name, "--database-url", url)
        assert written.out.startswith("c: ")
        assert written.err == f"cbwk: a running service uses {url}: the file is read beside it\n"
    with calls(server) as client:
        client.post("/decide", json=decide_body("d4")).raise_for_status()
    assert "4 decisions follow" in run(capsys, "replay", "c", "--database-url", url).out


def test_keys_are_made_listed_and_revoked_by_the_service(server, url, capsys):
    at = ("--database-url", url)
    made = run(capsys, "key", "create", "--name", "ads", "--role", "decider", "--campaign", "c", "--json", *at)
    assert made.err.endswith(f"; asking the service at {server.url}\n")
    key = json.loads(made.out)
    with calls(server) as client:
        client.headers["Authorization"] = f"Bearer {key['key']}"
        assert client.post("/decide", json=decide_body("d5")).status_code == 200
    (line,) = [line for line in run(capsys, "key", "list", *at).out.splitlines() if key["id"] in line]
    assert line.split()[:4] == [key["id"], "ads", "decider", "c"]
    assert run(capsys, "key", "revoke", key["id"], *at).out == f"{key['id']} is revoked\n"
    (found,) = [each for each in json.loads(run(capsys, "key", "list", "--json", *at).out) if each["id"] == key["id"]]
    assert found["revoked_at"] is not None


def test_without_a_key_the_service_is_not_asked_and_the_reason_is_one_line(url, capsys, monkeypatch):
    monkeypatch.delenv("CBWK_API_KEY")
    note, reason = run(capsys, "key", "list", "--database-url", url, code=1).err.splitlines()
    assert "another process uses" in note
    assert reason == "cbwk: CBWK_API_KEY must be set to an API key"


def test_what_writes_is_still_refused(url, capsys):
    written = run(capsys, "prune", "--before", "2020-01-01T00:00:00Z", "--database-url", url, code=1)
    assert "another process uses" in written.err
