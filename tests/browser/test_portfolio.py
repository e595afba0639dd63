"""The page of a portfolio: shared budgets with their windows, and what each campaign has of them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.browser.test_axe import AXE
from tests.browser.visits import cells, expect, made, signed_in
from tests.service.http_calls import calls
from tests.service.server_process import running_server


@pytest.fixture(scope="module")
def server(browser):
    """A server with a portfolio of two campaigns, one of which was played."""
    windows = [{"period": "day", "limit": 20}, {"period": "hour", "limit": 8}]
    body = {"id": "acme", "resources": [{"id": "usd", "budget": 40, "windows": windows}]}
    with running_server() as running, calls(running) as client:
        assert client.post("/portfolios", json=body).status_code == 201
        made(client, "hats", portfolio="acme")
        made(client, "shoes", 100, portfolio="acme")
        yield running


def test_a_campaign_leads_to_its_portfolio_and_that_to_its_campaigns(open_page, server):
    with calls(server) as client:
        (usd,) = client.get("/admin/portfolios/acme/budget").json()["resources"]
    assert usd["spent"] > 0
    page = signed_in(open_page, server, place="#/campaigns/hats")
    page.get_by_role("link", name="acme").click()
    page.locator("h1", has_text="acme").wait_for()
    expect(page.locator(".resource[data-resource=usd] .resource-figures")).to_have_text(f"{usd['spent']:.2f} of 40")
    expect(page.locator(".window")).to_have_count(2)
    expect(page.locator(".window .window-figures").first).to_contain_text("of 20")
    expect(page.locator(".flight")).to_contain_text("100 decisions of 2,000 expected")
    expect(page.locator("tbody tr")).to_have_count(2)
    table = page.get_by_role("table")
    assert [cells(table, row)[:2] for row in (1, 2)] == [["hats", "active"], ["shoes", "active"]]
    link = page.get_by_role("link", name="shoes")
    link.focus()
    page.wait_for_timeout(3_000)  # the page has been read again
    expect(link).to_be_focused()
    link.click()
    page.locator("h1", has_text="shoes").wait_for()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_axe_finds_no_violation_on_the_page_of_a_portfolio(open_page, server, theme, width):
    spec = find_spec("axe_playwright_python")
    if spec is None:
        pytest.skip("axe-playwright-python is not installed: make setup does that")
    page = signed_in(open_page, server, viewport={"width": width, "height": 900}, color_scheme=theme)
    page.goto(f"{server.url}/dashboard#/portfolios/acme")
    expect(page.locator("tbody tr")).to_have_count(2)
    page.wait_for_timeout(500)  # bars move for a moment
    page.evaluate(Path(spec.submodule_search_locations[0], "axe.min.js").read_text())
    assert page.evaluate(AXE) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
