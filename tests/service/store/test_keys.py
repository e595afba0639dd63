import io
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from hashlib import sha256

import pytest
from sqlalchemy import Engine, event, func, insert, select

from service.auth import (
    CACHE_SECONDS_MAX,
    ENVIRONMENT_ADMIN,
    GUESSES_PER_SECOND_MAX,
    UNKNOWN_SECONDS_MAX,
    KeyRing,
    Principal,
    bootstrap_admin_key,
    checked_role,
)
from service.problems import Conflict, Forbidden, NotFound
from service.store import tables
from service.store.campaigns import add_campaign
from service.store.database import Database
from service.store.errors import DatabaseError
from service.store.keys import create_key, find_key, list_keys, revoke_key
from service.store.tables import ROLES

NOW = 1_794_823_200_000_000
ADMIN_KEY = "correct horse battery staple, and more"


class Clock:
    """A clock that the test moves."""

    def __init__(self):
        self.seconds = 100.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def ring(database, clock):
    return KeyRing(database, None, clock=clock)


@pytest.fixture
def questions():
    """The questions for a key that went to a database."""
    asked = []

    def ask(connection, cursor, statement, *_):
        if "FROM api_key" in statement:
            asked.append(statement)

    event.listen(Engine, "before_cursor_execute", ask)
    yield asked
    event.remove(Engine, "before_cursor_execute", ask)


def make_key(database, role="decider", campaigns=None, name="somebody"):
    with database.write() as connection:
        for one in campaigns or ():
            add_campaign(connection, one, NOW)
        return create_key(connection, name, role, campaigns, NOW)


def revoke(database, key_id):
    with database.write() as connection:
        revoke_key(connection, key_id, NOW + 1)


def test_a_key_is_found_by_its_text_with_all_that_was_said_of_it(database):
    key_id, text = make_key(database, "reader", ["b", "a", "b"], name="Zoë")
    with database.read() as connection:
        found = find_key(connection, text)
        assert [found] == list_keys(connection)
    assert (found.id, found.name, found.role) == (key_id, "Zoë", "reader")
    assert found.campaigns == {"a", "b"}
    assert (found.created_at, found.revoked_at) == (NOW, None)


def test_a_key_has_256_random_bits_and_no_two_are_alike(database):
    texts = [make_key(database)[1] for _ in range(20)]
    assert len(set(texts)) == 20
    assert all(text.startswith("cbwk_") and len(text) == len("cbwk_") + 43 for text in texts)  # 43 · 6 bits ≥ 256


def test_another_text_finds_nothing(database, ring):
    _, text = make_key(database)
    others = [
        "",
        text[:-1],
        text + "=",
        text[:-1] + ("A" if text[-1] != "A" else "B"),
        text.upper(),
        text[:-1] + "é",
        "' OR 1=1 --",
        "\ud800" * len(text),
        "x" * 1_000_000,
    ]
    assert [ring.lookup(other) for other in others] == [None] * len(others)
    assert ring.lookup(text) is not None


def test_an_unknown_role_is_refused_by_the_code_and_by_the_database(database):
    with pytest.raises(ValueError, match="decider, reader, admin"):
        make_key(database, "root")
    row = {"id": "x", "name": "x", "role": "root", "digest": b"x", "created_at": 0}
    with pytest.raises(Exception, match="ck_api_key_role"), database.write() as connection:
        connection.execute(insert(tables.api_key).values(row))


def test_a_revoked_key_is_found_no_more_and_stays_in_the_list(database):
    key_id, text = make_key(database)
    revoke(database, key_id)
    with database.read() as connection:
        assert find_key(connection, text) is None
        assert [(key.id, key.revoked_at) for key in list_keys(connection)] == [(key_id, NOW + 1)]


def test_revoking_twice_is_once_and_an_unknown_key_cannot_be_revoked(database):
    key_id, _ = make_key(database)
    revoke(database, key_id)
    with database.write() as connection:
        revoke_key(connection, key_id, NOW + 2)
        assert list_keys(connection)[0].revoked_at == NOW + 1
    with pytest.raises(NotFound):
        revoke(database, "key-0")


def test_the_last_admin_key_cannot_be_revoked(database):
    first, _ = make_key(database, "admin")
    make_key(database, "decider")
    limited, _ = make_key(database, "admin", ["one"])
    with pytest.raises(Conflict) as refused:
        revoke(database, first)
    assert (refused.value.status, refused.value.kind) == (409, "last-admin-key")
    second, _ = make_key(database, "admin")
    revoke(database, first)
    revoke(database, limited)
    with pytest.raises(Conflict):
        revoke(database, second)


def test_two_admins_cannot_revoke_each_other_at_once(database):
    keys = [make_key(database, "admin")[0] for _ in range(2)]

    def attempt(key_id):
        try:
            revoke(database, key_id)
        except Conflict:
            return "refused"
        return "revoked"

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(attempt, keys)) == ["refused", "revoked"]


