"""The columns of new decisions.

The decisions of a batch share most of their columns. Built row by row they would take more time than everything else;
built column by column each column is one list, or one value for all rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from cbwk_core import NULL_ARM, Choice, Ticket
from service.domain.decision_rows import Columns, numbers_kept, packed
from service.engine.changes import LockedCampaign, to_json
from service.engine.commands import Decide
from service.ids import uuid7
from service.store.bulk_insert import compact_column, constant_column


def of_each(
    campaigns: Sequence[LockedCampaign], requests: Sequence[Decide], choice: Choice, learnt: Sequence[int]
) -> Columns:
    """The columns of the table `decision` that depend on the campaign, one row of each campaign."""
    thought, arms, made = choice.thought, choice.arm.tolist(), len(campaigns)
    assert thought is not None, "our policy reports its thought"
    pairs = [*zip(campaigns, arms, strict=True)]
    prices, width = thought.prices.astype("<f8").tobytes(), 8 * thought.prices.shape[1]
    return {
        "campaign": [locked.campaign.number for locked in campaigns],
        "sequence": [locked.sequence + 1 for locked in campaigns],
        "decision_id": [one.decision_id or uuid7(locked.now) for locked, one in zip(campaigns, requests, strict=True)],
        "config_version": compact_column([locked.campaign.version for locked in campaigns]),
        "policy_version": [locked.to_learn + count for locked, count in zip(campaigns, learnt, strict=True)],
        "place": constant_column(0, made),
        "arm": arms,
        "arm_id": [locked.campaign.named_arms[0][arm] for locked, arm in pairs],
        "gamma": thought.gamma[:, 0].tolist(),
        "prices": [prices[at : at + width] for at in range(0, made * width, width)],
        "hold": [locked.campaign.named_arms[1][arm] for locked, arm in pairs],
        "decided_at": compact_column([locked.now for locked in campaigns]),
        "expires_at": compact_column(
            [None if arm == NULL_ARM else locked.now + locked.campaign.ttl_micros for locked, arm in pairs]
        ),
    }


def of_campaign(
    locked: LockedCampaign,
    requests: Sequence[Decide],
    choice: Choice,
    arms: Sequence[int],
    arm_ids: Sequence[str | None],
    holds: Sequence[str | None],
) -> Columns:
    """The columns of the table `decision` that depend on the campaign, n rows of one campaign.

    Index -1 of the ids is the null arm, which has none. `holds` are those of the rows.
    """
    campaign, thought, now, made = locked.campaign, choice.thought, locked.now, len(requests)
    assert thought is not None, "our policy reports its thought"
    expires_at = now + campaign.ttl_micros
    return {
        "campaign": constant_column(campaign.number, made),
        "sequence": range(locked.sequence + 1, locked.sequence + 1 + made),
        "decision_id": [request.decision_id or uuid7(now) for request in requests],
        "config_version": constant_column(campaign.version, made),
        "policy_version": constant_column(locked.policy_version, made),
        "place": range(made),
        "arm": arms,
        "arm_id": [arm_ids[arm] for arm in arms],
        "gamma": constant_column(float(thought.gamma[0, 0]), made),
        "prices": constant_column(thought.prices[0].astype("<f8", copy=False).tobytes(), made),
        "hold": holds,
        "decided_at": constant_column(now, made),
        "expires_at": compact_column([None if arm == NULL_ARM else expires_at for arm in arms]),
    }


def columns_of(requests: Sequence[Decide], choice: Choice, ticket: Ticket, own: Columns) -> Columns:
    """All columns of the table `decision`; `own` are those that depend on the campaign."""
    made = len(requests)
    assert choice.thought is not None, "our policy reports its thought"
    _, _, contexts, exclude, actions, explain, baseline, *max_costs = zip(*requests, strict=True)
    bare = not any(map(any, (exclude, baseline, *max_costs))) and actions.count(None) == made
    nothing = constant_column(None, made)
    return {
        **own,
        "request_digest": constant_column(b"", made)
        if bare
        else [b"" if one.is_bare else one.digest for one in requests],
        "round": ticket.round.tolist()[:made],
        "reason": compact_column([*choice.reason[:made]]),
        "probability": choice.probability.tolist()[:made],
        "context": [orjson.dumps(context).decode() for context in contexts],
        "exclude": nothing if bare else [to_json(sorted({*one})) if one else None for one in exclude],
        "actions": nothing if bare else [None if one is None else to_json(one) for one in actions],
        "max_costs": nothing if bare else [_costs_json(one) if one.own_costs else None for one in requests],
        "shadow": nothing,
        "numbers": numbers_kept(ticket)[:made],
        "explanation": packed(choice.thought, choice.probabilities, explain)[:made],
    }


def _costs_json(request: Decide) -> str:
    return orjson.dumps(request.own_costs, option=orjson.OPT_SORT_KEYS).decode()
