"""Decides the requests of a transaction and records the decisions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate, repeat
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from cbwk_core import NULL_ARM, Choice
from cbwk_core.group import Group, Shape, shape_of
from cbwk_core.ticket import BUDGET_EXHAUSTED, ENDED
from service.domain.campaign import Campaign
from service.domain.decision_rows import answer_of, bodies_of, holds_of, rows_of
from service.domain.holdout import Options, baseline_choice, baseline_problem
from service.domain.request_holds import offered_actions, request_holds
from service.domain.stage_one import is_under_way
from service.domain.traffic import plus
from service.domain.windows import reasons
from service.engine.admission import within_bounds
from service.engine.changes import LockedCampaign, to_json
from service.engine.commands import Answer, Decide, Item
from service.engine.decision_columns import columns_of, of_campaign, of_each
from service.engine.must_play import terms_of
from service.ids import uuid7
from service.problems import Conflict, Invalid, Problem
from service.store.bulk_insert import constant_column

Vectors = NDArray[np.float64]

# Two campaigns take longer together than one after the other, three the same, eight two thirds of the time.
GROUP_MIN = 3


class Requests(NamedTuple):
    """The decide commands of one locked campaign."""

    locked: LockedCampaign
    items: Sequence[Item]
    existing: dict[str, Any]  # stored decisions by their ids


def decide_all(requests: Sequence[Requests], work_max: int) -> None:
    """Answer the requests of all campaigns of a transaction.

    Campaigns of one shape that are asked for one arm each are rows of one call of the policy.
    """
    requests = [
        each._replace(items=kept)
        for each in requests
        if (kept := within_bounds(each.locked.campaign, each.items, each.existing, work_max))
    ]
    commands = [[cast(Decide, item.command) for item in each.items] for each in requests]
    vectors: Sequence[Vectors | None] = [None] * len(requests)
    grouped: Collection[int] = ()
    if len(requests) > 1:
        vectors = encoded_together(
            [(each.locked.campaign, asked) for each, asked in zip(requests, commands, strict=True)]
        )
        grouped = _decide_groups(requests, commands, vectors)
    for at, (each, asked, encoded) in enumerate(zip(requests, commands, vectors, strict=True)):
        if at not in grouped:  # an answer may be left from an attempt that failed
            for item, answer in zip(each.items, decide(each.locked, asked, each.existing, encoded), strict=True):
                item.answer = answer


def encoded_together(requests: Sequence[tuple[Campaign, Sequence[Decide]]]) -> list[Vectors | None]:
    """The contexts of each campaign's requests as vectors, encoded together where declarations are the same.

    None where a campaign shares its declaration with no other, or where a context cannot be encoded.
    """
    by_encoder: dict[int, list[int]] = {}
    for at, (campaign, _) in enumerate(requests):
        by_encoder.setdefault(id(campaign.encoder), []).append(at)
    result: list[Vectors | None] = [None] * len(requests)
    for places in by_encoder.values():
        if len(places) > 1:
            contexts = [command.context for at in places for command in requests[at][1]]
            vectors = requests[places[0]][0].encode_all(contexts)
            if vectors is not None:
                ends = [*accumulate(len(requests[at][1]) for at in places)]
                for at, start, end in zip(places, [0, *ends], ends, strict=False):
                    result[at] = vectors[start:end]
    return result


def _decide_groups(
    requests: Sequence[Requests], commands: Sequence[Sequence[Decide]], vectors: Sequence[Vectors | None]
) -> set[int]:
    """Decide the campaigns that can be rows of one call of the policy; return their places."""
    groups: dict[Shape, list[int]] = {}
    for at, (each, asked, encoded) in enumerate(zip(requests, commands, vectors, strict=True)):
        locked = each.locked
        if encoded is None or len(asked) != 1 or each.existing or not _is_simple(locked, asked[0]):
            continue
        shape = shape_of(locked.campaign.policy)
        if shape is not None and locked.state.round.item() < locked.campaign.policy.horizon:
            groups.setdefault(shape, []).append(at)
    grouped = [members for members in groups.values() if len(members) >= GROUP_MIN]
    for members in grouped:
        campaigns = [requests[at].locked for at in members]
        group = Group([locked.campaign.policy for locked in campaigns], [locked.state for locked in campaigns])
        uniforms = [locked.campaign.uniforms(locked.state.round.item(), 1)[0] for locked in campaigns]
        free = np.array([locked.ledger.free() for locked in campaigns], dtype=np.int64)
        choice = group.decide(np.concatenate([vectors[at] for at in members]), np.array(uniforms), free)
        bodies = _record_group(campaigns, [commands[at][0] for at in members], choice, group)
        for at, body in zip(members, bodies, strict=True):
            requests[at].items[0].answer = Answer(body)
    return {at for members in grouped for at in members}


def _is_simple(locked: LockedCampaign, command: Decide) -> bool:
    """Whether a request asks for an arm for its context and for nothing else."""
    if locked.status != "active" or locked.campaign.has_baseline or locked.campaign.outside_flight(locked.now):
        return False
    if locked.ledger.is_limited:
        return False
    return command.is_bare and not command.explain


def decide(
    locked: LockedCampaign, requests: Sequence[Decide], existing: dict[str, Any], vectors: Vectors | None = None
) -> list[Answer | Problem]:
    """Answer every request of a campaign: repeats from the stored rows, the others by one call of the policy.

    `existing` maps decision ids to stored rows. It grows by the new rows where something repeats, so that a repeat
    within the batch finds its first. `vectors` are the encoded contexts of all requests, if they are encoded.
    """
    answers: list[Answer | Problem | None] = [None] * len(requests)
    before = len(locked.decisions)
    fresh, repeats = _without_repeats(requests, existing)
    closed = locked.campaign.outside_flight(locked.now) if locked.status == "active" else locked.status
    if closed is not None:
        for index in fresh:
            answers[index] = _unstored(locked, requests[index], closed)
    elif locked.campaign.has_baseline:
        for index in fresh:
            if requests[index].actions is None:
                _decide_own_arms(locked, requests, [index], answers)
    else:
        own = [index for index in fresh if requests[index].actions is None]
        _decide_own_arms(locked, requests, own, answers, vectors)
    for index in fresh:
        if answers[index] is None:
            answers[index] = _decide_with_actions(locked, requests[index])
    if repeats:
        made = locked.decisions[before:]
        existing |= {row["decision_id"]: row for columns in made for row in rows_of(columns)}
        for index in repeats:
            if requests[index].decision_id in existing:
                answers[index] = _repeat(locked, requests[index], existing)
        # The first of these was refused, or needed no row: each is decided for itself.
        left = [index for index in repeats if answers[index] is None]
        if left:
            for index, answer in zip(left, decide(locked, [requests[index] for index in left], existing), strict=True):
                answers[index] = answer
    return [answer if answer is not None else Invalid("the request was not decided") for answer in answers]


def _without_repeats(requests: Sequence[Decide], existing: Mapping[str, Any]) -> tuple[Sequence[int], Sequence[int]]:
    """The indices of new requests, and of those that repeat a stored decision or another request of the batch."""
    if not existing and len({request.decision_id for request in requests}) == len(requests):
        return range(len(requests)), ()
    fresh: list[int] = []
    repeats: list[int] = []
    seen: set[str] = set()
    for index, request in enumerate(requests):
        known = request.decision_id is not None and (request.decision_id in existing or request.decision_id in seen)
        (repeats if known else fresh).append(index)
        if request.decision_id is not None:
            seen.add(request.decision_id)
    return fresh, repeats


def _repeat(locked: LockedCampaign, request: Decide, existing: dict[str, Any]) -> Answer | Problem:
    row = existing[request.decision_id or ""]
    if not request.is_answered_by(row):
        return Conflict("this decision_id was used with another body", kind="decision-id-reused")
    campaign = locked.earlier.get(row["config_version"], locked.campaign)
    return Answer(answer_of(campaign, row, request.explain), replayed=True)


def _decide_own_arms(
    locked: LockedCampaign,
    requests: Sequence[Decide],
    rows: Sequence[int],
    answers: list[Answer | Problem | None],
    vectors: Vectors | None = None,
) -> None:
    """Answer the requests for the campaign's own arms, given by their indices, by one call of the policy."""
    campaign = locked.campaign
    holds_of_rows: dict[int, Vectors] = {}  # of the requests that bring max costs
    declared = campaign.policy.problem.hold
    special = (one.baseline or one.max_cost or one.max_costs for one in map(requests.__getitem__, rows))
    if campaign.has_baseline or any(special):
        for index in rows:
            request = requests[index]
            answers[index] = baseline_problem(campaign, request.baseline, request.actions, request.exclude)
            if answers[index] is None and request.own_costs and campaign.arms:
                try:
                    holds_of_rows[index] = request_holds(campaign, campaign.arms, declared, **request.own_costs)
                except Problem as problem:
                    answers[index] = problem
        rows = [index for index in rows if answers[index] is None]
    if vectors is None:
        vectors = campaign.encode_all([requests[index].context for index in rows])
        if vectors is None:
            rows, vectors = _encoded_one_by_one(campaign, requests, rows, answers)
    elif len(rows) < len(requests):
        vectors = vectors[list(rows)]
    if not rows:
        return
    if not campaign.arms:
        for index in rows:
            answers[index] = Invalid("the campaign has no arms of its own: send actions", kind="actions-needed")
        return
    features = campaign.features(vectors, campaign.arm_vectors)
    asked = [requests[index] for index in rows]
    exclude = _excluded(campaign, asked) if any(request.exclude for request in asked) else None
    holds = np.stack([holds_of_rows.get(index, declared) for index in rows]) if holds_of_rows else None
    uniforms = campaign.uniforms(locked.state.round.item(), len(rows))
    free, limited = locked.ledger.free(), locked.ledger.is_limited
    terms = terms_of(locked) if limited else {}
    choice = campaign.policy.decide(locked.state, features, uniforms, exclude=exclude, free=free, holds=holds, **terms)
    if limited and BUDGET_EXHAUSTED in choice.reason:
        excluded = _excluded(campaign, asked)
        excluded[:, [*campaign.inactive]] = True
        choice = _with_window_reasons(locked, choice, campaign.holds if holds is None else holds, excluded)
    shadow = None
    if campaign.has_baseline:
        of_arms = campaign.holds if holds is None else _whole(holds[0])
        unlimited = locked.ledger.free_without_limits()
        options = Options(features, of_arms, campaign.arms, asked[0].baseline, free, unlimited)
        choice, shadow = baseline_choice(campaign, locked.state, choice, options)
    bodies = _record(locked, asked, choice, None if holds is None else campaign.arms, shadow)
    for index, body in zip(rows, bodies, strict=False):
        answers[index] = Answer(body)
    for index in rows[len(bodies) :]:
        answers[index] = _unstored(locked, requests[index], ENDED)