def test_who_makes_and_revokes_keys_is_written_down_without_the_key(database):
    with database.write() as connection:
        key_id, text = create_key(connection, "ads", "decider", None, NOW, actor="Ann")
        revoke_key(connection, key_id, NOW + 1, actor="Bob")
        rows = connection.execute(select(tables.audit).order_by(tables.audit.c.number)).mappings().all()
    assert [(row["actor"], row["action"], row["at"]) for row in rows] == [
        ("Ann", "key.create", NOW),
        ("Bob", "key.revoke", NOW + 1),
    ]
    assert all(key_id in row["body"] and text not in row["body"] for row in rows)


def test_the_text_of_a_key_is_nowhere_on_the_disk(tmp_path, sqlite_template):
    path = tmp_path / "cbwk.db"
    path.write_bytes(sqlite_template.read_bytes())
    with Database.open(f"sqlite:///{path}") as database:
        _, text = make_key(database, "admin", name="a name that is there")
        KeyRing(database, ADMIN_KEY).lookup(text)
        written = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    written += path.read_bytes()
    assert b"a name that is there" in written
    for secret in (text, text.removeprefix("cbwk_"), ADMIN_KEY):
        assert secret.encode() not in written


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("needed", ROLES)
def test_a_role_is_for_itself_and_an_admin_for_all(role, needed):
    principal = Principal("key-1", "x", role, None)
    if role in (needed, "admin"):
        assert checked_role(principal, needed) is principal
    else:
        with pytest.raises(Forbidden, match=needed):
            checked_role(principal, needed)


def test_a_limited_key_sees_its_campaigns_and_no_others():
    everything = Principal("key-1", "x", "admin", None)
    some = Principal("key-2", "x", "admin", frozenset({"a"}))
    none = Principal("key-3", "x", "admin", frozenset())
    for key, unseen in ((everything, ""), (some, "b"), (none, "ab")):
        for campaign_id in "ab":
            with pytest.raises(NotFound) if campaign_id in unseen else nullcontext():
                key.check_campaign(campaign_id)
    assert [key.limited for key in (everything, some, none)] == [False, True, True]


def test_the_ring_finds_the_holder_of_a_key(database, ring):
    key_id, text = make_key(database, "reader", ["a"], name="Zoë")
    assert ring.lookup(text) == Principal(key_id, "Zoë", "reader", frozenset({"a"}))


def test_a_revoked_key_is_believed_for_three_seconds_and_no_longer(database, ring, clock):
    key_id, text = make_key(database)
    assert ring.lookup(text)
    revoke(database, key_id)
    clock.seconds += CACHE_SECONDS_MAX - 0.001
    assert ring.lookup(text)
    clock.seconds += 0.001
    assert ring.lookup(text) is None
    assert CACHE_SECONDS_MAX <= 3.0


def test_using_a_key_does_not_make_it_believed_for_longer(database, ring, clock):
    key_id, text = make_key(database)
    ring.lookup(text)
    revoke(database, key_id)
    for _ in range(4):
        clock.seconds += CACHE_SECONDS_MAX / 4
        ring.lookup(text)
    assert ring.lookup(text) is None


def test_a_key_is_asked_for_once_while_it_is_remembered(database, ring, questions):
    _, text = make_key(database)
    assert ring.remembered(text) == (False, None)
    holder = ring.lookup(text)
    assert ring.lookup(text) == holder
    assert ring.remembered(text) == (True, holder)
    assert len(questions) == 1


def test_a_wrong_key_is_asked_for_once_a_second(ring, clock, questions):
    wrong = "cbwk_" + "x" * 43
    assert ring.lookup(wrong) is None
    assert ring.lookup(wrong) is None
    assert ring.remembered(wrong) == (True, None)
    assert len(questions) == 1
    clock.seconds += UNKNOWN_SECONDS_MAX
    assert ring.remembered(wrong) == (False, None)


def guessed(count):
    return [f"cbwk_{number:043}" for number in range(count)]


def test_guesses_are_looked_for_twenty_times_a_second_and_then_in_a_list(ring, clock, questions):
    for second in range(1, 4):
        assert [ring.lookup(guess) for guess in guessed(500)] == [None] * 500
        assert len(questions) == second * (GUESSES_PER_SECOND_MAX + 1)
        clock.seconds += UNKNOWN_SECONDS_MAX


def test_a_valid_key_is_found_among_any_number_of_guesses(database, ring, clock):
    (_, known), (_, unused) = make_key(database), make_key(database)
    assert ring.lookup(known)
    clock.seconds += CACHE_SECONDS_MAX
    for guess in guessed(100):
        ring.lookup(guess)
    assert ring.lookup(known)
    assert ring.lookup(unused)


def test_among_guesses_a_new_key_is_valid_at_once_in_its_own_process_and_after_a_second_in_others(
    database, ring, clock
):
    for guess in guessed(100):
        ring.lookup(guess)
    key_id, text = make_key(database)
    assert ring.lookup(text) is None
    ring.forget()
    assert ring.lookup(text).key_id == key_id
    _, other = make_key(database)
    clock.seconds += UNKNOWN_SECONDS_MAX
    for guess in guessed(100):
        ring.lookup(guess)
    assert ring.lookup(other)


