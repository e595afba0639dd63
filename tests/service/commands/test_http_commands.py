"""Commands that speak HTTP, against a real server."""

import csv
import io
import json
import re
import subprocess

import numpy as np
import pytest

from service.cli import main
from tests.service.http_calls import calls, campaign, create, decide_body
from tests.service.http_client import ADMIN_KEY
from tests.service.server_process import CBWK, free_port, running_server


@pytest.fixture(scope="module")
def server():
    with running_server() as running:
        with calls(running) as client:
            create(client, campaign("c", budget=2))
            for name in ("d1", "d2", "d3"):
                client.post("/decide", json=decide_body(name)).raise_for_status()
            feedback = {"campaign_id": "c", "decision_id": "d1", "reward": 1, "costs": {"usd": 0.25}}
            client.post("/feedback", json=feedback).raise_for_status()
        yield running


@pytest.fixture(autouse=True)
def _environment(server, monkeypatch):
    monkeypatch.setenv("CBWK_URL", server.url)
    monkeypatch.setenv("CBWK_API_KEY", ADMIN_KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def run(capsys):
    """Runs a command that must succeed and returns its output."""

    def run(*arguments):
        assert main(arguments) == 0, capsys.readouterr().err
        written = capsys.readouterr()
        assert written.err == ""
        return written.out

    return run


def refused(capsys, *arguments, code=1):
    """Runs a command that must fail and returns its one line."""
    assert main(arguments) == code
    written = capsys.readouterr()
    assert written.out == ""
    assert re.fullmatch(r"cbwk: .+\n", written.err)
    return written.err


def test_a_campaign_is_made_from_a_file_then_paused_resumed_and_archived(run, tmp_path):
    file = tmp_path / "campaign.json"
    file.write_text(json.dumps(campaign("from-a-file")))
    assert run("campaign", "create", str(file)) == "from-a-file is active, version 1\n"
    assert run("campaign", "pause", "from-a-file") == "from-a-file is paused, version 1\n"
    listed = json.loads(run("campaign", "list", "--status", "paused", "--json"))
    assert [item["id"] for item in listed] == ["from-a-file"]
    assert json.loads(run("campaign", "resume", "from-a-file", "--json"))["status"] == "active"
    assert run("campaign", "archive", "from-a-file") == "from-a-file is archived, version 1\n"


def test_a_campaign_is_made_from_stdin(server):
    text = json.dumps(campaign("from-stdin"))
    command = [CBWK, "campaign", "create", "-", "--json"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=30, check=True)
    assert json.loads(done.stdout)["id"] == "from-stdin"


def test_a_list_longer_than_a_page_is_complete(run, server):
    names = [f"many-{number}" for number in range(120)]
    with calls(server) as client:
        for name in names:
            create(client, campaign(name))
    listed = json.loads(run("campaign", "list", "--json"))
    assert [item["id"] for item in listed if item["id"].startswith("many-")] == names
    assert "many-119" in run("campaign", "list")


def test_show_and_budget_have_the_accounts(run, server):
    with calls(server) as client:
        account = client.get("/admin/campaigns/c/budget").json()["resources"][0]
    assert account["granted"] == 2
    assert json.loads(run("campaign", "budget", "c", "--json"))["resources"] == [account]
    assert json.loads(run("campaign", "show", "c", "--json"))["accounts"] == [account]
    everything = {item["campaign_id"]: item["resources"] for item in json.loads(run("campaign", "budget", "--json"))}
    assert everything["c"] == [account]
    shown = run("campaign", "show", "c")
    assert shown.startswith("c is active, version 1, since ")
    assert "3 decisions, " in shown
    numbers = [account[name] for name in ("granted", "held", "spent", "overrun", "free")]
    for text, start in [
        (shown, ["usd"]),
        (run("campaign", "budget"), ["c", "usd"]),
        (run("campaign", "budget", "c"), ["c", "usd"]),
    ]:
        (row,) = [line.split() for line in text.splitlines() if line.split()[: len(start)] == start]
        assert [float(cell) for cell in row[len(start) :][:5]] == numbers


def test_a_portfolio_is_made_from_a_file_shown_and_given_another_budget(run, capsys, server, tmp_path):
    file = tmp_path / "portfolio.json"
    windows = [{"period": "day", "limit": 4}]
    file.write_text(json.dumps({"id": "acme", "resources": [{"id": "usd", "budget": 9, "windows": windows}]}))
    assert run("portfolio", "create", str(file)) == "acme, version 1\n"
    with calls(server) as client:
        create(client, campaign("member", portfolio="acme"))
        client.post("/decide", json=decide_body("m1", "member")).raise_for_status()
    assert "acme  member" in run("portfolio", "list")
    assert [item["campaigns"] for item in json.loads(run("portfolio", "list", "--json"))] == [["member"]]
    lines = [line.split() for line in run("portfolio", "budget", "acme").splitlines()]
    assert ["usd", "9", "1", "0", "0", "8"] in lines
    assert ["usd", "day", "4", "1", "0", "3"] in [line[:6] for line in lines]
    assert json.loads(run("portfolio", "budget", "acme", "--json"))["resources"][0]["held"] == 1
    assert run("portfolio", "set-budget", "acme", "usd=12.5") == "acme, version 2\n"
    assert "409: " in refused(capsys, "portfolio", "set-budget", "acme", "usd=0.5")
    assert "RESOURCE=AMOUNT" in refused(capsys, "portfolio", "set-budget", "acme", "usd", code=2)
    assert "404: " in refused(capsys, "portfolio", "budget", "nobody")


def test_an_export_has_every_decision_in_either_format_in_a_file_or_on_stdout(run, tmp_path):
    assert run("export", "c", "--out", str(tmp_path / "c.jsonl")) == ""
    lines = (tmp_path / "c.jsonl").read_text().splitlines()
    assert [json.loads(line)["decision_id"] for line in lines] == ["d1", "d2", "d3"]
    run("export", "c", "--format", "csv", "--out", str(tmp_path / "c.csv"))
    rows = list(csv.DictReader(io.StringIO((tmp_path / "c.csv").read_text())))
    assert [row["decision_id"] for row in rows] == ["d1", "d2", "d3"]
    assert {path.name for path in tmp_path.iterdir()} == {"c.jsonl", "c.csv"}
    done = subprocess.run([CBWK, "export", "c"], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.splitlines() == lines
    assert done.stderr == ""


def test_an_evaluation_is_a_table_with_a_sentence_or_json(run, capsys, tmp_path):
    policy = tmp_path / "policy.json"
    policy.write_text('{"oracle": {"kind": "gradient"}}')
    shown = run("evaluate", "c", "--arm", "a", "--uniform", "--policy", str(policy), "--budget", "usd=1", "--what-if")
    assert shown.startswith("2 rounds; left out: 1 unsettled\n")
    for text in ("always a", "uniform", "practical, gradient", "IPS", "SNIPS", "DR", "Bernstein 95 %", "caution: "):
        assert text in shown
    assert "always a: Not enough data: " in shown
    assert "own budgets, as a check" in shown
    found = json.loads(run("evaluate", "c", "--uniform", "--json"))
    assert (found["status"], found["result"]["rounds"]) == ("done", 2)
    assert "422: " in refused(capsys, "evaluate", "c", "--arm", "nobody")
    assert "nothing to evaluate" in refused(capsys, "evaluate", "c", code=2)
    assert "RESOURCE=AMOUNT" in refused(capsys, "evaluate", "c", "--uniform", "--budget", "usd", code=2)
    assert "cannot read" in refused(capsys, "evaluate", "c", "--policy", str(tmp_path / "no.json"))


def test_a_log_of_another_system_is_a_warm_start(run, capsys, server, tmp_path):
    rng = np.random.default_rng(1)
    log = tmp_path / "log.jsonl"
    rows = [{"context": [0.5, 0.5], "arm": None, "reward": 0, "costs": {}}]
    for _ in range(400):
        x, arm = rng.random(2).round(3).tolist(), ("a", "b")[int(rng.integers(2))]
        earned = 0.2 + 0.5 * x[0] if arm == "a" else 0.8 - 0.5 * x[1]
        rows.append({"context": x, "arm": arm, "reward": earned, "costs": {"usd": 0.5}, "probability": 0.5})
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with calls(server) as client:
        create(client, campaign("warm"))
        report = json.loads(run("campaign", "import-log", "warm", str(log), "--json"))
        names = ("rows", "skipped", "policy_version", "model_version")
        assert [report[name] for name in names] == [400, 1, 400, 2]
        assert report["error"] == pytest.approx(report["error_weighted"]), "all probabilities are equal"
        answer = client.post("/decide", json=decide_body("w", "warm", (0.4, 0.6)) | {"explain": True}).json()
        by_arm = {arm["id"]: arm for arm in answer["arms"]}
        assert by_arm["a"]["reward"] == pytest.approx(0.4, abs=0.02)
        assert by_arm["b"]["reward"] == pytest.approx(0.5, abs=0.02)
        assert by_arm["a"]["cost"]["usd"] == pytest.approx(0.5, abs=0.02)
        assert client.get("/campaigns/warm").json()["accounts"][0]["spent"] == 0
    # The export of one campaign is a log for another.
    run("export", "c", "--out", str(tmp_path / "c.jsonl"))
    assert "trained on 1 rows" in run("campaign", "import-log", "warm", str(tmp_path / "c.jsonl"))
    log.write_text('{"context": [0.5, 0.5], "arm": "z", "reward": 1, "costs": {}}\n')
    assert "line 1: arm is not one of the campaign's" in refused(capsys, "campaign", "import-log", "warm", str(log))
    log.write_text('{"arm": "a", "reward": 1, "costs": {}}\n')
    assert "line 1: context is missing" in refused(capsys, "campaign", "import-log", "warm", str(log))
    assert "cannot read" in refused(capsys, "campaign", "import-log", "warm", str(tmp_path / "none"))


def test_a_refusal_of_the_service_is_one_line_with_status_and_reason(capsys, tmp_path):
    file = tmp_path / "campaign.json"
    for text, message in [
        (json.dumps(campaign("c")), "409: a campaign of this id exists"),
        (json.dumps(campaign("d", horizon=-1)), "horizon"),
        ("{", "400: the body is not JSON"),
    ]:
        file.write_text(text)
        assert message in refused(capsys, "campaign", "create", str(file))
    assert '404: there is no campaign "nowhere"' in refused(capsys, "campaign", "show", "nowhere")
    assert "404" in refused(capsys, "campaign", "budget", "../campaigns")
    assert '404: there is no campaign "nowhere"' in refused(capsys, "export", "nowhere", "--out", str(tmp_path / "x"))
    assert "422" in refused(capsys, "campaign", "list", "--status", "asleep")
    assert not (tmp_path / "x").exists()


def test_a_request_that_cannot_be_sent_is_one_line(capsys, monkeypatch, tmp_path):
    assert "cannot read" in refused(capsys, "campaign", "create", str(tmp_path / "missing.json"))
    assert "cannot write" in refused(capsys, "export", "c", "--out", str(tmp_path / "no" / "c.jsonl"))
    assert "--format" in refused(capsys, "export", "c", "--format", "xml", code=2)
    for url in ("ftp://127.0.0.1", "127.0.0.1:8000", "http://127.0.0.1:port", ""):
        assert "--url" in refused(capsys, "campaign", "list", "--url", url, code=2)
    monkeypatch.setenv("CBWK_URL", f"http://127.0.0.1:{free_port()}")
    assert "no answer from http://127.0.0.1" in refused(capsys, "campaign", "list")


def test_a_key_is_needed_and_never_repeated(capsys, monkeypatch):
    monkeypatch.setenv("CBWK_API_KEY", "hunter2-hunter2")
    line = refused(capsys, "campaign", "list")
    assert "401" in line
    assert "hunter2" not in line
    monkeypatch.setenv("CBWK_API_KEY", "hunter2\nhunter2")
    assert "hunter2" not in refused(capsys, "campaign", "list")
    monkeypatch.delenv("CBWK_API_KEY")
    assert "CBWK_API_KEY" in refused(capsys, "campaign", "list")


def test_a_budget_is_set_and_spending_is_corrected_also_downwards(run, server):
    with calls(server) as client:
        create(client, campaign("money", budget=5))
    assert run("campaign", "set-budget", "money", "usd", "7.5") == "money is active, version 2\n"
    why = ("--reason", "invoice")
    assert run("campaign", "adjust", "money", "usd", "2", *why) == "usd of money: spent 2, overrun 0, free 5.5\n"
    assert run("campaign", "adjust", "money", "usd", "-0.5", *why) == "usd of money: spent 1.5, overrun 0, free 6\n"
    once = ("campaign", "adjust", "money", "usd", "1", *why, "--idempotency-key", "once")
    assert run(*once) == run(*once) == "usd of money: spent 2.5, overrun 0, free 5\n"


def test_a_wrong_resource_is_one_line_with_the_name_that_is_meant(capsys):
    assert 'there is no resource "usdd" in the campaign; did you mean "usd"?' in refused(
        capsys, "campaign", "set-budget", "c", "usdd", "7"
    )


def test_a_campaign_is_changed_by_a_file(run, server, tmp_path):
    with calls(server) as client:
        create(client, campaign("changed"))
    file = tmp_path / "change.json"
    file.write_text(json.dumps({"arms": [{"id": "a", "status": "paused"}], "horizon": 2000}), encoding="utf-8")
    assert run("campaign", "change", "changed", str(file)) == "changed is active, version 2\n"
    config = json.loads(run("campaign", "show", "changed", "--json"))["config"]
    assert (config["horizon"], config["arms"][0]["status"]) == (2000, "paused")


def test_a_clone_has_the_configuration_but_neither_retired_arms_nor_the_seed(run, server):
    with calls(server) as client:
        create(client, campaign("first", arms=[{"id": name} for name in "abc"], display_name="First"))
        paused = [{"id": "c", "status": "paused"}]
        client.patch("/campaigns/first", json={"retire_arms": ["b"], "arms": paused}).raise_for_status()
    assert run("campaign", "clone", "first", "second") == "second is active, version 2\n"
    found = {name: json.loads(run("campaign", "show", name, "--json"))["config"] for name in ("first", "second")}
    assert [(arm["id"], arm.get("status")) for arm in found["second"]["arms"]] == [("a", None), ("c", "paused")]
    same = found["first"].keys() - {"id", "arms", "seed"}
    assert {name: found["first"][name] for name in same} == {name: found["second"][name] for name in same}
    assert found["first"]["seed"] != found["second"]["seed"]
    run("campaign", "clone", "first", "third", "--ends-at", "2090-01-01T00:00:00Z")
    third = json.loads(run("campaign", "show", "third", "--json"))["config"]
    assert (third["horizon"], third["ends_at"]) == (None, "2090-01-01T00:00:00Z")


def test_the_uplift_is_a_table_of_groups_and_differences(run, server):
    with calls(server) as client:
        create(client, campaign("held", holdout={"fraction": 0.5, "arm": "a"}))
        create(client, campaign("shadowed", mode="shadow"))
        for at in range(20):
            client.post("/decide", json=decide_body(f"h{at}", "held")).raise_for_status()
            client.post("/decide", json=decide_body(f"s{at}", "shadowed") | {"baseline_arm": "a"}).raise_for_status()
    held = json.loads(run("campaign", "uplift", "held", "--json"))["holdout"]["groups"]
    lines = [line.split() for line in run("campaign", "uplift", "held").splitlines()]
    assert lines[1][:2] == ["policy", str(held["policy"]["decisions"])]
    assert lines[2][:2] == ["holdout", str(held["holdout"]["decisions"])]
    assert [line[0] for line in lines[4:]] == ["reward", "cost", "reward"]
    assert ["a", "20"] in [line.split()[:2] for line in run("campaign", "uplift", "shadowed").splitlines()]
    assert run("campaign", "uplift", "c") == "c has neither a hold-out nor shadow mode\n"


def test_ids_are_whole_in_a_pipe_however_long_they_are(server):
    name = "n" * 128
    with calls(server) as client:
        create(client, campaign(name, resources=[{"id": "r" * 128, "budget": 1, "max_cost": 1}]))
    for command in (("campaign", "list"), ("campaign", "budget"), ("campaign", "show", name)):
        found = subprocess.run([CBWK, *command], capture_output=True, text=True, check=True).stdout
        assert name in found.split() or "r" * 128 in found.split()
        assert "…" not in found
