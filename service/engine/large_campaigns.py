"""How many multiplications requests need: the bound of one request, and which requests are large."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from service.domain.campaign import Campaign
from service.engine.admission import BATCH_MAX
from service.engine.commands import Command, Decide, Feedback, Item
from service.problems import Invalid
from service.settings import environment_variable


def is_large(campaign: Campaign, work_max: int) -> bool:
    """Whether a full batch of decisions of the campaign may need more than one transaction may take."""
    return BATCH_MAX * campaign.decision_work_max > work_max


class LargeCampaign(NamedTuple):
    """What the work of its requests depends on."""

    arm_work: int
    arms: int


def work_of(commands: Sequence[Command], large: Mapping[str, LargeCampaign], work_max: int) -> int:
    """The work of a request that is large: a full batch of such requests would need more than one transaction may take.

    It is 0 for other requests, also for those of a large campaign that bring few actions.
    """
    work = 0
    for command in commands:
        if isinstance(command, Decide | Feedback) and (campaign := large.get(command.campaign_id)) is not None:
            work += campaign.arm_work * (_candidates(campaign.arms, command) if isinstance(command, Decide) else 1)
    return work if work > len(commands) * (work_max // BATCH_MAX) else 0


def within_bounds(campaign: Campaign, items: Sequence[Item], stored: Collection[str], work_max: int) -> Sequence[Item]:
    """The items of decide requests that need no more work than is allowed; the other requests are answered.

    A decision that is stored needs none, and one decision among the campaign's own arms is always made.
    """
    if len(items) * campaign.decision_work_max <= work_max:
        return items
    groups: dict[int, list[tuple[Item, Decide]]] = defaultdict(list)
    for item in items:
        command = item.command
        if isinstance(command, Decide) and command.decision_id not in stored:
            groups[item.together or id(item)].append((item, command))
    refused: set[int] = set()
    for group in groups.values():
        arms = sum(_candidates(len(campaign.arms), command) for _, command in group)
        if arms * campaign.arm_work > work_max and (len(group) > 1 or group[0][1].actions is not None):
            problem = _excess(campaign, len(group), arms, work_max)
            for item, _ in group:
                item.answer = problem
                refused.add(id(item))
    return [item for item in items if id(item) not in refused] if refused else items


def _candidates(arms: int, command: Decide) -> int:
    return arms if command.actions is None else len(command.actions)


def _excess(campaign: Campaign, items: int, arms: int, work_max: int) -> Invalid:
    message = (
        f"{items} decisions among {arms} arms in all, of {campaign.dimension} features, are "
        f"{arms * campaign.arm_work} multiplications; one request may need at most {work_max}"
    )
    detail = f"{message} ({environment_variable('decide_work_max')}): send fewer at once"
    return Invalid(detail, kind="too-much-work", errors=[{"field": "body", "message": message}])
