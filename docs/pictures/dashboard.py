"""The pictures of the dashboard: `PYTHONPATH=. .venv/bin/python docs/pictures/dashboard.py` writes them.

A real server with a few campaigns, photographed in the system's Chromium. Run it again after a change of the page.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from tests.browser import scenes
from tests.browser.conftest import NAMES
from tests.service.http_calls import calls
from tests.service.http_client import ADMIN_KEY
from tests.service.server_process import running_server

FOLDER = Path(__file__).parent
SIZE = {"width": 1280, "height": 860}
COLOURS = 96  # of a picture: a third of the bytes of all colours
SALE = {
    "display_name": "Summer sale",
    "metadata": {"owner": "growth"},
    "holdout": {"fraction": 0.2, "arm": scenes.LAKE},
}


def fill(client: Any) -> None:
    """Creates the campaigns that the pictures show."""
    scenes.make_all(client, 1000)
    scenes.create(client, scenes.campaign("summer-2027", requests=3000, usd=45, **SALE))
    scenes.play(client, "summer-2027", 1500, batch=50)


@contextmanager
def signed_in(url: str) -> Iterator[Page]:
    """Opens the dashboard in a fresh profile."""
    path = next(filter(None, map(shutil.which, NAMES)))
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        page = browser.new_context(viewport=SIZE, color_scheme="light").new_page()
        page.goto(f"{url}/dashboard")
        page.get_by_label("API key").fill(ADMIN_KEY)
        page.keyboard.press("Enter")
        page.wait_for_selector(".campaign")
        yield page
        browser.close()


def take(page: Page, url: str, name: str, place: str, wanted: str) -> None:
    """Writes the picture of a place once the wanted element is there."""
    page.goto(f"{url}/dashboard{place}")
    page.locator(wanted).first.wait_for()
    page.wait_for_timeout(1000)  # bars move for a moment
    picture = Image.open(BytesIO(page.screenshot()))
    picture.quantize(COLOURS).save(FOLDER / f"dashboard-{name}.png", optimize=True)


def make() -> None:
    """Writes every picture."""
    with running_server() as server, calls(server) as client:
        fill(client)
        decisions = client.get("/admin/campaigns/summer-2027/decisions?arm=city&limit=1").json()["items"]
        with signed_in(server.url) as page:
            sale = "#/campaigns/summer-2027"
            take(page, server.url, "overview", "#/", ".campaign")
            take(page, server.url, "campaign", sale, "[aria-label^=Cumulated] .main-svg")
            take(page, server.url, "create", "#/new", ".preview pre")
            take(page, server.url, "settings", f"{sale}/settings", "table")
            explained = f"{sale}/decisions/{decisions[0]['decision_id']}"
            take(page, server.url, "explain", explained, "table[aria-label='Arms of this decision']")


if __name__ == "__main__":
    make()
