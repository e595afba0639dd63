"""Steps that tests of the dashboard share: signing in, reading tables, waiting, creating campaigns and keys."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.browser import scenes
from tests.browser.conftest import WAIT_MS
from tests.service.http_client import ADMIN_KEY


def expect(locator: Any) -> Any:
    """Playwright's `expect`, imported only where a browser exists."""
    return pytest.importorskip("playwright.sync_api").expect(locator)


def key_of(client: Any, role: str, **limits: Any) -> Any:
    """Creates a key of this role."""
    made = client.post("/admin/keys", json={"name": f"a {role}", "role": role, **limits})
    assert made.status_code == 201, made.text
    return made.json()


def signed_in(open_page: Any, server: Any, key: str = ADMIN_KEY, place: str = "#/", **options: Any) -> Any:
    """Opens a place of the dashboard in a tab, signed in with the key."""
    page = open_page(**options)
    page.keyboard.press("Escape")  # closes any open dialog
    here = page.url.startswith(f"{server.url}/dashboard")
    if here and page.evaluate("sessionStorage.getItem('cbwk.key')") not in (key, None):
        page.get_by_role("button", name="Sign out").click()
    page.goto(f"{server.url}/dashboard{place}")
    if page.evaluate("sessionStorage.length") == 0:
        page.get_by_label("API key").fill(key)
        page.keyboard.press("Enter")
    _, first, *rest = place.split("/")
    heading = rest[0] if first == "campaigns" else "Campaigns" if not first else ""
    page.locator("h1", has_text=heading).wait_for()
    if first == "campaigns":
        page.locator(".one-campaign .flight", has_text="Round").wait_for()
    if place == "#/":  # search and filter of the previous test survive, as they should
        page.get_by_label("Search campaigns").fill("")
        page.get_by_role("button", name="All ").click()
    return page


def to_tab(page: Any, name: str) -> Any:
    """Opens a tab of the campaign that is shown."""
    page.get_by_role("navigation", name="Parts of the campaign").get_by_role("link", name=name).click()
    return page


def until(page: Any, expression: str) -> Any:
    """Returns the first true value of an expression; Playwright's own wait needs `eval`, which the page forbids."""
    deadline = time.monotonic() + WAIT_MS / 1000
    while not (found := page.evaluate(expression)):
        assert time.monotonic() < deadline, f"never: {expression}"
        page.wait_for_timeout(50)
    return found


def in_module(page: Any, module: str, expression: str, *values: Any) -> Any:
    """Returns the value of an expression of a module's exports (`it`) and of `values`."""
    script = f"""async (values) => {{
        const main = document.querySelector('script[type=module]').src;
        const it = await import(new URL('./{module}.js', main));
        return {expression};
    }}"""
    return page.evaluate(script, list(values))


def made(client: Any, name: str, played: int = 0, **terms: Any) -> str:
    """Creates a campaign, plays it and returns its place."""
    scenes.create(client, scenes.campaign(name, **({"requests": 1000, "usd": 30} | terms)))
    if played:
        scenes.play(client, name, played)
    return f"#/campaigns/{name}"


def config_of(client: Any, name: str) -> Any:
    """Returns the configuration of a campaign."""
    return client.get(f"/campaigns/{name}").json()["config"]


def status_of(client: Any, name: str) -> str:
    """Returns the status of a campaign."""
    return str(client.get(f"/campaigns/{name}").json()["status"])


def cells(table: Any, row: int) -> list[str]:
    """Returns the texts of a row of a table."""
    return [text.replace("−", "-") for text in table.locator(f"tbody tr:nth-child({row}) td").all_inner_texts()]


def close(text: str, value: float) -> bool:
    """Tells whether a shown figure is the value, as far as it is rounded."""
    return float(text.split(maxsplit=1)[0].replace(",", "").replace("−", "-")) == pytest.approx(value, rel=0.01)
