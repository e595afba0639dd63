"""Compares what the windows of a campaign have in each period with its log: pure functions that return findings.

over window  more was held in a period than was free, or a reported excess does not explain an overrun
windows      a period's account differs from the sums of the decisions made in it, or has other bounds
exhausted    a decision is null for a reason that the accounts do not have, or where null is the last resort
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.faults.books import Account, Books, ChangeRow, DecisionRow, GrantRow, OutcomeRow
from tests.faults.checker import Finding
from tests.faults.config_checker import NEW_VERSIONS, holds_of
from tests.faults.history import Operation, micros_of
from tests.faults.periods import PERIODS, period_of

Key = tuple[int, str, str]  # a resource, a kind of period, the period's name
Log = list[DecisionRow | OutcomeRow | GrantRow | ChangeRow]
NOTHING = Account(0, 0, 0, 0)


def window_findings(
    books: Books, costs: Mapping[int, tuple[int, ...]], requested: Sequence[Operation]
) -> Iterator[Finding]:
    """Every period has the sums of its decisions and never more than its limit; `costs` are those that were reported.

    A decision is null for want of money only if there is too little of it, and otherwise only if null is allowed.
    """
    past = _LogSoFar(books, costs, {operation.decision_id: operation.body for operation in requested})
    rows: Log = [*books.decisions, *books.outcomes, *books.grants, *books.changes]
    for row in sorted(rows, key=lambda row: row.sequence):
        yield from past.see(row)
    yield from past.differences()


@dataclass
class _LogSoFar:
    """The log up to one of its rows."""

    books: Books
    costs: Mapping[int, tuple[int, ...]]
    bodies: Mapping[str, dict[str, Any]]  # of the requests, by their ids
    config: dict[str, Any] = field(init=False)
    version: int = 1
    accounts: list[Account] = field(init=False)
    # The sums of all periods, whether or not there is a window; `granted` is 0 for a period without an account.
    sums: dict[Key, Account] = field(default_factory=lambda: defaultdict(lambda: NOTHING))
    lapsed: set[int] = field(default_factory=set)  # decisions whose hold was released without a charge

    def __post_init__(self) -> None:
        self.config = json.loads(self.books.configs[1])
        self.accounts = [NOTHING for _ in self.books.resources]
        self.decisions = {row.sequence: row for row in self.books.decisions}

    def see(self, row: DecisionRow | OutcomeRow | GrantRow | ChangeRow) -> Iterator[Finding]:
        """Take the next row of the log."""
        if isinstance(row, ChangeRow):
            yield from self._change(row)
        elif isinstance(row, GrantRow):
            account = self.accounts[row.resource]
            part = "granted" if row.kind == "budget" else "spent"
            self.accounts[row.resource] = replace(account, **{part: getattr(account, part) + row.amount})
        elif isinstance(row, DecisionRow):
            yield from self._decide(row)
        else:
            yield from self._book(row)

    def _windows(self) -> dict[tuple[int, str], int]:
        """Return the limits in force."""
        return {
            (index, window["period"]): micros_of(window["limit"])
            for index, resource in enumerate(self.config["resources"])
            for window in resource.get("windows") or ()
        }

    def _keys(self, at: int) -> list[Key]:
        zone = self.config.get("timezone", "UTC")
        names = {period: period_of(period, at, zone) for period in PERIODS}
        return [(resource, period, names[period]) for resource in range(len(self.accounts)) for period in PERIODS]

    def _change(self, row: ChangeRow) -> Iterator[Finding]:
        """A new limit holds at once, and never below what the period has; a window that is removed has no periods."""
        if row.kind not in NEW_VERSIONS:
            return
        before = self._windows()
        self.version += 1
        self.config = json.loads(self.books.configs.get(self.version, json.dumps(self.config)))
        after = self._windows()
        for key in [key for key in self.sums if key[:2] not in after]:
            self.sums[key] = replace(self.sums[key], granted=0)
        for key in self._keys(row.at):
            account, window = self.sums[key], key[:2]
            if window in after and (account.granted or window not in before):
                old = account.granted if window in before else account.spent + account.held
                self.sums[key] = replace(account, granted=after[window])
                if after[window] < min(old, account.spent + account.held):
                    yield self._finding("over window", row.sequence, key, f"limited to {after[window]} at {account}")

    def _decide(self, row: DecisionRow) -> Iterator[Finding]:
        limits = self._windows()
        own = [key for key in self._keys(row.at) if key[:2] in limits]
        for key in own:
            if not self.sums[key].granted:
                self.sums[key] = replace(self.sums[key], granted=limits[key[:2]])
        free = [max(0, one.granted - one.spent - one.held) for one in self.accounts]
        left = list(free)
        for key in own:
            account = self.sums[key]
            left[key[0]] = min(left[key[0]], max(0, account.granted - account.spent - account.held))
        decides = row.arm is None and self.config.get("mode") != "shadow"
        if decides and (wrong := self._unfounded(row, free, left)):
            yield Finding("exhausted", self.books.campaign, f"at number {row.sequence}: {wrong}")
        if row.hold is None:
            return
        for key in own:
            if row.hold[key[0]] > self.sums[key].granted - self.sums[key].spent - self.sums[key].held:
                yield self._finding("over window", row.sequence, key, f"{row.hold} held at {self.sums[key]}")
        self._move(row, held=row.hold)

    def _unfounded(self, row: DecisionRow, free: Sequence[int], left: Sequence[int]) -> str:
        """Return why a decision for null contradicts the accounts, if it does."""
        body = self.bodies.get(row.decision_id)
        if body is None:
            return ""
        holds = holds_of(self.config, body)
        payable = [arm for arm, hold in holds.items() if all(map(int.__le__, hold, left))]
        without = [arm for arm, hold in holds.items() if all(map(int.__le__, hold, free))]
        expected = (
            "all_excluded" if not holds
            else "budget_exhausted" if not without
            else "window_exhausted" if not payable
            else ""
        )  # fmt: skip
        if row.reason == "window_exhausted" and not expected and self.config.get("portfolio"):
            return ""  # the portfolio may be short
        chosen = () if self.config.get("null_arm") == "last_resort" else ("policy", "holdout")
        if row.reason != expected and (expected or row.reason not in chosen):
            return f"null for {row.reason} where {payable} of {list(holds)} can be paid, {without} without windows"
        return ""

    def _book(self, row: OutcomeRow) -> Iterator[Finding]:
        """Whatever becomes of a decision is booked in the periods in which it was made."""
        decision = self.decisions.get(row.decision)
        if decision is None:
            return
        hold = decision.hold or tuple(0 for _ in self.accounts)
        freed = tuple(-amount for amount in hold) if row.released else ()
        before = {key: self.sums[key] for key in self._keys(decision.at)}
        self._move(decision, held=freed, spent=row.spent or ())
        for key, account in before.items():
            grown = _overrun(self.sums[key]) - _overrun(account)
            if not account.granted or grown <= 0:
                continue
            authorised = 0 if row.decision in self.lapsed else hold[key[0]]
            reported = row.kind in ("reported", "late")
            injected = max(0, self.costs.get(row.decision, hold)[key[0]] - authorised) if reported else 0
            if grown > injected:
                what = f"the overrun grew by {grown}, {injected} were injected"
                yield self._finding("over window", row.sequence, key, what)
        if row.released and row.kind in ("void", "expired") and not any(row.spent or ()):
            self.lapsed.add(row.decision)

    def _move(self, row: DecisionRow, **amounts: Sequence[int]) -> None:
        moved = {part: amounts[part] for part in amounts if amounts[part]}
        for resource, account in enumerate(self.accounts):
            self.accounts[resource] = _moved(account, resource, moved)
        for key in self._keys(row.at):
            self.sums[key] = _moved(self.sums[key], key[0], moved)

    def differences(self) -> Iterator[Finding]:
        """Compare the periods with the rows of the database."""
        zone = self.config.get("timezone", "UTC")
        expected = {key: account for key, account in self.sums.items() if account.granted}
        found: dict[Key, Account] = {}
        for row in self.books.windows:
            key = (row.resource, row.period, period_of(row.period, row.starts_at, zone))
            if key in found:
                yield self._finding("windows", self.books.sequence, key, "has two accounts")
            found[key] = row.account
            inside = [
                period_of(row.period, at, zone) == key[2] for at in (row.ends_at - 1, row.starts_at - 1, row.ends_at)
            ]
            if inside != [True, False, False]:
                yield self._finding("windows", self.books.sequence, key, f"from {row.starts_at} to {row.ends_at}")
        for key in {*expected, *found}:
            account = expected.get(key, NOTHING)
            wanted = replace(account, overrun=_overrun(account))
            # A period may begin with a request that is refused.
            empty = key not in expected and found[key].held == found[key].spent == 0
            if not empty and found.get(key) != wanted:
                yield self._finding("windows", self.books.sequence, key, f"{found.get(key)}, the log says {wanted}")

    def _finding(self, kind: str, number: int, key: Key, what: str) -> Finding:
        name = f"{self.books.resources[key[0]]} in the {key[1]} {key[2]}"
        return Finding(kind, self.books.campaign, f"{name} at number {number}: {what}")


def _overrun(account: Account) -> int:
    return max(0, account.spent + account.held - account.granted)


def _moved(account: Account, resource: int, moved: Mapping[str, Sequence[int]]) -> Account:
    return replace(account, **{part: getattr(account, part) + amounts[resource] for part, amounts in moved.items()})
