"""The live view and the summary of the demo in the terminal."""

from __future__ import annotations

import numpy as np
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cbwk_client import Account
from service.demo.ad_server import AdServer
from service.demo.world import BANNERS

BAR_WIDTH = 18
SPENT, HELD, FREE = "green", "yellow", "grey37"


def live(ads: AdServer) -> RenderableType:
    """Returns the live view."""
    world = ads.world
    table = Table.grid(padding=(0, 2))
    table.add_row(
        "requests", ProgressBar(world.requests, ads.done, width=BAR_WIDTH), f"{ads.done:,} of {world.requests:,}"
    )
    for account in ads.samples[-1].campaign.accounts if ads.samples else ():
        table.add_row(account.id, budget_bar(account), _amounts(account))
    optimum = world.optimum * max(ads.done, 1)
    clicks = f"{ads.expected:,.0f} of the clairvoyant optimum {optimum:,.0f}: {ads.expected / optimum:.1%}"
    table.add_row("clicks", ProgressBar(optimum, ads.expected, width=BAR_WIDTH), clicks)
    feedback = Text(f"{ads.client.reports_waiting:,} reports in flight, {ads.fallbacks:,} fallbacks")
    return Panel(Group(table, _shares(ads), feedback), title="a simulated ad server", title_align="left", expand=False)


def budget_bar(account: Account) -> Text:
    """Returns spent, held and free as one bar.

    >>> bar = budget_bar(Account("usd", granted=8, held=2, spent=4, overrun=0, free=2, pace=1))
    >>> [(span.style, span.end - span.start) for span in bar.spans]
    [('green', 9), ('yellow', 4), ('grey37', 5)]
    """
    spent = min(round(BAR_WIDTH * account.spent / account.granted), BAR_WIDTH)
    held = min(round(BAR_WIDTH * account.held / account.granted), BAR_WIDTH - spent)
    bar = Text()
    for width, style in ((spent, SPENT), (held, HELD), (BAR_WIDTH - spent - held, FREE)):
        bar.append("━" * width, style=style)
    return bar


def _amounts(account: Account) -> str:
    pace = "" if account.pace is None else f", pace {account.pace:.2f}"
    return f"{_short(account.spent)} spent, {_short(account.held)} held of {_short(account.granted)}{pace}"


def _short(amount: float) -> str:
    """Returns an amount with few digits.

    >>> _short(4.8312), _short(13_400)
    ('4.83', '13,400')
    """
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:.2f}"


def _shares(ads: AdServer) -> Text:
    played = max(ads.plays.total(), 1)
    return Text(", ".join(f"{banner} {ads.plays[banner] / played:.0%}" for banner in BANNERS))


def summary(ads: AdServer, seconds: float, verified: bool) -> RenderableType:
    """Returns the summary."""
    optimum = ads.world.optimum * ads.world.requests
    median, p99 = np.percentile(np.array(ads.seconds) * 1000, [50, 99])
    accounts = ads.samples[-1].campaign.accounts
    table = Table.grid(padding=(0, 2))
    rows = [
        (
            "requests",
            f"{ads.done:,} in {seconds:.0f} s; a decision took {median:.1f} ms (median), {p99:.1f} ms (p99)",
        ),
        ("shown", f"{ads.plays.total():,} banners; {ads.fallbacks:,} requests got no answer in time and showed none"),
        ("feedback", f"{len(ads.refused):,} reports came too late and were refused"),
        ("clicks", f"{ads.clicks:,.0f} received, {ads.expected:,.1f} expected"),
        (
            "clairvoyant",
            f"{optimum:,.1f} expected with known rates and prices: {ads.expected / optimum:.1%} of it was reached",
        ),
        *(
            (account.id, f"{account.spent:,.2f} of {account.granted:,g} spent, {account.overrun:g} over")
            for account in accounts
        ),
        ("ledger", "every account matches the log" if verified else "ACCOUNTS DIFFER FROM THE LOG"),
    ]
    for name, text in rows:
        table.add_row(name, text)
    return Group(Text(), Panel(table, title="summary", title_align="left", expand=False))
