"""One trial: servers on a database, clients, faults, recoveries, a verdict."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

from service.settings import environment_variable
from tests.faults.admin_client import AdminClient, admin_findings
from tests.faults.books import Books, read_books, read_both
from tests.faults.checker import CREATIONS, INTERNAL_ERROR, Finding, by_campaign, findings, reported_costs
from tests.faults.config_checker import config_findings, configs_of, holdout_findings, shadow_findings
from tests.faults.history import ORDER, Call, History
from tests.faults.kinds import BASELINES, PORTFOLIO, kinds
from tests.faults.load import Habits, Load, campaign
from tests.faults.portfolio_checker import portfolio_findings
from tests.faults.processes import Server, Testbed
from tests.faults.report import Row, in_words
from tests.faults.shifted_clock import ShiftedClock
from tests.faults.window_checker import window_findings
from tests.faults.wire import Wire, get

READY_SECONDS_MAX = 30.0
REPLAY_SECONDS_MAX = 600.0
# How many acknowledged requests are repeated at the end; the books are compared with all of them.
REPLAYS_MAX = 4_000
ASKERS = 8
ATTEMPTS_MAX = 20
ATTEMPT_PAUSE_SECONDS = 0.2
DETAILS_MAX = 5
HALF_HOUR_SECONDS, DAY_SECONDS = 1_800, 86_400
# From midnight in the zones of `kinds` to midnight in UTC, the second in winter and in summer.
MIDNIGHTS_SECONDS = (0, 19_800, 19 * 3_600, 20 * 3_600)
LOOSE, FREE = "loose", "free"
SETTINGS = {"request_deadline_ms": 4_000, "statement_timeout_ms": 3_000}


class Trial:
    """Everything between an empty database and a row of the table."""

    def __init__(
        self,
        testbed: Testbed,
        url: str,
        served: str,
        *,
        servers: int,
        seed: int,
        habits: Habits,
        moves: bool,
        settings: Any,
    ) -> None:
        self.testbed = testbed
        self.url = url
        self.books_url = url  # where the checker reads
        self.forgotten: set[tuple[str, str]] = set()  # campaigns and ids of pruned decisions: a repetition is new
        self.chance = random.Random(seed)
        self.history = History()
        self.clock = ShiftedClock(url, testbed.folder, moves=moves)
        clocked = self.clock.environment
        self.servers = [Server(testbed, served, SETTINGS | settings, clocked) for _ in range(servers)]
        self.load = Load(self.history, [server.port for server in self.servers], [LOOSE, FREE], seed, habits)
        self.loads = [self.load]
        self.recoveries: list[float] = []
        self.injections = 0
        self.replays_max = REPLAYS_MAX
        self.found: list[Finding] = []
        self.plain = [LOOSE, FREE]  # campaigns under load, besides the one that `tighten` creates
        self.bodies: dict[str, dict[str, Any]] = {}  # of the campaigns that were created
        self.admins: list[AdminClient] = []
        self._administering: list[asyncio.Task[None]] = []

    @property
    def server(self) -> Server:
        """The first server."""
        return self.servers[0]

    def more_load(self, server: Server, campaign_id: str, label: str) -> Load:
        """Add clients of one campaign at one server."""
        load = Load(self.history, [server.port], [campaign_id], self.chance.randrange(10**6), label=label)
        self.loads.append(load)
        return load

    async def start(self) -> None:
        """Start every server and create the campaigns."""
        for server in self.servers:
            server.start()
        for server in self.servers:
            await ready(server)
        await self.create(campaign(LOOSE, budget=100_000))
        terms = {"ttl_seconds": 1, "missing_cost": "none", "missing_reward": None}
        await self.create(campaign(FREE, budget=100_000, feedback=terms))

    async def restart(self, **settings: Any) -> None:
        """Kill the first server if it runs, start it, and record its recovery."""
        self.server.kill()
        since = time.monotonic()
        self.server.start(**settings)
        await self.recovered(self.server, since)

    async def create(self, body: dict[str, Any], path: str = "/campaigns") -> None:
        """Create a campaign, or a portfolio."""
        call = Call(path, body, 0.0)
        self.history.calls.append(call)
        wire = Wire(self.server.port)
        await wire.ask(call)
        wire.cut()
        self.bodies[body["id"]] = body

    async def add_kinds(self, **feedback: Any) -> list[str]:
        """Create a campaign of each kind, perhaps with other terms; the load uses them, too. Return their ids."""
        bodies = [body | {"feedback": body["feedback"] | feedback} for body in kinds()]
        await self.create(PORTFOLIO, "/portfolios")
        for body in bodies:
            await self.create(body)
        names = [body["id"] for body in bodies]
        self.load.baselines |= {body["id"]: BASELINES for body in bodies if body.get("mode") == "shadow"}
        self.plain = [LOOSE, FREE, LOOSE, FREE, *names]
        self.load.campaigns[:] = self.plain
        return names

    def administer(self, *shares: Sequence[str]) -> None:
        """Let an administrator change each share of the campaigns until `stop_administering`."""
        ports = [server.port for server in self.servers]
        for seed, names in enumerate(shares):
            chance = random.Random(seed)
            admin = AdminClient(ports, [*names], chance, self.clock, bodies=self.bodies, baselines=self.load.baselines)
            self.admins.append(admin)
            self._administering.append(asyncio.create_task(admin.work()))

    async def stop_administering(self) -> None:
        """Stop every administrator after the current change."""
        for admin in self.admins:
            admin.stop()
        await asyncio.gather(*self._administering)
        self._administering.clear()

    def changes_note(self) -> str:
        """Return the numbers of acknowledged changes."""
        done = [made.change for one in self.admins for made in one.calls if made.call.is_acknowledged]
        return in_words(Counter(done))

    async def abandon_administering(self) -> None:
        """Cancel every administrator, also during a call."""
        for task in self._administering:
            task.cancel()
        await asyncio.gather(*self._administering, return_exceptions=True)

    def pass_time(self) -> None:
        """Let the clock jump, in half of the calls: to a moment before the end of an hour or of a day of some zone."""
        chance, seconds = self.chance.random(), self.chance.uniform(0.05, 0.5)
        if chance < 0.3:
            self.clock.jump_before(HALF_HOUR_SECONDS, seconds)
        elif chance < 0.5:
            self.clock.jump_before(DAY_SECONDS, seconds + self.chance.choice(MIDNIGHTS_SECONDS))

    async def tighten(self, number: int) -> None:
        """Create a campaign that exhausts its budget under the following load; it replaces the previous one."""
        name = f"tight-{number}"
        await self.create(campaign(name, budget=12))
        self.load.campaigns[:] = [*self.plain, name]

    async def recovered(self, server: Server, since: float) -> None:
        """Wait until the server is ready and, under load, has decided; record the time since `since`."""
        mark = len(self.history.calls)
        await ready(server)
        ended = time.monotonic()
        while self.load.is_running:
            answers = [call for call in self.history.calls[mark:] if call.is_acknowledged and call.port == server.port]
            if answers:
                ended = min(call.answered_at or 0.0 for call in answers)
                break
            assert time.monotonic() - ended < READY_SECONDS_MAX, "the server is ready but acknowledges nothing"
            await asyncio.sleep(0.01)
        self.recoveries.append(ended - since)

    def note(self, kind: str, what: str) -> None:
        """Record a finding that is not in the books, such as a late answer or a process that does not end."""
        self.found.append(Finding(kind, "", what))

    async def ask_again(self, server: Server) -> None:
        """Repeat every request without a definite answer, then many of the acknowledged ones."""
        waiting = self._without_forgotten(self.history.unanswered())
        for path in ORDER:
            await self._shared(server, [call for call in waiting if call.path == path])
        known = self.history.acknowledged()
        known = [call for call in known if call.path not in CREATIONS and not self._is_forgotten(call)]
        await self._shared(server, self.chance.sample(known, min(self.replays_max, len(known))))

    def _without_forgotten(self, waiting: list[Call]) -> list[Call]:
        """Give up the decisions that were pruned before their clients repeated them; return the other calls."""
        pruned = {call.key for call in waiting if call.path != "/feedback" and self._is_forgotten(call)}
        self.history.given_up += [call for call in self.history.calls if call.key in pruned]
        self.history.calls = [call for call in self.history.calls if call.key not in pruned]
        return [call for call in waiting if call.key not in pruned]

    def _is_forgotten(self, call: Call) -> bool:
        """Whether a decision of the call was pruned."""
        items = call.body.get("items", [call.body])
        return any((call.body.get("campaign_id", ""), item.get("decision_id")) in self.forgotten for item in items)

    async def _shared(self, server: Server, calls: list[Call]) -> None:
        """Repeat calls with several clients; one client has all calls about a decision, in their order."""
        parts: list[list[Call]] = [[] for _ in range(ASKERS)]
        for call in calls:
            parts[hash(call.body.get("decision_id", call.key)) % ASKERS].append(call)
        await asyncio.gather(*(self._again(Wire(server.port), part) for part in parts))

    async def _again(self, wire: Wire, calls: list[Call]) -> None:
        for call in calls:
            for _ in range(ATTEMPTS_MAX):  # after a recovery the service may still be busy
                again = Call(call.path, call.body, 0.0)
                self.history.calls.append(again)
                if (await wire.ask(again)).is_definite or again.status == INTERNAL_ERROR:
                    break
                await asyncio.sleep(ATTEMPT_PAUSE_SECONDS)
        wire.cut()

    async def verdict(self, fault: str, database: str, note: str = "", *, replay: bool = True) -> Row:
        """Check the books after the faults, repeat the requests, check again, and run `verify` and a replay."""
        await self.stop_administering()
        lost = [
            finding
            for finding in findings(self.history, read_books(self.books_url))
            if finding.kind in ("lost", "duplicated")
        ]
        await self.ask_again(self.server)
        books, portfolios = read_both(self.books_url)
        self.found += [*lost, *findings(self.history, books), *self._misconfigured(books, portfolios)]
        for name in [*(f"campaigns/{name}" for name in books), *(name.replace("/", "s/") for name in portfolios)]:
            answer = await get(self.server.port, f"/admin/{name}/verify")
            self.found += [Finding("verify", name, str(check)) for check in answer["checks"] if not check["ok"]]
        if replay:
            await asyncio.to_thread(self._replay)
        distinct = list(dict.fromkeys(self.found))
        return Row(
            fault=fault,
            database=database,
            injections=self.injections,
            acknowledged=len(self.history.acknowledged()),
            findings=dict(Counter(finding.kind for finding in distinct)),
            recoveries=tuple(round(seconds, 4) for seconds in self.recoveries),
            note=note,
            details=tuple(
                f"{finding.kind}: {finding.campaign} {finding.what}"[:600] for finding in distinct[:DETAILS_MAX]
            ),
        )

    def _misconfigured(self, books: dict[str, Books], portfolios: dict[str, Books]) -> Iterator[Finding]:
        """Compare books and answers with what was declared and changed."""
        yield from admin_findings([made for one in self.admins for made in one.calls], self.history, books)
        requested, reported = by_campaign(self.history.decisions()), by_campaign(self.history.reports())
        for name, one in books.items():
            yield from config_findings(one, requested[name])
            yield from holdout_findings(one)
            yield from shadow_findings(one, requested[name])
            yield from window_findings(one, reported_costs(one, reported[name]), requested[name])
        for name, portfolio in portfolios.items():
            members = [one for one in books.values() if f"portfolio/{configs_of(one)[1].get('portfolio')}" == name]
            costs = [reported_costs(one, reported[one.campaign]) for one in members]
            yield from portfolio_findings(portfolio, [*zip(members, costs, strict=True)])

    def _replay(self) -> None:
        """Stop everything and replay the log: every decision must follow from the outcomes that precede it."""
        self.kill_all()
        log = self.testbed.folder / f"replay-{self.server.port}.log"
        environment = {environment_variable("database_url"): self.url}
        code = self.testbed.zygote.start(["replay"], environment, self.testbed.folder, log).wait(REPLAY_SECONDS_MAX)
        if code != 0:
            self.note("replay", f"decisions do not follow from the log: {log.read_text()[-500:]}")

    def expect_running(self) -> None:
        """Record a finding for every server that has ended."""
        for server in self.servers:
            if server.child is None or server.child.code() is not None:
                self.note("ended", f"the process at port {server.port} has ended")

    def kill_all(self) -> None:
        """Kill every server."""
        for server in self.servers:
            server.kill()


async def ready(server: Server) -> None:
    """Wait until the server is ready."""
    started = time.monotonic()
    wire = Wire(server.port)
    while (await wire.ask(Call("/readyz", {}, 0.0), method="GET")).status != 200:
        assert server.child is not None
        if time.monotonic() - started > READY_SECONDS_MAX or server.child.code() is not None:
            tail = server.log.read_text()[-2000:] if server.log.exists() else ""
            raise AssertionError(f"the server does not start: {server.child.code()} {tail}")
        await asyncio.sleep(0.01)
    wire.cut()


@asynccontextmanager
async def new_trial(
    testbed: Testbed,
    dialect: str,
    *,
    seed: int,
    servers: int = 1,
    habits: Habits | None = None,
    folder: Path | None = None,
    through: Callable[[str], str] = str,
    url: str | None = None,
    clocked: bool = False,
    **settings: Any,
) -> AsyncIterator[Trial]:
    """Yield a trial with running servers and kill them at the end; `through` maps the URL that they use.

    `url` is that of a database with empty tables; by default the test bed makes one. `clocked` lets `trial.clock` jump.
    """
    with nullcontext(url) if url else testbed.database(dialect, folder=folder) as url:
        habits = habits or Habits()
        served = through(url)
        trial = Trial(testbed, url, served, servers=servers, seed=seed, habits=habits, moves=clocked, settings=settings)
        try:
            await trial.start()
            yield trial
        finally:
            for load in trial.loads:
                await load.abandon()
            await trial.abandon_administering()
            trial.kill_all()
