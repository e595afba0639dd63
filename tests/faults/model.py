"""A model of the service in dictionaries: its answers and its books by the table of states.

It uses no code of the service. It does not choose arms: it takes the arm of the answer, checks that the arm could be
chosen, and predicts the rest of the answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import blake2b
from typing import Any

from tests.faults.declarations import (
    ONE,
    Fields,
    arm_of,
    can_be_paid,
    changed_arm,
    first_books,
    holds_for,
    is_below_spent,
    is_dead,
    means_of,
    millionths,
    new_windows,
)
from tests.faults.periods import period_of

DIMENSION = 2  # of every campaign's context
OPEN = ("held", "rewarded", "charged")
STATUS_AFTER = {"pause": "paused", "resume": "active", "archive": "archived"}


@dataclass(frozen=True)
class Request:
    """What a request for a decision asks; two of the same id must be equal."""

    context: tuple[float, ...]
    exclude: tuple[str, ...] = ()  # sorted
    baseline: tuple[str | None, ...] = ()
    max_cost: Fields = field(default_factory=dict)
    max_costs: Fields = field(default_factory=dict)


@dataclass(frozen=True)
class Reply:
    """An answer: a status, and its body or the kind of a problem."""

    status: int
    kind: str = ""  # of a problem
    body: Any = None
    replayed: bool = False


def _refused(status: int, kind: str) -> Reply:
    return Reply(status, kind)


class Model:
    """Campaigns and portfolios by name; each is a dictionary with its accounts, a campaign also has its decisions."""

    def __init__(self) -> None:
        self.campaigns: dict[str, Fields] = {}
        self.portfolios: dict[str, Fields] = {}

    def create_portfolio(self, config: Fields, now: int) -> Reply:
        """Create a portfolio with its budgets."""
        self.portfolios[config["id"]] = first_books(config) | {
            "version": 1,
            "rows": len(config["resources"]),
            "latest": now,
        }
        return Reply(201, body={"id": config["id"], "version": 1})

    def patch_portfolio(self, name: str, changes: Fields, now: int) -> Reply:
        """Change budgets and windows."""
        portfolio, resources = self.portfolios[name], changes["resources"]
        portfolio["latest"] = max(portfolio["latest"], now)
        budgets = {one["id"]: millionths(one["budget"]) for one in resources if "budget" in one}
        if any(is_below_spent(portfolio["accounts"][one], budget) for one, budget in budgets.items()):
            return _refused(409, "budget-below-spent")
        if not self._limit(portfolio, new_windows(portfolio["windows"], resources)):
            return _refused(409, "window-below-spent")
        moved = {one: budget - portfolio["accounts"][one]["granted"] for one, budget in budgets.items()}
        self._move(portfolio, None, granted=moved)
        portfolio["version"] += 1
        return Reply(200, body={"id": name, "version": portfolio["version"]})

    def touch(self, name: str, now: int) -> None:
        """Set the time of a campaign, which never goes back; the campaigns of a portfolio have one time."""
        campaign = self.campaigns[name]
        campaign["latest"] = max(campaign["latest"], now)
        if (shared := self._portfolio_of(campaign)) is not None:
            campaign["latest"] = shared["latest"] = max(campaign["latest"], shared["latest"])

    def _portfolio_of(self, campaign: Fields) -> Fields | None:
        return self.portfolios.get(campaign.get("portfolio") or "")

    def _members(self, books: Fields) -> list[Fields]:
        """Return the campaigns whose decisions are booked in a campaign or a portfolio."""
        return [one for one in self.campaigns.values() if books is one or books is self._portfolio_of(one)]

    def create(self, config: Fields, now: int) -> Reply:
        """Create a campaign with its budgets."""
        limits = {one["id"]: millionths(one["max_cost"]) for one in config["resources"]}
        campaign = first_books(config) | {
            "status": "active",
            "version": 1,
            "portfolio": config.get("portfolio"),
            "limits": limits,
            "arms": {arm["id"]: arm_of(arm) for arm in config["arms"]},
            "holdout": config.get("holdout"),
            "mode": config.get("mode", "live"),
            "floor": config.get("floor_arm"),  # if null is the last resort
            "seed": config["seed"],
            "horizon": config["horizon"],
            "feedback": dict(config["feedback"]),
            "round": 0,
            "learnt": 0,
            "rows": len(limits),  # of the log
            "latest": now,
            "decisions": {},
        }
        if (shared := self._portfolio_of(campaign)) is not None:
            means = [
                mean
                for books in (campaign, shared)
                for mean in means_of(
                    {one: each["granted"] for one, each in books["accounts"].items()}, books["windows"]
                )
            ]
            if is_dead(means, limits, campaign["arms"]):
                return _refused(422, "invalid-campaign")
        if config["id"] in self.campaigns:
            return _refused(409, "campaign-exists")
        self.campaigns[config["id"]] = campaign
        return Reply(201, body={"id": config["id"], "version": 1, "status": "active"})

    def decide(self, name: str, decision_id: str, request: Request, now: int, seen: Fields | None) -> Reply:
        """Answer one request; arm, probability and expiry are those of the engine's answer `seen` if possible."""
        campaign = self.campaigns.get(name)
        if campaign is None:
            return _refused(404, "campaign-not-found")
        self.touch(name, now)
        self._roll_over(campaign)
        before = campaign["decisions"].get(decision_id)
        if before is not None:
            if before["request"] != request:
                return _refused(409, "decision-id-reused")
            return Reply(200, body=before["answer"], replayed=True)
        body = {"decision_id": decision_id, "campaign_id": name, "arm": None, "probability": 1.0, "hold": {}}
        body |= {"expires_at": None, "round": campaign["round"], "policy_version": campaign["learnt"]}
        if campaign["status"] != "active":
            return Reply(200, body=body | {"reason": campaign["status"]})
        if not _baseline_fits(campaign, request):
            return _refused(422, "invalid-baseline")
        holds = holds_for(campaign, request)
        if holds is None:
            return _refused(422, "invalid-max-cost")
        if len(request.context) != DIMENSION:
            return _refused(422, "invalid-context")
        if campaign["round"] >= campaign["horizon"]:
            return Reply(200, body=body | {"reason": "ended"})
        body |= self._choice(campaign, request, holds, seen or {})
        arm = body["arm"]
        hold = dict(holds[arm]) if arm is not None else {}
        expires_at = None
        if arm is not None:
            expires_at = campaign["latest"] + campaign["feedback"]["ttl_seconds"] * ONE
            body |= {"expires_at": _iso(expires_at), "hold": {one: amount / ONE for one, amount in hold.items()}}
        self._move(campaign, campaign["latest"], held=hold)
        campaign["round"] += 1
        campaign["rows"] += 1
        campaign["decisions"][decision_id] = {
            "request": request, "answer": body, "arm": arm, "hold": hold, "state": "null" if arm is None else "held",
            "reward": None, "costs": None, "booked": {}, "expires_at": expires_at, "reports": [], "void": None,
            "at": campaign["latest"],
        }  # fmt: skip
        return Reply(200, body=body)

    def _choice(self, campaign: Fields, request: Request, holds: Fields, seen: Fields) -> Fields:
        """Return arm, reason and probability: those that were seen, if they are possible."""
        accounts = campaign["accounts"]
        offered = {
            arm for arm, one in campaign["arms"].items() if one["status"] == "active" and arm not in request.exclude
        }
        unlimited = {arm for arm in campaign["arms"] if _fits(holds[arm], accounts.items())}
        limited = self._limits(campaign, campaign["latest"])
        payable = {arm for arm in unlimited if _fits(holds[arm], limited)}
        short = "window_exhausted" if offered & unlimited else "budget_exhausted"
        forced = "all_excluded" if not offered else "" if offered & payable else short
        possible, reason = {*(offered & payable)}, "policy"
        if forced or not campaign["floor"]:
            possible.add(None)
        elif campaign["floor"] not in possible:  # the cheapest arm, by the largest share of what is free
            shares = {arm: self._share(campaign, holds[arm]) for arm in possible}
            possible = {arm for arm in possible if shares[arm] == min(shares.values())}
        if campaign["mode"] == "shadow":
            own = seen.get("would_have") or {}
            known = own if own.get("arm") in possible and own.get("reason") == (forced or reason) else None
            (wanted,) = request.baseline
            if not forced and wanted not in {*payable, None}:
                wanted, forced = None, "window_exhausted" if wanted in unlimited else "budget_exhausted"
            return {"reason": forced or "shadow", "arm": None if forced else wanted, "would_have": known}
        if forced:
            return {"reason": forced, "arm": None}
        terms = campaign["holdout"]
        # With a floor arm the policy decides where the arm is reserved, and nothing is never the alternative.
        draws = terms and (not campaign["floor"] or (seen.get("reason") == "holdout" and terms["arm"] in possible))
        if draws and _drawn(f"{campaign['seed']}:holdout:{campaign['round']}") < terms["fraction"]:
            possible, reason = {terms["arm"] if terms["arm"] in possible else None, None}, "holdout"
        if seen.get("arm") not in possible or not 0 < seen.get("probability", 0) <= 1:
            return {"reason": reason, "arm": None if None in possible else min(possible)}
        return {"reason": reason, "arm": seen["arm"], "probability": seen["probability"]}

    def _share(self, campaign: Fields, hold: Fields) -> float:
        """Return the largest share that a hold takes of what is free of a resource."""
        accounts = [*campaign["accounts"].items(), *self._limits(campaign, campaign["latest"])]
        free = dict.fromkeys(campaign["accounts"], math.inf)
        for one, each in accounts:
            free[one] = min(free[one], max(0, each["granted"] - each["spent"] - each["held"]))
        return max(hold[one] / max(free[one], 1e-300) for one in hold)

    def _roll_over(self, campaign: Fields) -> None:
        """Begin the periods that have none; each is a row of the log."""
        if campaign["status"] == "active" and campaign["round"] < campaign["horizon"]:
            for books in filter(None, (campaign, self._portfolio_of(campaign))):
                for resource, period in books["windows"]:
                    key = (resource, period, period_of(period, books["latest"], books["zone"]))
                    if key not in books["periods"]:
                        self._begin(books, key)

    @staticmethod
    def _begin(campaign: Fields, key: tuple[str, str, str], **sums: int) -> None:
        limit = campaign["windows"][key[:2]]
        campaign["periods"][key] = {"granted": limit, "held": 0, "spent": 0, "overrun": 0} | sums
        campaign["rows"] += 1

    @staticmethod
    def _periods_of(campaign: Fields, at: int) -> list[tuple[str, str, str]]:
        """Return the keys of the accounts of the periods that contain a time."""
        return [key for key in campaign["periods"] if period_of(key[1], at, campaign["zone"]) == key[2]]

    def _limits(self, campaign: Fields, at: int) -> list[tuple[str, Fields]]:
        """Return what decisions of a time also take from: accounts of periods, and those of the portfolio."""
        found = [(key[0], campaign["periods"][key]) for key in self._periods_of(campaign, at)]
        shared = self._portfolio_of(campaign)
        return found if shared is None else [*found, *shared["accounts"].items(), *self._limits(shared, at)]

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
            self._move(campaign, decision["at"], freed=decision["hold"], spent=costs)
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
            self._move(campaign, decision["at"], spent=difference)
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
        self._move(self.campaigns[name], decision["at"], freed=decision["hold"])
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
        for name, campaign in self.campaigns.items():
            terms = campaign["feedback"]
            for decision in campaign["decisions"].values():
                if decision["state"] not in OPEN or decision["expires_at"] > now:
                    continue
                reward = terms["missing_reward"] if decision["reward"] is None else decision["reward"]
                campaign["learnt"] += reward is not None
                campaign["rows"] += 1
                self.touch(name, now)
                if decision["state"] == "charged":
                    decision["state"] = "settled"
                    continue
                booked = decision["hold"] if terms["missing_cost"] == "hold" else {}
                self._move(campaign, decision["at"], freed=decision["hold"], spent=booked)
                decision |= {"state": "expired", "booked": booked}

    def patch(self, name: str, changes: Fields) -> Reply:
        """Change budgets, windows, max costs, horizon, arms, terms, hold-out or mode."""
        campaign = self.campaigns.get(name)
        if campaign is None:
            return _refused(404, "campaign-not-found")
        if changes.get("expected_version", campaign["version"]) != campaign["version"]:
            return _refused(409, "version-differs")
        away = [arm["id"] for arm in changes.get("arms", ()) if arm.get("status") == "paused"]
        if campaign["floor"] in (*away, *changes.get("retire_arms", ())):
            return _refused(409, "floor-arm")
        added = {arm["id"]: arm_of(arm) for arm in changes.get("add_arms", ())}
        if set(added) & set(campaign["arms"]):
            return _refused(409, "arm-exists")
        arms = campaign["arms"] | added
        changed = {one["id"]: changed_arm(one) for one in changes.get("arms", ())}
        changed |= {arm: {"status": "retired"} for arm in changes.get("retire_arms", ())}
        if not set(changed) <= set(arms):
            return _refused(404, "unknown-arm")
        arms |= {arm: arms[arm] | change for arm, change in changed.items()}
        resources = changes.get("resources", ())
        limits = campaign["limits"] | {one["id"]: millionths(one["max_cost"]) for one in resources if "max_cost" in one}
        budgets = {one["id"]: millionths(one["budget"]) for one in resources if "budget" in one}
        if changes.get("horizon", campaign["round"] + 1) <= campaign["round"]:
            return _refused(422, "invalid-campaign")
        if any(is_below_spent(campaign["accounts"][one], budget) for one, budget in budgets.items()):
            return _refused(409, "budget-below-spent")
        holdout, mode = changes.get("holdout", campaign["holdout"]), changes.get("mode", campaign["mode"])
        if holdout and (mode == "shadow" or holdout["arm"] not in {*arms, None if campaign["floor"] is None else ""}):
            return _refused(422, "invalid-campaign")
        windows = new_windows(campaign["windows"], resources)
        if not can_be_paid(campaign, limits, arms, budgets, windows, changes):
            return _refused(422, "invalid-campaign")
        if not self._limit(campaign, windows):
            return _refused(409, "window-below-spent")
        moved = {one: budget - campaign["accounts"][one]["granted"] for one, budget in budgets.items()}
        self._move(campaign, None, granted=moved)
        campaign |= {"arms": arms, "limits": limits, "holdout": holdout, "mode": mode}
        campaign["feedback"] |= changes.get("feedback", {})
        campaign["horizon"] = changes.get("horizon", campaign["horizon"])
        campaign["version"] += 1
        campaign["rows"] += 1 + sum(amount != 0 for amount in moved.values())
        return self._changed(name)

    def _limit(self, campaign: Fields, windows: Fields) -> bool:
        """Set the windows and the limits of the present periods; changes nothing if one has spent and holds more."""
        before, at = campaign["windows"], campaign["latest"]
        present = {key[:2]: key for key in self._periods_of(campaign, at)}
        added = {
            (*window, period_of(window[1], at, campaign["zone"])): self._sums(campaign, window)
            for window in windows.keys() - before.keys()
        }
        if any(windows[key[:2]] < sums["held"] + sums["spent"] for key, sums in added.items()):
            return False
        kept = {key: campaign["periods"][key] for window, key in present.items() if window in windows}
        for (resource, period, _), account in kept.items():
            if windows[resource, period] < min(account["granted"], account["held"] + account["spent"]):
                return False
        for key, account in kept.items():
            campaign["rows"] += account["granted"] != windows[key[:2]]
            account["granted"] = windows[key[:2]]
            account["overrun"] = max(0, account["spent"] + account["held"] - account["granted"])
        campaign["windows"] = windows
        campaign["rows"] += len(before.keys() - windows.keys())
        campaign["periods"] = {key: account for key, account in campaign["periods"].items() if key[:2] in windows}
        for key, sums in added.items():
            self._begin(campaign, key, **sums)
        return True

    def _sums(self, books: Fields, window: tuple[str, str]) -> dict[str, int]:
        """Return what the decisions of a window's present period hold and have spent."""
        resource, period = window
        name = period_of(period, books["latest"], books["zone"])
        made = [
            one
            for campaign in self._members(books)
            for one in campaign["decisions"].values()
            if period_of(period, one["at"], books["zone"]) == name and one["arm"] is not None
        ]
        return {
            "held": sum(one["hold"][resource] for one in made if one["state"] in ("held", "rewarded")),
            "spent": sum(one["booked"].get(resource, 0) for one in made),
        }

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

    def _move(self, campaign: Fields, at: int | None, **movements: Fields) -> None:
        """Move the accounts, and all others that a decision made at that time takes from, if it is one's movement."""
        limits = [] if at is None else self._limits(campaign, at)
        for one, account in [*campaign["accounts"].items(), *limits]:
            for part, amounts in movements.items():
                amount = amounts.get(one, 0)
                account["held" if part == "freed" else part] += -amount if part == "freed" else amount
            account["overrun"] = max(0, account["spent"] + account["held"] - account["granted"])


def _fits(hold: Fields, accounts: Iterable[tuple[str, Fields]]) -> bool:
    return all(hold[one] <= max(0, each["granted"] - each["spent"] - each["held"]) for one, each in accounts)


def _drawn(text: str) -> float:
    """Return the uniform number that a text stands for: the first 53 bits of its digest, as documented."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") // 2**11 / 2**53


def _baseline_fits(campaign: Fields, request: Request) -> bool:
    """Whether a request says what is played exactly if the campaign is in shadow mode, and can mean it."""
    if campaign["mode"] != "shadow" or not request.baseline:
        return campaign["mode"] != "shadow" and not request.baseline
    (arm,) = request.baseline
    return arm is None or (arm in campaign["arms"] and arm not in request.exclude)


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