def _encoded_one_by_one(
    campaign: Campaign, requests: Sequence[Decide], rows: Sequence[int], answers: list[Answer | Problem | None]
) -> tuple[Sequence[int], Vectors]:
    """The indices of requests whose contexts can be encoded, and their vectors; the others are answered."""
    good, encoded = [], []
    for index in rows:
        try:
            encoded.append(campaign.encode(requests[index].context))
            good.append(index)
        except Problem as problem:
            answers[index] = problem
    return good, np.array(encoded)


def _decide_with_actions(locked: LockedCampaign, request: Decide) -> Answer | Problem:
    """A request that brings its own arms."""
    campaign = locked.campaign
    if campaign.arm_encoder is None:
        return Invalid("actions need a campaign with model shared", kind="actions-not-shared")
    misfit = baseline_problem(campaign, request.baseline, request.actions, request.exclude)
    if misfit is not None:
        return misfit
    if is_under_way(campaign, locked.state):
        return Conflict("stage one explores the campaign's own arms: send no actions yet", kind="stage-one")
    try:
        context = campaign.encode(request.context)[None]
        arms, holds = offered_actions(campaign, campaign.arm_encoder, request.actions or ())
        ids = [str(action["id"]) for action in request.actions or ()]
        if request.own_costs:
            holds = request_holds(campaign, ids, holds, **request.own_costs)
    except Problem as problem:
        return problem
    banned = set(request.exclude)
    exclude = np.array([[action in banned for action in ids]])
    features = campaign.features(context, arms)
    uniforms, free = campaign.uniforms(locked.state.round.item(), 1), locked.ledger.free()
    choice = campaign.action_policy.decide(
        locked.state, features, uniforms, exclude=exclude, free=free, holds=holds, **terms_of(locked, ids)
    )
    if locked.ledger.is_limited and BUDGET_EXHAUSTED in choice.reason:
        choice = _with_window_reasons(locked, choice, holds, exclude)
    shadow = None
    if campaign.has_baseline:
        options = Options(features, _whole(holds), ids, request.baseline, free, locked.ledger.free_without_limits())
        choice, shadow = baseline_choice(campaign, locked.state, choice, options)
    bodies = _record(locked, [request], choice, ids, shadow)
    return Answer(bodies[0]) if bodies else _unstored(locked, request, ENDED)


