"""Records new decisions: their columns for the log, their holds, and their response bodies.

The decisions of a batch share most of their columns. Built row by row they would take more time than everything else;
built column by column each column is one list, or one value for all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import repeat
from typing import Any

import orjson

from cbwk_core import NULL_ARM, Choice, Ticket
from cbwk_core.group import Group
from cbwk_core.ticket import ENDED
from service.domain.decision_rows import Columns, answer_of, bodies_of, holds_of, rows_of
from service.domain.explanation import packed
from service.domain.tickets import numbers_kept
from service.engine.changes import LockedCampaign, to_json
from service.engine.commands import Decide
from service.ids import uuid7
from service.store.bulk_insert import compact_column, constant_column

DIGEST_BYTES = 8


def record(
    locked: LockedCampaign,
    requests: Sequence[Decide],
    choice: Choice,
    holds: Sequence[Sequence[int]],
    arm_ids: Sequence[str],
    shadow: str | None = None,
) -> list[dict[str, Any]]:
    """Record all decisions made before the campaign ended. Return their response bodies."""
    made = len(requests) - choice.reason.count(ENDED)
    if not made:
        return []
    campaign, ticket = locked.campaign, choice.ticket
    if holds is campaign.holds:
        names, texts = campaign.named_arms
    else:
        names, texts = [*arm_ids, None], [*map(to_json, holds), None]
    arms, asked = choice.arm.tolist()[:made], requests[:made]
    columns = columns_of(asked, choice, ticket, _of_campaign(locked, asked, choice, arms, names, texts))
    if shadow is not None:
        columns["shadow"] = constant_column(shadow, made)
    locked.decisions.append(columns)
    locked.sequence += made
    played = [holds[arm] for arm in arms if arm != NULL_ARM]
    if played:
        locked.ledger.hold(played[0] if len(played) == 1 else [sum(amounts) for amounts in zip(*played, strict=True)])
        locked.holds.append(holds_of(columns))
    locked.state = campaign.policy.commit(
        locked.state, ticket if made == len(requests) else ticket.rows(slice(0, made))
    )
    if shadow is not None or any(request.explain for request in requests):
        return [
            answer_of(campaign, row, request.explain) for row, request in zip(rows_of(columns), requests, strict=False)
        ]
    return bodies_of(repeat(campaign.id), repeat(campaign.resources), columns)


def record_group(
    campaigns: Sequence[LockedCampaign], requests: Sequence[Decide], choice: Choice, group: Group
) -> list[dict[str, Any]]:
    """Record one decision of each of several campaigns of one transaction. Return their response bodies."""
    first, ticket = campaigns[0], choice.ticket
    columns = columns_of(requests, choice, ticket, _of_each(campaigns, requests, choice, group.learnt.tolist()))
    first.decisions.append(columns)
    for locked, state, arm in zip(campaigns, group.commit(ticket), columns["arm"], strict=True):
        locked.state = state
        locked.sequence += 1
        if arm != NULL_ARM:
            locked.ledger.hold(locked.campaign.holds[arm])
    holds = holds_of(columns)
    if holds["decision"]:
        first.holds.append(holds)
    configs = [locked.campaign for locked in campaigns]
    return bodies_of([config.id for config in configs], [config.resources for config in configs], columns)


def _of_each(
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


def _of_campaign(
    locked: LockedCampaign,
    requests: Sequence[Decide],
    choice: Choice,
    arms: Sequence[int],
    arm_ids: Sequence[str | None],
    holds: Sequence[str | None],
) -> Columns:
    """The columns of the table `decision` that depend on the campaign, n rows of one campaign.

    Index -1 of ids and holds is the null arm, which has none.
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
        "hold": [holds[arm] for arm in arms],
        "decided_at": constant_column(now, made),
        "expires_at": compact_column([None if arm == NULL_ARM else expires_at for arm in arms]),
    }


def columns_of(requests: Sequence[Decide], choice: Choice, ticket: Ticket, of_campaign: Columns) -> Columns:
    """All columns of the table `decision`; `of_campaign` are those that depend on the campaign."""
    made = len(requests)
    assert choice.thought is not None, "our policy reports its thought"
    _, _, contexts, exclude, actions, explain, baseline = zip(*requests, strict=True)
    bare = not any(exclude) and not any(baseline) and actions.count(None) == made
    nothing = constant_column(None, made)
    return {
        **of_campaign,
        "request_digest": constant_column(b"", made)
        if bare
        else [_digest(one) if says_more(one) else b"" for one in requests],
        "round": ticket.round.tolist()[:made],
        "reason": compact_column([*choice.reason[:made]]),
        "probability": choice.probability.tolist()[:made],
        "context": [orjson.dumps(context).decode() for context in contexts],
        "exclude": nothing if bare else [to_json(sorted(one)) if one else None for one in exclude],
        "actions": nothing if bare else [None if one is None else to_json(one) for one in actions],
        "shadow": nothing,
        "numbers": numbers_kept(ticket)[:made],
        "explanation": packed(choice.thought, choice.probabilities, explain)[:made],
    }


def is_same_request(row: Any, request: Decide) -> bool:
    """Whether a stored decision answered the same request: in any order of keys, and with 1 equal to 1.0.

    A row of a request with a context and nothing else keeps the context and no digest.
    """
    if row["request_digest"]:
        return bool(row["request_digest"] == _digest(request))
    return not says_more(request) and _sorted(orjson.loads(row["context"])) == _sorted(request.context)


def says_more(request: Decide) -> bool:
    """Whether a request has more than a context: exclusions, actions or a baseline."""
    return bool(request.exclude or request.actions is not None or request.baseline)


def _digest(request: Decide) -> bytes:
    """The digest of context, exclusions and actions in a canonical form."""
    digest = blake2b(_sorted(request.context), digest_size=DIGEST_BYTES)
    if says_more(request):
        digest.update(_sorted(_canonical([sorted(request.exclude), request.actions, *request.baseline])))
    return digest.digest()


def _sorted(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def _canonical(value: Any) -> Any:
    """The value with whole numbers as floats."""
    if isinstance(value, dict):
        return {key: _canonical(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(part) for part in value]
    return float(value) if type(value) is int else value
