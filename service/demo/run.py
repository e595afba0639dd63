"""Runs the demo: starts a service, creates a campaign, runs the ad server, prints the summary."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import uvloop
from rich.console import Console
from rich.live import Live

from cbwk_client import AsyncClient, Report, Terms
from service.demo import picture, view
from service.demo.ad_server import AdServer
from service.demo.world import CAMPAIGN, World
from service.settings import ENVIRONMENT_PREFIX

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 10.0
FRAMES_PER_SECOND = 5
PICTURE = "demo.png"
# `cbwk serve` in the same Python environment.
_SERVE = "import sys; from service.cli import main; sys.exit(main(['serve', '--port', '0']))"
_URL_PREFIX = "cbwk serves on "


class DemoError(Exception):
    """The demo cannot continue; the message says why."""


def demo(world: World, *, out: Path, console: Console, stay: bool = False) -> Path:
    """Runs the demo and returns the path of the picture; `stay` keeps the service running until Ctrl+C."""
    key = secrets.token_urlsafe(32)
    with service(key) as url:
        console.print(f"the service: {url}, with a database for this run only", highlight=False)
        dashboard = f"{url}/dashboard"
        if not httpx.get(dashboard, trust_env=False).is_error:
            console.print(f"the dashboard: {dashboard}, with the key {key}", highlight=False, soft_wrap=True)
        started = time.monotonic()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            ads, verified = runner.run(_run(world, url, key, console))
        console.print(view.summary(ads, time.monotonic() - started, verified))
        path = out / PICTURE
        picture.draw(path, ads)
        console.print(f"the picture: {path}", highlight=False, soft_wrap=True)
        if stay:
            _stay(console)
    return path


@contextmanager
def service(key: str) -> Iterator[str]:
    """Starts a service in a temporary folder and yields its URL."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX)}
    with tempfile.TemporaryDirectory(prefix="cbwk-demo-") as folder:
        log = Path(folder) / "service.log"
        with log.open("w") as file:
            process = subprocess.Popen(
                [sys.executable, "-c", _SERVE],
                cwd=folder,
                env=environment | {f"{ENVIRONMENT_PREFIX}ADMIN_KEY": key},
                stdout=file,
                stderr=file,
            )
        try:
            yield _url_in(log, process)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _url_in(log: Path, process: subprocess.Popen[bytes]) -> str:
    """Waits for the line with the URL of the service, on a free port."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while process.poll() is None and time.monotonic() < deadline:
        for line in log.read_text().splitlines(keepends=True):
            if line.startswith(_URL_PREFIX) and line.endswith("\n"):
                return line.removeprefix(_URL_PREFIX).strip()
        time.sleep(0.05)
    raise DemoError(f"the service did not start: {log.read_text().strip()[-500:]}")


async def _run(world: World, url: str, key: str, console: Console) -> tuple[AdServer, bool]:
    # A longer deadline than the default: service and ad server share one machine.
    refused = list[Report]()
    async with AsyncClient(
        url, key, terms=Terms(decide_seconds=0.5), on_refused=lambda report, _: refused.append(report)
    ) as client:
        await client.create_campaign(world.config())
        ads = AdServer(world, client, refused)
        with Live(
            get_renderable=lambda: view.live(ads), console=console, refresh_per_second=FRAMES_PER_SECOND, transient=True
        ):
            await ads.run()
        return ads, (await client.verify(CAMPAIGN)).ok


def _stay(console: Console) -> None:
    console.print("the service runs until Ctrl+C")
    try:
        signal.pause()
    except KeyboardInterrupt:
        console.print("stopped")
