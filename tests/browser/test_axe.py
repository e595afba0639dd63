"""Every page as axe-core judges it, in both themes, wide and narrow."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.browser.visits import expect, made, signed_in
from tests.service.http_calls import calls
from tests.service.server_process import running_server


@pytest.fixture(scope="module")
def server(browser):
    """A server with a campaign that shows everything and one that was never asked."""
    with running_server() as running, calls(running) as client:
        made(client, "judged", 200, holdout={"fraction": 0.3, "arm": "lake"}, display_name="Judged")
        made(client, "blank")
        hook = {"url": "https://1.1.1.1/cbwk", "events": ["campaign.ended"]}
        assert client.post("/admin/webhooks", json=hook).status_code == 201
        yield running


AXE = """async () => {
    const found = await axe.run(document, { exclude: [['.main-svg']] });
    return found.violations.map((it) => [it.id, it.nodes.map((node) => node.html.slice(0, 160)).slice(0, 3)]);
}"""
PLACES = (
    "#/", "#/new", "#/keys", "#/webhooks", "#/audit", "#/nothing", "#/campaigns/judged", "#/campaigns/judged/decisions",
    "#/campaigns/judged/what-if", "#/campaigns/judged/ledger", "#/campaigns/judged/settings", "#/campaigns/blank",
)  # fmt: skip


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_axe_finds_no_violation_on_any_page(open_page, server, theme, width):
    spec = find_spec("axe_playwright_python")
    if spec is None:
        pytest.skip("axe-playwright-python is not installed: make setup does that")
    script = Path(spec.submodule_search_locations[0], "axe.min.js").read_text()
    page = signed_in(open_page, server, viewport={"width": width, "height": 900}, color_scheme=theme)
    for place in PLACES:
        page.goto(f"{server.url}/dashboard{place}")
        page.locator("h1").wait_for()
        if place == "#/campaigns/judged":
            page.wait_for_selector(".card .main-svg")
        expect(page.get_by_text("Loading…").filter(visible=True)).to_have_count(0)
        page.wait_for_timeout(500)  # bars and notices move for a moment
        page.evaluate(script)
        assert page.evaluate(AXE) == [], place
        assert page.evaluate("document.documentElement.scrollWidth") <= width, place
    page.goto(f"{server.url}/dashboard#/campaigns/judged/decisions")
    page.locator(".explain").first.click()
    page.get_by_role("table", name="Arms of this decision").wait_for()
    assert page.evaluate(AXE) == []
    page.goto(f"{server.url}/dashboard#/webhooks")
    page.get_by_role("button", name="New webhook…").click()
    page.get_by_label("Address", exact=True).wait_for()
    assert page.evaluate(AXE) == []
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Deliveries").click()
    page.get_by_text("No messages yet.").wait_for()
    page.evaluate(script)
    assert page.evaluate(AXE) == []
