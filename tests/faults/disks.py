"""SQLite's disk is full, or fails."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.processes import Child, Ground, Zygote
from tests.faults.report import Progress, Row
from tests.faults.trial import ready, trial

CLIENTS = 6
DISK_MEGABYTES = 64
FULL, FAILING = "disk full", "I/O error on the database's file"
END_SECONDS_MAX = 15.0


async def full_disk(ground: Ground, dialect: str, injections: int, progress: Progress) -> Row:
    """A file takes all the space there is, and goes again; meanwhile 503, afterwards as if nothing had been."""
    folder = ground.folder / "small"
    folder.mkdir(exist_ok=True)
    with _small_disk(folder) as problem:
        if problem:
            return Row(FULL, dialect, 0, 0, {}, skipped=problem)
        async with trial(ground, dialect, seed=12, folder=folder) as one:
            refused = 0
            for number in range(injections):
                await one.tighten(number)
                one.load.start(CLIENTS)
                await asyncio.sleep(one.chance.uniform(0.1, 0.4))
                mark = len(one.history.calls)
                with _filled(folder):
                    one.injections += 1
                    await asyncio.sleep(one.chance.uniform(0.3, 0.8))
                since = time.monotonic()
                await one.recovered(one.server, since)
                await one.load.stop()
                refused += sum(call.status == 503 for call in one.history.calls[mark:])
                progress()
            one.expect_running()
            if refused == 0:
                one.note("unclear", "nothing was refused: was the disk full at all?")
            return await one.verdict(FULL, dialect, note=f"{refused:,} requests refused meanwhile, no restart")


@contextmanager
def _small_disk(folder: Path) -> Iterator[str]:
    """A file system of a few megabytes in memory; yields why there is none."""
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


async def failing_disk(ground: Ground, dialect: str, injections: int, progress: Progress) -> Row:
    """Writes to the database fail: the process ends, since nobody knows what is on the disk; a restart finds out."""
    shim = _built(ground.folder)
    if shim is None:
        return Row(FAILING, dialect, 0, 0, {}, skipped="there is no C compiler to build the failing disk with")
    trigger = ground.folder / "failing"
    zygote = Zygote(environment={"LD_PRELOAD": str(shim), "FAULTS_TRIGGER": str(trigger)})
    try:
        async with trial(ground, dialect, seed=13) as one:
            for number in range(injections):
                one.server.kill()
                since = time.monotonic()
                one.server.start(zygote)
                await one.recovered(one.server, since)
                await one.tighten(number)
                one.load.start(CLIENTS)
                await asyncio.sleep(one.chance.uniform(0.1, 0.4))
                trigger.touch()
                one.injections += 1
                code = await _ended(one.server.child)
                trigger.unlink()
                await one.load.stop()
                if code in (None, 0):
                    one.note("stays", f"the process did not end with an error: {code}")
                progress()
            one.server.kill()
            one.server.start()
            await ready(one.server)
            return await one.verdict(FAILING, dialect, note="the process ends; recovery from its restart on")
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
