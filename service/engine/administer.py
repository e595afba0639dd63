"""Commands that change a campaign's configuration, status or accounts, each audited in its own transaction."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import structlog
from sqlalchemy import Connection, insert, select

from cbwk_core import RULES_VERSION, two_stage
from service.domain.campaign import Campaign
from service.engine.changes import Work, to_json
from service.engine.commands import Adjust, Answer, CreateCampaign, PatchCampaign, SetStatus
from service.money import amount, micros
from service.problems import Conflict, Invalid, NotFound, Problem
from service.schemas.base import Misfit
from service.store import tables
from service.times import moment_microseconds

log = structlog.get_logger(__name__)
ACTIONS = {"pause": "paused", "resume": "active", "archive": "archived"}


def create_campaign(connection: Connection, command: CreateCampaign, now: int) -> Answer | Problem:
    """A campaign with its first configuration, its accounts and an untaught policy."""
    config = _with_stages({**command.config, "rules": RULES_VERSION})
    name = config["id"]
    if config["ends_at"] is not None and moment_microseconds(config["ends_at"]) <= now:
        message = "must lie in the future"
        return Invalid(f"ends_at {message}", kind="invalid-campaign", errors=[{"field": "ends_at", "message": message}])
    taken = connection.execute(select(tables.campaign.c.number).where(tables.campaign.c.id == name)).first()
    if taken is not None:
        return Conflict("a campaign of this id exists", kind="campaign-exists")
    books = Campaign(0, name, 1, config).policy.init().books
    added = connection.execute(insert(tables.campaign).values(id=name, created_at=now))
    number = int(added.inserted_primary_key[0])  # type: ignore[index]
    campaign = Campaign(number, name, 1, config)
    if campaign.policy.unmet_condition is not None:
        log.warning("two stages without their bound", campaign=name, reason=campaign.policy.unmet_condition)
    connection.execute(insert(tables.config).values(campaign=number, version=1, body=to_json(config), at=now))
    connection.execute(
        insert(tables.campaign_state).values(
            campaign=number,
            status="active",
            config_version=1,
            model_version=1,
            sequence=len(campaign.budgets),
            round=0,
            books=books.astype("<f8").tobytes(),
            last_event_at=now,
            pruned_through=0,
        )
    )
    for resource, budget in enumerate(campaign.budgets):
        connection.execute(
            insert(tables.account).values(
                campaign=number, resource=resource, granted=budget, held=0, spent=0, overrun=0
            )
        )
        connection.execute(
            insert(tables.grant).values(
                campaign=number,
                sequence=resource + 1,
                resource=resource,
                kind="budget",
                amount=budget,
                reason="created",
                at=now,
            )
        )
    write_audit(connection, now, command.actor, "campaign.create", name, {"config": config})
    return Answer(summary(campaign, "active"), status=201)


def _with_stages(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration with `two_stage: auto` decided for good, as the library decides it; no horizon, one stage."""
    if config["policy"]["two_stage"] != "auto" or config["horizon"] is None or config.get("mode") == "shadow":
        return config
    policy = replace(Campaign(0, config["id"], 1, config).policy, two_stage="auto")
    mode = two_stage.mode_of(policy)
    return config if mode == "off" else {**config, "policy": {**config["policy"], "two_stage": mode}}


def summary(campaign: Campaign, status: str) -> dict[str, Any]:
    """What a change of a campaign is answered with."""
    return {
        "id": campaign.id,
        "version": campaign.version,
        "status": status,
        "rules": campaign.rules,
        "config": campaign.public_config,
    }


def set_status(connection: Connection, work: Work, command: SetStatus) -> Answer | Problem:
    """Pause, resume or archive; archived is for good."""
    wanted = ACTIONS[command.action]
    if work.status == "archived" and wanted != "archived":
        return Conflict("an archived campaign stays archived", kind="campaign-archived")
    if work.status != wanted:
        work.status = wanted
        work.append("change", kind=command.action, body=to_json({}), model=None, at=work.now)
        write_audit(connection, work.now, command.actor, f"campaign.{command.action}", work.campaign.id, {})
    return Answer(summary(work.campaign, work.status))