def _whole(holds: Vectors) -> list[list[int]]:
    """Holds in whole millionths, which are exact as floats: amounts are below 2**53."""
    return cast(list[list[int]], holds.astype(np.int64).tolist())


def _with_window_reasons(
    locked: LockedCampaign, choice: Choice, holds: Sequence[Sequence[int]] | Vectors, excluded: NDArray[np.bool_]
) -> Choice:
    free, campaign = locked.ledger.free_without_limits(), locked.campaign
    exits_at = campaign.dearest if campaign.policy.variant.exits else None
    return choice._replace(reason=reasons(choice, np.asarray(holds), excluded, free, exits_at))


def _excluded(campaign: Campaign, requests: Sequence[Decide]) -> NDArray[np.bool_]:
    """Which arms each request excludes, (n, arms); ids that are no arms are ignored."""
    mask = np.zeros((len(requests), len(campaign.arms)), dtype=bool)
    for row, request in enumerate(requests):
        for arm in request.exclude:
            index = campaign.arm_index.get(arm)
            if index is not None:
                mask[row, index] = True
    return mask


def _record(
    locked: LockedCampaign,
    requests: Sequence[Decide],
    choice: Choice,
    arm_ids: Sequence[str] | None = None,
    shadow: str | None = None,
) -> list[dict[str, Any]]:
    """Record all decisions made before the campaign ended. Return their response bodies.

    `arm_ids`: of the candidates, if the requests bring candidates or holds; the tickets then have the holds.
    """
    made = len(requests) - choice.reason.count(ENDED)
    if not made:
        return []
    campaign, ticket = locked.campaign, choice.ticket
    arms, asked = choice.arm.tolist()[:made], requests[:made]
    if arm_ids is None:
        names, of_arms = campaign.named_arms
        texts = [of_arms[arm] for arm in arms]
        played = [campaign.holds[arm] for arm in arms if arm != NULL_ARM]
    else:
        names, held = [*arm_ids, None], _whole(ticket.hold)
        texts = [None if arm == NULL_ARM else to_json(hold) for arm, hold in zip(arms, held, strict=False)]
        played = [hold for arm, hold in zip(arms, held, strict=False) if arm != NULL_ARM]
    columns = columns_of(asked, choice, ticket, of_campaign(locked, asked, choice, arms, names, texts))
    if shadow is not None:
        columns["shadow"] = constant_column(shadow, made)
    locked.decisions.append(columns)
    if locked.member is not None:
        locked.move_portfolio(ticket.rows(slice(0, made)))
    locked.sequence += made
    if locked.traffic is not None:
        locked.traffic = plus(locked.traffic, made, locked.now)
    if played:
        locked.ledger.hold([sum(amounts) for amounts in zip(*played, strict=True)])
        locked.holds.append(holds_of(columns))
    locked.state = campaign.policy.commit(
        locked.state, ticket if made == len(requests) else ticket.rows(slice(0, made))
    )
    if shadow is not None or any(request.explain for request in requests):
        return [
            answer_of(campaign, row, request.explain) for row, request in zip(rows_of(columns), requests, strict=False)
        ]
    return bodies_of(repeat(campaign.id), repeat(campaign.resources), columns)


