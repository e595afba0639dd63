"""A real browser, the system's own Chromium, and pages in it of which every complaint is kept.

Playwright's loop runs as long as it is open, and no other test of the process could run one: so it is opened for a
module and closed after it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WAIT_MS = 15_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a window."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"no browser here: none of {', '.join(NAMES)} is installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make setup does that")
    # Chromium refuses to sandbox what root starts.
    arguments = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with playwright.sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=path, args=arguments)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def desk(browser: Any) -> Any:
    """A tab that most tests share, as people do: loading the charts' script anew would take most of their time."""
    return _tab(browser.new_context(viewport={"width": 1280, "height": 900}))


@pytest.fixture
def open_page(browser: Any, desk: Any) -> Iterator[Callable[..., Any]]:
    """The shared tab, or one in a profile of its own with options; none may complain or ask anybody else.

    `page.forgiven` are words of complaints that a test brings about itself.
    """
    own = []
    desk.complaints, desk.forgiven, desk.asked = [], [], set()

    def opened(**options: Any) -> Any:
        if not options:
            return desk
        own.append(_tab(browser.new_context(**options)))
        return own[-1]

    yield opened
    pages = [desk, *own]
    complaints = [
        words for page in pages for words in page.complaints if not any(part in words for part in page.forgiven)
    ]
    asked = set().union(*(page.asked for page in pages))
    for page in own:
        page.context.close()
    assert complaints == []
    assert asked <= {"127.0.0.1", None}, "a page asked for something elsewhere"


def _tab(context: Any) -> Any:
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    page.complaints, page.forgiven, page.asked = [], [], set()
    page.on("console", lambda said: said.type in ("error", "warning") and page.complaints.append(said.text))
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("request", lambda request: page.asked.add(urlsplit(request.url).hostname))
    return page
