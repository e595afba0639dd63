"""The disk of SQLite is full or fails."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.processes import Child, Testbed, Zygote
from tests.faults.report import Progress, Row
from tests.faults.trial import new_trial, ready

CLIENTS = 6
DISK_MEGABYTES = 64
FULL, FAILING = "disk full", "I/O error on the database's file"
END_SECONDS_MAX = 15.0


async def full_disk(testbed: Testbed, dialect: str, injections: int, progress: Progress) -> Row:
    """A file fills the disk and is deleted; the service answers 503 in between and normally afterwards."""
    folder = testbed.folder / "small"
    folder.mkdir(exist_ok=True)
    with _small_disk(folder) as problem:
        if problem:
            return Row(FULL, dialect, 0, 0, {}, skipped=problem)
        async with new_trial(testbed, dialect, seed=12, folder=folder) as trial:
            refused = 0
            for number in range(injections):
                await trial.tighten(number)
                trial.load.start(CLIENTS)
                await asyncio.sleep(trial.chance.uniform(0.1, 0.4))
                mark = len(trial.history.calls)
                with _filled(folder):
                    trial.injections += 1
                    await asyncio.sleep(trial.chance.uniform(0.3, 0.8))
                since = time.monotonic()
                await trial.recovered(trial.server, since)
                await trial.load.stop()
                refused += sum(call.status == 503 for call in trial.history.calls[mark:])
                progress()
            trial.expect_running()
            if refused == 0:
                trial.note("unclear", "no request was refused; the disk may not have been full")
            note = f"{refused:,} requests refused while the disk was full, no restart"
            return await trial.verdict(FULL, dialect, note=note)


@contextmanager
def _small_disk(folder: Path) -> Iterator[str]:
    """Mount a file system of a few megabytes in memory; yields the reason if that is not possible."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_MEGABYTES}m", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        yield "no file system can be mounted here"
        return
    try:
        yield ""
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def _filled(folder: Path) -> Iterator[None]:
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (2**20, 4096, 1):
            while True:
                try:
                    file.write(bytes(size))
                except OSError:
                    break
                if size == 1:
                    break
    yield
    ballast.unlink()


async def failing_disk(testbed: Testbed, dialect: str, injections: int, progress: Progress) -> Row:
    """Writes to the database fail: the process ends, because the state of the file is unknown; a restart reads it."""
    shim = _built(testbed.folder)
    if shim is None:
        return Row(FAILING, dialect, 0, 0, {}, skipped="there is no C compiler to build the failing disk with")
    trigger = testbed.folder / "failing"
    zygote = Zygote(environment={"LD_PRELOAD": str(shim), "FAULTS_TRIGGER": str(trigger)})
    try:
        async with new_trial(testbed, dialect, seed=13) as trial:
            for number in range(injections):
                trial.server.kill()
                since = time.monotonic()
                trial.server.start(zygote)
                await trial.recovered(trial.server, since)
                await trial.tighten(number)
                trial.load.start(CLIENTS)
                await asyncio.sleep(trial.chance.uniform(0.1, 0.4))
                trigger.touch()
                trial.injections += 1
                code = await _ended(trial.server.child)
                trigger.unlink()
                await trial.load.stop()
                if code in (None, 0):
                    trial.note("stays", f"the process did not end with an error: {code}")
                progress()
            trial.server.kill()
            trial.server.start()
            await ready(trial.server)
            return await trial.verdict(FAILING, dialect, note="the process ends; recovery is measured from its restart")
    finally:
        zygote.close()


async def _ended(child: Child | None) -> int | None:
    assert child is not None
    deadline = time.monotonic() + END_SECONDS_MAX
    while child.code() is None and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    return child.code()


def _built(folder: Path) -> Path | None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    library = folder / "shim.so"
    source = Path(__file__).with_name("shim.c")
    built = subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"],
        capture_output=True,
        check=False,
        env=os.environ | {"LC_ALL": "C"},
    )
    return library if built.returncode == 0 else None
