"""Compares a history with the books: pure functions that return findings, each of one kind.

lost         the books lack something acknowledged, or have it otherwise
duplicated   a decision, a booking, a lesson or a release is there twice, or one request has two fresh answers
over budget  more was held than was free, or a reported excess does not explain an overrun to the millionth
accounts     accounts differ from the sums of the log, or an amount was negative at some number
numbering    the numbers of the log, or the rounds, have a gap or a duplicate
states       a decision has a transition that the state table does not have
unasked      the books have something that no client requested
unclear      a request has no definite answer after the recovery, or two different answers
failed       a request was answered with 500
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tests.faults.books import Account, Books, DecisionRow, GrantRow, OutcomeRow
from tests.faults.history import History, Operation, micros_of

INTERNAL_ERROR = 500
CREATIONS = ("/portfolios", "/campaigns")
COST_MISSING = "cost_missing"
# The reasons of answers that take no round and are not stored.
UNSTORED = frozenset({"archived", "paused", "not_started", "ended"})
# The transitions of a decision's state, as documented.
FOLLOWS = {
    "held": {"charged", "rewarded", "settled", "voided", "expired"},
    "rewarded": {"settled", "voided", "expired"},
    "charged": {"settled"},
    "expired": {"late"},
    "voided": {"late"},
    "late": {"late"},
    "settled": {"late"},  # settled by its expiry, then the reward was reported
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One violation."""

    kind: str
    campaign: str
    what: str


def findings(history: History, books: dict[str, Books]) -> list[Finding]:
    """Return every violation."""
    requested, reported = by_campaign(history.decisions()), by_campaign(history.reports())
    found = list(_answers(history))
    found += [
        Finding("lost", name, "the campaign")
        for name in sorted({*requested, *reported} - set(books))
        if any(operation.answer for operation in requested[name] + reported[name])
    ]
    for name, one in books.items():
        found += _numbering(one)
        found += _accounts(one)
        found += _authorised(one, reported_costs(one, reported[name]))
        found += _states(one)
        found += _missing_decisions(one, requested[name])
        found += _missing_reports(one, reported[name])
    return found


def by_campaign(operations: Iterable[Operation]) -> dict[str, list[Operation]]:
    """Return the operations on each campaign."""
    found: dict[str, list[Operation]] = defaultdict(list)
    for operation in operations:
        found[operation.campaign].append(operation)
    return found


def _answers(history: History) -> Iterator[Finding]:
    """Each request has one definite answer, and at most one fresh one."""
    for key, calls in history.by_key().items():
        campaign = calls[0].body.get("campaign_id") or calls[0].body.get("id", "")
        done = [call for call in calls if call.is_acknowledged]
        if not any(call.is_definite for call in calls):
            yield Finding("unclear", campaign, f"no definite answer: {key}")
        if any(call.status == INTERNAL_ERROR for call in calls):
            yield Finding("failed", campaign, f"answered with {INTERNAL_ERROR}: {key}")
        if calls[0].path in CREATIONS or not done or _is_unstored(done[0].json):
            continue
        if len({call.answer for call in done}) > 1:
            yield Finding("unclear", campaign, f"two answers: {key}: {sorted({call.answer or b'' for call in done})}")
        if calls[0].path != "/decide/batch" and sum(not call.replayed for call in done) > 1:
            yield Finding("duplicated", campaign, f"two fresh answers: {key}")


def _is_unstored(answer: dict[str, object]) -> bool:
    """Whether a repetition may be answered otherwise: a paused campaign, or a report on the null arm."""
    parts: Any = answer.get("decisions", [answer])
    return any(part.get("reason") in UNSTORED or part.get("status") == "ignored" for part in parts)


def _numbering(books: Books) -> Iterator[Finding]:
    log = (books.decisions, books.outcomes, books.grants, books.changes)
    if sorted(row.sequence for rows in log for row in rows) != list(range(1, books.sequence + 1)):
        yield Finding("numbering", books.campaign, f"the log's numbers are not 1 to {books.sequence}")
    if [row.round for row in books.decisions] != list(range(books.round)):
        yield Finding("numbering", books.campaign, f"the rounds are not 0 to {books.round - 1}")
    for twice, count in Counter(row.decision_id for row in books.decisions).items():
        if count > 1:
            yield Finding("duplicated", books.campaign, f"decision {twice}")
    for before, after in pairwise(sorted((*books.decisions, *books.outcomes), key=lambda row: row.sequence)):
        if after.at < before.at:
            yield Finding("numbering", books.campaign, f"time goes back at number {after.sequence}")


