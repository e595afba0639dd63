import json

import pytest

from service.cli import main
from service.settings import Settings, environment_variable
from service.store.campaigns import add_campaign
from service.store.database import Database
from service.store.keys import find_key
from service.store.migrate import newest_revision


@pytest.fixture(autouse=True)
def _no_settings_from_the_environment(monkeypatch):
    for name in Settings.model_fields:
        monkeypatch.delenv(environment_variable(name), raising=False)


def run(capsys, *arguments):
    """The code, and what was written to stdout and stderr."""
    capsys.readouterr()
    code = main(arguments)
    return code, *capsys.readouterr()


def test_migrate_says_from_where_to_where(database_url, capsys):
    migrate = ("migrate", "--database-url", database_url)
    assert run(capsys, *migrate) == (0, f"nothing → {newest_revision()}\n", "")
    assert run(capsys, *migrate) == (0, f"{newest_revision()} → {newest_revision()}\n", "")


def test_migrate_takes_the_database_of_the_environment(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CBWK_DATABASE_URL", f"sqlite:///{tmp_path}/mine.db")
    assert run(capsys, "migrate")[0] == 0
    assert (tmp_path / "mine.db").is_file()


def test_a_key_is_made_listed_and_revoked(migrated_url, capsys):
    there = ("--database-url", migrated_url)
    limits = ("--campaign", "spring", "--requests-per-second", "50")
    create = ("key", "create", "--name", "[ads]", "--role", "decider", *limits, *there)
    code, out, err = run(capsys, *create)
    assert (code, out) == (1, "")
    assert 'there is no campaign "spring"' in err
    with Database.open(migrated_url) as database, database.write() as connection:
        add_campaign(connection, "spring", 1)
    code, out, err = run(capsys, *create)
    key_id = err.partition(",")[0]
    assert code == 0
    with Database.open(migrated_url) as database, database.read() as connection:
        assert find_key(connection, out.strip()).id == key_id
    code, out, _ = run(capsys, "key", "list", *there)
    assert code == 0
    assert all(shown in out for shown in (key_id, "[ads]", "decider", "spring", "50/s"))
    assert run(capsys, "key", "revoke", key_id, *there) == (0, f"{key_id} is revoked\n", "")
    (listed,) = json.loads(run(capsys, "key", "list", "--json", *there)[1])
    assert listed.pop("created_at") <= listed.pop("revoked_at")
    named = {"id": key_id, "name": "[ads]", "role": "decider"}
    assert listed == named | {"campaigns": ["spring"], "requests_per_second": 50}


def test_a_key_can_be_had_as_json(migrated_url, capsys):
    code, out, err = run(
        capsys, "key", "create", "--name", "a", "--role", "admin", "--json", "--database-url", migrated_url
    )
    assert (code, err) == (0, "")
    made = json.loads(out)
    with Database.open(migrated_url) as database, database.read() as connection:
        assert find_key(connection, made["key"]).id == made["id"]


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (["key", "create", "--name", "x", "--role", "root"], 2, "--role"),
        (["key", "create", "--role", "admin"], 2, "--name"),
        (["key", "create", "--name", "x", "--role", "admin", "--requests-per-second", "0"], 2, "--requests-per-second"),
        (["key", "revoke", "key-0"], 1, "there is no key"),
        (["key"], 2, "command"),
    ],
)
def test_what_cannot_be_done_is_one_line(arguments, code, named, migrated_url, monkeypatch, capsys):
    monkeypatch.setenv("CBWK_DATABASE_URL", migrated_url)
    found, out, err = run(capsys, *arguments)
    assert (found, out) == (code, "")
    assert err.startswith("cbwk: ")
    assert err.count("\n") == 1
    assert named in err


def test_the_last_admin_key_cannot_be_revoked_by_command(migrated_url, monkeypatch, capsys):
    monkeypatch.setenv("CBWK_DATABASE_URL", migrated_url)
    made = json.loads(run(capsys, "key", "create", "--name", "a", "--role", "admin", "--json")[1])
    code, _, err = run(capsys, "key", "revoke", made["id"])
    assert code == 1
    assert "last admin key" in err


def test_a_database_that_another_process_uses_is_one_line(tmp_path, monkeypatch, capsys):
    url = f"sqlite:///{tmp_path}/cbwk.db"
    monkeypatch.setenv("CBWK_DATABASE_URL", url)
    with Database.open(url):
        code, out, err = run(capsys, "migrate")
    assert (code, out) == (1, "")
    assert err.startswith("cbwk: another process uses ")
    assert err.count("\n") == 1


def test_a_database_without_tables_is_told_what_to_do(database_url, capsys):
    code, _, err = run(capsys, "key", "list", "--database-url", database_url)
    assert code == 1
    assert "run cbwk migrate" in err
