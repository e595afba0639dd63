import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from sqlalchemy import func, insert, select, text, update
from sqlalchemy.exc import DBAPIError, IntegrityError, ProgrammingError

from service.settings import Settings
from service.store import tables
from service.store.database import Database
from service.store.errors import (
    DatabaseError,
    DatabaseInUse,
    DatabaseUnreachable,
    DatabaseUnusable,
    DatabaseUrlInvalid,
)
from service.store.postgresql import Timelines
from tests.service.store.rows import account, add_campaigns

campaign = tables.campaign


def number_of_campaigns(connection):
    return connection.execute(select(func.count()).select_from(campaign)).scalar_one()


def only(kind):
    """For tests of what one of the databases alone has."""
    return pytest.mark.parametrize("dialect", [kind], indirect=True)


@pytest.fixture
def impatient(migrated_url):
    """A database that gives up after a tenth of a second."""
    with Database.open(migrated_url, statement_timeout_ms=100) as opened:
        yield opened


def test_a_database_says_what_it_is(database, dialect):
    assert database.dialect == dialect
    assert (database.path is None) == (dialect == "postgresql")


def test_what_a_transaction_wrote_is_there_after_it(database):
    with database.write() as connection:
        add_campaigns(connection, 1, 2)
    with database.read() as connection:
        assert number_of_campaigns(connection) == 2


