"""Whether a history and the books agree: pure functions that return what is wrong, each finding of one kind.

lost         something acknowledged is not in the books, or not as it was acknowledged
duplicated   something is there twice: a decision, a booking, a lesson, a release, or two fresh answers to one request
over budget  more was held than was free, or an overrun that no reported excess explains to the millionth
accounts     accounts are not the sums of the log, or a part of one was negative at some number
numbering    the numbers of the log, or the rounds, have a gap or a twin
states       a decision went from one state to another that does not follow it
unasked      the books have something that nobody asked for
unclear      a request has no definite answer after the recovery, or two different ones
failed       a request was answered with 500: the service did something that it does not know of
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.faults.books import Account, Became, Books, Decided, Granted
from tests.faults.history import History, Operation, micros_of

INTERNAL_ERROR = 500
# Answers that take no round and are not stored.
UNSTORED = frozenset({"archived", "paused", "ended"})
# Which states may follow which; the table of DESIGN.md.
FOLLOWS = {
    "held": {"charged", "rewarded", "settled", "voided", "expired"},
    "rewarded": {"settled", "voided", "expired"},
    "charged": {"settled"},
    "expired": {"late"},
    "voided": {"late"},
    "late": {"late"},
    "settled": {"late"},  # by its expiry, and then the reward came after all
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    kind: str
    campaign: str
    what: str


def findings(history: History, books: dict[str, Books]) -> list[Finding]:
    """Everything that is wrong."""
    asked: dict[str, list[Operation]] = defaultdict(list)
    told: dict[str, list[Operation]] = defaultdict(list)
    for operation in history.decisions():
        asked[operation.campaign].append(operation)
    for operation in history.reports():
        told[operation.campaign].append(operation)
    found = list(_answers(history))
    found += [
        Finding("lost", name, "the campaign")
        for name in sorted({*asked, *told} - set(books))
        if any(operation.answer for operation in asked[name] + told[name])
    ]
    for name, one in books.items():
        found += _numbering(one)
        found += _accounts(one)
        found += _authorised(one, _reported_costs(one, told[name]))
        found += _states(one)
        found += _asked_and_there(one, asked[name])
        found += _told_and_there(one, told[name])
    return found


def _answers(history: History) -> Iterator[Finding]:
    """Each request has one definite answer, given freshly at most once."""
    for key, calls in history.by_key().items():
        campaign = calls[0].body.get("campaign_id") or calls[0].body.get("id", "")
        done = [call for call in calls if call.is_acknowledged]
        if not any(call.is_definite for call in calls):
            yield Finding("unclear", campaign, f"no definite answer: {key}")
        if any(call.status == INTERNAL_ERROR for call in calls):
            yield Finding("failed", campaign, f"answered with {INTERNAL_ERROR}: {key}")
        if calls[0].path == "/campaigns" or not done or _is_unstored(done[0].json):
            continue
        if len({call.answer for call in done}) > 1:
            yield Finding("unclear", campaign, f"two answers: {key}: {sorted({call.answer or b'' for call in done})}")
        if calls[0].path != "/decide/batch" and sum(not call.replayed for call in done) > 1:
            yield Finding("duplicated", campaign, f"two fresh answers: {key}")


def _is_unstored(answer: dict[str, object]) -> bool:
    """Answers that need not be the same again: of a campaign at rest, of a report on the null arm."""
    return answer.get("reason") in UNSTORED or answer.get("status") == "ignored"


def _numbering(books: Books) -> Iterator[Finding]:
    numbers = [row.sequence for rows in (books.decisions, books.outcomes, books.grants) for row in rows]
    if sorted([*numbers, *books.changes]) != list(range(1, books.sequence + 1)):
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
class Moved:
    """One resource before and after one row of the log."""

    row: Decided | Became | Granted
    resource: int
    before: Account
    after: Account


def movements(books: Books) -> Iterator[Moved]:
    """The accounts of every resource at every number, from the log alone; `overrun` is what lacks."""
    accounts = [Account(0, 0, 0, 0) for _ in books.resources]
    holds = {row.sequence: row.hold for row in books.decisions}
    rows: list[Decided | Became | Granted] = [*books.decisions, *books.outcomes, *books.grants]
    for row in sorted(rows, key=lambda row: row.sequence):
        for resource, before in enumerate(accounts):
            granted, held, spent = before.granted, before.held, before.spent
            if isinstance(row, Granted):
                if row.resource == resource:
                    granted += row.amount if row.kind == "budget" else 0
                    spent += row.amount if row.kind == "adjust" else 0
            elif isinstance(row, Decided):
                held += row.hold[resource] if row.hold else 0
            else:
                hold = holds.get(row.decision)
                held -= hold[resource] if row.released and hold else 0
                spent += row.spent[resource] if row.spent else 0
            after = Account(granted, held, spent, max(0, spent + held - granted))
            accounts[resource] = after
            yield Moved(row, resource, before, after)


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
        yield Finding("accounts", books.campaign, "the open holds are not those of decisions that nothing has ended")


def _authorised(books: Books, costs: dict[int, tuple[int, ...]]) -> Iterator[Finding]:
    """Holds fit into what is free; an overrun grows only by a cost that a client says it reported above the hold."""
    holds = {row.sequence: row.hold for row in books.decisions}
    lapsed: set[int] = set()  # decisions whose hold was given back without a charge
    for moved in movements(books):
        row, before, after = moved.row, moved.before, moved.after
        where = f"{books.resources[moved.resource]} at number {row.sequence}"
        if min(after.granted, after.held, after.spent) < 0:
            yield Finding("accounts", books.campaign, f"{where} has a negative part: {after}")
        grown = after.overrun - before.overrun
        if isinstance(row, Decided) and row.hold is not None:
            if row.hold[moved.resource] > max(0, before.granted - before.spent - before.held):
                yield Finding("over budget", books.campaign, f"{where}: held more than was free")
        elif grown > 0 and not (isinstance(row, Became) and row.kind in ("reported", "late")):
            yield Finding("over budget", books.campaign, f"{where}: an overrun of {grown} that nobody reported")
        elif grown > 0 and isinstance(row, Became):
            hold = holds[row.decision] or ()
            authorised = 0 if row.decision in lapsed else hold[moved.resource]
            injected = max(0, costs.get(row.decision, hold)[moved.resource] - authorised)
            if grown > injected:
                what = f"{where}: the overrun grew by {grown}, {injected} were injected"
                yield Finding("over budget", books.campaign, what)
        if isinstance(row, Became) and row.released and not any(row.spent or ()) and row.kind in ("void", "expired"):
            lapsed.add(row.decision)


def _reported_costs(books: Books, told: Sequence[Operation]) -> dict[int, tuple[int, ...]]:
    """By decision, the costs that the client sent."""
    numbers = {row.decision_id: row.sequence for row in books.decisions}
    found = {}
    for operation in told:
        costs = operation.body.get("costs")
        if costs is not None and operation.decision_id in numbers:
            found[numbers[operation.decision_id]] = tuple(micros_of(costs.get(name, 0)) for name in books.resources)
    return found


def _states(books: Books) -> Iterator[Finding]:
    """Every decision goes the ways of the table, is booked, released and learnt at most once."""
    outcomes: dict[int, list[Became]] = defaultdict(list)
    for row in books.outcomes:
        outcomes[row.decision].append(row)
    for number in set(outcomes) - {row.sequence for row in books.decisions}:
        yield Finding("unasked", books.campaign, f"an outcome of decision {number}, which is not there")
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


def _asked_and_there(books: Books, asked: Sequence[Operation]) -> Iterator[Finding]:
    rows = {row.decision_id: row for row in books.decisions}
    for name in set(rows) - {operation.decision_id for operation in asked}:
        yield Finding("unasked", books.campaign, f"decision {name}")
    for operation in asked:
        answer = operation.answer
        if answer is None or answer.get("reason") in UNSTORED or "error" in answer:
            continue
        row = rows.get(operation.decision_id)
        if row is None:
            yield Finding("lost", books.campaign, f"decision {operation.decision_id}")
            continue
        hold = tuple(micros_of(answer["hold"][name]) for name in books.resources) if answer["hold"] else None
        told = (answer["arm"], answer["reason"], answer["round"], answer["probability"], hold)
        if told != (row.arm, row.reason, row.round, row.probability, row.hold):
            yield Finding("lost", books.campaign, f"decision {operation.decision_id}: told {told}, found {row}")


def _told_and_there(books: Books, told: Sequence[Operation]) -> Iterator[Finding]:
    numbers = {row.decision_id: row.sequence for row in books.decisions}
    outcomes: dict[int, list[Became]] = defaultdict(list)
    for row in books.outcomes:
        outcomes[row.decision].append(row)
    sent: dict[int, list[Operation]] = defaultdict(list)
    for operation in told:
        sent[numbers.get(operation.decision_id, 0)].append(operation)
        if operation.answer is None or operation.answer["status"] == "ignored":
            continue
        rows = outcomes[numbers.get(operation.decision_id, 0)]
        if not any(_answered_by(row, operation.answer) for row in rows):
            yield Finding("lost", books.campaign, f"report {operation.body}, answered {operation.answer}")
    for number, rows in outcomes.items():
        for row in rows:
            if row.kind != "expired" and not any(_is_of(row, operation, books) for operation in sent[number]):
                yield Finding("unasked", books.campaign, f"outcome {row.sequence} of decision {number}: {row}")


def _answered_by(row: Became, answer: dict[str, object]) -> bool:
    told = (answer["status"], answer["learned"], answer["policy_version"], answer["warnings"])
    return told == (row.status, row.taught, row.policy_version, list(row.warnings))


def _is_of(row: Became, operation: Operation, books: Books) -> bool:
    """Whether a row of the log is what a client sent, to the millionth."""
    body = operation.body
    if row.kind == "void":
        return body.get("void") is True
    costs = body.get("costs")
    amounts = None if costs is None else tuple(micros_of(costs.get(name, 0)) for name in books.resources)
    return row.costs == amounts and row.reward == body.get("reward")