def test_a_key_that_is_newer_than_the_list_is_refused_only_until_the_list_is_a_second_old(database, ring, clock):
    for guess in guessed(100):
        ring.lookup(guess)
    _, text = make_key(database)
    clock.seconds += 0.75 * UNKNOWN_SECONDS_MAX
    assert ring.lookup(text) is None
    clock.seconds += 0.25 * UNKNOWN_SECONDS_MAX
    assert ring.lookup(text)


def test_a_text_that_cannot_be_a_key_is_refused_without_a_look_into_the_database(ring, questions):
    assert ring.remembered("not-a-key") == (True, None)
    assert ring.lookup("not-a-key") is None
    assert questions == []


def test_a_new_key_is_valid_after_a_second_even_if_it_was_tried_before(database, ring, clock):
    text = "cbwk_" + "x" * 43
    row = {"id": "x", "name": "x", "role": "reader", "digest": sha256(text.encode()).digest(), "created_at": 0}
    assert ring.lookup(text) is None
    with database.write() as connection:
        connection.execute(insert(tables.api_key).values(row))
    clock.seconds += UNKNOWN_SECONDS_MAX
    assert ring.lookup(text) is not None


def test_the_ring_can_be_told_to_forget(database, ring):
    key_id, text = make_key(database)
    ring.lookup(text)
    revoke(database, key_id)
    ring.forget()
    assert ring.lookup(text) is None


def test_guesses_neither_fill_the_memory_nor_push_out_who_is_known(database):
    ring = KeyRing(database, None, clock=Clock(), cached_max=10)
    _, text = make_key(database)
    holder = ring.lookup(text)
    guesses = [f"cbwk_{number:043}" for number in range(25)]
    for guess in guesses:
        assert ring.lookup(guess) is None
    assert [ring.remembered(guess)[0] for guess in guesses] == [False] * 15 + [True] * 10
    assert ring.remembered(text) == (True, holder)


def test_the_admin_key_of_the_environment_is_valid_without_the_database(database):
    ring = KeyRing(database, ADMIN_KEY)
    database.close()
    assert ring.lookup(ADMIN_KEY) == ENVIRONMENT_ADMIN
    assert ENVIRONMENT_ADMIN.role == "admin"
    assert ring.remembered(ADMIN_KEY[:-1]) == (True, None)


@pytest.mark.parametrize("key", ["", "x" * 31, "x" * 513])
def test_an_admin_key_that_is_too_short_or_too_long_is_refused(key):
    with pytest.raises(ValueError, match="32 to 512 characters"):
        KeyRing(None, key)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def number_of_keys(database):
    with database.read() as connection:
        return connection.execute(select(func.count()).select_from(tables.api_key)).scalar_one()


def test_the_first_start_shows_an_admin_key_on_a_terminal_and_writes_none(database, ring, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    terminal = Terminal()
    bootstrap_admin_key(database, admin_key=None, stderr=terminal)
    text = terminal.getvalue().split()[-1]
    assert ring.lookup(text).role == "admin"
    assert list(tmp_path.rglob("admin.key*")) == []


def test_the_first_start_without_a_terminal_writes_an_admin_key_that_only_its_owner_reads(
    database, dialect, ring, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    told = io.StringIO()
    bootstrap_admin_key(database, admin_key=None, stderr=told)
    (path,) = tmp_path.rglob("admin.key*")
    assert path == tmp_path / ("admin.key" if dialect == "sqlite" else "data/admin.key")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text().strip()
    assert ring.lookup(text).role == "admin"
    assert text not in told.getvalue()
    assert "admin.key" in told.getvalue()


def test_no_key_is_made_where_there_is_one_or_the_environment_has_one(database, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = io.StringIO()
    bootstrap_admin_key(database, admin_key=ADMIN_KEY, stderr=told)
    assert number_of_keys(database) == 0
    make_key(database, "admin")
    bootstrap_admin_key(database, admin_key=None, stderr=told)
    assert number_of_keys(database) == 1
    assert told.getvalue() == ""


def test_a_key_that_cannot_be_written_down_is_not_made(database, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = tmp_path / ("admin.key" if database.path else "data")
    place.mkdir() if database.path else place.write_text("")
    with pytest.raises(DatabaseError, match="cannot write the first admin key"):
        bootstrap_admin_key(database, admin_key=None, stderr=io.StringIO())
    assert number_of_keys(database) == 0
    assert len(list(tmp_path.rglob("admin.key.*"))) == 0


START = "import sys; from service.auth import bootstrap_admin_key; from service.store.database import Database; \
bootstrap_admin_key(Database.open(sys.argv[1]), admin_key=None, stderr=sys.stderr)"


@pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)
def test_replicas_that_start_at_once_make_one_key(database, migrated_url, tmp_path):
    command = [sys.executable, "-c", START, migrated_url]
    started = [subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    told = [process.communicate(timeout=30)[1] for process in started]
    assert sorted(told) == ["", "cbwk: the first admin key is in data/admin.key\n"]
    with database.read() as connection:
        assert find_key(connection, (tmp_path / "data/admin.key").read_text().strip()) in list_keys(connection)
        assert len(list_keys(connection)) == 1
