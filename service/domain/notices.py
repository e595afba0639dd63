"""What is worth a message: budgets and windows that a transaction has moved past a threshold, and what models notice.

A notice has a mark, which is the same in every replica and after every restart. A webhook gets one message for each
mark, so that a threshold is announced once in a period: of a budget, while it has the same size; of a window, until it
ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from service.domain.campaign import Campaign
from service.domain.ledger import Account, Limit
from service.money import amount
from service.times import moment_text

BUDGET_THRESHOLD, BUDGET_EXHAUSTED, BUDGET_OVERRUN = "budget.threshold", "budget.exhausted", "budget.overrun"
WINDOW_THRESHOLD, WINDOW_EXHAUSTED = "window.threshold", "window.exhausted"
DRIFT_NOTICED, EVALUATION_DONE, CAMPAIGN_ENDED = "drift.noticed", "evaluation.done", "campaign.ended"


class Webhook(NamedTuple):
    """An address that gets messages: about which events, at which thresholds in percent, of which campaigns."""

    id: str
    events: frozenset[str]
    thresholds: tuple[int, ...]
    campaigns: frozenset[str] | None  # None: all
    created_at: int

    def wants(self, campaign_id: str) -> bool:
        """Whether it gets messages about this campaign."""
        return self.campaigns is None or campaign_id in self.campaigns


class Notice(NamedTuple):
    """One event; `threshold` is None where there is none."""

    event: str
    mark: str
    data: dict[str, Any]
    threshold: int | None = None


class Position(NamedTuple):
    """What notices depend on, before or after a transaction."""

    campaign: Campaign
    accounts: Sequence[Account]
    limits: Sequence[Limit]
    rounds: int


def only_holds(before: Position, after: Position) -> bool:
    """Whether a transaction has only held money and left enough for every arm: then it brings about no notice.

    Nearly all transactions of decisions have. A campaign with windows is not looked at.
    """
    if before.limits or after.limits or before.campaign is not after.campaign:
        return False
    for old, new, most in zip(before.accounts, after.accounts, after.campaign.max_costs, strict=True):
        if new.spent != old.spent or new.granted != old.granted or new.granted - new.spent - new.held < most:
            return False
    horizon = after.campaign.config["horizon"]
    return horizon is None or after.rounds < horizon


def notices(before: Position, after: Position, thresholds: Sequence[int]) -> Iterator[Notice]:
    """Yields what a transaction has brought about. Messages are made only of what is announced."""
    campaign = after.campaign
    for index, (old, new) in enumerate(zip(before.accounts, after.accounts, strict=True)):
        if new.spent > old.spent or new.granted < old.granted:
            passed, overrun = _passed(old, new, thresholds), new.overrun and not old.overrun
            if passed or overrun:
                data = _names(campaign) | _resource(campaign, index)
                mark = f"{campaign.number}:{index}:{new.granted}"
                amounts = _amounts(new, "granted")
                for share in passed:
                    yield Notice(BUDGET_THRESHOLD, f"{mark}:{share}", data | {"threshold": share} | amounts, share)
                if overrun:
                    over = amounts | {"overrun": amount(new.overrun)}
                    yield Notice(BUDGET_OVERRUN, f"{mark}:overrun", data | over)
    if campaign.pays_for_nothing(_free(after)) and not before.campaign.pays_for_nothing(_free(before)):
        granted = ",".join(str(account.granted) for account in after.accounts)
        free = dict(zip(campaign.resources, map(amount, _free(after)), strict=True))
        yield Notice(BUDGET_EXHAUSTED, f"{campaign.number}:exhausted:{granted}", _names(campaign) | {"free": free})
    if after.limits:
        yield from _of_windows(before, after, thresholds)
    horizon = campaign.config["horizon"]
    if horizon is not None and before.rounds < horizon <= after.rounds:
        yield ended(campaign, after.rounds)


def ended(campaign: Campaign, rounds: int) -> Notice:
    """Returns the notice of a campaign that has ended, by its rounds or at its time."""
    ends = {"horizon": campaign.config["horizon"], "ends_at": campaign.config["ends_at"]}
    mark = f"{campaign.number}:ended:{ends['horizon']}:{ends['ends_at']}"
    return Notice(CAMPAIGN_ENDED, mark, _names(campaign) | ends | {"round": rounds})


def drift(campaign: Campaign, model_version: int, restarts: int) -> Notice:
    """Returns the notice of a model that has restarted because the world has changed."""
    mark = f"{campaign.number}:drift:{model_version}:{restarts}"
    return Notice(DRIFT_NOTICED, mark, _names(campaign) | {"model_version": model_version, "changes": restarts})


def _of_windows(before: Position, after: Position, thresholds: Sequence[int]) -> Iterator[Notice]:
    campaign = after.campaign
    earlier = {(limit.key, limit.starts_at): limit.account for limit in before.limits}
    for limit in after.limits:
        new = limit.account
        old = earlier.get((limit.key, limit.starts_at), Account(new.granted))
        if new == old:
            continue
        cheapest = min((hold[limit.resource] for hold in campaign.playable_holds), default=0)
        passed, exhausted = _passed(old, new, thresholds), new.free < cheapest <= old.free
        if not passed and not exhausted:
            continue
        bounds = {"starts_at": moment_text(limit.starts_at), "ends_at": moment_text(limit.ends_at)}
        data = _names(campaign) | _resource(campaign, limit.resource) | {"period": limit.period, **bounds}
        mark = f"{campaign.number}:{limit.resource}:{limit.period}:{limit.starts_at}"
        for share in passed:
            shown = data | {"threshold": share} | _amounts(new, "limit")
            yield Notice(WINDOW_THRESHOLD, f"{mark}:{share}", shown, share)
        if exhausted:
            yield Notice(WINDOW_EXHAUSTED, f"{mark}:exhausted", data | _amounts(new, "limit"))


def _passed(old: Account, new: Account, thresholds: Sequence[int]) -> list[int]:
    """Returns the thresholds, in percent, that the spent part has passed."""
    return [
        share
        for share in thresholds
        if 100 * old.spent < share * old.granted and 100 * new.spent >= share * new.granted
    ]


def _names(campaign: Campaign) -> dict[str, Any]:
    return {"campaign_id": campaign.id, "display_name": campaign.names["display_name"]}


def _free(position: Position) -> list[int]:
    return [account.free for account in position.accounts]


def _resource(campaign: Campaign, index: int) -> dict[str, Any]:
    return {"resource": campaign.resources[index], "unit": campaign.config["resources"][index].get("unit")}


def _amounts(account: Account, granted: str) -> dict[str, Any]:
    amounts = {granted: account.granted, "spent": account.spent, "held": account.held}
    return {name: amount(value) for name, value in amounts.items()}
