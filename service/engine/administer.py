"""Commands that change a campaign's configuration, status or accounts. The transaction also writes the audit entry."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import structlog
from sqlalchemy import Connection, insert

from cbwk_core import RULES_VERSION, two_stage
from service.domain.campaign import PAUSED, Campaign
from service.domain.config import check_change, check_new_config
from service.domain.horizon import due_estimate, first_estimate
from service.domain.must_play import warnings_of
from service.domain.portfolio import Portfolio
from service.domain.traffic import Counts
from service.engine import windows
from service.engine.changes import LockedCampaign, to_json
from service.engine.commands import Adjust, Answer, CreateCampaign, PatchCampaign, SetStatus
from service.engine.portfolio_config import load_portfolio
from service.money import amount, micros
from service.problems import Conflict, Invalid, Misfit, NotFound, Problem, without_values
from service.store import tables
from service.store.campaigns import add_campaign, portfolio_number, state_of
from service.store.opening_balance import decisions_by_hour
from service.times import moment_microseconds, moment_text
from service.words import error_at, no_such

log = structlog.get_logger(__name__)
ACTIONS = {"pause": "paused", "resume": "active", "archive": "archived"}
check_creation = check_new_config  # for routes, which do not import the domain


def create_campaign(connection: Connection, command: CreateCampaign, now: int) -> Answer | Problem:
    """Makes a campaign with its first configuration, its accounts and an untaught policy."""
    config = _with_stages({**command.config, "rules": RULES_VERSION})
    name = config["id"]
    if command.chosen is not None and (found := _existing(connection, config, command.chosen, now)) is not None:
        return found
    if config["ends_at"] is not None and moment_microseconds(config["ends_at"]) <= now:
        message = "must lie in the future"
        return Invalid(f"ends_at {message}", kind="invalid-campaign", errors=[error_at("ends_at", message)])
    untried = Campaign(0, name, 1, config)
    try:
        portfolio = _portfolio_of(connection, untried)
        if portfolio is not None:
            portfolio.check_campaign(untried)
    except Misfit as misfit:
        return Invalid("the body cannot be taken as it is", kind="invalid-campaign", errors=[misfit.error])
    books = untried.policy.init().books
    number = add_campaign(connection, name, now, None if portfolio is None else portfolio.number)
    if number is None:
        # Another transaction has just created it.
        found = None if command.chosen is None else _existing(connection, config, command.chosen, now)
        return found or Conflict("a campaign of this id exists", kind="campaign-exists")
    campaign = Campaign(number, name, 1, config)
    if (reason := campaign.policy.unmet_condition) is not None:
        log.warning("the regret bound of two stages does not apply", campaign=name, reason=reason)
    connection.execute(insert(tables.config).values(campaign=number, version=1, body=to_json(config), at=now))
    state = {"status": "active", "config_version": 1, "model_version": 1, "round": 0, "pruned_through": 0}
    state |= {"sequence": len(campaign.budgets), "books": books.astype("<f8").tobytes(), "last_event_at": now}
    connection.execute(insert(tables.campaign_state).values(campaign=number, **state))
    for resource, budget in enumerate(campaign.budgets):
        of_resource = {"campaign": number, "resource": resource}
        account = {"granted": budget, "held": 0, "spent": 0, "overrun": 0}
        connection.execute(insert(tables.account).values(**of_resource, **account))
        grant = {"sequence": resource + 1, "kind": "budget", "amount": budget, "reason": "created", "at": now}
        connection.execute(insert(tables.grant).values(**of_resource, **grant))
    write_audit(connection, now, command.actor, "campaign.create", name, {"config": config})
    summary = _summary(campaign, campaign.status_at(now, "active", 0))
    return Answer({**summary, "warnings": warnings_of(campaign, portfolio)}, status=201)


def _existing(
    connection: Connection, config: dict[str, Any], chosen: Sequence[str], now: int
) -> Answer | Problem | None:
    """Returns the answer for a campaign that exists: 200 if its present configuration is this one, apart from what the
    service chose; None if there is no such campaign."""
    try:
        row = state_of(connection, config["id"], with_config=True)
    except NotFound:
        return None
    campaign = Campaign(row["campaign"], config["id"], row["config_version"], json.loads(row["config"]))
    wanted = replace(campaign, config=config).public_config
    differing = [
        name
        for name, value in campaign.public_config.items()
        if name not in ("estimate", *chosen) and wanted.get(name) != value
    ]
    if differing:
        detail = f"a campaign of this id exists and differs in {', '.join(differing)}"
        return Conflict(detail, kind="campaign-exists")
    status = campaign.status_at(now, row["status"], row["round"])
    warnings = warnings_of(campaign, _portfolio_of(connection, campaign))
    return Answer({**_summary(campaign, status), "warnings": warnings})


def _portfolio_of(connection: Connection, campaign: Campaign) -> Portfolio | None:
    """Returns the portfolio that a campaign names. Raises Misfit if there is none."""
    name = campaign.config.get("portfolio")
    if name is None:
        return None
    number = portfolio_number(connection, name)
    if number is None:
        raise Misfit("portfolio", f"must exist: {no_such('portfolio', name)}")
    return load_portfolio(connection, number)


def _with_stages(config: dict[str, Any]) -> dict[str, Any]:
    """Returns the configuration with `two_stage: auto` resolved by the library; one stage without a horizon."""
    if config["policy"]["two_stage"] != "auto" or config["horizon"] is None or config.get("mode") == "shadow":
        return config
    policy = replace(Campaign(0, config["id"], 1, config).policy, two_stage="auto")
    mode = two_stage.mode_of(policy)
    return config if mode == "off" else {**config, "policy": {**config["policy"], "two_stage": mode}}


def _changed(locked: LockedCampaign) -> Answer:
    """Returns the response to a change of a campaign."""
    status = locked.campaign.status_at(locked.now, locked.status, locked.state.round.item())
    return Answer(_summary(locked.campaign, status))


def _summary(campaign: Campaign, status: str) -> dict[str, Any]:
    return {
        "id": campaign.id,
        "version": campaign.version,
        "status": status,
        "rules": campaign.rules,
        "config": campaign.public_config,
    }


def set_status(connection: Connection, locked: LockedCampaign, command: SetStatus) -> Answer | Problem:
    """Pauses, resumes or archives; an archived campaign stays archived."""
    wanted = ACTIONS[command.action]
    if locked.status == "archived" and wanted != "archived":
        return Conflict("an archived campaign stays archived", kind="campaign-archived")
    if locked.status != wanted:
        locked.status = wanted
        locked.append("change", kind=command.action, body=to_json({}), model=None, at=locked.now)
        write_audit(connection, locked.now, command.actor, f"campaign.{command.action}", locked.campaign.id, {})
    return _changed(locked)


def patch_campaign(connection: Connection, locked: LockedCampaign, command: PatchCampaign) -> Answer | Problem:
    """Changes budgets, max costs, start, end, arms, feedback terms, hold-out and mode; nothing learnt is lost."""
    changes = command.changes
    expected = changes.get("expected_version")
    if expected is not None and expected != locked.campaign.version:
        message = f"expected_version is not the campaign's, which is {locked.campaign.version}"
        return Conflict(message, kind="version-differs")
    try:
        config = _with_start(locked, _patched(locked.campaign.config, changes, locked.campaign.version + 1), changes)
        config = _with_end(connection, locked, config, changes)
        newer = _in_known_units(locked.campaign, config)
        moved = _moved_budgets(locked, newer)
        check_change(locked.campaign.config, newer.config, changes)
        added = windows.check_change(connection, locked, newer)
        state = newer.policy.adopt(locked.campaign.policy, locked.state)
    except Problem as problem:
        return problem
    except Misfit as misfit:
        return Invalid("the change cannot be made", kind="invalid-campaign", errors=[misfit.error])
    except ValueError as error:
        return Conflict(f"the change cannot be made now: {without_values(str(error))}", kind="change-refused")
    for resource, difference in enumerate(moved):
        if difference:
            locked.ledger.move(resource, granted=difference)
            locked.append("grant", resource=resource, kind="budget", amount=difference, reason="changed", at=locked.now)
    locked.state = state
    locked.traffic = locked.traffic if newer.counts_traffic else None
    windows.apply_change(connection, locked, newer, added)
    _log_config(connection, locked, newer, "patch", changes)
    write_audit(connection, locked.now, command.actor, "campaign.patch", locked.campaign.id, changes)
    return _changed(locked)


def known_traffic(connection: Connection, locked: LockedCampaign) -> Counts:
    """Returns the campaign's decisions by hour of the week; counts its log when they are needed for the first time."""
    if locked.traffic is None:
        locked.traffic = np.array(decisions_by_hour(connection, locked.campaign.number))
    return locked.traffic


