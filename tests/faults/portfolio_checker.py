"""Compares what a portfolio has with the logs of its campaigns: pure functions that return findings.

over portfolio  more was held or spent at some time than the portfolio or one of its windows had
portfolio       an account differs from the sums of its campaigns' logs
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from tests.faults.books import Account, Books, DecisionRow, OutcomeRow
from tests.faults.checker import Finding
from tests.faults.history import micros_of
from tests.faults.periods import period_of

Costs = Mapping[int, tuple[int, ...]]
Key = tuple[int, str, str]  # a resource, and a window's period and its name; both are empty for the whole flight


def portfolio_findings(portfolio: Books, members: Sequence[tuple[Books, Costs]]) -> Iterator[Finding]:
    """The accounts are the sums over the campaigns, of which each has the costs that were reported.

    Rows of one time are of one transaction, so limits are compared when all of them are counted.
    """
    config = json.loads(portfolio.configs[portfolio.config_version])
    limits: dict[tuple[int, str], int] = {
        (place, window["period"]): micros_of(window["limit"])
        for place, resource in enumerate(config["resources"])
        for window in resource.get("windows") or ()
    }
    limits |= {(row.resource, ""): 0 for row in portfolio.grants}
    for grant in portfolio.grants:
        limits[grant.resource, ""] += grant.amount
    held: dict[Key, int] = defaultdict(int)
    spent: dict[Key, int] = defaultdict(int)
    for at, group in groupby(sorted(_movements(portfolio, members), key=lambda one: one[0]), key=lambda one: one[0]):
        before = {key: max(0, held[key] + spent[key] - limits[key[:2]]) for key in [*held]}
        injected: dict[Key, int] = defaultdict(int)
        for _, made_at, place, hold, cost, excess in group:
            for window in [window for window in limits if window[0] == place]:
                name = ""
                if window[1]:
                    if made_at is None:
                        continue
                    name = period_of(window[1], made_at, config["timezone"])
                key = (*window, name)
                held[key] += hold
                spent[key] += cost
                injected[key] += excess
        for key, now_held in held.items():
            over = now_held + spent[key] - limits[key[:2]]
            if over > before.get(key, 0) + injected[key] or min(now_held, spent[key]) < 0:
                what = f"{key} at {at}: {now_held} held and {spent[key]} spent of {limits[key[:2]]}"
                yield Finding("over portfolio", portfolio.campaign, what)
    found = {(place, "", ""): account for place, account in enumerate(portfolio.accounts)}
    for row in portfolio.windows:
        found[row.resource, row.period, period_of(row.period, row.starts_at, config["timezone"])] = row.account
    for key in {*held, *found}:
        granted = limits[key[:2]]
        wanted = Account(granted, held[key], spent[key], max(0, held[key] + spent[key] - granted))
        if found.get(key) != wanted:
            what = f"{key}: {found.get(key)}, the campaigns' logs say {wanted}"
            yield Finding("portfolio", portfolio.campaign, what)


def _movements(
    portfolio: Books, members: Sequence[tuple[Books, Costs]]
) -> Iterator[tuple[int, int | None, int, int, int, int]]:
    """Yield time, time of the decision, resource, changes of held and spent, and what a client reported above a hold.

    Each is a row of a campaign's log, for one of the resources that both name. An adjustment is about no decision, so
    it counts in no window.
    """
    for books, costs in members:
        places = [portfolio.resources.index(name) if name in portfolio.resources else None for name in books.resources]
        decisions: dict[int, DecisionRow] = {row.sequence: row for row in books.decisions}
        lapsed: set[int] = set()
        for grant in books.grants:
            place = places[grant.resource]
            if grant.kind == "adjust" and place is not None:
                yield grant.at, None, place, 0, grant.amount, max(0, grant.amount)
        rows: list[DecisionRow | OutcomeRow] = [*books.decisions, *books.outcomes]
        for row in sorted(rows, key=lambda row: row.sequence):
            made = row if isinstance(row, DecisionRow) else decisions[row.decision]
            hold = made.hold or (0,) * len(places)
            for resource, place in enumerate(places):
                if place is None:
                    continue
                if isinstance(row, DecisionRow):
                    yield row.at, row.at, place, hold[resource], 0, 0
                    continue
                authorised = 0 if row.decision in lapsed else hold[resource]
                reported = costs.get(row.decision, hold)[resource] if row.kind in ("reported", "late") else 0
                freed = -hold[resource] if row.released else 0
                booked = row.spent[resource] if row.spent else 0
                yield row.at, made.at, place, freed, booked, max(0, reported - authorised)
            if isinstance(row, OutcomeRow) and row.released and not any(row.spent or ()):
                lapsed.add(row.decision)
