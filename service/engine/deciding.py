"""Decide requests of one campaign, all in one call of the policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from cbwk_core import NULL_ARM, Choice
from cbwk_core.problem import ENDED, taken
from service.engine.campaign import Campaign
from service.engine.commands import Answer, Decide
from service.engine.diverting import Options, diverted, unfit, would_have
from service.engine.explaining import explanation_of, packed
from service.engine.flight import is_over
from service.engine.stages import is_under_way
from service.engine.tickets import numbers_kept
from service.engine.work import MICROS_PER_SECOND, Work, iso_time, to_json
from service.ids import uuid7
from service.money import amount
from service.problems import Conflict, Invalid, Problem

DIGEST_BYTES = 8


def decide(work: Work, requests: Sequence[Decide], existing: dict[str, Any]) -> list[Answer | Problem]:
    """Answer every request: repeats from what is stored, the others by one batch decision each kind.

    `existing` maps decision ids to their stored rows; it grows by what is decided here, so that a repeat inside one
    batch finds its first.
    """
    answers: list[Answer | Problem | None] = [None] * len(requests)
    fresh, repeats = _parted(requests, existing)
    if work.status != "active" or is_over(work):
        reason = work.status if work.status != "active" else ENDED
        for index in fresh:
            answers[index] = _unstored(work, requests[index], reason)
    else:
        plain = [index for index in fresh if requests[index].actions is None]
        if work.campaign.diverts:
            for index in plain:
                _decide_plain(work, requests, [index], answers, existing)
        else:
            _decide_plain(work, requests, plain, answers, existing)
        for index in fresh:
            if requests[index].actions is not None:
                answers[index] = _decide_with_actions(work, requests[index], existing)
    for index in repeats:
        if requests[index].decision_id in existing:
            answers[index] = _repeat(work, requests[index], existing)
    # Their first was refused, or needed no row: each stands for itself.
    left = [index for index in repeats if answers[index] is None]
    if left:
        for index, answer in zip(left, decide(work, [requests[index] for index in left], existing), strict=True):
            answers[index] = answer
    return [answer if answer is not None else Invalid("the request was not decided") for answer in answers]


def _parted(requests: Sequence[Decide], existing: Mapping[str, Any]) -> tuple[Sequence[int], Sequence[int]]:
    """Where those stand that are decided now, and those that repeat what was decided before or is by another here."""
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


def _repeat(work: Work, request: Decide, existing: dict[str, Any]) -> Answer | Problem:
    row = existing[request.decision_id or ""]
    if row["request_digest"] != digest_of(request):
        return Conflict("this decision_id was used with another body", kind="decision-id-reused")
    return Answer(answer_of(work.campaign, row, request.explain), replayed=True)


def _decide_plain(
    work: Work,
    requests: Sequence[Decide],
    wanted: Sequence[int],
    answers: list[Answer | Problem | None],
    existing: dict[str, Any],
) -> None:
    """All requests for the campaign's own arms in one call."""
    campaign = work.campaign
    fit = []
    for index in wanted:
        if campaign.diverts or requests[index].baseline:
            answers[index] = unfit(campaign, requests[index])
            if answers[index] is not None:
                continue
        fit.append(index)
    rows, vectors = _encoded(campaign, requests, fit, answers)
    if not rows:
        return
    if not campaign.arms:
        for index in rows:
            answers[index] = Invalid("the campaign has no arms of its own: send actions", kind="actions-needed")
        return
    features = campaign.features(vectors, campaign.arm_vectors)
    exclude = _excluded(campaign, [requests[index] for index in rows])
    choice = _chosen(work, features, len(rows), exclude=exclude)
    shadow = None
    if campaign.diverts:
        options = Options(features, campaign.holds, campaign.arms)
        choice, shadow = diverted(work, requests[rows[0]], choice, options)
    stored = _stored(work, [requests[index] for index in rows], choice, campaign.holds, campaign.arms, shadow)
    for index, row in zip(rows, stored, strict=True):
        answers[index] = _fresh_answer(work, requests[index], row, existing)