def renew_estimate(connection: Connection, locked: LockedCampaign, asked: int) -> None:
    """Adopts a new estimate of the horizon if one is due before the next `asked` decisions."""
    campaign = locked.campaign
    estimate = due_estimate(campaign, known_traffic(connection, locked), asked, locked.created_at, locked.now)
    if estimate is not None:
        newer = replace(campaign, version=campaign.version + 1, config={**campaign.config, "estimate": estimate})
        locked.state = newer.policy.adopt(campaign.policy, locked.state)
        _log_config(connection, locked, newer, "estimate", estimate)


def _log_config(
    connection: Connection, locked: LockedCampaign, newer: Campaign, kind: str, body: dict[str, Any]
) -> None:
    locked.campaign = newer
    locked.append("change", kind=kind, body=to_json(body), model=None, at=locked.now)
    row = {"campaign": newer.number, "version": newer.version, "body": to_json(newer.config), "at": locked.now}
    connection.execute(insert(tables.config).values(**row))


def _patched(config: dict[str, Any], changes: dict[str, Any], version: int) -> dict[str, Any]:
    """Returns a changed copy of the configuration, which becomes this version. Raises a Problem or a Misfit."""
    patched: dict[str, Any] = json.loads(json.dumps(config))
    _check_floor(config, changes)
    known = {resource["id"]: resource for resource in patched["resources"]}
    for change in changes.get("resources") or ():
        if change["id"] not in known:
            raise NotFound(no_such("resource", change["id"], " in the campaign", known), kind="unknown-resource")
        known[change["id"]] |= change
        if known[change["id"]].get("unit", "") is None:
            del known[change["id"]]["unit"]
    ids = {arm["id"]: arm for arm in patched["arms"]}
    for arm in changes.get("add_arms") or ():
        if arm["id"] in ids:
            raise Conflict(f"the campaign has or had an arm {arm['id']}", kind="arm-exists")
        ids[arm["id"]] = dict(arm)
        patched["arms"].append(ids[arm["id"]])
    for change in changes.get("arms") or ():
        if change["id"] not in ids:
            raise NotFound(no_such("arm", change["id"], " in the campaign", ids), kind="unknown-arm")
        _change_arm(ids[change["id"]], change)
    for name in changes.get("retire_arms") or ():
        if name not in ids:
            raise NotFound(no_such("arm", name, " in the campaign", ids), kind="unknown-arm")
        ids[name]["retired"] = True
    if "holdout" in changes and changes["holdout"] != patched.get("holdout"):
        patched |= {"holdout": changes["holdout"], "holdout_since": version}
    patched |= {name: changes[name] for name in ("mode", "display_name", "metadata") if name in changes}
    terms, reward = changes.get("feedback") or {}, patched["reward"]
    missing = terms.get("missing_reward")
    if missing is not None and not reward["min"] <= missing <= reward["max"]:
        raise Misfit("feedback.missing_reward", "must lie within the range of reward")
    patched["feedback"] |= terms
    return patched


