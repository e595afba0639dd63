"""The dashboard in a real browser against a real server."""

from __future__ import annotations

import json
import threading
import time
from urllib.parse import urlsplit

import pytest

from service.problems import Unavailable
from tests.browser import scenes
from tests.browser.visits import cells, close, expect, in_module, key_of, made, signed_in, status_of, to_tab, until
from tests.service.http_calls import calls
from tests.service.http_client import ADMIN_KEY
from tests.service.server_process import running_server

FIRST_VIEW_MS_MAX = 1_000
FIRST_VIEWS_MAX = 50
PHONE = 360
SPENDING_SECONDS_MAX = 60


@pytest.fixture(scope="module")
def server(browser):
    """A server with one campaign of each kind; tests that change a campaign create their own."""
    with running_server() as running, calls(running) as client:
        scenes.make_all(client, 400)
        yield running


@pytest.fixture(scope="module")
def client(server):
    with calls(server) as opened:
        yield opened


def test_signing_in_needs_a_key_that_may_look_and_lasts_for_the_tab(open_page, server, client):
    page = open_page(color_scheme="light")  # a fresh profile
    page.forgiven = ["401", "403"]
    page.goto(f"{server.url}/dashboard")
    for key, message in (("cbwk_wrong", "invalid"), (key_of(client, "decider")["key"], "reader or admin")):
        page.get_by_label("API key").fill(key)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("alert").filter(has_text=message).wait_for()
    page.get_by_label("API key").fill(ADMIN_KEY)
    page.keyboard.press("Enter")
    page.wait_for_selector(".campaign")
    assert page.evaluate("Object.values(sessionStorage)") == [ADMIN_KEY]
    assert page.evaluate("[document.cookie, ...Object.values(localStorage)]") == [""]
    page.reload()
    page.wait_for_selector(".campaign")
    other = page.context.new_page()
    other.goto(f"{server.url}/dashboard")
    other.get_by_label("API key").wait_for()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("API key").wait_for()
    assert page.evaluate("sessionStorage.length") == 0


def test_campaigns_are_listed_by_what_needs_attention_and_found_by_their_names(open_page, server):
    page = signed_in(open_page, server)
    page.wait_for_selector(".campaign")
    names = page.locator(".campaign .name").all_text_contents()
    assert names[0] == "lakeside-autumn"
    expect(page.locator(".campaign .reason").first).to_contain_text("Out of usd")
    assert names.index("mountain-huts") < names.index("summer-sale")
    assert "last-year" not in names
    page.keyboard.press("/")
    page.keyboard.type("night")
    expect(page.locator(".campaign .name")).to_have_text(["night-trains"])
    page.get_by_label("Search campaigns").fill("")
    page.get_by_role("button", name="Archived").click()
    expect(page.locator(".campaign .name")).to_have_text(["last-year"])


ACCOUNT = {"id": "usd", "granted": 100, "held": 0, "spent": 50, "overrun": 0, "free": 50, "pace": 1.0}
BUDGET = {"campaign_id": "c", "status": "active", "round": 500, "flight": 0.5, "exhausted": False}
URGENCY = [
    (3, {"exhausted": True}, {"free": 0.01, "spent": 99.99}, "Out of usd"),
    (3, {}, {"overrun": 2}, "usd is 2 over its budget"),
    (3, {}, {"overrun": 2, "unit": "USD"}, "usd is 2 USD over its budget"),
    (3, {"exhausted": True}, {"free": 0.01, "held": 2, "unit": "USD"}, "(0.01 USD free, 2 USD on hold)"),
    (0, {"flight": 0.005}, {"pace": 90.0, "spent": 45}, None),
    (3, {}, {"pace": 1.9, "spent": 95}, "is spent at 1.90×"),
    (2, {"flight": 0.1}, {"pace": 2.0, "spent": 20}, "lasts until 50 %"),
    (2, {}, {"held": 40, "spent": 10}, "on hold"),
    (1, {}, {"pace": 0.4, "spent": 20}, "60 % of usd stays unspent"),
    (1, {"status": "paused"}, {}, "Paused"),
    (1, {"last_event_at": "2026-11-16T08:00:00Z"}, {}, "No activity for 2 h"),
    (1, {"flight": 1.0}, {"pace": 1.5}, "flight is over"),
    (1, {"status": "ended", "flight": 0.9}, {"pace": 1.5}, "flight is over"),
    (0, {"status": "archived"}, {"overrun": 2}, None),
    (0, {"status": "scheduled", "round": 0, "last_event_at": "2026-11-16T08:00:00Z"}, {"pace": None, "spent": 0}, None),
    (0, {}, {}, None),
]