def _encoded(
    campaign: Campaign, requests: Sequence[Decide], wanted: Sequence[int], answers: list[Answer | Problem | None]
) -> tuple[Sequence[int], NDArray[np.float64]]:
    """Those whose contexts can be taken, and these as vectors; the others are answered."""
    vectors = campaign.encode_all([requests[index].context for index in wanted])
    if vectors is not None:
        return wanted, vectors
    rows, encoded = [], []
    for index in wanted:
        try:
            encoded.append(campaign.encode(requests[index].context))
            rows.append(index)
        except Problem as problem:
            answers[index] = problem
    return rows, np.array(encoded)


def _decide_with_actions(work: Work, request: Decide, existing: dict[str, Any]) -> Answer | Problem:
    """A request that brings its own arms."""
    campaign = work.campaign
    if campaign.arm_encoder is None:
        return Invalid("actions need a campaign with model shared", kind="actions-not-shared")
    misfit = unfit(campaign, request)
    if misfit is not None:
        return misfit
    if is_under_way(work):
        return Conflict("stage one explores the campaign's own arms: send no actions yet", kind="stage-one")
    try:
        context = campaign.encode(request.context)[None]
        actions = list(request.actions or ())
        arms = np.stack([campaign.arm_encoder.encode(action["features"]).vector for action in actions])
        holds = [campaign.hold_of(action.get("max_cost")) for action in actions]
    except (ValueError, KeyError) as error:
        return Invalid(f"actions: {error}", kind="invalid-actions")
    except Problem as problem:
        return problem
    if any(one > limit for hold in holds for one, limit in zip(hold, campaign.max_costs, strict=True)):
        return Invalid("actions: a max_cost may be at most the campaign's", kind="invalid-actions")
    ids = [str(action["id"]) for action in actions]
    banned = set(request.exclude)
    exclude = np.array([[action in banned for action in ids]])
    features = campaign.features(context, arms)
    choice = _chosen(work, features, 1, exclude=exclude, holds=np.array(holds, dtype=np.float64))
    shadow = None
    if campaign.diverts:
        choice, shadow = diverted(work, request, choice, Options(features, holds, ids))
    row = _stored(work, [request], choice, holds, ids, shadow)[0]
    return _fresh_answer(work, request, row, existing)


def _excluded(campaign: Campaign, requests: Sequence[Decide]) -> NDArray[np.bool_] | None:
    """(n, arms), or None when nobody excludes anything; ids that are no arms are ignored."""
    if not any(request.exclude for request in requests):
        return None
    mask = np.zeros((len(requests), len(campaign.arms)), dtype=bool)
    for row, request in enumerate(requests):
        for arm in request.exclude:
            index = campaign.arm_index.get(arm)
            if index is not None:
                mask[row, index] = True
    return mask


def _chosen(work: Work, features: NDArray[np.float64], rows: int, **masks: NDArray[Any] | None) -> Choice:
    start = int(work.state.round[0])
    uniforms = np.array(work.campaign.uniforms(start, rows))
    free = np.array(work.ledger.free(), dtype=np.int64)
    return work.campaign.policy.decide(work.state, features, uniforms, free=free, **masks)