@dataclass(frozen=True, slots=True)
class Movement:
    """The account of one resource before and after one row of the log."""

    row: DecisionRow | OutcomeRow | GrantRow
    resource: int
    before: Account
    after: Account


def movements(books: Books) -> Iterator[Movement]:
    """Yield the accounts of every resource at every number, computed from the log alone."""
    accounts = [Account(0, 0, 0, 0) for _ in books.resources]
    holds = {row.sequence: row.hold for row in books.decisions}
    rows: list[DecisionRow | OutcomeRow | GrantRow] = [*books.decisions, *books.outcomes, *books.grants]
    for row in sorted(rows, key=lambda row: row.sequence):
        for resource, before in enumerate(accounts):
            granted, held, spent = before.granted, before.held, before.spent
            if isinstance(row, GrantRow):
                if row.resource == resource:
                    granted += row.amount if row.kind == "budget" else 0
                    spent += row.amount if row.kind == "adjust" else 0
            elif isinstance(row, DecisionRow):
                held += row.hold[resource] if row.hold else 0
            else:
                hold = holds.get(row.decision)
                held -= hold[resource] if row.released and hold else 0
                spent += row.spent[resource] if row.spent else 0
            after = Account(granted, held, spent, max(0, spent + held - granted))
            accounts[resource] = after
            yield Movement(row, resource, before, after)


def _accounts(books: Books) -> Iterator[Finding]:
    last = {moved.resource: moved.after for moved in movements(books)}
    for resource, account in enumerate(books.accounts):
        if last.get(resource) != account:
            name = books.resources[resource]
            yield Finding("accounts", books.campaign, f"{name}: the log says {last.get(resource)}, found {account}")
    open_ = {row.sequence: row.hold for row in books.decisions if row.hold is not None}
    waiting: dict[int, tuple[int, ...]] = {}
    for row in books.outcomes:
        if row.released:
            open_.pop(row.decision, None)
        waiting.pop(row.decision, None)
        if row.status == "charged":
            waiting[row.decision] = ()
    if books.holds != open_ | waiting:
        yield Finding("accounts", books.campaign, "the open holds are not those of the open decisions")


def _authorised(books: Books, costs: dict[int, tuple[int, ...]]) -> Iterator[Finding]:
    """A hold never exceeds the free amount; an overrun grows only by an adjustment or by a cost above the hold."""
    holds = {row.sequence: row.hold for row in books.decisions}
    lapsed: set[int] = set()  # decisions whose hold was released without a charge
    for moved in movements(books):
        row, before, after = moved.row, moved.before, moved.after
        where = f"{books.resources[moved.resource]} at number {row.sequence}"
        if min(after.granted, after.held, after.spent) < 0:
            yield Finding("accounts", books.campaign, f"{where} has a negative part: {after}")
        grown = after.overrun - before.overrun
        if isinstance(row, DecisionRow) and row.hold is not None:
            if row.hold[moved.resource] > max(0, before.granted - before.spent - before.held):
                yield Finding("over budget", books.campaign, f"{where}: held more than was free")
        elif grown > 0 and (isinstance(row, DecisionRow) or row.kind not in ("reported", "late", "adjust")):
            yield Finding("over budget", books.campaign, f"{where}: an overrun of {grown} that no client reported")
        elif grown > 0 and isinstance(row, OutcomeRow):
            hold = holds[row.decision] or ()
            authorised = 0 if row.decision in lapsed else hold[moved.resource]
            injected = max(0, costs.get(row.decision, hold)[moved.resource] - authorised)
            if grown > injected:
                what = f"{where}: the overrun grew by {grown}, {injected} were injected"
                yield Finding("over budget", books.campaign, what)
        released = isinstance(row, OutcomeRow) and row.released and row.kind in ("void", "expired")
        if released and not any(row.spent or ()):
            lapsed.add(row.decision)


def reported_costs(books: Books, reported: Sequence[Operation]) -> dict[int, tuple[int, ...]]:
    """Return the costs that the client sent, by decision."""
    rows = {row.decision_id: row for row in books.decisions}
    found = {}
    for operation in reported:
        costs, row = operation.body.get("costs"), rows.get(operation.decision_id)
        if costs is not None and row is not None:
            found[row.sequence] = _amounts(costs, row.hold if costs else None, books)
    return found


