"""Replicas behind the real HAProxy, and behind the client with several addresses: which one is asked, and how often."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace

import httpx
import psycopg
import pytest

from cbwk_client import Client, Terms, UnavailableError
from service.commands.haproxy import configuration
from tests.documents import ROOT, blocks
from tests.faults.processes import Postgresql, Server, new_testbed
from tests.service.haproxy import MISSING, new_balancer
from tests.service.http_calls import HEADERS, campaign, decide_body
from tests.service.http_client import ADMIN_KEY
from tests.service.server_process import free_port
from tests.service.test_proxies import NGINX, PIECES, example

CAMPAIGNS = [f"c{number}" for number in range(6)]
START_SECONDS_MAX = 60
SETTINGS = {"request_deadline_ms": 20_000}
PORTFOLIO_IS_SOUTH = {"north": 404, "south": 200}
OPERATING = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
NEEDS_HAPROXY = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@pytest.fixture(scope="module")
def testbed():
    with new_testbed() as one:
        yield one


def wait_until_ready(servers):
    deadline = time.monotonic() + START_SECONDS_MAX
    for server in servers:
        while True:
            try:
                if httpx.get(f"http://127.0.0.1:{server.port}/readyz", trust_env=False, timeout=5).status_code == 200:
                    break
            except httpx.TransportError:
                assert server.child.code() is None, server.log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)


@contextmanager
def replicas(testbed, url, number, **settings):
    servers = [Server(testbed, url, SETTINGS | settings) for _ in range(number)]
    try:
        for server in servers:
            server.start()
        wait_until_ready(servers)
        yield servers
    finally:
        for server in servers:
            server.kill()


def through(balancer):
    return httpx.Client(base_url=balancer.url, headers=HEADERS, trust_env=False, timeout=30)


def decisions_of(url, name="c"):
    with psycopg.connect(url) as connection:
        query = (
            "SELECT count(*) FROM decision JOIN campaign ON campaign.number = decision.campaign WHERE campaign.id = %s"
        )
        return connection.execute(query, [name]).fetchone()[0]


class AskedServers:
    """Which server answered what was sent inside the block: from the counts of HAProxy."""

    def __init__(self, balancer):
        self.balancer = balancer

    def __enter__(self):
        self.before = self.balancer.answered()
        return self

    def __exit__(self, *error):
        after = self.balancer.answered()
        self.servers = {name: after[name] - count for name, count in self.before.items() if after[name] > count}


def ask(client, path, body, headers=None):
    answer = client.post(path, content=json.dumps(body), headers=headers)
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


@NEEDS_HAPROXY
def test_a_campaign_goes_to_one_replica_by_its_header_and_by_its_body(testbed):
    with testbed.database("postgresql") as url, replicas(testbed, url, 3) as servers, ExitStack() as stack:
        balancer = stack.enter_context(new_balancer({"cbwk": [server.port for server in servers]}))
        balancer.trust_all()
        client = stack.enter_context(through(balancer))
        homes = {}
        for name in CAMPAIGNS:
            with AskedServers(balancer) as asked:
                ask(client, "/campaigns", campaign(name))
                ask(client, "/decide", decide_body("by-body", name))
                ask(client, "/decide", {"context": [0.3, 0.6], "explain": True, "campaign_id": name})
                ask(client, "/decide", decide_body("by-header", name), {"X-Campaign-Id": name})
                items = [{"context": [0.1, 0.2], "decision_id": f"d{number}"} for number in range(400)]
                ask(client, "/decide/batch", {"campaign_id": name, "items": items})
                report = {"campaign_id": name, "decision_id": "by-body", "reward": 1, "costs": {"usd": 0.5}}
                ask(client, "/feedback", report)
                ask(client, "/feedback/batch", {"items": [report]})
                assert client.get(f"/campaigns/{name}").json()["round"] == 403
                assert client.get(f"/admin/campaigns/{name}/verify").json()["ok"]
            ((home, number),) = asked.servers.items()
            assert number == 9
            homes[name] = home
        assert len(set(homes.values())) > 1
        wrong = client.post("/decide", json=decide_body("w", CAMPAIGNS[0]), headers={"X-Campaign-Id": CAMPAIGNS[1]})
        assert (wrong.status_code, wrong.json()["type"]) == (400, "urn:cbwk:problem:campaign-differs")
        for server in servers:
            server.kill()
        one = stack.enter_context(Client(balancer.url, ADMIN_KEY))
        with pytest.raises(UnavailableError, match="503: no replica is ready"):
            one.decide(CAMPAIGNS[0], [0.3, 0.6], decision_id="nobody", seconds=5)


DIES_AFTER_READING = "before-commit:1:exit"
DIES_BEFORE_ANSWERING = "after-commit:1:exit"
SENT_AGAIN = ("retry-on conn-failure", "retry-on all-retryable-errors")


@NEEDS_HAPROXY
@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "replace", "decided"),
    [
        (DIES_AFTER_READING, ("", ""), 0),
        (DIES_BEFORE_ANSWERING, ("", ""), 1),
        (DIES_BEFORE_ANSWERING, SENT_AGAIN, 2),  # what the configuration avoids
    ],
)
def test_a_post_that_was_sent_is_not_sent_again(testbed, point, replace, decided):
    with testbed.database("postgresql") as url, ExitStack() as stack:
        dies = Server(testbed, url, SETTINGS)
        stack.callback(dies.kill)
        (lives,) = stack.enter_context(replicas(testbed, url, 1))
        dies.start(fault_point=point)
        wait_until_ready([dies])
        balancer = stack.enter_context(new_balancer({"cbwk": [dies.port, lives.port]}, replace=replace))
        balancer.trust_all()
        client = stack.enter_context(through(balancer))
        for number in range(100):  # until a campaign lives at the one that dies
            name = f"n{number}"
            created = httpx.post(f"http://127.0.0.1:{lives.port}/campaigns", json=campaign(name), headers=HEADERS)
            assert created.status_code == 201
            with AskedServers(balancer) as asked:
                assert client.get(f"/campaigns/{name}").status_code == 200
            if "replica-1" in asked.servers:
                break
        # On a connection of its own: after an earlier request on the same one, HAProxy closes it without an answer.
        body = {"campaign_id": name, "context": [0.3, 0.6]}
        answer = httpx.post(f"{balancer.url}/decide", json=body, headers=HEADERS, trust_env=False, timeout=30)
        assert dies.child.wait() == 86
        assert answer.status_code == (200 if decided == 2 else 502)
        assert decided == 2 or "decision_id it is safe to repeat" in answer.json()["detail"]
        assert decisions_of(url, name) == decided
        assert ask(client, "/decide", decide_body("next", name))["round"] == decided


class Callers:
    """Threads that decide for some campaigns, one each, until they are stopped."""

    def __init__(self, make_call, campaigns):
        self.statuses, self.stopped = [], threading.Event()
        self.threads = [threading.Thread(target=self.work, args=(make_call, name)) for name in campaigns]

    def work(self, make_call, name):
        number = 0
        while not self.stopped.is_set():
            self.statuses.append((time.monotonic(), name, make_call(name, f"{name}-{number}")))
            number += 1

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *error):
        self.stopped.set()
        for thread in self.threads:
            thread.join()


@NEEDS_HAPROXY
@pytest.mark.slow
def test_a_replica_that_is_drained_and_stopped_costs_no_request(testbed):
    with testbed.database("postgresql") as url, replicas(testbed, url, 2) as servers, ExitStack() as stack:
        balancer = stack.enter_context(new_balancer({"cbwk": [server.port for server in servers]}))
        client = stack.enter_context(through(balancer))
        for name in CAMPAIGNS:
            ask(client, "/campaigns", campaign(name, horizon=1_000_000, budget=1_000_000))

        def decide(name, decision_id):
            return client.post("/decide", json=decide_body(decision_id, name)).status_code

        with Callers(decide, CAMPAIGNS) as callers:
            time.sleep(0.5)
            balancer.trust_all()
            balancer.order("set server cbwk/replica-1 state drain")
            deadline = time.monotonic() + START_SECONDS_MAX
            while int(balancer.servers()["cbwk", "replica-1"]["scur"]):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            with AskedServers(balancer) as asked:
                servers[0].child.send(15)
                assert servers[0].child.wait() == 0
                time.sleep(0.5)
            assert asked.servers.keys() == {"replica-2"}
        assert {status for *_, status in callers.statuses} == {200}


@pytest.mark.slow
def test_a_client_with_several_addresses_loses_nothing_when_its_replica_is_killed_and_goes_back_to_it(testbed):
    with testbed.database("postgresql") as url, replicas(testbed, url, 2) as servers, ExitStack() as stack:
        urls = [f"http://127.0.0.1:{server.port}" for server in servers]
        client = stack.enter_context(Client(urls, ADMIN_KEY))
        for name in CAMPAIGNS:
            client.create_campaign(campaign(name, horizon=1_000_000, budget=1_000_000))

        def decide(name, decision_id):
            decision = client.decide(name, [0.3, 0.6], decision_id=decision_id, fallback=None, seconds=30)
            client.report(name, decision_id, reward=1, costs={"usd": 0.5})
            return decision.is_fallback

        with Callers(decide, CAMPAIGNS) as callers:
            time.sleep(0.5)
            servers[0].kill()
            time.sleep(1)
            servers[0].start()
            wait_until_ready(servers[:1])
            time.sleep(6)  # the longest rest of an address
        assert {status for *_, status in callers.statuses} == {False}
        assert client.flush(30)
        text = httpx.get(f"{urls[0]}/metrics", headers=HEADERS, trust_env=False).text
        asked = [line for line in text.splitlines() if line.startswith("cbwk_requests_total") and '"/decide"' in line]
        assert asked, "the replica that came back is asked again"
        for name in CAMPAIGNS:
            made = sum(each == name for _, each, _ in callers.statuses)
            assert client.campaign(name).round == made
            assert client.budget(name)["usd"].spent == made / 2
            assert client.verify(name).ok


@NEEDS_HAPROXY
@pytest.mark.slow
def test_a_cell_that_is_away_stops_its_own_campaigns_only_and_a_campaign_moves_between_cells(testbed, tmp_path):
    other = Postgresql()
    with ExitStack() as stack:
        stack.callback(other.close)
        here = stack.enter_context(testbed.database("postgresql"))
        there = stack.enter_context(other.database())
        (north,) = stack.enter_context(replicas(testbed, here, 1))
        (south,) = stack.enter_context(replicas(testbed, there, 1))
        cells = {"north": [north.port], "south": [south.port]}
        balancer = stack.enter_context(new_balancer(cells, cell_map="* north\nsummer south\nacme: south\n"))
        balancer.trust_all()
        proxied = stack.enter_context(through(balancer))
        urls = {cell: [f"http://127.0.0.1:{port}" for port in ports] for cell, ports in cells.items()}
        terms = Terms(close_seconds=60)
        client = stack.enter_context(Client(urls, ADMIN_KEY, cells=balancer.map_file, terms=terms))
        by_balancer = stack.enter_context(Client(balancer.url, ADMIN_KEY))
        direct = {
            cell: stack.enter_context(httpx.Client(base_url=url, headers=HEADERS, trust_env=False, timeout=30))
            for cell, (url,) in urls.items()
        }
        homes = {"spring": "north", "summer": "south", "acme:one": "south", "acme-2:one": "north"}
        ask(proxied, "/portfolios", {"id": "acme", "resources": [{"id": "usd", "budget": 50}]})
        assert {cell: one.get("/portfolios/acme").status_code for cell, one in direct.items()} == PORTFOLIO_IS_SOUTH
        for name, home in homes.items():
            ask(proxied, "/campaigns", campaign(name, portfolio="acme") if name == "acme:one" else campaign(name))
            found = {cell: one.get(f"/campaigns/{name}").status_code for cell, one in direct.items()}
            assert found == {cell: 200 if cell == home else 404 for cell in direct}
            assert ask(proxied, "/decide", decide_body("one", name))["round"] == 0
            assert client.decide(name, [0.3, 0.6], decision_id="two", seconds=20).round == 1
            client.report(name, "one", reward=1, costs={"usd": 0.25})
            client.report(name, "two", reward=1, costs={"usd": 0.25})
            assert by_balancer.campaign(name).round == 2  # the colon of acme:one is %3A in its paths
            assert by_balancer.budget(name)["usd"].granted == 1000
        assert client.flush(30)
        assert client.portfolio_budget("acme")["usd"].spent == 0.5

        other.stop_immediately()
        for name, home in homes.items():
            answer = proxied.post("/decide", json=decide_body("three", name))
            assert answer.status_code == (200 if home == "north" else 503), answer.text
            assert client.decide(name, [0.3, 0.6], fallback=None, seconds=3).is_fallback == (home == "south")
        other.start()
        wait_until_ready([south])
        assert ask(proxied, "/decide", decide_body("three", "summer"))["arm"] in ("a", "b")
        changes = {"add_arms": [{"id": "new"}, {"id": "old"}], "arms": [{"id": "b", "status": "paused"}]}
        assert proxied.patch("/campaigns/summer", json=changes).status_code == 200
        assert proxied.patch("/campaigns/summer", json={"retire_arms": ["old"]}).status_code == 200
        _move(proxied, direct["south"], direct["north"], tmp_path)

        balancer.map_file.write_text("* north\nsummer north\nacme: south\n", encoding="utf-8")
        balancer.order(f"set map {balancer.map_file} summer north")
        moved = ask(proxied, "/decide", decide_body("first", "summer") | {"explain": True})
        assert moved["round"] == 0
        assert moved["policy_version"] == 2  # what it has learnt in the other cell
        with Client(urls, ADMIN_KEY, cells=balancer.map_file) as later:
            assert later.budget("summer")["usd"].granted == 999.5
            assert later.verify("summer").ok
            arms = {arm.pop("id"): arm for arm in later.campaign("summer").config["arms"]}
            assert arms == {"a": {}, "b": {"status": "paused"}, "new": {}, "old": {"retired": True}}


def _move(proxied, old, new, folder):
    """What docs/operating.md says of a campaign that moves, with its own commands."""
    ask(proxied, "/campaigns/summer/pause", {})
    for held in old.get("/admin/campaigns/summer/decisions").json()["items"]:
        if held["status"] == "held":
            ask(old, "/feedback", {"campaign_id": "summer", "decision_id": held["decision_id"], "void": True})
    assert old.get("/campaigns/summer").json()["accounts"][0]["held"] == 0
    (commands,) = (block.text for block in blocks(OPERATING) if "$OLD/" in block.text)
    commands = commands.replace("summer-sale", "summer").replace(".venv/bin/python", sys.executable)
    addresses = {"OLD": str(old.base_url), "NEW": str(new.base_url), "CBWK_API_KEY": ADMIN_KEY}
    subprocess.run(["bash", "-euc", commands], cwd=folder, env=os.environ | addresses, check=True, timeout=60)
    ask(old, "/campaigns/summer/archive", {})


@contextmanager
def nginx(folder, ports):
    """nginx with our examples, without TLS, before the replicas at these ports; yields its address."""
    port, places = free_port(), [f"127.0.0.1:{place}" for place in (8000, 8001, 8002)]
    upstream = example("nginx-replicas.conf", dict(zip(places, (f"127.0.0.1:{one}" for one in ports), strict=True)))
    _, _, server = example("nginx.conf", {"443 ssl": f"127.0.0.1:{port}"}).partition("limit_conn_zone")
    server = re.sub(r"^    ssl_.+\n", "", f"limit_conn_zone{server}", flags=re.MULTILINE)
    (folder / "cbwk.conf").write_text(f"{upstream}\n{server}", encoding="utf-8")
    (folder / "nginx.conf").write_text(PIECES, encoding="utf-8")
    with subprocess.Popen([NGINX, "-p", str(folder), "-c", "nginx.conf", "-e", "stderr"]) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
@pytest.mark.slow
def test_nginx_sends_a_campaign_to_one_replica_by_its_header_and_passes_over_one_that_hangs_or_is_gone(
    testbed, tmp_path
):
    with testbed.database("postgresql") as url, replicas(testbed, url, 2) as servers, ExitStack() as stack:
        ports = [*(server.port for server in servers), free_port()]  # nothing listens at the third
        address = stack.enter_context(nginx(tmp_path, ports))
        proxied = stack.enter_context(httpx.Client(base_url=address, headers=HEADERS, trust_env=False, timeout=30))
        wait_until_ready([SimpleNamespace(port=proxied.base_url.port, child=servers[0].child, log=servers[0].log)])

        def decided_at(server):
            text = httpx.get(f"http://127.0.0.1:{server.port}/metrics", headers=HEADERS, trust_env=False).text
            return {name for name in CAMPAIGNS if f'cbwk_decisions_total{{campaign="{name}"' in text}

        def decide(name):
            body = {"campaign_id": name, "context": [0.3, 0.6]}
            return proxied.post("/decide", json=body, headers={"X-Campaign-Id": name}).status_code

        for name in CAMPAIGNS:
            ask(proxied, "/campaigns", campaign(name), {"X-Campaign-Id": name})
            assert [decide(name) for _ in range(5)] == [200] * 5
        first, second = (decided_at(server) for server in servers)
        assert first | second == {*CAMPAIGNS}
        assert not first & second
        hangs, waits = (servers[0], min(first)) if first else (servers[1], min(second))
        hangs.child.send(signal.SIGSTOP)
        began = time.monotonic()
        assert decide(waits) == 504  # sent, and so sent nowhere else
        assert 2.5 < time.monotonic() - began < 20
        assert decide(waits) == 200
        hangs.kill()
        time.sleep(0.5)  # nginx notices that its connections are closed
        for name in CAMPAIGNS:
            assert decide(name) == 200
            assert decisions_of(url, name) == (7 if name == waits else 6)


def test_the_files_in_deploy_are_what_the_command_makes():
    one = configuration({"cbwk": ["cbwk:8000", "replica-2:8000", "replica-3:8000"]}, bind=":8080")
    assert (ROOT / "deploy" / "haproxy.cfg").read_text(encoding="utf-8") == one
    cells = {"north": ["n1.example:8000", "n2.example:8000"], "south": ["s1.example:8000"]}
    several = configuration(cells, map_file="/etc/haproxy/cells.map")
    assert (ROOT / "deploy" / "haproxy-cells.cfg").read_text(encoding="utf-8") == several
