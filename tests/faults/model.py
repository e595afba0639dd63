"""A model of the service in dictionaries: its answers and its books by the table of states.

It uses no code of the service. It does not choose arms: it takes the arm of the answer, checks that the arm could be
chosen, and predicts the rest of the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from typing import Any

ONE = 1_000_000
DIMENSION = 2  # of every campaign's context
OPEN = ("held", "rewarded", "charged")
STATUS_AFTER = {"pause": "paused", "resume": "active", "archive": "archived"}

Fields = dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """An answer: a status, and its body or the kind of a problem."""

    status: int
    kind: str = ""  # of a problem
    body: Any = None
    replayed: bool = False


def millionths(number: float) -> int:
    """Return an amount in whole millionths, rounded up from its decimal form.

    >>> millionths(0.29), millionths(1.0000001)
    (290000, 1000001)
    """
    return int((Decimal(repr(number)) * ONE).to_integral_value(ROUND_CEILING))


def _refused(status: int, kind: str) -> Reply:
    return Reply(status, kind)


class Model:
    """Campaigns by name; each is a dictionary with its accounts and its decisions."""

    def __init__(self) -> None:
        self.campaigns: dict[str, Fields] = {}

    def create(self, config: Fields, now: int) -> Reply:
        """Create a campaign with its budgets."""
        if config["id"] in self.campaigns:
            return _refused(409, "campaign-exists")
        limits = {one["id"]: millionths(one["max_cost"]) for one in config["resources"]}
        self.campaigns[config["id"]] = {
            "status": "active",
            "version": 1,
            "limits": limits,
            "arms": {arm["id"]: _arm(arm) for arm in config["arms"]},
            "accounts": {
                one["id"]: {"granted": millionths(one["budget"]), "held": 0, "spent": 0, "overrun": 0}
                for one in config["resources"]
            },
            "horizon": config["horizon"],
            "feedback": dict(config["feedback"]),
            "round": 0,
            "learnt": 0,
            "rows": len(limits),  # of the log
            "latest": now,
            "decisions": {},
        }
        return Reply(201, body={"id": config["id"], "version": 1, "status": "active"})

    def decide(
        self,
        name: str,
        decision_id: str,
        context: Sequence[float],
        exclude: Sequence[str],
        now: int,
        seen: Fields | None,
    ) -> Reply:
        """Answer one request; arm, probability and expiry are those of the engine's answer `seen` if possible."""
        campaign = self.campaigns.get(name)
        if campaign is None:
            return _refused(404, "campaign-not-found")
        request = (tuple(map(float, context)), tuple(sorted({*exclude})))
        before = campaign["decisions"].get(decision_id)
        if before is not None:
            if before["request"] != request:
                return _refused(409, "decision-id-reused")
            return Reply(200, body=before["answer"], replayed=True)
        campaign["latest"] = max(campaign["latest"], now)
        body = {"decision_id": decision_id, "campaign_id": name, "arm": None, "probability": 1.0, "hold": {}}
        body |= {"expires_at": None, "round": campaign["round"], "policy_version": campaign["learnt"]}
        if campaign["status"] != "active":
            return Reply(200, body=body | {"reason": campaign["status"]})
        if len(context) != DIMENSION:
            return _refused(422, "invalid-context")
        if campaign["round"] >= campaign["horizon"]:
            return Reply(200, body=body | {"reason": "ended"})
        offered = {arm for arm, one in campaign["arms"].items() if one["status"] == "active" and arm not in exclude}
        holds = {arm: campaign["limits"] | campaign["arms"][arm]["own"] for arm in offered}
        payable = {arm for arm in offered if self._fits(campaign, holds[arm])}
        body["reason"] = "policy" if payable else "budget_exhausted" if offered else "all_excluded"
        if payable and seen is not None and 0 < seen.get("probability", 0) <= 1 and seen["arm"] in {*payable, None}:
            body |= {"arm": seen["arm"], "probability": seen["probability"]}
        arm = body["arm"]
        hold = dict(holds[arm]) if arm is not None else {}
        ttl = campaign["feedback"]["ttl_seconds"] * ONE
        expires_at = None
        if arm is not None:
            expires_at = _seen_expiry(seen, now + ttl, campaign["latest"] + ttl)
            body |= {"expires_at": _iso(expires_at), "hold": {one: amount / ONE for one, amount in hold.items()}}
        self._move(campaign, held=hold)
        campaign["round"] += 1
        campaign["rows"] += 1
        campaign["decisions"][decision_id] = {
            "request": request, "answer": body, "arm": arm, "hold": hold, "state": "null" if arm is None else "held",
            "reward": None, "costs": None, "booked": {}, "expires_at": expires_at, "reports": [], "void": None,
        }  # fmt: skip
        return Reply(200, body=body)

    def report(
        self,
        name: str,
        decision_id: str,
        reward: float | None = None,
        costs: Mapping[str, float] | None = None,
        void: bool = False,
    ) -> Reply:
        """Answer a report of one or both halves, or that the decision was not used."""
        campaign = self.campaigns.get(name)
        if campaign is None:
            return _refused(404, "campaign-not-found")
        decision = campaign["decisions"].get(decision_id)
        if decision is None:
            return _refused(404, "decision-not-found")
        if costs is not None and not set(costs) <= set(campaign["accounts"]):
            return _refused(422, "unknown-resource")
        amounts = None if costs is None else {one: millionths(costs.get(one, 0)) for one in campaign["accounts"]}
        finer = costs is not None and any(Decimal(repr(cost)) * ONE % 1 for cost in costs.values())
        warnings = ["rounded"] if finer else []
        absent = set(campaign["accounts"]) - set(costs) if costs else set()
        if amounts and absent and decision["arm"] is not None:
            known = decision["costs"]
            if known is None:
                known = decision["hold"] if campaign["feedback"]["missing_cost"] == "hold" else {}
                warnings.append("cost_missing")
            amounts |= {one: known.get(one, 0) for one in absent}
        if decision["arm"] is None:
            if amounts and any(amounts.values()):
                return _refused(422, "null-arm-cost")
            return self._reply(name, decision_id, "ignored", warnings=warnings)
        if void:
            return self._void(name, decision_id)
        if _contradicts(reward, decision["reward"]) or _contradicts(amounts, decision["costs"]):
            return _refused(409, "feedback-differs")
        halves = (reward is not None, amounts is not None)
        if (not halves[0] or decision["reward"] is not None) and (not halves[1] or decision["costs"] is not None):
            return Reply(200, body=_earlier(decision, halves), replayed=True)
        if decision["state"] in OPEN:
            reply = self._reported(name, decision_id, reward, amounts, warnings)
        else:
            reply = self._late(name, decision_id, reward, amounts, warnings)
        decision["reports"].append((halves, reply.body))
        return reply

    def _reported(
        self, name: str, decision_id: str, reward: float | None, costs: Fields | None, warnings: list[str]
    ) -> Reply:
        campaign = self.campaigns[name]
        decision = campaign["decisions"][decision_id]
        if costs is not None and decision["costs"] is None:
            if any(costs[one] > held for one, held in decision["hold"].items()):
                warnings.append("cost_above_hold")
            self._move(campaign, freed=decision["hold"], spent=costs)
            decision |= {"costs": costs, "booked": costs}
        if reward is not None:
            decision["reward"] = reward
            if not 0 <= reward <= 1:
                warnings.append("reward_clipped")
        learnt = decision["reward"] is not None and decision["costs"] is not None
        if learnt:
            campaign["learnt"] += 1
        decision["state"] = "settled" if learnt else "charged" if decision["costs"] is not None else "rewarded"
        return self._reply(name, decision_id, decision["state"], learned=learnt, warnings=warnings, logged=True)

    def _late(
        self, name: str, decision_id: str, reward: float | None, costs: Fields | None, warnings: list[str]
    ) -> Reply:
        campaign = self.campaigns[name]
        decision = campaign["decisions"][decision_id]
        if costs is not None and decision["costs"] is None:
            difference = {one: cost - decision["booked"].get(one, 0) for one, cost in costs.items()}
            self._move(campaign, spent=difference)
            decision |= {"costs": costs, "booked": costs}
        if reward is not None:
            decision["reward"] = reward
        decision["state"] = "late"
        return self._reply(name, decision_id, "late", warnings=[*warnings, "late_not_learnt"], logged=True)

    def _void(self, name: str, decision_id: str) -> Reply:
        decision = self.campaigns[name]["decisions"][decision_id]
        if decision["void"] is not None:
            return Reply(200, body=decision["void"], replayed=True)
        if decision["state"] not in ("held", "rewarded"):
            return _refused(409, "not-voidable")
        self._move(self.campaigns[name], freed=decision["hold"])
        decision["state"] = "voided"
        reply = self._reply(name, decision_id, "voided", logged=True)
        decision["void"] = reply.body
        return reply

    def _reply(
        self,
        name: str,
        decision_id: str,
        status: str,
        *,
        learned: bool = False,
        warnings: Sequence[str] = (),
        logged: bool = False,
    ) -> Reply:
        campaign = self.campaigns[name]
        campaign["rows"] += logged
        body = {"campaign_id": name, "decision_id": decision_id, "status": status, "learned": learned}
        return Reply(200, body=body | {"policy_version": campaign["learnt"], "warnings": list(warnings)})

    def expire(self, now: int) -> None:
        """Expire every decision whose time is over."""
        for campaign in self.campaigns.values():
            terms = campaign["feedback"]
            for decision in campaign["decisions"].values():
                if decision["state"] not in OPEN or decision["expires_at"] > now:
                    continue
                reward = terms["missing_reward"] if decision["reward"] is None else decision["reward"]
                campaign["learnt"] += reward is not None
                campaign["rows"] += 1
                campaign["latest"] = max(campaign["latest"], now)
                if decision["state"] == "charged":
                    decision["state"] = "settled"
                    continue
                booked = decision["hold"] if terms["missing_cost"] == "hold" else {}
                self._move(campaign, freed=decision["hold"], spent=booked)
                decision |= {"state": "expired", "booked": booked}

    def patch(self, name: str, changes: Fields) -> Reply:
        """Change budgets, max costs, horizon, arms or terms."""
        campaign = self.campaigns.get(name)
        if campaign is None:
            return _refused(404, "campaign-not-found")
        if changes.get("expected_version", campaign["version"]) != campaign["version"]:
            return _refused(409, "version-differs")
        added = {arm["id"]: _arm(arm) for arm in changes.get("add_arms", ())}
        if set(added) & set(campaign["arms"]):
            return _refused(409, "arm-exists")
        arms = campaign["arms"] | added
        changed = {one["id"]: _changed_arm(one) for one in changes.get("arms", ())}
        changed |= {arm: {"status": "retired"} for arm in changes.get("retire_arms", ())}
        if not set(changed) <= set(arms):
            return _refused(404, "unknown-arm")
        arms |= {arm: arms[arm] | change for arm, change in changed.items()}
        resources = changes.get("resources", ())
        limits = campaign["limits"] | {one["id"]: millionths(one["max_cost"]) for one in resources if "max_cost" in one}
        budgets = {one["id"]: millionths(one["budget"]) for one in resources if "budget" in one}
        if changes.get("horizon", campaign["round"] + 1) <= campaign["round"]:
            return _refused(422, "invalid-campaign")
        for one, budget in budgets.items():
            account = campaign["accounts"][one]
            if budget < account["granted"] and budget < account["spent"] + account["held"]:
                return _refused(409, "budget-below-spent")
        if not _can_be_paid(campaign, limits, arms, budgets, changes):
            return _refused(422, "invalid-campaign")
        moved = {one: budget - campaign["accounts"][one]["granted"] for one, budget in budgets.items()}
        self._move(campaign, granted=moved)
        campaign |= {"arms": arms, "limits": limits}
        campaign["feedback"] |= changes.get("feedback", {})
        campaign["horizon"] = changes.get("horizon", campaign["horizon"])
        campaign["version"] += 1
        campaign["rows"] += 1 + sum(amount != 0 for amount in moved.values())
        return self._changed(name)

    def set_status(self, name: str, action: str) -> Reply:
        """Pause, resume or archive a campaign."""
        campaign = self.campaigns.get(name)
        if campaign is None:
            return _refused(404, "campaign-not-found")
        wanted = STATUS_AFTER[action]
        if campaign["status"] == "archived" != wanted:
            return _refused(409, "campaign-archived")
        campaign["rows"] += campaign["status"] != wanted
        campaign["status"] = wanted
        return self._changed(name)

    def _changed(self, name: str) -> Reply:
        campaign = self.campaigns[name]
        ended = campaign["status"] == "active" and campaign["round"] >= campaign["horizon"]
        status = "ended" if ended else campaign["status"]
        return Reply(200, body={"id": name, "version": campaign["version"], "status": status})

    @staticmethod
    def _fits(campaign: Fields, hold: Fields) -> bool:
        accounts = campaign["accounts"]
        return all(
            amount <= max(0, accounts[one]["granted"] - accounts[one]["spent"] - accounts[one]["held"])
            for one, amount in hold.items()
        )

    @staticmethod
    def _move(campaign: Fields, **movements: Fields) -> None:
        for one, account in campaign["accounts"].items():
            for part, amounts in movements.items():
                amount = amounts.get(one, 0)
                account["held" if part == "freed" else part] += -amount if part == "freed" else amount
            account["overrun"] = max(0, account["spent"] + account["held"] - account["granted"])