def _stored(
    work: Work,
    requests: Sequence[Decide],
    choice: Choice,
    holds: Sequence[Sequence[int]],
    arm_ids: Sequence[str],
    shadow: str | None = None,
) -> list[dict[str, Any] | None]:
    """Commit and keep every decision but those after the end, which take no round: their rows, None for the others."""
    campaign, thought, now = work.campaign, choice.thought, work.now
    assert thought is not None, "our policy says what it thought"
    prices, gamma = thought.prices[0].astype("<f8").tobytes(), float(thought.gamma[0, 0])
    version = work.policy_version
    expires_at = now + campaign.config["feedback"]["ttl_seconds"] * MICROS_PER_SECOND
    made = len(requests) - choice.reason.count(ENDED)
    ticket, arms = choice.ticket, choice.arm.tolist()
    numbers = numbers_kept(ticket)
    texts = campaign.hold_texts if holds is campaign.holds else [to_json(hold) for hold in holds]
    explanations = packed(thought, choice.probabilities, [request.explain for request in requests])
    rounds, probabilities = ticket.round.tolist(), choice.probability.tolist()
    rows, held = work.rows["decision"], work.rows["hold"]
    for row in range(made):
        request, arm = requests[row], arms[row]
        hold = None if arm == NULL_ARM else texts[arm]
        text, digest = _identity(request)
        work.sequence += 1
        rows.append(
            {
                "campaign": campaign.number,
                "sequence": work.sequence,
                "decision_id": request.decision_id or uuid7(now),
                "request_digest": digest,
                "config_version": campaign.version,
                "policy_version": version,
                "round": rounds[row],
                "place": row,
                "arm": arm,
                "arm_id": None if hold is None else arm_ids[arm],
                "reason": choice.reason[row],
                "probability": probabilities[row],
                "gamma": gamma,
                "context": text,
                "exclude": to_json(sorted(request.exclude)) if request.exclude else None,
                "actions": to_json(request.actions) if request.actions is not None else None,
                "shadow": shadow,
                "numbers": numbers[row],
                "prices": prices,
                "explanation": explanations[row],
                "hold": hold,
                "decided_at": now,
                "expires_at": None if hold is None else expires_at,
            }
        )
        if hold is not None:
            one = {"campaign": campaign.number, "decision": work.sequence, "amounts": hold, "expires_at": expires_at}
            held.append(one)
    played = [holds[arm] for arm in arms[:made] if arm != NULL_ARM]
    if played:
        work.ledger.hold([sum(amounts) for amounts in zip(*played, strict=True)])
    if made:
        work.state = campaign.policy.commit(work.state, taken(ticket, slice(0, made)))
    return [*rows[len(rows) - made :], *[None] * (len(requests) - made)]


def _fresh_answer(work: Work, request: Decide, row: dict[str, Any] | None, existing: dict[str, Any]) -> Answer:
    if row is None:
        return _unstored(work, request, ENDED)
    existing[row["decision_id"]] = row
    return Answer(answer_of(work.campaign, row, request.explain))


def _unstored(work: Work, request: Decide, reason: str) -> Answer:
    """The answer of a campaign that is paused, archived or at its end: null, no round, nothing kept."""
    return Answer(
        {
            "decision_id": request.decision_id or uuid7(work.now),
            "campaign_id": work.campaign.id,
            "arm": None,
            "reason": reason,
            "probability": 1.0,
            "hold": {},
            "expires_at": None,
            "round": int(work.state.round[0]),
            "policy_version": work.policy_version,
        }
    )


def answer_of(campaign: Campaign, row: Any, explain: bool) -> dict[str, Any]:
    """The answer to a decision, from its row alone: what a repeat gets is what the first got."""
    body: dict[str, Any] = {
        "decision_id": row["decision_id"],
        "campaign_id": campaign.id,
        "arm": row["arm_id"],
        "reason": row["reason"],
        "probability": row["probability"],
        "hold": {} if row["hold"] is None else _amounts(campaign.resources, row["hold"]),
        "expires_at": iso_time(row["expires_at"]) if row["expires_at"] is not None else None,
        "round": row["round"],
        "policy_version": row["policy_version"],
    }
    if row["shadow"] is not None:
        body["would_have"] = would_have(campaign, row["shadow"])
    return body | explanation_of(campaign, row) if explain else body


@lru_cache(maxsize=4096)  # there are as many as arms
def _amounts(resources: tuple[str, ...], hold: str) -> Mapping[str, float]:
    return {resource: amount(held) for resource, held in zip(resources, orjson.loads(hold), strict=True)}


def digest_of(request: Decide) -> bytes:
    """The request's identity: context, exclusions and actions in a canonical form in which 1 is 1.0."""
    return _identity(request)[1]


def _identity(request: Decide) -> tuple[str, bytes]:
    """The context in its canonical form, which is also the one that is kept, and the digest of the whole request."""
    context = orjson.dumps(request.context, option=orjson.OPT_SORT_KEYS)
    digest = blake2b(context, digest_size=DIGEST_BYTES)
    if request.exclude or request.actions is not None or request.baseline:
        rest = _canonical([sorted(request.exclude), request.actions, *request.baseline])
        digest.update(orjson.dumps(rest, option=orjson.OPT_SORT_KEYS))
    return context.decode(), digest.digest()


def _canonical(value: Any) -> Any:
    """The same with whole numbers as floats."""
    if isinstance(value, dict):
        return {key: _canonical(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(part) for part in value]
    return float(value) if type(value) is int else value