def test_every_rule_of_attention_has_its_level_and_reason(open_page, server):
    page = signed_in(open_page, server)
    for level, campaign, account, reason in URGENCY:
        item = {"last_event_at": "2026-11-16T10:00:00Z", **BUDGET, **campaign, "resources": [ACCOUNT | account]}
        judged = "it.attentionOf(values[0], Date.parse(values[1]))"
        found = in_module(page, "attention", judged, item, "2026-11-16T10:00:00Z")
        assert found["level"] == level, (item, found)
        reasons = [one["text"].replace("\u00a0", " ") for one in found["reasons"]]
        assert (reason is None and not reasons) or reason in reasons[0]


def test_a_pace_is_shown_once_the_flight_is_long_enough_for_one(open_page, server):
    page = signed_in(open_page, server)
    shown = "(() => { const bar = it.resourceBar(); bar.update(...values); return bar.element.innerText; })()"
    for flight, text in ((0.5, "1.00× plan"), (0.000001, "no plan yet")):
        assert text in in_module(page, "bars", shown, ACCOUNT, flight)


def test_the_line_of_a_budget_begins_with_the_budget(open_page, server):
    """The budgets of a new campaign are granted one after the other."""
    page = signed_in(open_page, server)
    axis = {"start": 0, "end": 100}
    points = [
        {"round": at, "granted": {"usd": 10, "views": views}, "spent": {"usd": 0, "views": 0}}
        for at, views in ((0, 0), (1, 50), (2, 80))
    ]
    drawn = """(() => {
        const axis = { ...values[2], of: (point) => point.round, layout: {} };
        return it.burnFigure(values[0], values[1], axis, axis, "").call(null, () => "").traces[1].y;
    })()"""
    assert in_module(page, "charts", drawn, points, "views", axis) == [50, 50, 50, 80]
    assert in_module(page, "charts", drawn, points, "usd", axis) == [10, 10, 10, 10]


def test_a_forecast_counts_the_time_without_decisions(open_page, server, client):
    """All of its decisions were in the first seconds of an hour: at that rate nothing is used up before its end."""
    page = signed_in(open_page, server)
    hour = {"start": "2020-01-01T00:00:00Z", "end": "2020-01-01T01:00:00Z"}
    points = [
        {"at": f"2020-01-01T00:00:0{at}Z", "granted": {"usd": 100}, "spent": {"usd": at}} for at in (0, 2, 4, 6, 8)
    ]
    said = """it.outlookOf(values[0], "usd", { ...values[1], of: (point) => point.at }, Date.parse(values[2]))"""
    at_once = in_module(page, "resource-card", said, points, hour, "2020-01-01T00:00:08Z")
    assert at_once.startswith("At the recent rate it is used up at")
    assert at_once.endswith(":01:40.")
    later = in_module(page, "resource-card", said, points, hour, "2020-01-01T00:30:00Z")
    assert later.replace("\u00a0", " ") == "At the recent rate 90 % is left at the end."


def test_a_reader_sees_everything_and_no_button_that_changes_anything(open_page, server, client):
    page = signed_in(open_page, server, key_of(client, "reader")["key"], "#/campaigns/summer-sale")
    page.wait_for_selector(".card .main-svg")
    for tab in ("Overview", "Decisions", "What if", "Settings", "Ledger"):
        to_tab(page, tab)
        page.get_by_role("heading", level=2).first.wait_for()
        shown = " ".join(page.locator("button, .button").all_inner_texts())
        words = ("Pause", "Resume", "Archive", "Change", "Adjust", "New", "Clone", "Add", "Retire")
        assert not any(word in shown for word in words), shown
    for place in ("#/new", "#/keys", "#/webhooks", "#/audit"):
        page.goto(f"{server.url}/dashboard{place}")
        page.get_by_role("heading", name="404").wait_for()
    page.goto(f"{server.url}/dashboard#/")
    page.wait_for_selector(".campaign")
    assert not page.get_by_role("navigation", name="Service").is_visible()
    expect(page.get_by_role("link", name="New campaign")).to_have_count(0)
    page.goto(f"{server.url}/dashboard#/campaigns/summer-sale/ledger")
    page.get_by_role("button", name="Verify accounts").click()
    page.get_by_role("heading", name="The accounts match the log").wait_for()