def _record_group(
    campaigns: Sequence[LockedCampaign], requests: Sequence[Decide], choice: Choice, group: Group
) -> list[dict[str, Any]]:
    """Record one decision of each of several campaigns of one transaction. Return their response bodies."""
    first, ticket = campaigns[0], choice.ticket
    columns = columns_of(requests, choice, ticket, of_each(campaigns, requests, choice, group.learnt.tolist()))
    first.decisions.append(columns)
    for locked, state, arm in zip(campaigns, group.commit(ticket), columns["arm"], strict=True):
        locked.state = state
        locked.sequence += 1
        if locked.traffic is not None:
            locked.traffic = plus(locked.traffic, 1, locked.now)
        if arm != NULL_ARM:
            locked.ledger.hold(locked.campaign.holds[arm])
    holds = holds_of(columns)
    if holds["decision"]:
        first.holds.append(holds)
    configs = [locked.campaign for locked in campaigns]
    return bodies_of([config.id for config in configs], [config.resources for config in configs], columns)


def _unstored(locked: LockedCampaign, request: Decide, reason: str) -> Answer:
    """The answer of a campaign that is paused, archived or outside its flight: null, no round, nothing kept."""
    locked.count_unstored(reason)
    return Answer(
        {
            "decision_id": request.decision_id or uuid7(locked.now),
            "campaign_id": locked.campaign.id,
            "arm": None,
            "reason": reason,
            "probability": 1.0,
            "hold": {},
            "expires_at": None,
            "round": int(locked.state.round[0]),
            "policy_version": locked.policy_version,
        }
    )
