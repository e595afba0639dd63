"""A Hypothesis state machine: for any sequence of requests the engine answers and books as the model in `model.py`.

The engine is the real one on a real database, with a clock that the machine sets. On PostgreSQL two replicas serve the
same campaigns in turn. After every step the books, read by plain SQL, equal those of the model; at the end `verify`
holds and every decision follows from the log.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.reporting import with_reporter
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from structlog.testing import capture_logs

from service.engine.commands import (
    Answer,
    Command,
    CreateCampaign,
    CreatePortfolio,
    Decide,
    Expire,
    Feedback,
    Item,
    PatchCampaign,
    PatchPortfolio,
    SetStatus,
)
from service.engine.replay import replay
from service.problems import Problem
from service.reads.portfolio_verification import verify_portfolio
from service.reads.verification import verify
from service.store import tables
from service.store.database import Database
from tests.faults.books import Books
from tests.faults.engines import EngineSet, engine_set
from tests.faults.model import ONE, OPEN, Model, Reply, Request
from tests.faults.periods import period_of
from tests.faults.processes import Testbed
from tests.faults.report import Progress, Row
from tests.service.engine.campaigns import config

STEPS = 30
NAMES = ("c", "d")
# The order in which the engine carries out the commands of one transaction.
TURNS = (CreatePortfolio, PatchPortfolio, CreateCampaign, Feedback, PatchCampaign, SetStatus, Decide)
# Millionths that a float's product with a million misses.
AWKWARD = [number for number in range(50_000, 1_050_000, 7) if number / ONE * 1e6 != number][:200]
amounts = (st.integers(0, 1_300_000) | st.sampled_from(AWKWARD)).map(lambda number: number / ONE)
finer = st.integers(1, 999).map(lambda number: 0.25 + number / 1e9)
costs = st.fixed_dictionaries({}, optional={"usd": amounts | finer, "impressions": st.sampled_from((0, 1, 0.5, 1.1))})
rewards = st.sampled_from((0, -0.0, 0.25, 1, 1.5))
numbers = st.sampled_from((0.0, -0.0, 0.25, 0.5, 1.0))  # floats, as the interface decodes them
sound_contexts = st.lists(numbers, min_size=2, max_size=2)
contexts = sound_contexts | sound_contexts | sound_contexts | st.lists(numbers, min_size=1, max_size=1)
excluded = st.lists(st.sampled_from(("a", "b", "x0", "nobody")), max_size=2)
budgets = (st.integers(500_000, 6_000_000) | st.integers(10_000_000, 40_000_000)).map(lambda number: number / ONE)
names = st.sampled_from(("c", "c", "c", "d"))
timed_names = st.sampled_from(("c", "d", "d", "d"))  # "d" is of a kind, which may have windows
places = st.integers(0, 1_000)  # the index of a decision or of a replica, modulo their number
halves = st.tuples(st.none() | rewards, st.none() | costs).filter(lambda both: both != (None, None))
terms = st.fixed_dictionaries(
    {
        "missing_cost": st.sampled_from(("hold", "none")),
        "missing_reward": st.sampled_from((0, -0.0, None)),
        "ttl_seconds": st.sampled_from((60, 3600)),
    }
)
actions = st.sampled_from(("pause", "resume", "resume", "resume", "resume", "archive"))
resources = st.fixed_dictionaries({"id": st.sampled_from(("usd", "impressions")), "budget": budgets})
max_costs = st.fixed_dictionaries({"id": st.just("usd"), "max_cost": st.sampled_from((0.3, 0.5, 1, 2))})
arm_changes = st.fixed_dictionaries(
    {"id": st.sampled_from(("a", "b", "x0")), "status": st.sampled_from(("active", "paused"))},
)
arm_costs = st.fixed_dictionaries(
    {"id": st.sampled_from(("a", "b")), "max_cost": st.sampled_from(({}, {"usd": 0.2}, {"usd": 0.9}))}
)
new_arms = st.integers(0, 2).map(lambda number: {"id": f"x{number}", "max_cost": {"usd": 0.1, "impressions": 0}})
BASELINES = (("a",), ("b",), (None,), ("a",), ("x0",))
WINDOWS = (
    [{"period": "hour", "limit": 2}],
    [{"period": "day", "limit": 4}, {"period": "hour", "limit": 2}],
    [{"period": "day", "limit": 2.5}, {"period": "month", "limit": 40}],
    [{"period": "hour", "limit": 0.25}, {"period": "week", "limit": 6}],
    [],
)
HOLDOUTS = ({"fraction": 0.5, "arm": "a"}, {"fraction": 0.3, "arm": None}, {"fraction": 0.4, "arm": "x1"}, None)
limits = st.sampled_from(WINDOWS)
# A part of a configuration; `windows` are those of the first resource.
kinds = st.one_of(
    st.fixed_dictionaries({"windows": limits}, optional={"timezone": st.just("Asia/Kolkata")}),
    st.fixed_dictionaries({"windows": limits}, optional={"timezone": st.just("Europe/Berlin")}),
    st.fixed_dictionaries({"holdout": st.sampled_from(HOLDOUTS[:2])}, optional={"windows": limits}),
    st.fixed_dictionaries({"mode": st.just("shadow")}, optional={"windows": limits}),
    st.fixed_dictionaries(
        {"null_arm": st.just("last_resort"), "floor_arm": st.sampled_from(("b", "b", "a"))},
        optional={"windows": limits, "holdout": st.just(HOLDOUTS[0]), "portfolio": st.just("p")},
    ),
    st.fixed_dictionaries({"portfolio": st.just("p")}, optional={"windows": limits, "mode": st.just("shadow")}),
)
PORTFOLIO = {
    "id": "p",
    "resources": [{"id": "usd", "budget": 12, "windows": [{"period": "hour", "limit": 3}]}],
    "timezone": "Asia/Kolkata",
}
shared_changes = st.fixed_dictionaries({"id": st.just("usd")}, optional={"budget": budgets, "windows": limits}).filter(
    lambda change: len(change) > 1
)
# The clock of the tests shows 08:00 UTC on a Friday: 13:30 in Kolkata, 09:00 in Berlin.
nights = st.sampled_from((900, 3_000, 3_600, 43_200, 86_400, 200_000, -1_800))
own_costs = st.sampled_from(
    (
        *[{}] * 5,
        {"max_cost": {"usd": 0.1}},
        {"max_cost": {"usd": 0.45}},
        {"max_costs": {"a": {"usd": 0.3, "impressions": 0}, "b": {"usd": 0.2}}},
        {"max_cost": {"usd": 0.3}, "max_costs": {"x0": {"usd": 0.05}}},
    )
)
changes = st.one_of(
    st.fixed_dictionaries({"resources": st.tuples(resources | max_costs).map(list)}),
    st.fixed_dictionaries(
        {"resources": st.tuples(st.fixed_dictionaries({"id": st.just("usd"), "windows": limits})).map(list)}
    ),
    st.fixed_dictionaries({}, optional={"holdout": st.sampled_from(HOLDOUTS), "mode": st.just("live")}).filter(bool),
    st.fixed_dictionaries({"arms": st.tuples(arm_changes | arm_changes | arm_costs).map(list)}),
    st.fixed_dictionaries({"add_arms": st.tuples(new_arms).map(list)}),
    st.fixed_dictionaries({"retire_arms": st.tuples(st.sampled_from(("a", "x0", "x1"))).map(list)}),
    st.fixed_dictionaries({"feedback": terms}, optional={"expected_version": st.integers(1, 3)}),
)


class Machine(RuleBasedStateMachine):
    """Steps that the engine and the model both carry out."""

    engines: EngineSet  # `run_machine` sets it

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.engines.clear()
        self.made: Counter[str] = Counter()
        self.sound = True  # until a step fails
        self.ask([CreatePortfolio(PORTFOLIO)], 0)

    def ask(self, commands: Sequence[Command], replica: int, *, together: bool = False) -> None:
        """Run one transaction and compare its answers with the model's."""
        self.sound = False
        items = [Item(command, float("inf"), int(together)) for command in commands]
        engines = self.engines
        engines.replicas[replica % len(engines.replicas)].processor.run(items)
        asked = {getattr(command, "campaign_id", "") for command in commands} & self.model.campaigns.keys()
        for name in (*asked, *asked):  # the campaigns of a portfolio have the latest time of all
            self.model.touch(name, engines.clock.micros)
        for item in in_turn(items):
            found = reply_of(item)
            expected = self.expected(item.command, found)
            assert found == expected, f"{differing(found, expected)}, as the answer to {item.command}"
            engines.acknowledged += found.status < 300
        self.sound = True

    def expected(self, command: Command, found: Reply) -> Reply:
        """Return the model's answer."""
        model, now = self.model, self.engines.clock.micros
        if isinstance(command, CreatePortfolio):
            return model.create_portfolio(command.config, now)
        if isinstance(command, PatchPortfolio):
            return model.patch_portfolio(command.portfolio_id, command.changes, now)
        if isinstance(command, CreateCampaign):
            return model.create(command.config, now)
        if isinstance(command, Feedback):
            return model.report(command.campaign_id, command.decision_id, command.reward, command.costs, command.void)
        if isinstance(command, PatchCampaign):
            return model.patch(command.campaign_id, command.changes)
        if isinstance(command, SetStatus):
            return model.set_status(command.campaign_id, command.action)
        assert isinstance(command, Decide)
        assert command.decision_id is not None
        return model.decide(command.campaign_id, command.decision_id, request_of(command), now, found.body)

    def decision(self, number: int) -> tuple[str, str] | None:
        """Return one of the decisions; for odd numbers an open one, if there is one."""
        known = [
            (name, decision_id, decision["state"] in OPEN)
            for name, campaign in self.model.campaigns.items()
            for decision_id, decision in campaign["decisions"].items()
        ]
        chosen = [one for one in known if one[2]] if number % 2 else known
        return (chosen or known)[-1 - number // 2 % len(chosen or known)][:2] if known else None

    def has_decisions(self) -> bool:
        """Whether a decision exists."""
        return self.decision(0) is not None

    def fresh(self, name: str, context: list[float], exclude: Sequence[str] = (), **costs: Any) -> Decide:
        """Return a new request; the ids of two campaigns coincide.

        In shadow mode it says what is played, except once in a while, and elsewhere it says so once in a while.
        """
        self.made[name] += 1
        number = self.made[name]
        shadow = self.model.campaigns.get(name, {}).get("mode") == "shadow"
        baseline = BASELINES[number % len(BASELINES)] if shadow == (number % 10 != 0) else ()
        return Decide(name, f"n{number}", context, tuple(exclude), baseline=baseline, **costs)

    @initialize(budget=budgets, feedback=terms)
    def first_campaign(self, budget: float, feedback: dict[str, Any]) -> None:
        """Create the campaign that every sequence starts with."""
        self.create("c", budget, feedback, {}, 100, 0)

    @initialize(budget=budgets, feedback=terms, kind=kinds)
    def other_campaign(self, budget: float, feedback: dict[str, Any], kind: dict[str, Any]) -> None:
        """Create a campaign of another kind."""
        self.create("d", budget, feedback, kind, 100, 0)

    @rule(name=names, budget=budgets, feedback=terms, kind=kinds, horizon=st.sampled_from((8, 100)), replica=places)
    def create(
        self, name: str, budget: float, feedback: dict[str, Any], kind: dict[str, Any], horizon: int, replica: int
    ) -> None:
        """Create a campaign, which may exist already."""
        body = config(name, budget=budget, horizon=horizon, feedback=feedback)
        body |= {part: value for part, value in kind.items() if part != "windows"}
        body["resources"][0] |= {"windows": kind.get("windows", [])}
        body["arms"] = [{"id": "a"}, {"id": "b", "max_cost": {"usd": 0.4}}]
        body["policy"]["two_stage"] = False
        self.ask([CreateCampaign(body)], replica)

    @rule(name=names, context=contexts, exclude=excluded, costs=own_costs, replica=places)
    def decide(self, name: str, context: list[float], exclude: list[str], costs: dict[str, Any], replica: int) -> None:
        """Request one decision, perhaps with max costs of its own."""
        self.ask([self.fresh(name, context, exclude, **costs)], replica)

    @rule(
        name=names,
        several=st.lists(contexts, min_size=2, max_size=6),
        twice=st.none() | contexts,
        together=st.booleans(),
        costs=own_costs,
        replica=places,
    )
    def decide_batch(
        self,
        name: str,
        several: list[list[float]],
        twice: list[float] | None,
        together: bool,
        costs: dict[str, Any],
        replica: int,
    ) -> None:
        """Request several decisions in one transaction, one of them perhaps twice, with the same body or another."""
        requests = [self.fresh(name, context, **(costs if at == 1 else {})) for at, context in enumerate(several)]
        if twice is not None:
            requests.append(requests[0]._replace(context=twice))
        self.ask(requests, replica, together=together)

    @rule(
        name=names,
        several=st.lists(sound_contexts, min_size=1, max_size=4),
        both=st.tuples(rewards, amounts),
        evening=st.booleans(),
        replica=places,
    )
    def live(
        self, name: str, several: list[list[float]], both: tuple[float, float], evening: bool, replica: int
    ) -> None:
        """Decide, report each decision at once, and perhaps stop in order."""
        requests = [self.fresh(name, context) for context in several]
        self.ask(requests, replica)
        self.ask([Feedback(name, one.decision_id or "", both[0], {"usd": both[1]}) for one in requests], replica)
        if evening:
            self.restart(True, 0, replica)

    @rule(name=names, several=st.lists(sound_contexts, min_size=2, max_size=4), cost=amounts, replica=places)
    def forget(self, name: str, several: list[list[float]], cost: float, replica: int) -> None:
        """Report only the costs of one decision and nothing of the others, until they expire."""
        requests = [self.fresh(name, context) for context in several]
        self.ask(requests, replica)
        self.ask([Feedback(name, requests[0].decision_id or "", costs={"usd": cost})], replica)
        self.expire(3601, replica)

    @rule(
        name=timed_names, several=st.lists(sound_contexts, min_size=2, max_size=4), cost=amounts, seconds=nights,
        replica=places,
    )  # fmt: skip
    def overnight(self, name: str, several: list[list[float]], cost: float, seconds: int, replica: int) -> None:
        """Decide, let time pass, decide at another replica, and report the costs of a decision before and after."""
        requests = [self.fresh(name, context) for context in several]
        self.ask(requests[:-1], replica)
        self.engines.clock.micros += seconds * ONE
        self.ask(requests[-1:], replica + 1)
        for request in (requests[-1], requests[0]):
            self.ask([Feedback(name, request.decision_id or "", costs={"usd": cost})], replica)

    @rule(seconds=nights)
    def pass_time(self, seconds: int) -> None:
        """Move the clock; nothing expires."""
        self.engines.clock.micros += seconds * ONE

    @precondition(has_decisions)
    @rule(number=places, other=st.none() | contexts, replica=places)
    def decide_again(self, number: int, other: list[float] | None, replica: int) -> None:
        """Repeat a request, with 0.0 in place of -0.0, or send another one under its id."""
        name, decision_id = self.decision(number)  # type: ignore[misc]
        asked = self.model.campaigns[name]["decisions"][decision_id]["request"]
        rest = {"baseline": asked.baseline, "max_cost": asked.max_cost, "max_costs": asked.max_costs}
        context = other or [one + 0.0 for one in asked.context]
        self.ask([Decide(name, decision_id, context, asked.exclude, **rest)], replica)

    @precondition(has_decisions)
    @rule(number=places, both=halves, again=st.booleans(), replica=places)
    def report(self, number: int, both: tuple[Any, Any], again: bool, replica: int) -> None:
        """Report one half or both, perhaps twice in one transaction."""
        name, decision_id = self.decision(number)  # type: ignore[misc]
        self.ask([Feedback(name, decision_id, both[0], both[1])] * (1 + again), replica)

    @precondition(has_decisions)
    @rule(number=places, replica=places)
    def report_again(self, number: int, replica: int) -> None:
        """Repeat the reports about a decision: the reward, the costs, some of the costs, and both together."""
        name, decision_id = self.decision(number)  # type: ignore[misc]
        known = self.model.campaigns[name]["decisions"][decision_id]
        costs = known["costs"] and {one: amount / ONE for one, amount in known["costs"].items()}
        some = costs and {"usd": costs["usd"]}
        reports = [(known["reward"], None), (None, costs), (None, some), (known["reward"], costs)]
        self.ask([Feedback(name, decision_id, *both) for both in reports if both != (None, None)], replica)

    @precondition(has_decisions)
    @rule(number=places, replica=places)
    def void(self, number: int, replica: int) -> None:
        """Report that a decision was not used."""
        name, decision_id = self.decision(number)  # type: ignore[misc]
        self.ask([Feedback(name, decision_id, void=True)], replica)

    @precondition(has_decisions)
    @rule(numbers=st.lists(st.tuples(places, halves), min_size=1, max_size=4), context=contexts, replica=places)
    def all_at_once(self, numbers: list[tuple[int, tuple[Any, Any]]], context: list[float], replica: int) -> None:
        """Run decisions and reports of all campaigns in one transaction, queued in another order than the engine's."""
        commands: list[Command] = [self.fresh(name, context) for name in NAMES]
        for number, both in numbers:
            name, decision_id = self.decision(number)  # type: ignore[misc]
            commands.append(Feedback(name, decision_id, *both))
        self.ask([*commands, Feedback("c", "unheard-of", 1.0), Feedback("nowhere", "n1", 1.0)], replica)

    @rule(seconds=st.sampled_from((0, 30, 61, 61, 3601, -1800)), replica=places)
    def expire(self, seconds: int, replica: int) -> None:
        """Move the clock forward or back, then let holds expire."""
        self.sound = False
        self.engines.clock.micros += seconds * ONE
        item = Item(Expire(), float("inf"))
        self.engines.replicas[replica % len(self.engines.replicas)].processor.run([item])
        reply_of(item)
        self.model.expire(self.engines.clock.micros)
        self.sound = True

    @rule(name=names, changes=changes, replica=places)
    def patch(self, name: str, changes: dict[str, Any], replica: int) -> None:
        """Change a budget, perhaps below the amount spent, windows, arms, hold-out, mode or terms."""
        self.ask([PatchCampaign(name, changes)], replica)

    @rule(change=shared_changes, replica=places)
    def patch_portfolio(self, change: dict[str, Any], replica: int) -> None:
        """Change the budget of the portfolio, perhaps below the amount spent, or its windows."""
        self.ask([PatchPortfolio("p", {"resources": [change]})], replica)

    @rule(name=names, context=sound_contexts, replica=places)
    def pause_arm(self, name: str, context: list[float], replica: int) -> None:
        """Pause an arm at one replica and let it return, and decide each time at another that knows the campaign."""
        for status in ("active", "paused", "active"):
            self.ask([PatchCampaign(name, {"arms": [{"id": "a", "status": status}]})], replica + 1)
            self.ask([self.fresh(name, context, ("b", "x0", "x1", "x2"))], replica)

    @rule(name=names, action=actions, replica=places)
    def set_status(self, name: str, action: str, replica: int) -> None:
        """Pause, resume or archive a campaign."""
        self.ask([SetStatus(name, action)], replica)

    @rule(orderly=st.booleans(), number=places, replica=places)
    def restart(self, orderly: bool, number: int, replica: int) -> None:
        """Stop a replica in order or kill it, start it again, and repeat a request."""
        self.engines.replicas[replica % len(self.engines.replicas)].restart(orderly=orderly)
        if self.has_decisions():
            self.decide_again(number, None, replica)

    @invariant()
    def the_books_are_the_models(self) -> None:
        """Compare accounts, states, holds, rounds and the length of the log."""
        before, self.sound = self.sound, False
        books, portfolios = self.engines.books()
        assert set(books) == set(self.model.campaigns)
        for name, portfolio in self.model.portfolios.items():
            found, expected = money_of(portfolios[f"portfolio/{name}"]), money_in(portfolio)
            assert found == expected, f"{differing(found, expected)}, in the books of portfolio {name}"
        for name, campaign in self.model.campaigns.items():
            found, expected = seen_of(books[name]), seen_in(campaign)
            assert found == expected, f"{differing(found, expected)}, in the books of campaign {name}"
            for account in (*books[name].accounts, *(row.account for row in books[name].windows)):
                assert 0 <= account.spent + account.held <= account.granted + account.overrun
        self.sound = before

    def teardown(self) -> None:
        """Decide and report with and without an orderly stop, then decide on every replica, warm and cold.

        Then `verify` must hold, and a replay of the log must give every decision.
        """
        if not self.sound:
            return
        self.ask([PatchPortfolio("p", {"resources": [{"id": "usd", "budget": 1_000_000, "windows": []}]})], 0)
        for name in self.model.campaigns:
            self.ask([PatchCampaign(name, ample(self.model.campaigns[name])), SetStatus(name, "resume")], 0)
        for evening in (True, False):
            for name in self.model.campaigns:
                self.live(name, [[0.5, 0.25], [0.25, 1.0]], (1, 0.05), evening, 0)
        for cold in (False, True):
            for number, replica in enumerate(self.engines.replicas):
                if cold:
                    replica.renew()
                for name in self.model.campaigns:
                    self.ask([self.fresh(name, [0.5, 0.25])], number)
        database = self.engines.replicas[0].database
        with database.read() as connection:
            found = verify_portfolio(connection, "p")
        assert found["ok"], [check for check in found["checks"] if not check["ok"]]
        for number, name in _numbers(database):
            with database.read() as connection:
                found = verify(connection, name)
            assert found["ok"], [check for check in found["checks"] if not check["ok"]]
            difference = replay(database, number, advanced=lambda done, whole: None).difference
            assert difference is None, f"a decision does not follow from the log: {difference}"


def ample(campaign: dict[str, Any]) -> dict[str, Any]:
    """Return a change after which a campaign can decide for everybody, unless it is archived."""
    changes: dict[str, Any] = {
        "resources": [{"id": one, "budget": 1_000_000, "max_cost": 1} for one in campaign["accounts"]],
        "arms": [{"id": arm, "status": "active"} for arm in ("a", "b")],
        "horizon": 200,
        "mode": "live",
    }
    windows = [{"period": period, "limit": 1_000_000} for _, period in campaign["windows"]]
    changes["resources"][0] |= {"windows": windows} if windows else {}
    return changes


def request_of(command: Decide) -> Request:
    """Return a request as the model compares it."""
    return Request(
        context=tuple(map(float, command.context)),
        exclude=tuple(sorted({*command.exclude})),
        baseline=command.baseline,
        max_cost={**(command.max_cost or {})},
        max_costs={**(command.max_costs or {})},
    )


def in_turn(items: Sequence[Item]) -> list[Item]:
    """Return the items in the engine's order: by kind, and repeated requests after all first ones."""
    seen: Counter[Any] = Counter()
    turns = []
    for index, item in enumerate(items):
        same = (type(item.command), getattr(item.command, "campaign_id", ""), getattr(item.command, "decision_id", ""))
        later = seen[same] if isinstance(item.command, Decide) else 0
        turns.append((TURNS.index(type(item.command)), later, index))
        seen[same] += 1
    return [items[index] for _, _, index in sorted(turns)]


def reply_of(item: Item) -> Reply:
    """Return an answer as the model gives it; of a configuration only the fields that the model has."""
    answer = item.answer
    if isinstance(answer, Problem):
        return Reply(answer.status, answer.kind)
    assert isinstance(answer, Answer), f"{type(answer).__name__} instead of an answer to {item.command}: {answer}"
    body = json.loads(json.dumps(answer.body))
    if "config" in body:
        body = {part: body[part] for part in ("id", "version", "status") if part in body}
    return Reply(answer.status, body=body, replayed=answer.replayed)


def differing(found: Any, expected: Any) -> str:
    """Describe the first field that differs."""
    if isinstance(found, Reply):
        return differing(asdict(found), asdict(expected))
    if not isinstance(found, dict) or not isinstance(expected, dict):
        return f"{found!r} instead of {expected!r}"
    part = next(part for part in (expected | found) if found.get(part) != expected.get(part))
    return f"{part}: {differing(found.get(part), expected.get(part))}"


def seen_of(books: Books) -> dict[str, Any]:
    """Return the comparable fields of a campaign in the database."""
    states = {row.sequence: "held" if row.arm is not None else "null" for row in books.decisions}
    states |= {row.decision: row.status for row in books.outcomes}
    return money_of(books) | {
        "states": {row.decision_id: states[row.sequence] for row in books.decisions},
        "rows": books.sequence,
        "round": books.round,
        "holds": len(books.holds),
    }


def money_of(books: Books) -> dict[str, Any]:
    """Return the accounts of a campaign or a portfolio in the database, and those of its periods."""
    accounts = [(one.granted, one.held, one.spent, one.overrun) for one in books.accounts]
    zone = json.loads(books.configs[books.config_version]).get("timezone", "UTC")
    return {
        "accounts": dict(zip(books.resources, accounts, strict=True)),
        "periods": {
            (books.resources[row.resource], row.period, period_of(row.period, row.starts_at, zone)): (
                row.account.granted, row.account.held, row.account.spent, row.account.overrun,
            )
            for row in books.windows
        },
    }  # fmt: skip


def seen_in(campaign: dict[str, Any]) -> dict[str, Any]:
    """Return the comparable fields of a campaign in the model."""
    states = {decision_id: decision["state"] for decision_id, decision in campaign["decisions"].items()}
    return money_in(campaign) | {
        "states": states,
        "rows": campaign["rows"],
        "round": campaign["round"],
        "holds": sum(state in OPEN for state in states.values()),
    }


def money_in(books: dict[str, Any]) -> dict[str, Any]:
    """Return the accounts of a campaign or a portfolio in the model, and those of its periods."""
    parts = ("granted", "held", "spent", "overrun")
    return {
        name: {key: tuple(account[part] for part in parts) for key, account in books[name].items()}
        for name in ("accounts", "periods")
    }


def _numbers(database: Database) -> list[tuple[int, str]]:
    with database.read() as connection:
        rows = connection.execute(tables.campaign.select()).all()
    return [(row.number, row.id) for row in rows if not row.id.startswith(tables.PORTFOLIO_PREFIX)]


def run_machine(engines: EngineSet, sequences: int, *, repeatable: bool = False) -> list[str]:
    """Run sequences of steps; returns the steps of a failing sequence and the failure, or an empty list.

    `repeatable` runs the same sequences every time and does not shrink the first failing one.
    """
    machine = type("Machine", (Machine,), {"engines": engines})
    lines: list[str] = []
    phases = (Phase.generate,) if repeatable else (Phase.generate, Phase.shrink)
    chosen = settings(
        max_examples=sequences,
        stateful_step_count=STEPS,
        derandomize=repeatable,
        database=None,
        deadline=None,
        phases=phases,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    try:
        with with_reporter(lines.append), capture_logs():  # the answers show every failure
            run_state_machine_as_test(machine, settings=chosen)
    except Exception as error:  # noqa: BLE001 - any error is a finding
        return [*lines, *getattr(error, "__notes__", ()), f"{type(error).__name__}: {error}"]
    return []


async def machine(testbed: Testbed, dialect: str, injections: int, progress: Progress) -> Row:
    """Run sequences of operations, restarts and expiries; each is answered and booked as the model predicts."""
    with testbed.database(dialect) as url, engine_set(url) as engines:
        engines.begun = progress
        found = run_machine(engines, injections)
        return Row(
            fault="operations against a model",
            database=dialect,
            injections=engines.sequences,
            acknowledged=engines.acknowledged,
            findings={"differs": 1} if found else {},
            note=f"up to {STEPS} steps each; {len(engines.replicas)} engines in turn",
            details=("\n".join(found)[-3000:],) if found else (),
        )
