"""Rows found by their campaign and one more column."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from service.store import tables
from service.store.bulk_insert import append_rows
from service.store.statements import PAIRS_MAX, Lookup
from tests.service.store.rows import add_campaigns, decision, outcome

BY_ID, OUTCOMES = Lookup(tables.decision, "decision_id"), Lookup(tables.outcome, "decision")


@pytest.fixture
def filled(database):
    """Two campaigns with the same ids and numbers."""
    with database.write() as connection:
        add_campaigns(connection, 2)
        for campaign in (1, 2):
            made = [decision(n, campaign=campaign, context=f'{{"c": {campaign}}}') for n in range(1, 6)]
            append_rows(connection, tables.decision, made)
    return database


@pytest.mark.parametrize(
    "wanted",
    [
        [(1, "d2")],
        [(1, "d2"), (1, "d5"), (1, "nobody")],
        [(1, "d1"), (2, "d1"), (2, "d4")],
        [(1, "d1"), (2, "nobody"), (3, "d1"), (2, "d5"), (1, "d2")],
        [(1, "nobody")],
        [],
    ],
)
def test_exactly_what_is_asked_for_is_found_each_once_in_its_campaign(filled, wanted):
    there = {(campaign, f"d{n}") for campaign in (1, 2) for n in range(1, 6)}
    with filled.read() as connection:
        found = BY_ID.fetch(connection, wanted)
    assert sorted((row["campaign"], row["decision_id"]) for row in found) == sorted(there & set(wanted))
    assert all(row["context"] == f'{{"c": {row["campaign"]}}}' for row in found)


def test_more_than_one_row_of_a_value_is_found(filled):
    with filled.write() as connection:
        append_rows(connection, tables.outcome, [outcome(n, decision=1 + n // 9) for n in range(7, 11)])
        found = OUTCOMES.fetch(connection, [(1, 1), (1, 2)])
    assert sorted(row["sequence"] for row in found) == [7, 8, 9, 10]


def test_more_is_asked_than_one_statement_of_sqlite_takes(filled):
    wanted = [(1 + n % 2, f"x{n}") for n in range(2 * PAIRS_MAX)]
    with filled.read() as connection:
        found = BY_ID.fetch(connection, [*wanted, (1, "d3"), (2, "d3")])
    assert sorted((row["campaign"], row["decision_id"]) for row in found) == [(1, "d3"), (2, "d3")]


@pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)
@pytest.mark.parametrize(("lookup", "column"), [(BY_ID, "decision_id"), (OUTCOMES, "decision")])
def test_postgresql_goes_by_both_columns_also_with_a_plan_made_when_there_were_no_rows(database, lookup, column):
    statement = lookup._by_arrays.replace("%s", "$1", 1).replace("%s", "$2", 1)
    with database.write() as connection:
        connection.execute(text("SET LOCAL plan_cache_mode = force_generic_plan"))
        connection.exec_driver_sql(f"PREPARE asked (text, text) AS {statement}")
        steps = [row[0] for row in connection.exec_driver_sql("EXPLAIN EXECUTE asked ('1,1', '1,2')")]
        connection.exec_driver_sql("DEALLOCATE asked")
    assert any("Index Cond" in step and "campaign" in step and column in step for step in steps), steps