def test_nothing_is_left_of_a_transaction_that_an_exception_ended(database):
    def interrupted():
        with database.write() as connection:
            add_campaigns(connection, 1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with database.write() as connection:
        assert number_of_campaigns(connection) == 0


def test_a_reader_cannot_write(database):
    with pytest.raises(DBAPIError, match=r"(?i)read.?only"), database.read() as connection:
        add_campaigns(connection, 1)


def test_a_reader_sees_one_moment_whatever_is_committed_meanwhile(database):
    with database.read() as reader:
        assert number_of_campaigns(reader) == 0
        with database.write() as connection:
            add_campaigns(connection, 1)
        assert number_of_campaigns(reader) == 0
    with database.read() as reader:
        assert number_of_campaigns(reader) == 1


def test_a_reader_does_not_see_what_is_not_committed(database):
    with database.write() as connection:
        add_campaigns(connection, 1)
        with database.read() as reader:
            assert number_of_campaigns(reader) == 0


def test_a_closed_database_opens_nothing_again(database):
    database.close()
    for begin in (database.write, database.read):
        with pytest.raises(AssertionError, match="closed"), begin():
            pass


def test_the_database_itself_refuses_a_negative_amount(database):
    with database.write() as connection:
        add_campaigns(connection, 1)
    for column in ("granted", "held", "spent", "overrun"):
        # Everything else is generous, so that the amount is covered and only its sign is wrong.
        row = account(granted=100, held=0, spent=0, overrun=100) | {column: -1}
        with pytest.raises(IntegrityError, match="ck_account_not_negative"), database.write() as connection:
            connection.execute(insert(tables.account).values(row))


def test_the_database_itself_refuses_to_promise_more_than_was_granted(database):
    with database.write() as connection:
        add_campaigns(connection, 1)
        connection.execute(insert(tables.account).values(account(granted=100, held=30, spent=60)))
        connection.execute(update(tables.account).values(held=40))
    with pytest.raises(IntegrityError, match="ck_account_covered"), database.write() as connection:
        connection.execute(update(tables.account).values(held=41))
    with database.write() as connection:
        connection.execute(update(tables.account).values(held=41, overrun=1))


def test_a_row_of_a_campaign_that_is_not_there_is_refused(database):
    with pytest.raises(IntegrityError), database.write() as connection:
        connection.execute(insert(tables.account).values(account()))


def test_the_clock_counts_microseconds_since_1970_and_never_goes_back(database):
    with database.write() as connection:
        moments = [database.now_micros(connection) for _ in range(50)]
    assert moments == sorted(moments)
    assert abs(moments[0] / 1e6 - time.time()) < 60
    assert moments[-1] > moments[0]


def test_an_error_of_the_data_is_no_error_of_the_connection(database):
    with pytest.raises(IntegrityError) as refused, database.write() as connection:
        connection.execute(insert(tables.account).values(account()))
    assert not database.is_connection_error(refused.value)
    with pytest.raises((ProgrammingError, DBAPIError)) as wrong, database.write() as connection:
        connection.execute(text("SELECT nothing FROM nowhere"))
    assert not database.is_connection_error(wrong.value)
    assert not database.is_connection_error(ValueError())


def test_waiting_in_vain_for_a_connection_is_an_error_of_the_connection(migrated_url):
    with Database.open(migrated_url, pool_size=1, connect_timeout_seconds=0) as database, database.read():
        with pytest.raises(Exception, match="QueuePool") as late, database.read():
            pass
        assert database.is_connection_error(late.value)


@only("sqlite")
def test_sqlite_writes_through_to_the_disk_and_keeps_foreign_keys(database):
    with database.write() as connection:
        asked = [
            connection.execute(text(f"PRAGMA {name}")).scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        ]
    assert asked == ["wal", 2, 1]


@only("sqlite")
def test_a_second_writer_waits_for_the_first_on_sqlite(database):
    order = []

    def second():
        with database.write():
            order.append("second")

    with ThreadPoolExecutor(1) as pool:
        with database.write():
            waiting = pool.submit(second)
            time.sleep(0.1)
            order.append("first")
        waiting.result()
    assert order == ["first", "second"]


HOLD_OPEN = "import sys, time; from service.store.database import Database; \
db = Database.open(sys.argv[1]); print('open', flush=True); time.sleep(60)"


@only("sqlite")
def test_a_second_process_is_refused_until_the_first_is_gone_even_by_kill(database_url):
    with subprocess.Popen([sys.executable, "-c", HOLD_OPEN, database_url], stdout=subprocess.PIPE) as first:
        try:
            assert first.stdout.readline() == b"open\n"
            with pytest.raises(DatabaseInUse, match=r"another process uses .*cbwk\.db") as refused:
                Database.open(database_url)
        finally:
            first.kill()
    assert "\n" not in str(refused.value)
    Database.open(database_url).close()


@only("sqlite")
def test_a_link_to_a_file_in_use_is_refused_too(database, tmp_path):
    (tmp_path / "other.db").symlink_to(database.path)
    with pytest.raises(DatabaseInUse):
        Database.open(f"sqlite:///{tmp_path}/other.db")


def test_a_missing_directory_is_made(tmp_path):
    Database.open(f"sqlite:///{tmp_path}/new/er/cbwk.db").close()
    assert (tmp_path / "new/er/cbwk.db").is_file()


@pytest.fixture
def _without_root():
    """Root may write everywhere: be somebody else for a while."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    yield
    os.seteuid(before)


def unusable(url):
    """Why the database cannot be opened, in one line."""
    with pytest.raises(DatabaseUnusable) as refused:
        Database.open(url)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    assert unusable(f"sqlite:///{tmp_path}/file/cbwk.db").startswith(f"cannot make the directory {tmp_path}/file: ")


@pytest.mark.usefixtures("_without_root")
def test_a_directory_that_cannot_be_written_to_is_named():
    assert unusable("sqlite:////usr/cbwk.db") == "cannot write to the directory /usr: Permission denied"


def test_a_file_that_is_no_database_is_named_and_left_alone(tmp_path):
    path = tmp_path / "notes.db"
    path.write_text("buy milk\n" * 1000)
    assert unusable(f"sqlite:///{path}") == f"cannot use the database {path}: file is not a database"
    assert path.read_text() == "buy milk\n" * 1000


def test_a_directory_in_the_place_of_the_file_is_named(tmp_path):
    (tmp_path / "cbwk.db").mkdir()
    assert str(tmp_path) in unusable(f"sqlite:///{tmp_path}/cbwk.db")


LIMITED = "import resource, signal, sys; from service.store.database import Database; \
signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); \
Database.open(sys.argv[1])"


def test_a_disk_that_takes_no_more_is_one_clear_line(tmp_path):
    url = f"sqlite:///{tmp_path}/cbwk.db"
    ended = subprocess.run([sys.executable, "-c", LIMITED, url], capture_output=True, text=True, check=False)
    assert f"DatabaseUnusable: cannot use the database {tmp_path}/cbwk.db: " in ended.stderr.splitlines()[-1]


@only("sqlite")
def test_a_full_disk_is_an_error_of_the_connection_and_loses_nothing(database):
    with database.write() as connection:
        add_campaigns(connection, 1)
        pages = connection.execute(text("PRAGMA page_count")).scalar_one()
        connection.execute(text(f"PRAGMA max_page_count = {pages}"))
    with pytest.raises(DBAPIError) as full, database.write() as connection:
        connection.execute(insert(campaign).values(number=2, id="x" * 100_000, created_at=0))
    assert database.is_connection_error(full.value)
    assert not database.is_file_error(full.value)
    with database.read() as connection:
        assert number_of_campaigns(connection) == 1


@only("sqlite")
def test_a_damaged_file_is_told_from_a_passing_failure(database):
    with database.write() as connection:
        page = connection.execute(text("SELECT rootpage FROM sqlite_master WHERE name = 'campaign'")).scalar_one()
        size = connection.execute(text("PRAGMA page_size")).scalar_one()
    database.close()
    with database.path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    with Database.open(f"sqlite:///{database.path}") as damaged:
        with pytest.raises(DBAPIError) as broken, damaged.write() as connection:
            add_campaigns(connection, 1)
        assert damaged.is_file_error(broken.value)
        assert damaged.is_connection_error(broken.value)


@only("postgresql")
def test_postgresql_sessions_carry_their_limits(migrated_url):
    limits = {
        "statement_timeout": "4s",
        "lock_timeout": "300ms",
        "idle_in_transaction_session_timeout": "7s",
        "synchronous_commit": "on",
        "application_name": "cbwk",
        "client_encoding": "UTF8",
    }
    opened = Database.open(
        migrated_url, statement_timeout_ms=4_000, lock_timeout_ms=300, idle_in_transaction_timeout_ms=7_000
    )
    with opened as database:
        for begin, isolation in ((database.write, "read committed"), (database.read, "repeatable read")):
            with begin() as connection:
                shown = {name: connection.execute(text(f"SHOW {name}")).scalar() for name in limits}
                assert shown == limits
                assert connection.execute(text("SHOW transaction_isolation")).scalar() == isolation


@only("postgresql")
def test_what_the_url_says_of_the_connection_wins(migrated_url):
    with Database.open(migrated_url + "&application_name=mine") as database, database.read() as connection:
        assert connection.execute(text("SHOW application_name")).scalar() == "mine"


@only("postgresql")
def test_a_statement_that_takes_too_long_is_an_error_of_the_connection(impatient):
    with pytest.raises(DBAPIError) as late, impatient.read() as connection:
        connection.execute(text("SELECT pg_sleep(5)"))
    assert impatient.is_connection_error(late.value)


@only("postgresql")
def test_a_session_ended_by_the_server_is_an_error_of_the_connection_and_the_next_one_works(database):
    def ended_by_the_server():
        with database.write() as connection:
            pid = connection.execute(text("SELECT pg_backend_pid()")).scalar()
            with database.write() as other:
                other.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
            number_of_campaigns(connection)

    with pytest.raises(DBAPIError) as ended:
        ended_by_the_server()
    assert database.is_connection_error(ended.value)
    with database.write() as connection:
        add_campaigns(connection, 1)


@only("postgresql")
def test_idle_sessions_that_the_server_ended_cost_no_request(database):
    with database.read() as connection:
        pid = connection.execute(text("SELECT pg_backend_pid()")).scalar()
    with database.write() as connection:
        connection.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": pid})
    with database.read() as connection:
        assert number_of_campaigns(connection) == 0


@only("postgresql")
def test_replicas_take_turns(migrated_url):
    order = []
    reached = threading.Event()

    def second():
        with Database.open(migrated_url, lock_timeout_ms=10) as replica, replica.write() as connection:
            reached.set()
            replica.lock_replicas(connection)
            order.append("second")

    with Database.open(migrated_url) as database, ThreadPoolExecutor(1) as pool:
        with database.write() as connection:
            database.lock_replicas(connection)
            waiting = pool.submit(second)
            assert reached.wait(5)
            time.sleep(0.1)
            order.append("first")
        waiting.result()
    assert order == ["first", "second"]


def test_a_server_that_is_not_there_is_one_line_without_the_password():
    with pytest.raises(DatabaseUnreachable) as refused:
        Database.open("postgresql://someone:hunter2@127.0.0.1:1/cbwk?sslpassword=hunter2")
    assert str(refused.value).startswith("cannot connect to postgresql://someone@127.0.0.1:1/cbwk: ")
    assert "\n" not in str(refused.value)
    assert "hunter2" not in str(refused.value)
    assert Database.is_connection_error(refused.value)


def test_every_host_of_a_url_is_asked_and_its_password_is_not_repeated():
    with pytest.raises(DatabaseUnreachable) as refused:
        Database.open("postgresql://someone:hunter2@127.0.0.1:1,127.0.0.1:2/cbwk")
    assert all(f"127.0.0.1%3A{port}" in str(refused.value) for port in (1, 2))
    assert "hunter2" not in str(refused.value)


def test_a_server_with_an_older_timeline_than_one_seen_before_is_refused():
    timelines = Timelines()
    for history in (("cluster", "0000000A"), ("cluster", "0000000B"), ("another", "00000001"), object()):
        timelines.check(history)
    with pytest.raises(psycopg.OperationalError, match="another one has replaced"):
        timelines.check(("cluster", "0000000A"))


def test_a_database_that_the_server_does_not_have_is_one_line(postgresql_server):
    with pytest.raises(DatabaseUnreachable, match='database "nowhere" does not exist'):
        Database.open(postgresql_server.url("nowhere"))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hunter2",
        "postgresql://user:hunter2@host:port/x",
        "postgresql://user:hunter2@host:1,host:port/x",
        "postgresql://user:hunter2@host,/x",
        "mysql://user:hunter2@host/x",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///x.db?mode=hunter2",
        "sqlite://hunter2/x.db",
    ],
)
def test_a_url_that_names_no_database_is_refused_and_not_repeated(url):
    with pytest.raises(DatabaseUrlInvalid) as refused:
        Database.open(url)
    assert "hunter2" not in str(refused.value)
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


def test_every_error_of_opening_is_drawn_at_the_top():
    drawing = sys.modules[DatabaseError.__module__].__doc__
    assert all(kind.__name__ in drawing for kind in [DatabaseError, *DatabaseError.__subclasses__()])


def test_the_settings_open_the_database_they_name(migrated_url):
    with Database.of(Settings(database_url=migrated_url)) as database, database.read() as connection:
        assert number_of_campaigns(connection) == 0


def test_a_new_file_is_readable_by_its_owner_only_and_an_old_one_keeps_its_mode(tmp_path):
    path, mask = tmp_path / "cbwk.db", os.umask(0)
    try:
        with Database.open(f"sqlite:///{path}") as database, database.write() as connection:
            connection.execute(text("CREATE TABLE t (x INTEGER)"))
            modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
            assert modes == dict.fromkeys(("cbwk.db", "cbwk.db-wal", "cbwk.db-shm", "cbwk.db.lock"), 0o600)
        path.chmod(0o640)
        Database.open(f"sqlite:///{path}").close()
        assert path.stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(mask)
