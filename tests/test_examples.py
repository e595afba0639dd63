"""What is in examples/ works: against a real service, or alone."""

import asyncio
import json
import re
import runpy
import shutil
import subprocess
from itertools import chain

import httpx
import pytest
import yaml
from fastapi import FastAPI
from uvicorn.importer import import_from_string

from cbwk_client import Client, Terms
from service.server import STOP_SECONDS
from service.settings import Settings, environment_variable
from tests.documents import KEY, ROOT, table
from tests.service.server_process import CBWK

EXAMPLES = ROOT / "examples"
RULES = yaml.safe_load((EXAMPLES / "alerts.yml").read_text(encoding="utf-8"))
BOARD = json.loads((EXAMPLES / "grafana.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
BID_REQUEST = {
    "id": "auction-1",
    "imp": [{"id": "1", "banner": {"w": 300, "h": 250}}],
    "site": {"domain": "news.example"},
    "device": {"devicetype": 2},
}


def bid_of(answer):
    assert answer.status_code == 200, answer.text
    (offered,) = answer.json()["seatbid"][0]["bid"]
    return offered


async def exchange(app, cbwk):
    """One auction that is won, billed twice by mistake and clicked, and one that is lost."""
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://ads") as http:
        first, repeated = [await http.post("/bid", json=BID_REQUEST) for _ in range(2)]
        assert first.json() == repeated.json()
        won, lost = bid_of(first), bid_of(await http.post("/bid", json=BID_REQUEST | {"id": "auction-2"}))
        usd = await asyncio.to_thread(cbwk.budget, "rtb-example")
        assert 1000 * usd["usd"].held == pytest.approx(won["price"] + lost["price"])
        billing = won["burl"].replace("${AUCTION_PRICE}", "2.5")
        assert [(await http.get(url)).status_code for url in (lost["lurl"], billing, billing)] == [204] * 3
        click = re.search('href="([^"]+)"', won["adm"]).group(1).replace("&amp;", "&")
        assert (await http.get(click)).headers["location"] == f"https://shop.example/{won['adid']}"


def test_the_ad_server_bids_bills_learns_and_gives_back_what_it_lost(reading_server):
    create_app = runpy.run_path(str(EXAMPLES / "ad_server.py"))["create_app"]
    patient = Terms(decide_seconds=20, close_seconds=20)  # a busy machine is no failure
    with Client(reading_server.url, KEY) as cbwk:
        asyncio.run(exchange(create_app(reading_server.url, KEY, patient), cbwk))
        usd = cbwk.budget("rtb-example")["usd"]
        assert (usd.spent, usd.held) == (0.0025, 0)
        assert cbwk.campaign("rtb-example").policy_version == 1


def test_uvicorn_finds_the_ad_server_by_the_name_it_is_given(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setenv("CBWK_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("CBWK_API_KEY", KEY)
    (name,) = re.findall(r"uvicorn --app-dir examples (\S+)", (EXAMPLES / "ad_server.py").read_text(encoding="utf-8"))
    assert isinstance(import_from_string(name), FastAPI)


def test_the_library_alone_earns_most_of_the_optimum_within_its_budgets(capsys):
    found = runpy.run_path(str(EXAMPLES / "embedded.py"))
    assert (found["spent"] <= found["BUDGETS"]).all()
    assert found["share"] > 0.75
    assert "the clairvoyant" in capsys.readouterr().out


def unit_options():
    """Return the options of the systemd unit, comments left out."""
    lines = (EXAMPLES / "cbwk.service").read_text(encoding="utf-8").splitlines()
    return [line.split("=", 1) for line in lines if "=" in line and not line.startswith("#")]


def test_the_systemd_unit_runs_a_command_that_exists_with_settings_that_exist():
    options = dict(unit_options())
    program, *arguments = options["ExecStart"].split()
    assert program.endswith("/bin/cbwk")
    assert subprocess.run([CBWK, *arguments, "--help"], check=False, capture_output=True).returncode == 0
    names = [
        word.partition("=")[0] for name, value in unit_options() if name == "Environment" for word in value.split()
    ]
    ours = {name for name in names if name.startswith("CBWK_")}
    assert ours
    assert ours <= {environment_variable(name) for name in Settings.model_fields}
    assert int(options["TimeoutStopSec"]) > STOP_SECONDS


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize(("option", "complaint"), [("PrivateTmp", ""), ("PrivatTmp", "Unknown key 'PrivatTmp'")])
def test_systemd_knows_every_option_of_the_unit_and_would_find_a_slip(option, complaint, tmp_path):
    text = (EXAMPLES / "cbwk.service").read_text(encoding="utf-8").replace("/opt/cbwk/bin/cbwk", str(CBWK))
    unit = tmp_path / "cbwk.service"
    unit.write_text(text.replace("PrivateTmp", option), encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", unit], check=False, capture_output=True, text=True)
    assert complaint in done.stderr if complaint else (done.returncode, done.stderr) == (0, "")


def scraped(server):
    """Names of series by their labels, as Prometheus would have them."""
    with httpx.Client(headers={"Authorization": f"Bearer {KEY}"}, trust_env=False, timeout=30) as client:
        client.get(f"{server.url}/campaigns").raise_for_status()
        text = client.get(f"{server.url}/metrics").text
    names = set()
    for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE):
        names |= {f"{name}_{part}" for part in ("bucket", "sum", "count")} if kind == "histogram" else {name}
    return names


def series_in(expression):
    return set(re.findall(r"\b(?:cbwk|process)_\w+", expression))


def expressions():
    alerts = [rule["expr"] for group in RULES["groups"] for rule in group["rules"]]
    panels = [target["expr"] for panel in PANELS for target in panel["targets"]]
    variables = [variable["definition"] for variable in BOARD["templating"]["list"] if variable["type"] == "query"]
    return alerts, panels, variables


def test_every_metric_of_the_alerts_and_of_the_grafana_dashboard_is_in_a_scrape(reading_server):
    names = scraped(reading_server)
    for expression in chain(*expressions()):
        assert series_in(expression) <= names, expression
        assert series_in(expression) or expression.startswith("up{")


def test_every_metric_of_the_service_is_on_the_grafana_dashboard(reading_server):
    shown = {re.sub("_(bucket|sum|count)$", "", name) for text in expressions()[1] for name in series_in(text)}
    scrape = {re.sub("_(bucket|sum|count)$", "", name) for name in scraped(reading_server) if name.startswith("cbwk_")}
    assert {name for name in scrape if not name.endswith("_created")} <= shown


def test_the_table_of_alerts_in_the_documentation_is_the_file_of_rules():
    operating = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    rules = RULES["groups"][0]["rules"]
    shown = [(name, expression.strip("`")) for name, expression, _ in table(operating, "Alerts")]
    assert shown == [(rule["alert"], rule["expr"]) for rule in rules]
    for rule in rules:
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["annotations"]["summary"]


def test_the_grafana_dashboard_has_what_grafana_needs():
    assert {"title", "uid", "schemaVersion", "version", "panels", "templating", "time", "refresh"} <= BOARD.keys()
    assert BOARD["id"] is None  # or an import would look for a dashboard of this number
    variables = {variable["name"]: variable["type"] for variable in BOARD["templating"]["list"]}
    assert variables == {"datasource": "datasource", "campaign": "query"}
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(ids) == len(set(ids))
    for panel in PANELS:
        assert {"id", "type", "title", "datasource", "fieldConfig", "options", "targets"} <= panel.keys()
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert all({"refId", "expr", "datasource", "legendFormat"} <= target.keys() for target in panel["targets"])
    taken = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        squares = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert place["x"] + place["w"] <= 24, panel["title"]
        assert not squares & taken, f"{panel['title']} lies on another panel"
        taken |= squares


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed: expressions are not parsed")
def test_prometheus_can_read_every_expression(tmp_path):
    alerts, panels, _ = expressions()
    panels = [text.replace("$__rate_interval", "5m").replace("$campaign", ".*") for text in panels]
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(panels)]
    rules += [{"record": f"alert:{number}", "expr": text} for number, text in enumerate(alerts)]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}), encoding="utf-8")
    subprocess.run(["promtool", "check", "rules", str(file)], check=True, capture_output=True, timeout=30)
