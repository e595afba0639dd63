"""The pictures of docs/concepts.md and docs/budgets.md: `.venv/bin/python docs/pictures/make.py` writes them here.

Two are drawn by hand, three show real runs of the library in a small world: three banners, visitors of two kinds. One
budget pays for a third of the visitors, the other is divided into the limits of the days of a week.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from cbwk_core import SquareCBwK
from cbwk_core.rules.traffic import HOURS_PER_DAY, HOURS_PER_WEEK, MICROS_PER_HOUR
from cbwk_core.simulation.calendar import CalendarLedger, Flight, Window
from cbwk_core.static_optimum import static_optimum

Array = NDArray[np.float64]

# The palette of Okabe & Ito, which people with colour blindness can tell apart.
SPENT, HELD, FREE, GREY = "#0072B2", "#E69F00", "#D9E8F2", "#666666"
ROUNDS, SEED = 2_000, 7
# Of the curves every so many rounds are drawn.
STEP = 10
# Per kind of visitor and banner: the chance of a click, and what showing it costs, in max costs.
CLICKS = np.array([[0.10, 0.30, 0.20], [0.25, 0.10, 0.05]])
COSTS = np.array([[0.2, 0.8, 0.4], [0.3, 0.5, 0.2]])
BUDGET_PER_ROUND = 0.15
# A week of the same visitors: this many by day and by night, and the limit of a day in max costs.
DAY_HOURS, VISITORS_BY_DAY, VISITORS_BY_NIGHT, DAY_LIMIT = range(6, 22), 30, 4, 60.0


class Run(NamedTuple):
    """What happened, round by round."""

    spent: Array  # shares of the budget so far
    price: Array
    optimal_price: float


def run() -> Run:
    """The policy against visitors that come by chance."""
    rng = np.random.default_rng(SEED)
    budget = BUDGET_PER_ROUND * ROUNDS
    policy = SquareCBwK(arms=3, dimension=2, resources=1, horizon=ROUNDS, budget=budget, model="per_arm")
    state = policy.init()
    spent, price = np.zeros(ROUNDS), np.zeros(ROUNDS)
    for number in range(ROUNDS):
        kind = int(rng.random() < 0.5)
        features = np.eye(2)[[kind]]
        choice = policy.decide(state, features, rng.random(1))
        arm = int(choice.arm[0])
        shown = arm != policy.null_arm
        click = float(shown and rng.random() < CLICKS[kind, arm])
        cost = float(shown) * COSTS[kind, arm] * rng.uniform(0.8, 1.2)
        price[number] = policy.quote(state).prices[0, 0]
        state = policy.learn(state, features, choice.arm, np.array([click]), np.array([[cost]]))
        spent[number] = cost
    best = static_optimum(CLICKS, COSTS[..., None], BUDGET_PER_ROUND, [0.5, 0.5])
    return Run(np.cumsum(spent) / budget, price, float(best.prices[0]))


def spend_of_a_week(*, paced: bool) -> Array:
    """What a week under a day's limit spends in each hour, in max costs, with the pace of the window or without it."""
    rng, hours = np.random.default_rng(SEED), np.arange(HOURS_PER_WEEK)
    visitors = np.where(np.isin(hours % HOURS_PER_DAY, DAY_HOURS), VISITORS_BY_DAY, VISITORS_BY_NIGHT)
    times = np.concatenate([(hour + (np.arange(n) + 0.5) / n) * MICROS_PER_HOUR for hour, n in enumerate(visitors)])
    rounds, days = len(times), HOURS_PER_WEEK // HOURS_PER_DAY
    budget = np.array([days * DAY_LIMIT])
    window = Window(resource=0, hours=HOURS_PER_DAY, rho=DAY_LIMIT * days / rounds)
    ledger = CalendarLedger(budget, [window], [Flight(0, times.astype(np.int64))], days)
    policy = SquareCBwK(arms=3, dimension=2, resources=1, horizon=rounds, budget=budget, model="per_arm", paced=paced)
    state, spent = policy.init(), np.zeros(HOURS_PER_WEEK)
    for number, at in enumerate(times):
        kind = int(rng.random() < 0.5)
        features, offer = np.eye(2)[[kind]], ledger.offer(number)
        choice = policy.decide(
            state, features, rng.random(1), free=offer["free"], pace=offer["pace"] if paced else None
        )
        arm = int(choice.arm[0])
        shown = arm != policy.null_arm
        click, factor = float(rng.random() < CLICKS[kind, arm]), rng.uniform(0.8, 1.2)
        cost = float(shown) * COSTS[kind, arm] * factor
        state = policy.commit(state, choice.ticket)
        state = policy.settle(state, choice.ticket, [shown * click], [[cost]])
        ledger.book(number, np.array([[cost]]))
        spent[int(at) // MICROS_PER_HOUR] += cost
    return spent


def draw_week(paced: Array, unpaced: Array) -> Figure:
    """Two rows, one above the other: spent since midnight, for each hour of a week."""
    figure = Figure(figsize=(7.5, 3.4), layout="constrained")
    rows = figure.subplots(2, sharex=True)
    titles = ("with the pace of the window", "limit alone, without its pace")
    for axes, spent, colour, title in zip(rows, (paced, unpaced), (SPENT, HELD), titles, strict=True):
        axes.spines[["top", "right"]].set_visible(False)
        by_day = spent.reshape(-1, HOURS_PER_DAY).cumsum(axis=1).ravel()
        axes.bar(np.arange(HOURS_PER_WEEK) + 0.5, by_day, width=1.0, color=colour, zorder=2)
        axes.axhline(DAY_LIMIT, color=GREY, linestyle="--", linewidth=1, label="limit of a day")
        for day in range(1, HOURS_PER_WEEK // HOURS_PER_DAY):
            axes.axvline(day * HOURS_PER_DAY, color=GREY, linewidth=0.5, zorder=1)
        axes.set_title(title, loc="left", fontsize="medium")
        axes.set_ylim(0, DAY_LIMIT * 1.2)
        axes.set_ylabel("spent today")
    rows[0].legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False)
    rows[1].set_xlim(0, HOURS_PER_WEEK)
    noons = np.arange(HOURS_PER_DAY // 2, HOURS_PER_WEEK, HOURS_PER_DAY)
    rows[1].set_xticks(noons, [f"day {day}\nnoon" for day in range(1, len(noons) + 1)])
    return figure


def canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure of this many inches with one set of axes."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def draw_round() -> Figure:
    """One round on a line: what is asked, held and told when."""
    figure, axes = canvas(7.5, 1.9)
    axes.set_axis_off()
    axes.set_xlim(0, 10)
    axes.set_ylim(-1.25, 1.35)
    axes.annotate("", (9.9, 0), (0, 0), arrowprops={"arrowstyle": "->", "color": GREY})
    axes.barh(0, 6.0, left=1.2, height=0.4, color=HELD, zorder=3)
    axes.text(4.2, 0, "0.05 held", ha="center", va="center", zorder=4)
    for place, above, below in (
        (1.2, "POST /decide", "“banner-b”, probability 0.33"),
        (4.2, "the banner is shown", "seconds to hours"),
        (7.2, "POST /feedback", "reward 1, cost 0.031"),
    ):
        axes.plot([place, place], [-0.4, 0.4], color=GREY, linewidth=1, zorder=2)
        axes.text(place, 0.55, above, ha="center", va="bottom", weight="bold")
        axes.text(place, -0.55, below, ha="center", va="top", color=GREY)
    axes.text(9.9, -0.25, "time", ha="right", va="top", color=GREY)
    return figure


def draw_hold() -> Figure:
    """A budget of 0.20 through the lives of three decisions."""
    figure, axes = canvas(7.5, 2.9)
    moments = [
        ("at the start", 0.00, 0.00),
        ("three decisions", 0.00, 0.15),
        ("first: cost 0.031", 0.031, 0.10),
        ("second: void", 0.031, 0.05),
        ("third: no word until it expires", 0.081, 0.00),
    ]
    for row, (label, spent, held) in enumerate(reversed(moments)):
        parts = ((spent, SPENT, "white"), (held, HELD, "black"), (0.20 - spent - held, FREE, "black"))
        left = 0.0
        for size, colour, ink in parts:
            axes.barh(row, size, left=left, color=colour, height=0.62)
            if size > 0.02:
                axes.text(left + size / 2, row, f"{size:.3f}".rstrip("0"), ha="center", va="center", color=ink)
            left += size
        axes.text(-0.003, row, label, ha="right", va="center", clip_on=False)
    for colour, name in ((SPENT, "spent"), (HELD, "held"), (FREE, "free")):
        axes.barh(0, 0, color=colour, label=name)
    axes.set_axis_off()
    axes.set_xlim(-0.1, 0.2)  # room for the words at the left
    axes.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.67, 1.0), frameon=False)
    return figure


