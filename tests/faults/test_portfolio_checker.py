"""The checker of portfolios finds accounts that are not the sums over the campaigns, and limits that are exceeded."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.faults.books import Account, GrantRow
from tests.faults.portfolio_checker import portfolio_findings
from tests.faults.test_window_checker import COSTS, MONDAY, ONE, TUESDAY, books, day

EVENING = 72_000_000_000
CONFIG = {
    "resources": [{"id": "usd", "budget": 9, "windows": [{"period": "day", "limit": 4}]}],
    "timezone": "UTC",
}


def portfolio(limit=4, **changes):
    """Two campaigns with the same log: each holds 2, one of them of Monday, and has spent 1.25 of Monday."""
    config = CONFIG | {"resources": [CONFIG["resources"][0] | {"windows": [{"period": "day", "limit": limit}]}]}
    one = books(
        campaign="portfolio/acme",
        accounts=(Account(9 * ONE, 4 * ONE, 2_500_000, 0),),
        decisions=(),
        outcomes=(),
        grants=(GrantRow(1, 0, "budget", 9 * ONE),),
        windows=(day(MONDAY, limit * ONE, 2 * ONE, 2_500_000, 500_000), day(TUESDAY, limit * ONE, 2 * ONE, 0)),
        config_version=1,
        configs={1: json.dumps(config)},
    )
    return replace(one, **changes)


def kinds(one, *adjusted):
    """The findings; the first campaign was also adjusted by these amounts on Tuesday."""
    adjustments = tuple(GrantRow(20, 0, "adjust", amount, "lost notices", TUESDAY + EVENING) for amount in adjusted)
    first = books()
    members = [(replace(first, grants=first.grants + adjustments), COSTS), (books(campaign="d"), COSTS)]
    return {finding.kind for finding in portfolio_findings(one, members)}


def test_sums_over_the_campaigns_are_sound():
    assert kinds(portfolio()) == set()


@pytest.mark.parametrize(
    ("damaged", "found"),
    [
        (portfolio(accounts=(Account(9 * ONE, 3 * ONE, 2_500_000, 0),)), {"portfolio"}),
        (portfolio(windows=portfolio().windows[:1]), {"portfolio"}),
        (portfolio(windows=(portfolio().windows[0], day(TUESDAY, 4 * ONE, ONE, 0))), {"portfolio"}),
        (portfolio(limit=3), {"over portfolio", "portfolio"}),
    ],
)
def test_another_sum_and_an_exceeded_limit_are_found(damaged, found):
    assert kinds(damaged) == found


def test_an_adjustment_of_a_campaign_is_one_of_the_portfolio_and_of_none_of_its_windows():
    account = portfolio().accounts[0]
    adjusted = portfolio(accounts=(replace(account, spent=account.spent + ONE // 2),))
    assert kinds(adjusted, ONE // 2) == set()
    assert kinds(adjusted) == kinds(portfolio(), ONE // 2) == {"portfolio"}
    overrun = portfolio(accounts=(replace(account, spent=account.spent + 7 * ONE, overrun=4_500_000),))
    assert kinds(overrun, 7 * ONE) == set()