def _arm(arm: Fields) -> Fields:
    return {
        "own": {one: millionths(cost) for one, cost in (arm.get("max_cost") or {}).items()},
        "status": arm.get("status", "active"),
    }


def _changed_arm(change: Fields) -> Fields:
    given = {"own": "max_cost" in change, "status": "status" in change}
    return {name: value for name, value in _arm(change).items() if given[name]}


def _can_be_paid(campaign: Fields, limits: Fields, arms: Fields, budgets: Fields, changes: Fields) -> bool:
    """Whether no active arm costs more than its resource allows, and the whole budget pays an arm, if costs change."""
    active = [arm["own"] for arm in arms.values() if arm["status"] == "active"]
    if any(cost > limits[one] for own in active for one, cost in own.items()):
        return False
    if not changes.keys() & {"resources", "arms", "add_arms"} or _only_pauses(changes):
        return True
    granted = {one: account["granted"] for one, account in campaign["accounts"].items()} | budgets
    holds = [limits | arm["own"] for arm in arms.values() if arm["status"] != "retired"]
    return not holds or any(all(amount <= granted[one] for one, amount in hold.items()) for hold in holds)


def _only_pauses(changes: Fields) -> bool:
    arms = changes.get("arms", ())
    return changes.keys() == {"arms"} and all("max_cost" not in arm and arm["status"] == "paused" for arm in arms)


def _contradicts(value: Any, known: Any) -> bool:
    return value is not None and known is not None and value != known


def _earlier(decision: Fields, halves: tuple[bool, bool]) -> Fields:
    """Return the answer to exactly these halves, or else the last answer to one of them."""
    for came, body in decision["reports"]:
        if came == halves:
            answer: Fields = body
            return answer
    return next(
        body for came, body in reversed(decision["reports"]) if (came[0] and halves[0]) or (came[1] and halves[1])
    )


def _iso(micros: int) -> str:
    return datetime.fromtimestamp(micros // ONE, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _seen_expiry(seen: Fields | None, earliest: int, latest: int) -> int:
    """Return the expiry of a hold: its time to live after now, or after the campaign's last event if that is later."""
    text = (seen or {}).get("expires_at") or "1970-01-01T00:00:00Z"
    found = int(datetime.fromisoformat(text).timestamp()) * ONE
    return min(max(found, earliest), latest)
