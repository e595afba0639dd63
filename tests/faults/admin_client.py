"""A client that changes campaigns while others use them: PATCH, pause, resume, adjust. It records every call.

Each PATCH has a budget and each adjustment a reason that no other has, so that its row in the log can be found.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from tests.faults.books import Books
from tests.faults.checker import INTERNAL_ERROR, Finding, movements
from tests.faults.config_checker import NEW_VERSIONS
from tests.faults.history import MICROS, Call, History
from tests.faults.wire import Wire

# Budgets of this resource are never exhausted, so that a PATCH of it is not refused.
MARKED = "impressions"
MARK = 1_000_000
# A call without an answer can still be carried out for this time.
UNCLEAR_SECONDS = 2.0


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
    numbers: Iterator[int] = field(default_factory=count)
    calls: list[AdminCall] = field(default_factory=list)
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
        return made.call

    async def _adjust(self, name: str) -> None:
        amount = self.chance.choice((-1, 1, 1)) * self.chance.randint(1, 2 * MICROS) / MICROS
        body = {"resource": "usd", "amount": amount, "reason": f"correction {next(self.numbers)}"}
        await self._ask(name, f"/admin/campaigns/{name}/adjust", body)

    async def _patch(self, name: str) -> None:
        number = next(self.numbers)
        body: dict[str, Any] = {"resources": [{"id": MARKED, "budget": MARK + number / 1000}]}
        change = self.chance.choice(("budget", "end", "add", "retire", "terms"))
        added = self._added.setdefault(name, [])
        if change == "budget":
            budget = self.chance.randint(5, 40) if name.startswith("tight") else 90_000 + self.chance.randint(0, 9_000)
            body["resources"].append({"id": "usd", "budget": budget})
        elif change == "end" and name.startswith("timed"):
            body["ends_at"] = in_seconds(3_600 + number)
        elif change == "end" and name.startswith("counted"):
            body["horizon"] = 200 + 25 * number
        elif change == "add" or not added:
            added.append(f"new-{number}")
            body["add_arms"] = [{"id": added[-1], "max_cost": {"usd": self.chance.choice((0.2, 0.7))}}]
        elif change == "retire":
            body["retire_arms"] = [added.pop(0)]
        else:
            body["feedback"] = {"missing_cost": self.chance.choice(("hold", "none"))}
        if self.chance.random() < 0.3:  # refused if the estimate of a horizon was renewed since
            body["expected_version"] = self._versions.get(name, 1)
        call = await self._ask(name, f"/campaigns/{name}", body, "PATCH")
        if call.is_acknowledged:
            self._versions[name] = call.json["version"]

    async def _pause(self, name: str) -> None:
        await self._until_clear(name, "pause")
        await asyncio.sleep(self.chance.uniform(0.1, 0.4))
        await self._until_clear(name, "resume")

    async def _until_clear(self, name: str, action: str) -> None:
        """Repeat a change of the status until its answer is definite and no earlier call can still be carried out."""
        while not (await self._ask(name, f"/campaigns/{name}/{action}", {})).is_definite:
            await asyncio.sleep(UNCLEAR_SECONDS)


def in_seconds(seconds: float) -> str:
    """Return a time from now in the form of the interface."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


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
    retired: dict[tuple[str, str], float] = {}
    pauses: dict[str, list[tuple[float, float]]] = {}
    for made in calls:
        at = made.call.answered_at or 0.0
        if made.call.is_acknowledged and made.change == "patch":
            retired |= {(made.campaign, arm): at for arm in made.call.body.get("retire_arms", ())}
        elif made.call.is_acknowledged and made.change == "pause":
            pauses.setdefault(made.campaign, []).append((at, float("inf")))
        elif made.change == "resume" and made.campaign in pauses:
            since, until = pauses[made.campaign][-1]
            pauses[made.campaign][-1] = since, min(until, made.call.sent_at)
    for call in history.calls:
        if not call.path.startswith("/decide") or not call.is_acknowledged or call.replayed:
            continue
        name, end = call.body["campaign_id"], call.answered_at or 0.0
        paused = any(since < call.sent_at and end < until for since, until in pauses.get(name, ()))
        for answer in call.json.get("decisions", [call.json]):
            if call.sent_at > retired.get((name, answer.get("arm") or ""), float("inf")):
                yield Finding("stale", name, f"a retired arm was answered: {answer}")
            if paused and answer.get("reason", "paused") != "paused":
                yield Finding("stale", name, f"decided while paused: {answer}")


def _mark(made: AdminCall) -> str:
    return made.call.body["reason"] if made.change == "adjust" else _canonical(made.call.body)


def _canonical(value: Any) -> str:
    """Return JSON in which 1 and 1.0 are the same."""
    return json.dumps(json.loads(json.dumps(value), parse_int=float), sort_keys=True)
