"""What a campaign manager does in the dashboard, from an empty service on."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime, timedelta

import pytest
from standardwebhooks import Webhook

from service.reads.uplift import LEVEL
from tests.browser import scenes
from tests.browser.conftest import tab
from tests.browser.visits import close, config_of, expect, key_of, made, signed_in, to_tab, until
from tests.service.http_calls import calls
from tests.service.listener import listener
from tests.service.server_process import running_server

NARROW = 390


@pytest.fixture(scope="module", params=[(1440, "light"), (NARROW, "dark")], ids=["wide-light", "narrow-dark"])
def desk(browser, request):
    """Everything is done twice: at a desk by day, and on a phone by night."""
    width, theme = request.param
    return tab(browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme))


@pytest.fixture(scope="module")
def server(desk):
    """An empty server that may send to this machine; the first test begins with that."""
    with running_server(webhook_private="true") as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    with calls(server) as opened:
        yield opened


def typed(page, label, text):
    page.get_by_label(label, exact=True).fill(text)


def copied(page, button):
    """Presses a button that copies and returns the clipboard."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name=button).click()
    page.get_by_role("button", name="Copied").wait_for()
    text = page.evaluate("navigator.clipboard.readText()")
    page.get_by_role("button", name=button).wait_for()
    return text