def test_pausing_resuming_and_archiving_ask_first(open_page, server, client):
    page = signed_in(open_page, server, place=made(client, "to-be-paused"))
    page.get_by_role("button", name="Pause…").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert status_of(client, "to-be-paused") == "active"
    page.get_by_role("button", name="Pause…").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Resume…").wait_for()
    assert status_of(client, "to-be-paused") == "paused"
    expect(page.locator(".campaign-head .status")).to_have_text("paused")
    page.get_by_role("button", name="Resume…").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Pause…").wait_for()
    to_tab(page, "Settings")
    page.get_by_role("button", name="Archive…").click()
    sure = page.get_by_role("dialog").get_by_role("button", name="Archive permanently")
    assert sure.is_disabled()
    page.get_by_label("Type to-be-paused to confirm").fill("to-be-paused")
    sure.click()
    page.get_by_role("status").filter(has_text="archived").wait_for()
    assert status_of(client, "to-be-paused") == "archived"


def test_a_budget_is_changed_after_a_review_of_the_change(open_page, server, client):
    page = signed_in(open_page, server, place=f"{made(client, 'richer', 100)}/settings")
    page.get_by_role("button", name="Change budgets…").click()
    page.get_by_role("spinbutton", name="usd").fill("45.5")
    page.get_by_role("button", name="Review…").click()
    assert "usd: 30 → 45.5 (+15.5)" in page.get_by_role("dialog").inner_text()
    page.get_by_role("button", name="Change budgets", exact=True).click()
    page.get_by_role("status").filter(has_text="changed").wait_for()
    granted = {one["id"]: one["granted"] for one in client.get("/campaigns/richer").json()["accounts"]}
    assert granted == {"usd": 45.5, "impressions": 1000}
    # Another change came first: nothing is overwritten unseen.
    page.forgiven = ["409"]
    page.get_by_role("button", name="Change budgets…").click()
    page.get_by_role("spinbutton", name="usd").fill("50")
    page.get_by_role("button", name="Review…").click()
    assert client.patch("/campaigns/richer", json={"horizon": 2000}).status_code == 200
    page.get_by_role("button", name="Change budgets", exact=True).click()
    page.get_by_role("dialog").get_by_role("alert").filter(has_text="version").wait_for()
    assert client.get("/campaigns/richer").json()["accounts"][0]["granted"] == 45.5


def test_an_adjustment_is_in_the_ledger(open_page, server, client):
    page = signed_in(open_page, server, place=f"{made(client, 'refunded', 100)}/settings")
    page.get_by_role("button", name="Adjust spent…").click()
    page.get_by_role("spinbutton", name="Amount").fill("-0.25")
    page.get_by_label("Reason, for the audit log").fill("clicks refunded")
    page.get_by_role("button", name="Review…").click()
    page.get_by_role("button", name="Adjust", exact=True).click()
    page.get_by_role("dialog").wait_for(state="detached")
    to_tab(page, "Ledger")
    row = page.get_by_role("table", name="Ledger").get_by_role("row").filter(has_text="clicks refunded")
    row.wait_for()
    assert "−0.25 usd" in row.inner_text()


def test_a_decision_is_explained_arm_by_arm(open_page, server, client):
    name = "explained"
    place = made(client, name, 100)
    request = {"campaign_id": name, "decision_id": "why", "context": {"device": "tv"}, "exclude": ["lake"]}
    assert client.post("/decide", json=request).status_code == 200
    page = signed_in(open_page, server, place=f"{place}/decisions")
    page.get_by_role("link", name="Explain decision why").click()
    dialog = page.get_by_role("dialog")
    table = dialog.get_by_role("table", name="Arms of this decision")
    table.wait_for()
    explanation = client.get(f"/admin/campaigns/{name}/decisions/why").json()["explanation"]
    arms = {arm["id"]: arm for arm in explanation["arms"]}
    rows = [row.locator("td").all_inner_texts() for row in table.locator("tbody tr").all()]
    by_arm = {arm.split()[0]: cells for arm, *cells in rows}
    assert set(arms) < set(by_arm)  # and the null arm
    assert by_arm["lake"][-1] == "excluded by the request"
    assert by_arm["no"][-2].split()[0] == "0"
    assert by_arm["no"][-1] == "played only where it has the best score"
    assert table.locator("tr.chosen td").first.inner_text().split()[-1] == "chosen"
    for arm in ("city", "peak"):
        reward, _, priced, score, probability, _ = by_arm[arm]
        prices, costs = explanation["prices"], arms[arm]["cost"]
        assert float(reward) == pytest.approx(arms[arm]["reward"], rel=0.01)
        assert float(priced) == pytest.approx(sum(prices[one] * costs[one] for one in costs), rel=0.01, abs=1e-6)
        assert float(score.replace("−", "-")) == pytest.approx(arms[arm]["score"], rel=0.01)
        assert float(probability.split()[0]) == pytest.approx(100 * arms[arm]["probability"], abs=0.06)
    assert "tv" in dialog.inner_text()
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    page.wait_for_url(lambda address: address.endswith(f"#/campaigns/{name}/decisions"))


