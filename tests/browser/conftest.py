"""The system's Chromium; tests fail on any console error of its pages.

No other event loop can run while Playwright is open, so it is opened per module.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WAIT_MS = 30_000  # a busy machine is no failure


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"no browser here: none of {', '.join(NAMES)} is installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make setup does that")
    # Chromium cannot run sandboxed as root.
    arguments = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    playwright.expect.set_options(timeout=WAIT_MS)
    with playwright.sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=path, args=arguments)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def desk(browser: Any) -> Any:
    """A tab that most tests share: loading the charts' script again would take most of their time."""
    return tab(browser.new_context(viewport={"width": 1280, "height": 900}))


@pytest.fixture
def open_page(browser: Any, desk: Any) -> Iterator[Callable[..., Any]]:
    """Opens the shared tab, or with options a tab in its own profile; fails on console errors and foreign requests.

    `page.forgiven` has texts of console errors that a test provokes.
    """
    own = []
    desk.complaints, desk.forgiven, desk.hosts = [], [], set()

    def opened(**options: Any) -> Any:
        if not options:
            return desk
        own.append(tab(browser.new_context(**options)))
        return own[-1]

    yield opened
    pages = [desk, *own]
    complaints = [
        text for page in pages for text in page.complaints if not any(excuse in text for excuse in page.forgiven)
    ]
    hosts = set().union(*(page.hosts for page in pages))
    for page in own:
        page.context.close()
    assert complaints == []
    assert hosts <= {"127.0.0.1", None}, "a page sent a request elsewhere"


def tab(context: Any) -> Any:
    """Opens a tab that notes errors and requests."""
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    page.complaints, page.forgiven, page.hosts = [], [], set()
    page.on("console", lambda entry: entry.type in ("error", "warning") and page.complaints.append(entry.text))
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("request", lambda request: page.hosts.add(urlsplit(request.url).hostname))
    return page