def run_in_shell(command, key):
    """Runs a copied command as a person would paste it."""
    environment = {"PATH": os.environ["PATH"], "CBWK_API_KEY": key, "no_proxy": "127.0.0.1"}
    done = subprocess.run(
        ["sh", "-c", command], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    return json.loads(done.stdout)


def saved(page, message):
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    page.get_by_role("status").filter(has_text=message).wait_for()


def webhook_made(page, url):
    """Creates a webhook in the page and returns its secret."""
    page.get_by_role("link", name="Webhooks").click()
    page.get_by_text("No webhooks yet.").wait_for()
    page.get_by_role("button", name="New webhook…").click()
    typed(page, "Address", url)
    page.get_by_role("button", name="Create webhook").click()
    secret = page.get_by_label("Secret", exact=True).inner_text()
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    page.get_by_role("table", name="Webhooks").get_by_role("row").filter(has_text=url).wait_for()
    assert secret not in page.content()
    return secret


def test_from_an_empty_service_to_a_message_about_a_campaign_that_was_asked_and_changed(open_page, server, client):
    with listener() as (url, received):
        page = signed_in(open_page, server)
        page.get_by_role("heading", name="Create your first campaign").wait_for()
        secret = webhook_made(page, f"{url}/spring")
        page.goto(f"{server.url}/dashboard#/")
        campaign_made_asked_and_told(page, client)
        to_tab(page, "Settings")
        page.get_by_role("button", name="Change budgets…").click()
        page.get_by_role("spinbutton", name="usd").fill("150")
        page.get_by_role("button", name="Review…").click()
        page.get_by_role("button", name="Change budgets", exact=True).click()
        page.get_by_role("status").filter(has_text="changed").wait_for()
        page.get_by_role("button", name="Pause arm banner-a").click()
        page.get_by_role("dialog").get_by_role("button", name="Pause arm").click()
        page.get_by_role("button", name="Activate arm banner-a").wait_for()
        now = config_of(client, "spring")
        assert now["resources"][0]["budget"] == 150
        assert [arm.get("status") for arm in now["arms"]] == ["paused", None]
        page.get_by_role("button", name="Adjust spent…").click()
        page.get_by_role("spinbutton", name="Amount").fill("80")
        page.get_by_label("Reason, for the audit log").fill("spent elsewhere")
        page.get_by_role("button", name="Review…").click()
        page.get_by_role("button", name="Adjust", exact=True).click()
        expect(page.get_by_role("dialog")).to_have_count(0)
        page.get_by_role("link", name="Webhooks").click()
        page.get_by_role("link", name=f"Deliveries to {url}/spring").click()
        row = page.get_by_role("table", name="Deliveries").get_by_role("row").filter(has_text="budget.threshold")
        row.filter(has_text="delivered").wait_for(timeout=60_000)
    ((path, headers, body),) = received
    message = Webhook(secret).verify(body, headers)  # raises for a wrong signature
    assert path == "/spring"
    assert (message["type"], message["data"]["display_name"]) == ("budget.threshold", "Spring sale")
    assert (message["data"]["threshold"], message["data"]["granted"]) == (50, 150)
    page.get_by_role("link", name="← Webhooks").click()
    page.get_by_role("button", name=f"Delete webhook {url}/spring").click()
    page.get_by_role("button", name="Delete permanently").click()
    page.get_by_text("No webhooks yet.").wait_for()
    assert client.get("/admin/webhooks").json()["items"] == []


def campaign_made_asked_and_told(page, client):
    page.get_by_role("heading", name="Create your first campaign").wait_for()
    expect(page.locator(".first-steps")).to_contain_text("cbwk demo --stay")
    page.get_by_role("link", name="Create your first campaign").click()
    typed(page, "Id", "spring")
    page.locator("#field-display_name").fill("Spring sale")
    page.get_by_label("Notes").fill("owner: growth")
    page.get_by_text("Windows: at most this per period").first.click()
    typed(page, "Per day", "20")
    sent = json.loads(page.get_by_label("JSON", exact=True).inner_text())
    assert sent["resources"] == [
        {"id": "usd", "unit": "USD", "budget": 100, "max_cost": 0.05, "windows": [{"period": "day", "limit": 20}]}
    ]
    page.get_by_role("button", name="Create campaign").click()
    page.get_by_role("heading", name="Spring sale").wait_for()
    stored = config_of(client, "spring")
    assert {name: stored[name] for name in ("display_name", "metadata")} == {
        "display_name": "Spring sale",
        "metadata": {"owner": "growth"},
    }
    key = key_of(client, "decider")["key"]
    asked = run_in_shell(copied(page, "Copy curl for a decision"), key)
    assert asked["campaign_id"] == "spring"
    assert client.get("/campaigns/spring").json()["round"] == 1
    told = run_in_shell(copied(page, "Copy curl for feedback"), key)
    assert told["decision_id"] == asked["decision_id"]
    assert told["status"] == ("settled" if asked["arm"] else "ignored")
    # The timeline is read less often where the server is slow.
    page.locator("[data-figure='Reward'] b", has_text="1" if asked["arm"] else "0").wait_for(timeout=60_000)


def test_the_curl_of_the_form_creates_the_same_campaign_in_a_shell(open_page, server, client):
    made(client, "to-copy")
    page = signed_in(open_page, server)
    page.goto(f"{server.url}/dashboard#/new/to-copy")
    typed(page, "Id", "copy-of-it")
    page.locator("#field-display_name").fill("Its copy, by 'curl'")
    created = run_in_shell(copied(page, "Copy curl"), key_of(client, "admin")["key"])
    assert created["config"]["display_name"] == "Its copy, by 'curl'"
    assert created["config"]["resources"] == config_of(client, "to-copy")["resources"]


def test_an_address_that_no_message_may_go_to_is_refused_at_its_field(open_page, server, client):
    page = signed_in(open_page, server, place="#/webhooks")
    page.forgiven = ["422"]
    page.get_by_role("button", name="New webhook…").click()
    typed(page, "Address", "ftp://127.0.0.1/")
    page.get_by_role("button", name="Create webhook").click()
    page.locator("[data-path=url] .wrong").wait_for()
    assert client.get("/admin/webhooks").json()["items"] == []


def test_a_refused_field_says_why_at_its_place(open_page, server, client):
    page = signed_in(open_page, server)
    page.forgiven = ["422", "409"]
    page.get_by_role("link", name="New campaign").click()
    typed(page, "Id", "refused")
    typed(page, "Budget", "0.0000001")
    typed(page, "Max cost of a decision", "")
    page.get_by_role("button", name="Create campaign").click()
    budget = page.locator("[data-path='resources.0.budget']")
    # The browser's own words come first, and the service's replace them.
    expect(budget.locator(".wrong")).to_contain_text("decimal")
    assert page.get_by_label("Budget", exact=True).get_attribute("aria-invalid") == "true"
    expect(page.locator("[data-path='resources.0.max_cost'] .wrong")).to_have_count(1)
    assert page.evaluate("document.activeElement.id") == "field-resources-0-budget"
    typed(page, "Budget", "10")
    expect(budget.locator(".wrong")).to_have_count(0)
    typed(page, "Max cost of a decision", "0.1")
    page.locator("#field-id").fill("with blanks")
    page.locator("#field-id").blur()
    page.locator("[data-path='id'] .wrong").wait_for()  # before anything is sent
    made(client, "taken")
    page.locator("#field-id").fill("taken")
    page.get_by_role("button", name="Create campaign").click()
    page.locator("[data-path='id'] .wrong", has_text="another campaign").wait_for()


def test_a_campaign_with_everything_is_made_in_the_form_and_cloned(open_page, server, client):
    page = signed_in(open_page, server, place="#/new")
    typed(page, "Id", "rich")
    page.get_by_role("button", name="Add a resource").click()
    page.locator("#field-resources-1-id").fill("impressions")
    page.locator("#field-resources-1-budget").fill("5000")
    page.get_by_role("button", name="Add an arm").click()
    page.locator("#field-arms-2-id").fill("banner-c")
    page.locator("#field-arms-2-max_cost-impressions").fill("0.5")
    page.get_by_role("button", name="Add a feature").click()
    page.locator("#field-context-features-1-name").fill("hour")
    page.locator("#field-context-features-1-max").fill("23")
    page.locator("#field-context-features-1-default").fill("12")
    page.get_by_label("It ends").select_option("ends_at")
    end = datetime.now(UTC).replace(microsecond=0, second=0) + timedelta(days=3)
    page.get_by_label("End", exact=True).fill(end.strftime("%Y-%m-%dT%H:%M"))
    page.get_by_label("Cost if none comes").select_option("none")
    page.get_by_label("Hold-out: a baseline").check()
    typed(page, "Share in %", "12.5")
    page.get_by_label("Baseline", exact=True).select_option("banner-b")
    page.get_by_role("button", name="Add an arm").click()
    page.locator("#field-arms-3-id").fill("banner-d")
    page.get_by_label("Floor arm").select_option("banner-d")
    page.get_by_role("button", name="Remove arm 4").click()
    assert "floor_arm" not in json.loads(page.get_by_label("JSON", exact=True).inner_text())
    page.get_by_label("Floor arm").select_option("banner-a")
    # What refers to an arm or a resource follows its name.
    for place, name in (("arms-0", "red"), ("arms-1", "blue"), ("resources-1", "views")):
        page.locator(f"#field-{place}-id").fill(name)
    page.get_by_role("button", name="Create campaign").click()
    page.get_by_role("heading", name="rich", exact=True).wait_for()
    config = config_of(client, "rich")
    assert (config["null_arm"], config["floor_arm"]) == ("last_resort", "red")
    assert config["ends_at"] == end.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert config["holdout"] == {"fraction": 0.125, "arm": "blue"}
    assert config["arms"][2] == {"id": "banner-c", "max_cost": {"views": 0.5}}
    hour = {"name": "hour", "type": "number", "min": 0, "max": 23, "default": 12, "strict": False}
    assert config["context"]["features"][1] == hour
    assert config["feedback"]["missing_cost"] == "none"
    assert page.locator(".campaign-head [data-badge=holdout]").inner_text().replace("\u00a0", " ") == "hold-out 12.5 %"
    page.get_by_role("link", name="Clone").click()
    page.get_by_role("button", name="Create campaign").click()
    page.get_by_role("heading", name="rich-copy").wait_for()
    copy = config_of(client, "rich-copy")
    assert {**copy, "id": "rich", "seed": None} == {**config, "seed": None}
    assert copy["seed"] != config["seed"]


def test_settings_change_names_limits_dates_arms_and_the_hold_out(open_page, server, client):
    page = signed_in(open_page, server, place=f"{made(client, 'changing', 50)}/settings")
    page.get_by_role("button", name="Change names…").click()
    page.locator("#field-display_name").fill("Changing things")
    page.get_by_label("Notes").fill("team: red")
    saved(page, "names of changing")
    page.get_by_role("heading", name="Changing things").wait_for()
    page.get_by_role("button", name="Change limits…").click()
    page.locator("#field-resources-0-unit").fill("USD")
    page.locator("#field-resources-0-windows-day").fill("7")
    saved(page, "limits of changing")
    to_tab(page, "Overview")
    expect(page.locator(".card[data-resource=usd] .window")).to_contain_text("of 7 USD")
    to_tab(page, "Settings")
    page.get_by_role("button", name="Change dates…").click()
    typed(page, "Expected decisions", "2000")
    saved(page, "flight of changing")
    page.get_by_role("button", name="Add arm…").click()
    page.locator("#field-add_arms-0-id").fill("valley")
    saved(page, "arm was added")
    page.get_by_role("button", name="Change hold-out…").click()
    page.get_by_label("A baseline decides").check()
    page.get_by_label("Baseline", exact=True).select_option("city")
    saved(page, "hold-out of changing")
    page.get_by_role("button", name="Retire arm peak").click()
    page.get_by_role("dialog").get_by_role("button", name="Retire arm").click()
    page.get_by_role("status").filter(has_text="Arm peak is retired").wait_for()
    config = config_of(client, "changing")
    usd = config["resources"][0]
    assert (config["display_name"], config["metadata"]) == ("Changing things", {"team": "red"})
    assert (usd["unit"], usd["windows"]) == ("USD", [{"period": "day", "limit": 7}])
    assert config["horizon"] == 2000
    assert [arm["id"] for arm in config["arms"]] == ["city", "lake", "peak", "valley"]
    assert [arm.get("retired", False) for arm in config["arms"]] == [False, False, True, False]
    assert config["holdout"] == {"fraction": 0.05, "arm": "city"}
    page.goto(f"{server.url}/dashboard#/")
    page.get_by_label("Search campaigns").fill("red")  # a note
    expect(page.locator(".campaign .name")).to_have_text(["Changing things"])
    expect(page.locator(".campaign .id")).to_have_text("changing")


def test_a_shadow_campaign_has_a_badge_and_goes_live(open_page, server, client):
    page = signed_in(open_page, server, place=f"{made(client, 'watching', mode='shadow')}/settings")
    expect(page.locator(".campaign-head [data-badge]")).to_have_text("shadow")
    page.get_by_role("button", name="Go live…").click()
    page.get_by_role("dialog").get_by_role("button", name="Go live").click()
    page.get_by_role("status").filter(has_text="watching is live").wait_for()
    assert page.locator(".campaign-head [data-badge]").count() == 0  # the page shows the change before it says so
    assert config_of(client, "watching")["mode"] == "live"


def test_a_key_is_shown_once_and_revoked_and_the_audit_has_both(open_page, server, client):
    page = signed_in(open_page, server)
    page.get_by_role("link", name="Keys").click()
    page.get_by_role("button", name="New key…").click()
    page.locator("#field-name").fill("ad server")
    page.get_by_label("Role").select_option("reader")
    page.get_by_role("button", name="Create key").click()
    text = page.get_by_label("Key", exact=True).inner_text()
    headers = {"Authorization": f"Bearer {text}"}
    assert client.get("/admin/budgets", headers=headers).status_code == 200
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    row = page.get_by_role("row").filter(has_text="ad server")
    row.wait_for()
    row.get_by_role("button", name="Revoke key ad server").click()
    page.get_by_role("button", name="Revoke permanently").click()
    row.filter(has_text="revoked").wait_for()
    assert client.get("/admin/budgets", headers=headers).status_code == 401
    page.get_by_role("link", name="Audit").click()
    page.get_by_role("row").filter(has_text="key.revoke").first.wait_for()
    page.get_by_role("row").filter(has_text="key.create").first.wait_for()


CLOSING = {
    "button": "document.querySelector('dialog .primary').click()",
    "backdrop": "document.querySelector('dialog').click()",
    "Escape": None,
    "another page": "location.hash = '#/audit'",
}


@pytest.mark.parametrize("way", CLOSING)
def test_a_key_leaves_the_page_with_its_dialog(open_page, server, client, way):
    page = signed_in(open_page, server)
    page.get_by_role("link", name="Keys").click()
    page.get_by_role("button", name="New key…").click()
    page.locator("#field-name").fill(f"closed by {way}")
    page.get_by_role("button", name="Create key").click()
    text = page.get_by_label("Key", exact=True).inner_text()
    html = "document.documentElement.outerHTML"
    if way == "Escape":
        page.keyboard.press("Escape")
    elif way == "another page":
        page.evaluate(CLOSING[way])
        page.get_by_role("heading", name="Audit").wait_for()
    else:  # at once, in the same task
        assert text not in page.evaluate(f"(() => {{ {CLOSING[way]}; return {html}; }})()")
    assert text not in page.content()


def test_the_figures_at_the_top_are_the_services(open_page, server, client):
    place = made(client, "earning", 400, usd=12, holdout={"fraction": 0.3, "arm": "lake"})
    page = signed_in(open_page, server, place=place)
    page.locator("[data-figure*='over the hold-out']").first.wait_for()
    page.locator("[data-figure='Reward']").wait_for()  # of another request
    found = dict(
        zip(
            page.locator(".figures dt").all_inner_texts(),
            page.locator(".figures dd b").all_inner_texts(),
            strict=True,
        )
    )
    decided = client.get("/admin/campaigns/earning/decisions?limit=1000").json()["items"]
    reward = sum(one["reward"] for one in decided if one["status"] == "settled")
    usd = sum(one["costs"]["usd"] for one in decided if one["status"] == "settled")
    assert len(decided) == 400
    assert close(found["Reward"], reward)
    assert close(found["Reward per 1,000 decisions"], reward / 0.4)
    assert close(found["Spend"], usd)
    assert close(found["Cost per reward"], usd / reward)
    assert close(found["Share of null"], sum(one["arm"] is None for one in decided) / 4)
    uplift = client.get("/admin/campaigns/earning/uplift").json()["holdout"]["uplift"]
    assert close(found["Reward per decision, over the hold-out"], uplift["reward"]["value"])
    assert close(found["Reward per usd, over the hold-out"], uplift["reward_per_cost"]["usd"]["value"])
    verdict = page.locator("section[aria-labelledby=h-uplift] .verdict").inner_text().replace("\u00a0", " ")
    assert f"Per usd it earns {'less' if uplift['reward_per_cost']['usd']['value'] < 0 else ''}".strip() in verdict
    assert f"{100 * LEVEL:.0f} %" in verdict
    drawn = "document.querySelector('[aria-label^=\"Cumulated reward\"]')"
    until(page, f"!!{drawn}.data")
    assert page.evaluate(f"{drawn}.layout.xaxis.type") == "date"
    assert page.evaluate(f"{drawn}.data[0].y.at(-1)") == pytest.approx(reward)
    last = page.evaluate(f"{drawn}.data.slice(1).map((trace) => [trace.name, trace.y.at(-1)])")
    for arm, total in last:
        assert total == pytest.approx(
            sum(one["reward"] for one in decided if one["arm"] == arm and one["status"] == "settled")
        )
    page.get_by_role("button", name="Rounds").click()
    until(page, f"{drawn}.layout.xaxis.type === 'linear'")
    assert page.evaluate(f"{drawn}.data[0].x.at(-1)") == 400
    page.get_by_role("button", name="Dates").click()


def test_names_and_units_are_shown_wherever_an_arm_or_an_amount_is(open_page, server, client):
    names = {arm: f"The {arm} banner" for arm in scenes.ARMS}
    resources = [
        {"id": "media", "budget": 30, "max_cost": 0.05, "unit": "EUR"},
        {"id": "fees", "budget": 30, "max_cost": 1, "unit": "EUR"},
        {"id": "impressions", "budget": 1000, "max_cost": 1},
    ]
    arms = [{"id": arm, "display_name": name} for arm, name in names.items()]
    holdout = {"fraction": 0.3, "arm": "lake"}
    place = made(client, "named", arms=arms, resources=resources, holdout=holdout)
    for i in range(60):
        decided = client.post("/decide", json={"campaign_id": "named", "context": {"device": "tv"}}).json()
        told = {"campaign_id": "named", "decision_id": decided["decision_id"], "reward": i % 2}
        costs = {"media": 0.02, "fees": 0.5, "impressions": 1}
        if decided["arm"]:
            assert client.post("/feedback", json=told | {"costs": costs}).status_code == 200
    page = signed_in(open_page, server, place=place)
    spent = "EUR (media), 0.5 EUR (fees), 1 impressions"
    row = page.get_by_role("table", name="Arms").locator("tbody tr", has_text=names["city"])
    expect(row).to_contain_text(f"0.02 {spent}")
    expect(page.get_by_role("table", name="Uplift over the hold-out")).to_contain_text("EUR (fees)")
    expect(page.locator("section[aria-labelledby=h-uplift] .verdict")).to_contain_text(f"always {names['lake']}")
    expect(page.locator(".figures")).to_contain_text(f"against {names['lake']}")
    expect(page.get_by_role("article", name="Budget of media").locator(".resource-name")).to_have_text("media (EUR)")
    to_tab(page, "Ledger")
    expect(page.get_by_role("table", name="Ledger").locator("tbody")).to_contain_text(
        f"+0.02 {spent}".replace(", ", ", +")
    )
    to_tab(page, "Settings")
    expect(page.get_by_role("table", name="Budgets and limits")).to_contain_text("0.05 EUR")
    expect(page.locator("section[aria-labelledby=h-comparison-settings]")).to_contain_text(names["lake"])
    to_tab(page, "What if")
    page.get_by_role("button", name="New evaluation…").click()
    assert set(names.values()) < set(page.get_by_label("Always the same arm").locator("option").all_inner_texts())
    page.keyboard.press("Escape")
    to_tab(page, "Decisions")
    page.get_by_role("table", name="Decisions").locator("tbody tr", has_text=f"0.02 {spent}").first.wait_for()
    page.locator(".explain").first.click()
    table = page.get_by_role("dialog").get_by_role("table", name="Arms of this decision")
    for name in names.values():
        expect(table).to_contain_text(name)
    expect(table).to_contain_text("EUR (media)")
    page.keyboard.press("Escape")


def test_the_address_keeps_the_tab_and_what_does_not_exist_is_404(open_page, server, client):
    page = signed_in(open_page, server, place=f"{made(client, 'tabbed', 20)}/ledger")
    page.get_by_role("table", name="Ledger").wait_for()
    page.reload()
    page.get_by_role("table", name="Ledger").wait_for()
    to_tab(page, "Decisions")
    page.wait_for_url(lambda address: address.endswith("#/campaigns/tabbed/decisions"))
    page.go_back()
    page.get_by_role("table", name="Ledger").wait_for()
    assert page.get_by_role("link", name="Ledger").get_attribute("aria-current") == "page"
    page.forgiven.append("404")
    for place in ("#/campaigns/nowhere", "#/campaigns/tabbed/nothing", "#/nothing"):
        page.goto(f"{server.url}/dashboard{place}")
        page.get_by_role("heading", name="404").wait_for()
        assert page.title().startswith("404")
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    page.wait_for_timeout(3000)
    assert [url for url in requests if "/assets/" not in url] == []  # nobody keeps asking for what is not there


def test_decisions_are_filtered_by_arm_status_and_time(open_page, server, client):
    place = made(client, "filtered", 100)
    page = signed_in(open_page, server, place=f"{place}/decisions")
    table = page.get_by_role("table", name="Decisions")
    table.locator("tbody tr").first.wait_for()
    decided = client.get("/admin/campaigns/filtered/decisions?limit=1000").json()["items"]

    def shown(**wanted):
        return sum(all(one[name] == value for name, value in wanted.items()) for one in decided)

    rows, at_once = table.locator("tbody tr"), 8 if page.viewport_size["width"] == NARROW else 25
    page.get_by_label("Status").select_option("voided")
    expect(rows).to_have_count(min(at_once, shown(status="voided")))
    page.get_by_label("Arm", exact=True).select_option("lake")
    expect(rows).to_have_count(min(at_once, shown(status="voided", arm="lake")))
    page.get_by_label("Before").fill("2020-01-01T00:00:00")
    page.get_by_text("No such decisions.").wait_for()
    command = copied(page, "Copy curl")
    for part in ("format=csv", "arm=lake", "status=voided", "to=2020-01-01T00%3A00%3A00.000Z"):
        assert part in command
    page.get_by_role("button", name="All decisions").click()
    expect(rows).to_have_count(at_once)
    page.get_by_role("button", name="Older").click()
    expect(rows).to_have_count(2 * at_once)


def test_an_explanation_compares_with_null_too(open_page, server, client):
    """The budget is nearly used up, so that null has the best score of most decisions."""
    place = made(client, "dear", 300, usd=0.5)
    decided = client.get("/admin/campaigns/dear/decisions?limit=300").json()["items"]
    null = next(one for one in decided if one["arm"] is None and one["reason"] == "policy" and one["probability"] > 0.9)
    page = signed_in(open_page, server, place=f"{place}/decisions/{null['decision_id']}")
    table = page.get_by_role("dialog").get_by_role("table", name="Arms of this decision")
    table.wait_for()
    rows = {
        cells[0].split()[0]: cells
        for cells in (row.locator("td").all_inner_texts() for row in table.locator("tbody tr").all())
    }
    assert rows["no"][-1] == "has the best score"
    assert all("behind the best score" in rows[arm][-1] for arm in scenes.ARMS)


def test_no_forecast_after_the_end_and_no_axis_without_data(open_page, server, client):
    page = signed_in(open_page, server, place=made(client, "broke", 200, usd=0.06))
    usd = page.locator(".card[data-resource=usd]")
    usd.locator(".outlook", has_text="No arm is affordable any more.").wait_for()
    expect(page.locator("main")).not_to_contain_text("used up at")
    expect(usd).not_to_contain_text("not scarce")
    page = signed_in(open_page, server, place=made(client, "untouched"))
    page.get_by_text("No outcomes yet.").wait_for()
    page.get_by_text("No decisions yet.").first.wait_for()
    assert "2000" not in page.locator("main").inner_text().replace("1,000", "")
    expect(page.locator(".main-svg")).to_have_count(0)


def test_an_evaluation_of_few_rounds_says_not_enough_data(open_page, server, client):
    page = signed_in(open_page, server, place=f"{made(client, 'short', 40)}/what-if")
    page.get_by_role("button", name="New evaluation…").click()
    page.get_by_label("Its own policy").check()
    page.get_by_role("button", name="Start", exact=True).click()
    page.get_by_role("status").filter(has_text="evaluation is done").wait_for(timeout=90_000)
    for name in ("All arms equally often", "Its own policy"):
        card = page.get_by_role("article", name=name)
        assert "Not enough data" in card.inner_text()
        expect(card.locator(".verdict")).to_have_count(0)
