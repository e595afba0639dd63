"""A client that changes campaigns while others use them: PATCH, pause, resume, adjust. It records every call.

Arms pause and return, windows get new limits, max costs, hold-outs and budgets change, a shadow campaign goes live.

Each PATCH has a budget and each adjustment a reason that no other has, so that its row in the log can be found.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tests.faults.books import Books
from tests.faults.checker import INTERNAL_ERROR, Finding, movements
from tests.faults.config_checker import NEW_VERSIONS
from tests.faults.history import MICROS, Call, History
from tests.faults.kinds import LIVE_SOON
from tests.faults.shifted_clock import ShiftedClock
from tests.faults.wire import Wire

# Budgets of this resource are never exhausted, so that a PATCH of it is not refused.
MARKED = "impressions"
MARK = 1_000_000
# A call without an answer can still be carried out for this time.
UNCLEAR_SECONDS = 2.0
# From now to the end of a campaign that must not end while the clock jumps.
LONG_SECONDS = 365 * 86_400


@dataclass
class AdminCall:
    """A change of a campaign, and its answer."""

    campaign: str
    call: Call
    method: str = "POST"

    @property
    def change(self) -> str:
        """What it does: patch, adjust, pause or resume."""
        return "patch" if self.method == "PATCH" else self.call.path.rpartition("/")[2]


@dataclass
class AdminClient:
    """Changes some campaigns, which no other administrator changes."""

    ports: Sequence[int]
    campaigns: list[str]
    chance: random.Random
    clock: ShiftedClock
    bodies: dict[str, dict[str, Any]] = field(default_factory=dict)  # of the campaigns that were created
    numbers: Iterator[int] = field(default_factory=count)
    calls: list[AdminCall] = field(default_factory=list)
    # What the clients of campaigns in shadow mode play; a campaign that goes live is removed.
    baselines: dict[str, Sequence[str | None]] = field(default_factory=dict)
    _added: dict[str, list[str]] = field(default_factory=dict)
    _versions: dict[str, int] = field(default_factory=dict)
    _is_running: bool = False

    async def work(self) -> None:
        """Change one campaign after another until `stop` is called."""
        self._is_running = True
        while self._is_running:
            name = self.chance.choice(self.campaigns)
            kind = self.chance.choice((self._patch, self._patch, self._adjust, self._adjust, self._pause))
            await kind(name)
            await asyncio.sleep(self.chance.uniform(0.02, 0.2))

    def stop(self) -> None:
        """Stop after the current change."""
        self._is_running = False

    async def _ask(self, name: str, path: str, body: dict[str, Any], method: str = "POST") -> Call:
        made = AdminCall(name, Call(path, body, 0.0), method)
        self.calls.append(made)
        wire = Wire(self.chance.choice(self.ports))
        await wire.ask(made.call, method=method)
        wire.cut()
        if not made.call.is_definite:
            await asyncio.sleep(UNCLEAR_SECONDS)
        return made.call

    async def _adjust(self, name: str) -> None:
        amount = self.chance.choice((-1, 1, 1)) * self.chance.randint(1, 2 * MICROS) / MICROS
        body = {"resource": "usd", "amount": amount, "reason": f"correction {next(self.numbers)}"}
        await self._ask(name, f"/admin/campaigns/{name}/adjust", body)

    async def _patch(self, name: str) -> None:
        number = next(self.numbers)
        body: dict[str, Any] = {"resources": [{"id": MARKED, "budget": MARK + number / 1000}]}
        body = _joined(body, self.chance.choice((self._terms, self._arms, self._arms, self._limits))(name, number))
        if self.chance.random() < 0.3:  # refused if the estimate of a horizon was renewed since
            body["expected_version"] = self._versions.get(name, 1)
        call = await self._ask(name, f"/campaigns/{name}", body, "PATCH")
        if call.is_acknowledged:
            self._versions[name] = call.json["version"]
            if body.get("mode") == "live":
                self.baselines.pop(name, None)

    def _terms(self, name: str, number: int) -> dict[str, Any]:
        """Another budget, another end, or other terms."""
        if name.startswith("held-out") and self.chance.random() < 0.5:
            return {
                "holdout": {"fraction": self.chance.choice((0.1, 0.3)), "arm": self.chance.choice(("a", "b", None))}
            }
        if name == LIVE_SOON and self.chance.random() < 0.3:
            return {"mode": "live"}
        if name.startswith("timed"):
            return {"ends_at": self.clock.in_seconds(LONG_SECONDS + number)}
        if name.startswith("counted"):
            return {"horizon": 200 + 25 * number}
        if self.chance.random() < 0.5:
            return {"feedback": {"missing_cost": self.chance.choice(("hold", "none"))}}
        budget = self.chance.randint(5, 40) if name.startswith("tight") else 90_000 + self.chance.randint(0, 9_000)
        return {"resources": [{"id": "usd", "budget": budget}]}

    def _arms(self, name: str, number: int) -> dict[str, Any]:
        """Arms come, go, pause and return, one at a time."""
        added, change = self._added.setdefault(name, []), self.chance.random()
        if change < 0.25:
            added.append(f"new-{number}")
            return {"add_arms": [{"id": added[-1], "max_cost": {"usd": self.chance.choice((0.2, 0.7))}}]}
        if change < 0.5 and added:
            return {"retire_arms": [added.pop(0)]}
        return {
            "arms": [{"id": self.chance.choice("ab"), "status": self.chance.choice(("paused", "active", "active"))}]
        }

    def _limits(self, name: str, number: int) -> dict[str, Any]:
        """Other windows or other max costs, for the decisions from now on."""
        resource = self.bodies.get(name, {}).get("resources", [{}])[0]
        if "windows" in resource and self.chance.random() < 0.7:
            windows = [
                {"period": window["period"], "limit": window["limit"] * self.chance.choice((0.5, 1, 1, 1.5))}
                for window in resource["windows"]
                if self.chance.random() < 0.9  # the others are removed
            ]
            return {"resources": [{"id": "usd", "windows": windows}]}
        if self.chance.random() < 0.5:
            return {"arms": [{"id": "b", "max_cost": {"usd": self.chance.choice((0.3, 0.4, 0.5))}}]}
        return {"resources": [{"id": "usd", "max_cost": self.chance.choice((0.8, 1, 1.2))}]}

    async def _pause(self, name: str) -> None:
        await self._until_clear(name, "pause")
        await asyncio.sleep(self.chance.uniform(0.1, 0.4))
        await self._until_clear(name, "resume")

    async def _until_clear(self, name: str, action: str) -> None:
        """Repeat a change of the status until its answer is definite."""
        while not (await self._ask(name, f"/campaigns/{name}/{action}", {})).is_definite:
            pass


def _joined(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return one | other | {"resources": one["resources"] + other.get("resources", [])}


def admin_findings(calls: Sequence[AdminCall], history: History, books: dict[str, Books]) -> Iterator[Finding]:
    """Each acknowledged change is in the log once, as it was answered, and later requests have seen it."""
    for made in calls:
        if made.call.status == INTERNAL_ERROR:
            yield Finding("failed", made.campaign, f"{made.method} {made.call.path} {made.call.body}")
    for name, one in books.items():
        mine = [made for made in calls if made.campaign == name]
        yield from _missing_changes(one, mine)
    yield from _unseen_changes(calls, history)


def _missing_changes(books: Books, calls: Sequence[AdminCall]) -> Iterator[Finding]:
    patches = [row for row in books.changes if row.kind == "patch"]
    adjustments = [row for row in books.grants if row.kind == "adjust"]
    logged = Counter(_canonical(json.loads(row.body)) for row in patches)
    logged.update(row.reason for row in adjustments)
    asked = {_mark(made): made for made in calls if made.change in ("patch", "adjust")}
    for mark, times in logged.items():
        if mark not in asked or asked[mark].call.status in range(400, 500):
            yield Finding("unasked", books.campaign, f"a change that nobody made, or that was refused: {mark}")
        if times > 1:
            yield Finding("duplicated", books.campaign, f"the change {mark}")
    for mark, made in asked.items():
        if made.call.is_acknowledged and not logged[mark]:
            yield Finding("lost", books.campaign, f"the change {mark}")
    versions = [row for row in books.changes if row.kind in NEW_VERSIONS]
    for version, row in enumerate(versions, start=2):
        found = asked.get(_canonical(json.loads(row.body))) if row.kind == "patch" else None
        if found is not None and found.call.is_acknowledged and found.call.json["version"] != version:
            yield Finding("lost", books.campaign, f"version {version} was answered with {found.call.json['version']}")
    yield from _wrong_accounts(books, asked)


def _wrong_accounts(books: Books, asked: dict[str, AdminCall]) -> Iterator[Finding]:
    """The answer to an adjustment is the account after its row."""
    for moved in movements(books):
        made = asked.get(getattr(moved.row, "reason", ""))
        if made is None or not made.call.is_acknowledged or getattr(moved.row, "resource", None) != moved.resource:
            continue
        answered = tuple(round(made.call.json[name] * MICROS) for name in ("spent", "overrun"))
        if answered != (moved.after.spent, moved.after.overrun):
            yield Finding("accounts", books.campaign, f"{made.call.body}: answered {answered}, found {moved.after}")


def _unseen_changes(calls: Sequence[AdminCall], history: History) -> Iterator[Finding]:
    """A request sent after the answer to a change follows it, whichever server it goes to."""
    away: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)  # arms that are paused or retired
    pauses: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for made in calls:
        for arm, status in _arms_changed(made):
            _note(away[made.campaign, arm], made.call, ends=status == "active")
        if made.change in ("pause", "resume"):
            _note(pauses[made.campaign], made.call, ends=made.change == "resume")
    for call in history.calls:
        if not call.path.startswith("/decide") or not call.is_acknowledged or call.replayed:
            continue
        name = call.body["campaign_id"]
        for answer in call.json.get("decisions", [call.json]):
            if answer.get("reason") != "shadow" and _is_within(call, away[name, answer.get("arm") or ""]):
                yield Finding("stale", name, f"an arm was answered that was paused or retired before: {answer}")
            if _is_within(call, pauses[name]) and answer.get("reason", "paused") != "paused":
                yield Finding("stale", name, f"decided while paused: {answer}")


def _arms_changed(made: AdminCall) -> Iterator[tuple[str, str]]:
    if made.change == "patch":
        yield from ((arm["id"], arm["status"]) for arm in made.call.body.get("arms", ()) if "status" in arm)
        yield from ((arm, "retired") for arm in made.call.body.get("retire_arms", ()))


def _note(spans: list[tuple[float, float]], call: Call, *, ends: bool) -> None:
    """Begin a span with the answer to a change, or end those before when the opposite change is sent."""
    if ends:
        spans[:] = [(since, min(until, call.sent_at)) for since, until in spans]
    elif call.is_acknowledged:
        spans.append((call.answered_at or 0.0, float("inf")))


def _is_within(call: Call, spans: Sequence[tuple[float, float]]) -> bool:
    return any(since < call.sent_at and (call.answered_at or 0.0) < until for since, until in spans)


def _mark(made: AdminCall) -> str:
    return made.call.body["reason"] if made.change == "adjust" else _canonical(made.call.body)


def _canonical(value: Any) -> str:
    """Return JSON in which 1 and 1.0 are the same."""
    return json.dumps(json.loads(json.dumps(value), parse_int=float), sort_keys=True)