def made_with(client, name, baseline=None, **changes):
    scenes.create(client, scenes.campaign(name, requests=400, usd=30, **changes))
    scenes.play(client, name, 200, batch=200, baseline=baseline)
    return client.get(f"/admin/campaigns/{name}/uplift").json(), f"#/campaigns/{name}"


def test_the_uplift_of_a_hold_out_and_of_shadow_mode_is_the_services(open_page, server, client):
    uplift, place = made_with(client, "held-out", holdout={"fraction": 0.3, "arm": "lake"})
    page = signed_in(open_page, server, place=place)
    table = page.get_by_role("table", name="Uplift over the hold-out")
    table.wait_for()
    groups, reward = uplift["holdout"]["groups"], uplift["holdout"]["uplift"]["reward"]
    _, policy, holdout, difference, interval = cells(table, 1)
    assert close(policy, groups["policy"]["mean_reward"])
    assert close(holdout, groups["holdout"]["mean_reward"])
    assert close(difference, reward["value"])
    assert all(map(close, interval.split(" to "), (reward["lower"], reward["upper"])))
    uplift, place = made_with(client, "in-shadow", "city", mode="shadow")
    page = signed_in(open_page, server, place=place)
    table = page.get_by_role("table", name="Choices in shadow mode")
    table.wait_for()
    arms = {arm["id"]: arm for arm in uplift["shadow"]["arms"]}
    for row in range(1, len(arms) + 1):
        name, did, would_have, _ = cells(table, row)
        arm = arms[None if name == "no arm" else name]
        assert (int(did.split()[0]), int(would_have.split()[0])) == (arm["did"], arm["would_have"])
    page = signed_in(open_page, server, place="#/campaigns/city-breaks")
    page.wait_for_selector(".card .main-svg")
    assert not page.locator("section[aria-labelledby='h-uplift']").is_visible()


def test_an_evaluation_is_started_and_its_report_is_the_services(open_page, server, client):
    page = signed_in(open_page, server, place=f"{made(client, 'asked', 150)}/what-if")
    page.get_by_role("button", name="New evaluation…").click()
    page.get_by_label("Always the same arm").select_option("lake")
    page.get_by_label("Another policy").select_option("practical")
    page.get_by_label("Its oracle").select_option("gradient")
    page.get_by_label("Its own policy").check()
    page.get_by_label("Budget of usd").fill("2.5")
    page.get_by_role("button", name="Start", exact=True).click()
    page.get_by_role("progressbar").wait_for()
    # The evaluation starts a process, which takes long on a busy machine.
    page.get_by_role("status").filter(has_text="evaluation is done").wait_for(timeout=60_000)
    listed = client.get("/admin/campaigns/asked/evaluations").json()["items"]
    result = client.get(f"/admin/campaigns/asked/evaluations/{listed[0]['id']}").json()["result"]
    assert result["budgets"] == {"usd": 2.5, "impressions": 1000}
    assert [one["candidate"]["type"] for one in result["candidates"]] == ["fixed", "uniform", "policy"]
    names = ("Always lake", "All arms equally often", "Another policy (practical, gradient)")
    for name, found in zip(names, result["candidates"], strict=True):
        card = page.get_by_role("article", name=name)
        assert found["summary"].split(":")[0] in card.inner_text()
        assert all(warned["text"][1:] in card.inner_text() for warned in found["warnings"])
        _, _, *shown = cells(card.get_by_role("table"), 2)
        for text, estimator in zip(shown, ("dr", "snips", "ips"), strict=True):
            estimate = found["estimates"][estimator]["costs"]["usd"]
            value, bootstrap, bernstein = text.splitlines()
            assert close(value, estimate["value"])
            assert all(map(close, bootstrap.split(" to "), estimate["bootstrap"]))
            assert all(map(close, bernstein.split(" to "), estimate["bernstein"]))
    drawn = until(page, "document.querySelector('[aria-label=\"usd spent over the rounds\"]')?.data?.map((it) => it.y)")
    flown = result["what_if"]
    assert drawn[1:] == [flown[part]["spent"]["usd"] for part in ("actual", "control", "changed")]
    page.set_viewport_size({"width": PHONE, "height": 740})
    until(page, f"document.documentElement.scrollWidth === {PHONE}")
    page.set_viewport_size({"width": 1280, "height": 900})


