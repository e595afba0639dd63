"""The picture of a run: budgets and the even pace, clicks and the clairvoyant optimum, prices, banners."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, PercentFormatter

from cbwk_core.simulation.plots import BLACK, BLUE, CYCLE, DOTS_PER_INCH, GREEN
from service.demo.ad_server import AdServer
from service.demo.world import BANNERS

SIZE_INCHES = (11.0, 7.5)


def draw(path: Path, ads: AdServer) -> None:
    """Writes the picture."""
    figure = Figure(figsize=SIZE_INCHES, dpi=DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)
    (budgets, clicks), (prices, shares) = figure.subplots(2, 2)
    _draw_budgets(budgets, ads)
    _draw_clicks(clicks, ads)
    _draw_prices(prices, ads)
    _draw_shares(shares, ads)
    for axes in (budgets, clicks, prices, shares):
        axes.set_xlabel("requests")
        axes.set_xlim(0, ads.world.requests)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(True, alpha=0.3)
        axes.legend(fontsize=8, frameon=False)
    figure.savefig(path, format="png", metadata={"Software": None})


def _draw_budgets(axes: Axes, ads: AdServer) -> None:
    axes.set_title("share of each budget spent", fontsize=11, loc="left")
    requests = [sample.requests for sample in ads.samples]
    for place, colour in zip(range(len(ads.samples[0].campaign.accounts)), CYCLE, strict=False):
        accounts = [sample.campaign.accounts[place] for sample in ads.samples]
        spent = [account.spent / account.granted for account in accounts]
        taken = [(account.spent + account.held) / account.granted for account in accounts]
        axes.plot(requests, spent, color=colour, label=accounts[0].id)
        axes.fill_between(
            requests, spent, taken, color=colour, alpha=0.25, linewidth=0, label=f"{accounts[0].id}, held"
        )
    axes.plot([0, ads.world.requests], [0, 1], color=BLACK, linewidth=0.8, linestyle=":", label="even pace")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))


def _draw_clicks(axes: Axes, ads: AdServer) -> None:
    axes.set_title("expected clicks of the shown banners", fontsize=11, loc="left")
    axes.plot([point[0] for point in ads.curve], [point[1] for point in ads.curve], color=GREEN, label="the service")
    total = ads.world.optimum * ads.world.requests
    axes.plot([0, ads.world.requests], [0, total], color=BLACK, linewidth=0.8, linestyle="--", label="clairvoyant")


def _draw_prices(axes: Axes, ads: AdServer) -> None:
    axes.set_title("price of a unit, in clicks per max cost", fontsize=11, loc="left")
    requests = [sample.requests for sample in ads.samples]
    units = {resource["id"]: resource["max_cost"] for resource in ads.world.config()["resources"]}
    for (resource, unit), colour in zip(units.items(), (GREEN, BLUE), strict=True):
        prices = [sample.campaign.prices.get(resource, 0.0) * unit for sample in ads.samples]
        axes.plot(requests, prices, color=colour, label=resource)


def _draw_shares(axes: Axes, ads: AdServer) -> None:
    """Draws shares of the impressions between two points, which show how the policy learns."""
    axes.set_title("share of each banner", fontsize=11, loc="left")
    step = max(1, len(ads.curve) // 40)
    points = ads.curve[::step]
    played = np.diff(np.array([point[2] for point in points], dtype=np.float64), axis=0, prepend=0)
    share = played / np.maximum(played.sum(axis=1, keepdims=True), 1)
    axes.stackplot([point[0] for point in points], share.T, labels=BANNERS, colors=CYCLE, alpha=0.8)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