def _check_floor(config: dict[str, Any], changes: dict[str, Any]) -> None:
    """Raises Conflict for a change that takes the floor arm out."""
    paused = [change["id"] for change in changes.get("arms") or () if change.get("status") == PAUSED]
    floor = config.get("floor_arm")
    if floor is not None and floor in (*paused, *(changes.get("retire_arms") or ())):
        raise Conflict("the floor arm stays: it is what every request can get", kind="floor-arm")


def _with_start(locked: LockedCampaign, config: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Returns the configuration with the new start; null starts the campaign now."""
    if "starts_at" not in changes:
        return config
    if locked.campaign.starts_at is None or locked.campaign.starts_at <= locked.now:
        raise Conflict("the campaign has started, and a start cannot move after that", kind="change-refused")
    starts_at = changes["starts_at"]
    if starts_at is not None and moment_microseconds(starts_at) < locked.now:
        raise Misfit("starts_at", "must lie in the future; null starts the campaign now")
    return {**config, "starts_at": starts_at or moment_text(locked.now)}


def _change_arm(arm: dict[str, Any], change: dict[str, Any]) -> None:
    """Sets what is given; an arm without max costs has those of its resources, one without a status is active."""
    for name in ("max_cost", "status", "display_name", "metadata"):
        if name in change:
            arm.pop(name, None)
            arm |= {name: change[name]} if change[name] not in ({}, None, "active") else {}
    if "status" in change:
        arm.pop("retired", None)


def _with_end(
    connection: Connection, locked: LockedCampaign, config: dict[str, Any], changes: dict[str, Any]
) -> dict[str, Any]:
    """Returns the configuration with the new end. A campaign ends by rounds or by time: one end clears the other."""
    if changes.get("horizon") is not None:
        if changes["horizon"] <= locked.state.round.item():
            raise Misfit("horizon", "must be above the number of decisions that are made")
        kept = {name: value for name, value in config.items() if name != "estimate"}
        return {**kept, "horizon": changes["horizon"], "ends_at": None}
    if changes.get("ends_at") is None:
        return config
    if locked.campaign.two_stage not in ("off", False):
        raise Conflict("a campaign of two stages ends by its horizon, not at a time", kind="change-refused")
    changed = {**config, "horizon": None, "ends_at": changes["ends_at"]}
    if config["horizon"] is not None:
        since, ends = locked.campaign.flight_start(locked.created_at), moment_microseconds(changes["ends_at"])
        counts = known_traffic(connection, locked)
        changed["estimate"] = first_estimate(config["horizon"], counts, since, locked.now, ends)
    return changed


def _in_known_units(campaign: Campaign, config: dict[str, Any]) -> Campaign:
    """Returns the next version of a campaign. What it has learnt keeps its units, whatever arms may cost now."""
    newer = replace(campaign, version=campaign.version + 1, config=config)
    kept: dict[str, Any] = {}
    if newer.units != campaign.units:
        kept["units"] = campaign.units
    arm_units = [*campaign.arm_units, *newer.holds[len(campaign.arms) :]]
    if newer.arm_units != arm_units:
        kept["arm_units"] = arm_units
    return replace(newer, config={**config, **kept}) if kept else newer


def _moved_budgets(locked: LockedCampaign, newer: Campaign) -> list[int]:
    moved = []
    for account, budget in zip(locked.ledger.accounts, newer.budgets, strict=True):
        if budget < account.spent + account.held and budget < account.granted:
            raise Conflict("a budget cannot go below what is spent and held", kind="budget-below-spent")
        moved.append(budget - account.granted)
    return moved


def adjust(connection: Connection, locked: LockedCampaign, command: Adjust) -> Answer | Problem:
    """Corrects what was spent of a resource."""
    if command.resource not in locked.campaign.resources:
        message = no_such("resource", command.resource, " in the campaign", locked.campaign.resources)
        return NotFound(message, kind="unknown-resource")
    resource = locked.campaign.resources.index(command.resource)
    try:
        difference = micros(abs(command.amount)) * (1 if command.amount >= 0 else -1)
    except ValueError as error:
        return Invalid(str(error), kind="invalid-amount", errors=[error_at("amount", str(error))])
    if locked.ledger.accounts[resource].spent + difference < 0:
        return Conflict("the adjustment would make what was spent negative", kind="negative-spent")
    try:
        account = locked.ledger.move(resource, spent=difference, reported=True)
    except Conflict as problem:
        return problem
    locked.append("grant", resource=resource, kind="adjust", amount=difference, reason=command.reason, at=locked.now)
    detail = {"resource": command.resource, "amount": command.amount, "reason": command.reason}
    write_audit(connection, locked.now, command.actor, "campaign.adjust", locked.campaign.id, detail)
    amounts = {name: amount(getattr(account, name)) for name in ("spent", "overrun", "free")}
    return Answer({"campaign_id": locked.campaign.id, "resource": command.resource, **amounts})


def write_audit(
    connection: Connection, now: int, actor: str, action: str, campaign_id: str | None, body: dict[str, Any]
) -> None:
    """Records who did what, in the transaction that does it."""
    connection.execute(
        insert(tables.audit).values(at=now, actor=actor, action=action, campaign_id=campaign_id, body=to_json(body))
    )
