"""A short demo with a few hundred visitors."""

from __future__ import annotations

import io
import re

import httpx
import numpy as np
import pytest
from rich.console import Console

from service.app import create_app
from service.demo.run import demo
from service.demo.world import BANNERS, IMPRESSIONS, USD, World

pytestmark = pytest.mark.slow

REQUESTS = 300


def test_a_short_demo_spends_within_its_budgets_and_ends_with_a_summary_and_a_picture(tmp_path):
    terminal = io.StringIO()
    console = Console(file=terminal, width=150, force_terminal=True, color_system=None)
    path = demo(World(REQUESTS, ttl_seconds=2), out=tmp_path, console=console)
    shown = terminal.getvalue()
    assert f"{REQUESTS} of {REQUESTS}" in shown  # live
    assert re.search(rf"requests +{REQUESTS} in \d+ s", shown)
    assert "every account matches the log" in shown
    for resource in (USD, IMPRESSIONS):
        spent, granted, over = re.search(rf"{resource} +([\d.,]+) of ([\d.]+) spent, (\S+) over", shown).groups()
        assert float(spent.replace(",", "")) <= float(granted)
        assert over == "0"
    share = float(re.search(r"([\d.]+)% of it was reached", shown).group(1))
    assert 0 < share < 110  # noisy with few visitors
    assert path.read_bytes().startswith(b"\x89PNG\r\n")
    url = re.search(r"the service: (\S+),", shown).group(1)
    has_dashboard = any(getattr(route, "path", None) == "/dashboard" for route in create_app().routes)
    assert (f"{url}/dashboard" in shown) == has_dashboard
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, trust_env=False)


def test_outcomes_have_the_means_of_the_optimum_and_cost_at_most_the_hold():
    world = World(20_000)
    limits = {arm["id"]: arm["max_cost"][USD] for arm in world.config()["arms"]}
    kinds = [world.kinds.index(world.visitor(number)) for number in range(world.requests)]
    for place, banner in enumerate(BANNERS):
        outcomes = [world.outcome(number, banner) for number in range(world.requests)]
        usd = np.array([outcome.costs[USD] for outcome in outcomes])
        clicks = np.array([outcome.reward for outcome in outcomes])
        assert usd.max() <= limits[banner]
        # Four standard errors: a rate is off by at most 0.5/√n, a price by at most 0.35·mean/√(3n).
        assert abs(clicks.mean() - world.click_rates[kinds, place].mean()) < 4 * 0.5 / np.sqrt(world.requests)
        assert abs(usd.mean() - world.usd_means[kinds, place].mean()) < 4 * 0.35 * usd.mean() / np.sqrt(
            3 * world.requests
        )
    fates = np.array([(world.is_void(number), world.is_missing(number)) for number in range(world.requests)])
    assert not fates.all(axis=1).any()
    np.testing.assert_allclose(fates.mean(axis=0), 0.03, atol=0.005)