def test_nothing_is_wider_than_a_phone(open_page, server):
    phone = {"viewport": {"width": PHONE, "height": 740}, "has_touch": True, "color_scheme": "dark"}
    page = signed_in(open_page, server, **phone)
    page.wait_for_selector(".campaign")
    fits = f"document.documentElement.scrollWidth === {PHONE}"
    until(page, fits)
    page.get_by_role("link", name="summer-sale").tap()
    page.wait_for_selector(".card .main-svg")
    for tab in ("Overview", "What if", "Ledger", "Settings", "Decisions"):
        to_tab(page, tab)
        page.get_by_role("heading", level=2).first.wait_for()
        until(page, fits)
        assert page.locator(".tabs").evaluate("(it) => it.scrollWidth <= it.clientWidth"), "a tab is out of sight"
    page.locator(".explain").first.tap()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("table", name="Arms of this decision").wait_for()
    assert dialog.evaluate("(it) => it.scrollWidth <= it.clientWidth")


@pytest.mark.parametrize("width", [660, 800])
def test_nothing_is_wider_than_a_tablet(open_page, server, width):
    page = signed_in(open_page, server, viewport={"width": width, "height": 900})
    for place in ("#/", "#/new", "#/keys", "#/audit", "#/campaigns/summer-sale", "#/campaigns/summer-sale/decisions"):
        page.goto(f"{server.url}/dashboard{place}")
        page.locator("h1").wait_for()
        expect(page.get_by_text("Loading…").filter(visible=True)).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, place


def brightness(page):
    shade = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(float(part) for part in shade.strip("rgb()").split(",")[:3]) / 3


def test_the_theme_is_the_systems_until_one_is_chosen(open_page, server):
    for theme, test in (("light", lambda shade: shade > 200), ("dark", lambda shade: shade < 60)):
        page = open_page(color_scheme=theme)
        page.goto(f"{server.url}/dashboard")
        assert test(brightness(page))
    page.get_by_role("button", name="Theme: system").click()
    assert brightness(page) > 200
    page.reload()
    assert brightness(page) > 200
    page.get_by_role("button", name="Theme: light").click()
    assert brightness(page) < 60