def patch_campaign(connection: Connection, work: Work, command: PatchCampaign) -> Answer | Problem:
    """Budgets, horizon, arms and feedback terms; nothing learnt is lost."""
    from service.schemas.campaign import check_config, without_values  # noqa: PLC0415 - it checks by building a Campaign

    changes = command.changes
    expected = changes.get("expected_version")
    if expected is not None and expected != work.campaign.version:
        return Conflict(
            f"expected_version is not the campaign's, which is {work.campaign.version}", kind="version-differs"
        )
    try:
        config = _patched(work.campaign.config, changes)
        check_config(config)
        newer = Campaign(work.campaign.number, work.campaign.id, work.campaign.version + 1, config)
        moved = _moved_budgets(work, newer)
        state = newer.policy.adopt(work.campaign.policy, work.state)
    except Problem as problem:
        return problem
    except Misfit as misfit:
        named = [{"field": misfit.field, "message": misfit.message}]
        return Invalid("the change cannot be made", kind="invalid-campaign", errors=named)
    except ValueError as error:
        return Conflict(f"the change cannot be made now: {without_values(str(error))}", kind="change-refused")
    for resource, difference in enumerate(moved):
        if difference:
            work.ledger.move(resource, granted=difference)
            work.append("grant", resource=resource, kind="budget", amount=difference, reason="changed", at=work.now)
    work.append("change", kind="patch", body=to_json(changes), model=None, at=work.now)
    row = {"campaign": newer.number, "version": newer.version, "body": to_json(config), "at": work.now}
    connection.execute(insert(tables.config).values(**row))
    write_audit(connection, work.now, command.actor, "campaign.patch", work.campaign.id, changes)
    work.campaign, work.state = newer, state
    return Answer(summary(newer, work.status))


def _patched(config: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The configuration with the changes made, as a copy."""
    patched: dict[str, Any] = json.loads(json.dumps(config))
    known = {resource["id"]: resource for resource in patched["resources"]}
    for change in changes.get("resources") or ():
        if change["id"] not in known:
            raise NotFound("resources name one the campaign does not have", kind="unknown-resource")
        known[change["id"]]["budget"] = change["budget"]
    for name in ("horizon", "ends_at"):
        if changes.get(name) is not None:
            patched[name] = changes[name]
    ids = {arm["id"]: arm for arm in patched["arms"]}
    for arm in changes.get("add_arms") or ():
        if arm["id"] in ids:
            raise Conflict("add_arms names an arm the campaign has or had", kind="arm-exists")
        patched["arms"].append(arm)
        ids[arm["id"]] = arm
    for name in changes.get("retire_arms") or ():
        if name not in ids:
            raise NotFound("retire_arms names an arm the campaign does not have", kind="unknown-arm")
        ids[name]["retired"] = True
    patched["feedback"] |= changes.get("feedback") or {}
    return patched


def _moved_budgets(work: Work, newer: Campaign) -> list[int]:
    moved = []
    for account, budget in zip(work.ledger.accounts, newer.budgets, strict=True):
        if budget < account.spent + account.held and budget < account.granted:
            raise Conflict("a budget cannot go below what is spent and held", kind="budget-below-spent")
        moved.append(budget - account.granted)
    return moved


def adjust(connection: Connection, work: Work, command: Adjust) -> Answer | Problem:
    """Correct what was spent of a resource by hand."""
    if command.resource not in work.campaign.resources:
        return NotFound("there is no such resource in this campaign", kind="unknown-resource")
    resource = work.campaign.resources.index(command.resource)
    try:
        difference = micros(abs(command.amount)) * (1 if command.amount >= 0 else -1)
    except ValueError as error:
        return Invalid(str(error), kind="invalid-amount", errors=[{"field": "amount", "message": str(error)}])
    if work.ledger.accounts[resource].spent + difference < 0:
        return Conflict("the adjustment would make what was spent negative", kind="negative-spent")
    account = work.ledger.move(resource, spent=difference, reported=True)
    work.append("grant", resource=resource, kind="adjust", amount=difference, reason=command.reason, at=work.now)
    detail = {"resource": command.resource, "amount": command.amount, "reason": command.reason}
    write_audit(connection, work.now, command.actor, "campaign.adjust", work.campaign.id, detail)
    return Answer(
        {
            "campaign_id": work.campaign.id,
            "resource": command.resource,
            "spent": amount(account.spent),
            "overrun": amount(account.overrun),
            "free": amount(account.free),
        }
    )


def write_audit(
    connection: Connection, now: int, actor: str, action: str, campaign_id: str | None, body: dict[str, Any]
) -> None:
    """Who did what, in the transaction that does it."""
    connection.execute(
        insert(tables.audit).values(at=now, actor=actor, action=action, campaign_id=campaign_id, body=to_json(body))
    )
