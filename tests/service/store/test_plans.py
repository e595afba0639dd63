"""No statement of the hot path grows with the log: SQLite explains the plan of each of them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from sqlalchemy import text

from service.engine import cache, changes, stored_rows
from service.store import tables
from service.store.bulk_insert import append_columns
from service.store.statements import Prepared

HOT = {
    name: statement
    for name, statement in (vars(cache) | vars(stored_rows) | vars(changes)).items()
    if isinstance(statement, Prepared) and name not in ("_MOVE_STATE", "_MOVE_ACCOUNT")
}


def plan_of(connection, statement, among):
    """The steps of SQLite's plan."""
    compiled = statement._compiled(connection, among)
    sql = compiled.sql
    for _ in range(sql.count("?")):
        sql = sql.replace("?", "1", 1)
    return [row[3] for row in connection.execute(text(f"EXPLAIN QUERY PLAN {sql}"))]


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", HOT)
def test_a_hot_statement_finds_its_rows_by_all_of_its_conditions(database, name):
    with database.read() as connection:
        steps = plan_of(connection, HOT[name], 0 if "HOLD" in name else 4)
    assert steps
    assert all(step.startswith(("SEARCH", "USE TEMP B-TREE")) for step in steps), steps
    if name not in ("_ACCOUNTS", "_CREATION_TIMES"):  # their only condition is the campaign
        assert any("campaign=? AND" in step or "AND campaign=?" in step for step in steps), steps


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
@pytest.mark.parametrize("length", [1, 4])
@pytest.mark.parametrize(
    ("lookup", "search"),
    [
        (
            stored_rows.DECISIONS,
            "SEARCH decision USING INDEX sqlite_autoindex_decision_2 (decision_id=? AND campaign=?)",
        ),
        (
            stored_rows._OUTCOMES,
            "SEARCH outcome USING INDEX ix_outcome_campaign_decision (campaign=? AND decision=?)",
        ),
    ],
)
def test_decisions_and_outcomes_are_found_one_by_one_by_both_columns(database, lookup, search, length):
    sql = lookup.statement_of_pairs(length).replace("?", "1")
    with database.read() as connection:
        steps = [row[3] for row in connection.execute(text(f"EXPLAIN QUERY PLAN {sql}"))]
    assert [step for step in steps if step.startswith("SEARCH")] == [search], steps
    assert not any(step.startswith(("SCAN decision", "SCAN outcome")) for step in steps), steps


@pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)
def test_postgresql_closes_holds_by_their_key_also_after_it_has_closed_some_of_a_few(database):
    made = {"expires_at": [5] * 20_000, "campaign": [1] * 20_000, "decision": range(20_000), "amounts": ["[]"] * 20_000}
    with database.write() as connection:
        for decision in range(10):
            pairs = [(5, 1, decision), (5, 2, decision)]
            changes.run_on_arrays(connection, changes._CLOSE_HOLDS, pairs, prepare=False).close()
        append_columns(connection, tables.hold, [made])
        before = read_one_by_one(connection)
        campaign, closed = SimpleNamespace(number=1), [(5, 7), (5, 9_000)]
        locked = SimpleNamespace(campaign=campaign, closed_holds=closed, emptied_holds=[])
        changes._move_holds(connection, [locked])
        assert read_one_by_one(connection) == before
        left = connection.execute(text("SELECT count(*) FROM hold")).scalar_one()
    assert left == 19_998


def read_one_by_one(connection):
    """How often this transaction has scanned all holds."""
    seen = "SELECT pg_stat_get_xact_numscans('hold'::regclass)"
    return connection.execute(text(seen)).scalar_one()
