"""What a policy is given with requests besides what is free: pace, prices, and what stays free for a floor arm.

A window has a reserve of its own, because the floor arm could exhaust it: what the floor needs for the decisions that
are expected until the end of its period. What must stay free is the most that any account of the campaign asks for. A
portfolio keeps no reserve: its money is for all of its campaigns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from service.domain.ledger import Account
from service.domain.must_play import floor_among
from service.engine.changes import LockedCampaign
from service.engine.windows import limits_of, predicted_shares, rounds_of


def terms_of(locked: LockedCampaign, action_ids: Sequence[str] | None = None) -> dict[str, Any]:
    """Returns arguments of `policy.decide`: `pace`, `prices`, `kept` and `floor`; None or absent if not needed."""
    terms: dict[str, Any] = dict(zip(("pace", "prices"), limits_of(locked), strict=True))
    if locked.campaign.floor is not None:
        if locked.ledger.is_limited:
            terms["kept"] = _kept(locked)
        if action_ids is not None:
            terms["floor"] = floor_among(locked.campaign, action_ids)
    return terms


def _kept(locked: LockedCampaign) -> list[float]:
    campaign, ledger, state = locked.campaign, locked.ledger, locked.state
    shares, rounds, free = predicted_shares(locked), rounds_of(locked), ledger.free()
    asked = [(resource, account, 0) for resource, account in enumerate(ledger.accounts)]
    asked += [(limit.resource, limit.account, limit.ends_at) for limit in ledger.limits]
    rounds[0] = campaign.horizon - state.round.item()
    needed = {end: campaign.policy.reserve(state, max(left - 1.0, 0.0))[0].tolist() for end, left in rounds.items()}
    kept = [0.0] * len(free)
    for resource, account, end in asked:
        spare = _free_in_time(account, shares[resource]) - needed[end][resource]
        kept[resource] = max(kept[resource], free[resource] - spare)
    return kept


def _free_in_time(account: Account, share: float) -> float:
    """What is free once open decisions cost what they are predicted to, this share of what they hold."""
    return account.free + account.held * (1.0 - share)
