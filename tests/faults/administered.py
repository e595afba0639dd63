"""Three processes on one PostgreSQL serve campaigns of every kind, which are changed and pruned under kills."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from typing import Any

from service.settings import environment_variable
from tests.faults.admin_client import LONG_SECONDS
from tests.faults.archive import archive_pruned, pruned_decisions
from tests.faults.kinds import BASELINES
from tests.faults.load import Habits, campaign
from tests.faults.processes import Server, Testbed
from tests.faults.report import Progress, Row, in_words
from tests.faults.shifted_clock import ShiftedClock
from tests.faults.trial import FREE, LOOSE, Trial, new_trial

CLIENTS = 9
HABITS = Habits(elsewhere=0.3)
SETTINGS = {"lock_timeout_ms": 300, "idle_in_transaction_timeout_ms": 1_500, "statement_timeout_ms": 1_500}
SOON = {"ttl_seconds": 1, "late_window_seconds": 1}  # pruned soon after the expiry
# One campaign without budget and one without time are replaced after this many kills.
RENEWAL_KILLS = 5
BRIEF_SECONDS = 4
FROZEN_SECONDS_MAX = 4.0
COMMAND_SECONDS_MAX = 60.0
# Decisions that were finished this long ago are pruned.
PRUNE_AGE_SECONDS = 1


def _own_kinds(clock: ShiftedClock) -> list[dict[str, Any]]:
    """Return the campaigns that exist throughout, besides those of `kinds`."""
    free = SOON | {"missing_cost": "none", "missing_reward": None}
    return [
        campaign("shadow-tight", budget=40, mode="shadow", feedback=free),
        campaign("timed", budget=100_000, feedback=SOON, horizon=None, ends_at=clock.in_seconds(LONG_SECONDS)),
        campaign("counted", budget=100_000, feedback=free, horizon=200),
    ]


async def administered(testbed: Testbed, dialect: str, injections: int, progress: Progress) -> Row:
    """Kill one of three processes again and again, or freeze one, while administrators change the campaigns."""
    async with new_trial(testbed, dialect, seed=12, clocked=True, servers=3, habits=HABITS, **SETTINGS) as trial:
        trial.books_url = archive_pruned(trial.url)
        names = [LOOSE, FREE, *(await trial.add_kinds(late_window_seconds=1)), *(await _created(trial))]
        trial.administer(names[::2], names[1::2])
        maintenance = Maintenance(trial)
        work = (maintenance.prune_repeatedly(), maintenance.check_repeatedly())
        working = [asyncio.create_task(one) for one in work]
        trial.load.start(CLIENTS)
        frozen = 0
        for number in range(injections):
            if number % RENEWAL_KILLS == 0:
                trial.pass_time()
                await _renewed(trial, names, number)
            await asyncio.sleep(trial.chance.uniform(0.2, 1.2))
            server, other, _ = trial.chance.sample(trial.servers, 3)
            freezer = asyncio.create_task(_freeze(trial, other)) if number % 3 == 1 else None
            await _killed(trial, server)
            if freezer is not None:
                await freezer
                frozen += 1
            progress()
        maintenance.stop()
        await trial.stop_administering()
        await asyncio.gather(*working)
        await trial.load.stop()
        await maintenance.prune()
        trial.expect_running()
        _check(trial)
        note = f"{frozen} freezes; {maintenance.note()}; {trial.changes_note()}"
        return await trial.verdict("replicas changed and pruned under kills", dialect, note=note)


async def _created(trial: Trial) -> list[str]:
    bodies = _own_kinds(trial.clock)
    for body in bodies:
        await trial.create(body)
    trial.load.baselines["shadow-tight"] = BASELINES
    return [body["id"] for body in bodies]


async def _renewed(trial: Trial, names: list[str], number: int) -> None:
    """Replace the campaign that runs out of budget, which has an administrator, and the one whose time ends."""
    tight, brief = f"tight-{number}", f"brief-{number}"
    await trial.create(campaign(tight, budget=12, feedback=SOON))
    ends_at, admin = trial.clock.in_seconds(BRIEF_SECONDS), trial.admins[0]
    await trial.create(campaign(brief, budget=1_000, feedback=SOON, horizon=None, ends_at=ends_at))
    trial.load.campaigns[:] = [*names, tight, brief]
    admin.campaigns[:] = [*(name for name in admin.campaigns if not name.startswith("tight")), tight]


async def _killed(trial: Trial, server: Server) -> None:
    since = time.monotonic()
    server.kill()
    trial.injections += 1
    server.start()
    await trial.recovered(server, since)


async def _freeze(trial: Trial, server: Server) -> None:
    """Stop a process at any moment, perhaps in a transaction, and let it continue."""
    assert server.child is not None
    server.child.send(signal.SIGSTOP)
    await asyncio.sleep(trial.chance.uniform(0.2, FROZEN_SECONDS_MAX))
    server.child.send(signal.SIGCONT)


class Maintenance:
    """Runs commands of `cbwk` repeatedly on the database that the replicas use."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._log = trial.testbed.folder / f"maintenance-{trial.server.port}.log"
        self._is_running = True
        self._runs: Counter[str] = Counter()

    async def prune_repeatedly(self) -> None:
        """Prune until `stop` is called, and kill some of the runs."""
        while self._is_running:
            await asyncio.sleep(self._trial.chance.uniform(0.5, 2.0))
            await self.prune(kill=self._trial.chance.random() < 0.4)

    async def check_repeatedly(self) -> None:
        """Let the database be verified and replayed until `stop` is called: both must hold at any moment."""
        while self._is_running:
            await asyncio.sleep(self._trial.chance.uniform(0.5, 2.0))
            await self._run(self._trial.chance.choice(("verify", "replay")))

    def stop(self) -> None:
        """Stop after the current runs."""
        self._is_running = False

    async def prune(self, *, kill: bool = False) -> None:
        """Delete the decisions that were finished a moment ago."""
        await self._run("prune", "--before", self._trial.clock.in_seconds(-PRUNE_AGE_SECONDS), kill=kill)

    async def _run(self, command: str, *options: str, kill: bool = False) -> None:
        """Run a command once; it must succeed unless it is killed."""
        testbed, environment = self._trial.testbed, {environment_variable("database_url"): self._trial.url}
        child = testbed.zygote.start([command, *options], environment, testbed.folder, self._log)
        ends = time.monotonic() + (self._trial.chance.uniform(0.05, 0.8) if kill else COMMAND_SECONDS_MAX)
        while child.code() is None and time.monotonic() < ends:
            await asyncio.sleep(0.01)
        self._runs[command] += 1
        if child.code() is None:
            child.kill()
            self._runs[f"killed {command}"] += 1
            if not kill:
                self._trial.note(command, "it does not end")
        elif child.code() != 0:
            self._trial.note(command, f"it failed: {self._log.read_text()[-500:]}")

    def note(self) -> str:
        """Return the numbers of runs and of pruned decisions."""
        pruned = len(pruned_decisions(self._trial.url))
        return f"{pruned:,} decisions pruned; {in_words(self._runs)}"


def _check(trial: Trial) -> None:
    """Check that campaigns end when they should, and that decisions were pruned."""
    trial.forgotten = pruned_decisions(trial.url)
    for operation in trial.history.decisions():
        answer = operation.answer or {}
        if answer.get("reason") == "ended" and not operation.campaign.startswith(("brief", "counted")):
            trial.note("ended", f"{operation.campaign} has not ended: {answer}")
    if not trial.forgotten:
        trial.note("unclear", "nothing was pruned")
