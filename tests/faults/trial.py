"""One trial: servers on a database, clients, faults, recoveries, a verdict."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

from service.settings import environment_variable
from tests.faults.books import read_books
from tests.faults.checker import INTERNAL_ERROR, Finding, findings
from tests.faults.history import ORDER, Call, History
from tests.faults.load import Habits, Load, campaign
from tests.faults.processes import Server, Testbed
from tests.faults.report import Row
from tests.faults.wire import Wire, get

READY_SECONDS_MAX = 30.0
REPLAY_SECONDS_MAX = 600.0
# How many acknowledged requests are repeated at the end; the books are compared with all of them.
REPLAYS_MAX = 4_000
ASKERS = 8
ATTEMPTS_MAX = 20
ATTEMPT_PAUSE_SECONDS = 0.2
DETAILS_MAX = 5
LOOSE, FREE = "loose", "free"
SETTINGS = {"request_deadline_ms": 4_000, "statement_timeout_ms": 3_000}


class Trial:
    """Everything between an empty database and a row of the table."""

    def __init__(
        self, testbed: Testbed, url: str, served: str, *, servers: int, seed: int, habits: Habits, settings: Any
    ) -> None:
        self.testbed = testbed
        self.url = url
        self.books_url = url  # where the checker reads
        self.forgotten: set[tuple[str, str]] = set()  # campaigns and ids of pruned decisions: a repetition is new
        self.chance = random.Random(seed)
        self.history = History()
        self.servers = [Server(testbed, served, SETTINGS | settings) for _ in range(servers)]
        self.load = Load(self.history, [server.port for server in self.servers], [LOOSE, FREE], seed, habits)
        self.loads = [self.load]
        self.recoveries: list[float] = []
        self.injections = 0
        self.replays_max = REPLAYS_MAX
        self.found: list[Finding] = []

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

    async def create(self, body: dict[str, Any]) -> None:
        """Create a campaign."""
        call = Call("/campaigns", body, 0.0)
        self.history.calls.append(call)
        wire = Wire(self.server.port)
        await wire.ask(call)
        wire.cut()

    async def tighten(self, number: int) -> None:
        """Create a campaign that exhausts its budget under the following load; it replaces the previous one."""
        name = f"tight-{number}"
        await self.create(campaign(name, budget=12))
        self.load.campaigns[:] = [LOOSE, FREE, name]

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
        known = [call for call in known if call.path != "/campaigns" and not self._is_forgotten(call)]
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
        lost = [
            finding
            for finding in findings(self.history, read_books(self.books_url))
            if finding.kind in ("lost", "duplicated")
        ]
        await self.ask_again(self.server)
        self.found += [*lost, *findings(self.history, read_books(self.books_url))]
        for name in read_books(self.books_url):
            answer = await get(self.server.port, f"/admin/campaigns/{name}/verify")
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
    **settings: Any,
) -> AsyncIterator[Trial]:
    """Yield a trial with running servers and kill them at the end; `through` maps the URL that they use.

    `url` is that of a database with empty tables; by default the test bed makes one.
    """
    with nullcontext(url) if url else testbed.database(dialect, folder=folder) as url:
        habits = habits or Habits()
        trial = Trial(testbed, url, through(url), servers=servers, seed=seed, habits=habits, settings=settings)
        try:
            await trial.start()
            yield trial
        finally:
            for load in trial.loads:
                await load.abandon()
            trial.kill_all()