def draw_price(found: Run) -> Figure:
    """The price finds what the budget is worth."""
    figure, axes = canvas(7.5, 2.6)
    axes.plot(np.arange(ROUNDS)[::STEP], found.price[::STEP], color=SPENT, linewidth=1, label="the price λ")
    axes.axhline(found.optimal_price, color=GREY, linestyle="--", linewidth=1, label="the clairvoyant's price")
    axes.set_xlabel("round")
    axes.set_ylabel("clicks per max cost")
    axes.set_xlim(0, ROUNDS)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    return figure


def draw_pace(found: Run) -> Figure:
    """Share spent over share flown."""
    figure, axes = canvas(7.5, 2.6)
    flown = np.arange(1, ROUNDS + 1) / ROUNDS
    axes.plot(flown[::STEP], (found.spent / flown)[::STEP], color=SPENT, label="pace")
    axes.axhline(1, color=GREY, linestyle=":", label="on plan")
    axes.set_xlabel("share of the flight")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 2)
    axes.legend(frameon=False)
    return figure


def make(folder: Path) -> None:
    """Write every picture; the same run, the same bytes."""
    style: Any = {"svg.hashsalt": "cbwk", "svg.fonttype": "none", "font.size": 9, "path.simplify_threshold": 0.5}
    with mpl.rc_context(style):
        found = run()
        drawn = {"round": draw_round(), "hold": draw_hold(), "price": draw_price(found), "pace": draw_pace(found)}
        drawn["week"] = draw_week(spend_of_a_week(paced=True), spend_of_a_week(paced=False))
        for name, figure in drawn.items():
            figure.savefig(folder / f"{name}.svg", facecolor="white", metadata={"Date": None})


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