def test_a_campaign_is_reached_and_left_with_the_keyboard_and_everything_has_a_name(open_page, server):
    page = signed_in(open_page, server)
    page.wait_for_selector(".campaign")
    page.keyboard.press("/")
    page.keyboard.type("summer")
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.className") == "name":
            break
    page.keyboard.press("Enter")
    page.wait_for_selector(".card .main-svg")
    assert page.evaluate("document.activeElement.textContent") == "summer-sale"
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('button, a, input, select, img, table, [role=img], section')]
            .filter((it) => !it.closest('.main-svg') && it.checkVisibility())
            .filter((it) => !(it.getAttribute('aria-label') || it.getAttribute('aria-labelledby') || it.alt === ''
                || it.innerText?.trim() || document.querySelector(`label[for="${it.id}"]`)))
            .map((it) => it.outerHTML.slice(0, 100))"""
    )
    assert nameless == []
    assert page.evaluate("new Set([...document.querySelectorAll('[id]')].map((it) => it.id)).size") == page.evaluate(
        "document.querySelectorAll('[id]').length"
    )


def test_a_revoked_key_leads_back_to_the_sign_in(open_page, server, client):
    key = key_of(client, "reader")
    page = signed_in(open_page, server, key["key"])
    page.forgiven = ["401"]
    page.wait_for_selector(".campaign")
    assert client.delete(f"/admin/keys/{key['id']}").status_code == 200
    page.get_by_role("alert").filter(has_text="invalid or was revoked").wait_for()
    assert page.evaluate("sessionStorage.length") == 0
    expect(page.locator(".campaign")).to_have_count(0)


def test_a_failure_has_a_message_and_the_page_keeps_its_data(open_page, server):
    page = signed_in(open_page, server, color_scheme="light")  # a profile of its own, to go offline
    page.forgiven = ["ERR_INTERNET_DISCONNECTED", "503"]
    page.wait_for_selector(".campaign")
    shown = page.locator(".campaign").count()
    alert = page.locator("#alert")
    page.context.set_offline(True)
    alert.filter(has_text="No connection to the service. Retrying in").wait_for()
    assert page.locator(".campaign").count() == shown
    page.context.set_offline(False)
    alert.wait_for(state="hidden")
    away = Unavailable("the database did not answer; try again", kind="database-away").document()
    page.route(
        "**/admin/budgets*",
        lambda route: route.fulfill(status=503, content_type="application/problem+json", body=json.dumps(away)),
    )
    alert.filter(has_text="its database does not answer").wait_for()
    page.unroute("**/admin/budgets*")
    alert.wait_for(state="hidden")


def spent_width(page, name, resource="usd"):
    return page.locator(f"[data-campaign='{name}'] [data-resource='{resource}'] .spent").evaluate(
        "(it) => it.offsetWidth"
    )


def test_bars_move_while_an_ad_server_spends(open_page, server, client):
    place = made(client, "watched", 10, requests=4000, usd=40)
    page = signed_in(open_page, server)
    page.wait_for_selector("[data-campaign='watched']")
    other = signed_in(open_page, server, place=place, viewport={"width": 1000, "height": 700})
    until(other, "!!document.querySelector('.chart')?.data")  # other charts may be drawn before it
    widths, end = [spent_width(page, "watched")], "document.querySelector('.chart').data[2].y.at(-1)"
    drawn = other.evaluate(end)
    enough = threading.Event()
    spending = threading.Thread(target=spend, args=(server, "watched", enough))
    spending.start()
    deadline = time.monotonic() + SPENDING_SECONDS_MAX
    while len(widths) < 3 and time.monotonic() < deadline:
        page.wait_for_timeout(200)
        width = spent_width(page, "watched")
        if width != widths[-1]:
            widths.append(width)
    enough.set()
    spending.join()
    assert len(widths) >= 3
    assert widths == sorted(widths)
    until(other, f"{end} > {drawn}")
    spent = client.get("/campaigns/watched").json()["accounts"][0]["spent"]
    shown = other.locator(".card[data-resource='usd'] [data-part='spent'] dd")
    digits = 2 if spent >= 1 else 3
    shown.filter(has_text=f"{spent:.{digits}f}".rstrip("0").rstrip(".")).wait_for()


def spend(server, name, enough):
    """Simulates an ad server on its own connection until it is enough."""
    with calls(server) as own:
        for round_number in range(2 * SPENDING_SECONDS_MAX):
            scenes.play(own, name, 10, seed=round_number, batch=10)
            if enough.wait(0.5):
                return


def test_the_docs_page_loads_nothing_from_elsewhere(open_page, server):
    page = open_page(viewport={"width": 1280, "height": 900})
    here = f"127.0.0.1:{server.port}"
    page.context.route(
        "**/*", lambda route: route.continue_() if urlsplit(route.request.url).netloc == here else route.abort()
    )
    page.goto(f"{server.url}/docs")
    page.locator("#operations-decide-decide").click()
    page.get_by_text("Example Value").first.wait_for()


def test_a_thousand_campaigns_are_there_within_a_second(open_page, server):
    scenes.multiply(f"sqlite:///{server.folder}/data/cbwk.db", "city-breaks", 1000)
    page = signed_in(open_page, server)
    page.wait_for_selector(".campaign")
    page.add_init_script(
        """new MutationObserver((_, watcher) => {
            if (!document.querySelector('.campaign')) return;
            watcher.disconnect();
            requestAnimationFrame(() => setTimeout(() => { window.firstView = performance.now(); }));
        }).observe(document, { childList: true, subtree: true });"""
    )
    took = []
    while len(took) < 3 or (
        min(took) >= FIRST_VIEW_MS_MAX and len(took) < FIRST_VIEWS_MAX
    ):  # a busy machine is not a failure
        page.reload()
        took.append(until(page, "window.firstView"))
    print(f"first view of 1,000 campaigns: {[round(one) for one in took]} ms")
    assert min(took) < FIRST_VIEW_MS_MAX
    page.get_by_label("Search campaigns").fill("city-breaks-")
    assert "more of 1,000" in page.get_by_role("button", name="Show more").inner_text()
    page.get_by_label("Search campaigns").fill("city-breaks-0999")
    page.wait_for_selector("[data-campaign='city-breaks-0999']")
    expect(page.locator(".campaign")).to_have_count(1)
