"""A request of each of several campaigns, decided and kept together: each alone would take several times as long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbwk_core import NULL_ARM, Choice
from cbwk_core.group import Group, Shape, shape_of
from service.domain.campaign import Campaign, uniform_of
from service.engine.changes import Columns, Work
from service.engine.commands import Answer, Decide
from service.engine.decision_rows import bodies_of, columns_of, holds_of, says_more
from service.engine.horizon import is_over
from service.ids import uuid7
from service.store.bulk_insert import alike, same

# Two take longer together than one after the other, three are even, eight take two thirds of the time.
CAMPAIGNS_MIN = 3


class One(NamedTuple):
    """A campaign that is asked for one decision, and its context as a vector."""

    work: Work
    request: Decide
    vector: NDArray[np.float64]


class Kept(NamedTuple):
    """New rows of several campaigns."""

    decided: Columns
    held: Columns | None  # None where every arm is null


def is_simple(work: Work, requests: Sequence[Decide], existing: Mapping[str, Any]) -> bool:
    """Whether a campaign is asked once, and for nothing but an arm for a context that was not asked for before."""
    if len(requests) != 1 or existing or work.status != "active" or work.campaign.diverts or is_over(work):
        return False
    return not (says_more(requests[0]) or requests[0].explain)


def decide_across(asked: Sequence[One]) -> tuple[dict[int, Answer], list[Kept]]:
    """Answers to those that can be decided together, by the number of their campaign, and what is to be written."""
    groups: dict[Shape, list[One]] = {}
    for one in asked:
        policy = one.work.campaign.policy
        shape = shape_of(policy)
        if shape is not None and one.work.state.round.item() < policy.horizon:
            groups.setdefault(shape, []).append(one)
    answers: dict[int, Answer] = {}
    written = []
    for members in groups.values():
        if len(members) < CAMPAIGNS_MIN:
            continue
        campaigns = [one.work.campaign for one in members]
        group = Group([campaign.policy for campaign in campaigns], [one.work.state for one in members])
        rounds = zip(campaigns, group.round.tolist(), strict=True)
        drawn = [uniform_of(campaign.config["seed"], number) for campaign, number in rounds]
        free = np.array([one.work.ledger.free() for one in members], dtype=np.int64)
        choice = group.decide(np.stack([one.vector for one in members]), np.array(drawn), free)
        columns = _columns(members, choice, group.learnt.tolist())
        for one, state, arm in zip(members, group.commit(choice.ticket), columns["arm"], strict=True):
            one.work.state = state
            one.work.sequence += 1
            if arm != NULL_ARM:
                one.work.ledger.hold(one.work.campaign.holds[arm])
        held = holds_of(columns)
        written.append(Kept(columns, held if held["decision"] else None))
        bodies = bodies_of([one.id for one in campaigns], [one.resources for one in campaigns], columns)
        answers |= {one.number: Answer(body) for one, body in zip(campaigns, bodies, strict=True)}
    return answers, written


def _columns(asked: Sequence[One], choice: Choice, learnt: Sequence[int]) -> Columns:
    """What the table `decision` keeps, a row of each campaign, which have learnt from so many outcomes."""
    thought, arms, made = choice.thought, choice.arm.tolist(), len(asked)
    assert thought is not None, "our policy says what it thought"
    works = [one.work for one in asked]
    names = [_named(work.campaign, arm) for work, arm in zip(works, arms, strict=True)]
    prices, width = thought.prices.astype("<f8").tobytes(), 8 * thought.prices.shape[1]
    theirs: Columns = {
        "campaign": [work.campaign.number for work in works],
        "sequence": [work.sequence + 1 for work in works],
        "decision_id": [one.request.decision_id or uuid7(one.work.now) for one in asked],
        "config_version": alike([work.campaign.version for work in works]),
        "policy_version": [one.work.to_learn + count for one, count in zip(asked, learnt, strict=True)],
        "place": same(0, made),
        "arm": arms,
        "arm_id": [name for name, _ in names],
        "gamma": thought.gamma[:, 0].tolist(),
        "prices": [prices[at : at + width] for at in range(0, made * width, width)],
        "hold": [hold for _, hold in names],
        "decided_at": alike([work.now for work in works]),
        "expires_at": alike(
            [
                None if arm == NULL_ARM else work.now + work.campaign.ttl_micros
                for work, arm in zip(works, arms, strict=True)
            ]
        ),
    }
    return columns_of([one.request for one in asked], choice, choice.ticket, theirs)


def _named(campaign: Campaign, arm: int) -> tuple[str | None, str | None]:
    """The arm's id, and its hold as the log keeps it."""
    ids, holds = campaign.named_arms
    return ids[arm], holds[arm]