def _amounts(costs: dict[str, float], hold: tuple[int, ...] | None, books: Books) -> tuple[int, ...]:
    """Return the costs of every resource in millionths; for a resource that is left out the hold, or 0 without one."""
    missing = hold or (0,) * len(books.resources)
    named = zip(books.resources, missing, strict=True)
    return tuple(micros_of(costs[name]) if name in costs else amount for name, amount in named)


def _states(books: Books) -> Iterator[Finding]:
    """Every decision follows the state table, and is booked, released and learnt at most once."""
    outcomes: dict[int, list[OutcomeRow]] = defaultdict(list)
    for row in books.outcomes:
        outcomes[row.decision].append(row)
    for number in set(outcomes) - {row.sequence for row in books.decisions}:
        yield Finding("unasked", books.campaign, f"an outcome of decision {number}, which does not exist")
    for number, rows in outcomes.items():
        status = "held"
        for row in rows:
            if row.status not in FOLLOWS[status]:
                yield Finding("states", books.campaign, f"decision {number}: {status} became {row.status}")
            status = row.status
        for what, count in (
            ("released", sum(row.released for row in rows)),
            ("learnt", sum(row.taught for row in rows)),
            ("charged", sum(row.spent is not None and row.kind in ("reported", "late") for row in rows)),
            ("expired", sum(row.kind == "expired" for row in rows)),
        ):
            if count > 1:
                yield Finding("duplicated", books.campaign, f"decision {number} was {what} {count} times")


def _missing_decisions(books: Books, requested: Sequence[Operation]) -> Iterator[Finding]:
    rows = {row.decision_id: row for row in books.decisions}
    for name in set(rows) - {operation.decision_id for operation in requested}:
        yield Finding("unasked", books.campaign, f"decision {name}")
    for operation in requested:
        answer = operation.answer
        if answer is None or answer.get("reason") in UNSTORED or "error" in answer:
            continue
        row = rows.get(operation.decision_id)
        if row is None:
            yield Finding("lost", books.campaign, f"decision {operation.decision_id}")
            continue
        hold = tuple(micros_of(answer["hold"][name]) for name in books.resources) if answer["hold"] else None
        answered = (answer["arm"], answer["reason"], answer["round"], answer["probability"], hold)
        if answered != (row.arm, row.reason, row.round, row.probability, row.hold):
            yield Finding("lost", books.campaign, f"decision {operation.decision_id}: answered {answered}, found {row}")


def _missing_reports(books: Books, reported: Sequence[Operation]) -> Iterator[Finding]:
    numbers = {row.decision_id: row.sequence for row in books.decisions}
    outcomes: dict[int, list[OutcomeRow]] = defaultdict(list)
    for row in books.outcomes:
        outcomes[row.decision].append(row)
    sent: dict[int, list[Operation]] = defaultdict(list)
    for operation in reported:
        sent[numbers.get(operation.decision_id, 0)].append(operation)
        if operation.answer is None or operation.answer["status"] == "ignored":
            continue
        rows = outcomes[numbers.get(operation.decision_id, 0)]
        if not any(_answered_by(row, operation.answer) for row in rows):
            yield Finding("lost", books.campaign, f"report {operation.body}, answered {operation.answer}")
    holds = {row.sequence: row.hold for row in books.decisions}
    for number, rows in outcomes.items():
        hold = holds.get(number)
        for row in rows:
            if row.kind != "expired" and not any(_is_of(row, operation, hold, books) for operation in sent[number]):
                yield Finding("unasked", books.campaign, f"outcome {row.sequence} of decision {number}: {row}")


def _answered_by(row: OutcomeRow, answer: dict[str, object]) -> bool:
    answered = (answer["status"], answer["learned"], answer["policy_version"], answer["warnings"])
    return answered == (row.status, row.taught, row.policy_version, list(row.warnings))


def _is_of(row: OutcomeRow, operation: Operation, hold: tuple[int, ...] | None, books: Books) -> bool:
    """Whether a row of the log equals a client's report, to the millionth; the row says if a cost was missing."""
    body = operation.body
    if row.kind == "void":
        return body.get("void") is True
    costs = body.get("costs")
    if row.reward != body.get("reward"):
        return False
    if costs is None:
        return row.costs is None
    # Without the warning nothing was replaced; with it the hold or, by the campaign's terms, 0.
    replaced = hold if COST_MISSING in row.warnings else None
    return row.costs in (_amounts(costs, None, books), _amounts(costs, replaced, books))
