import math
import time

import pytest
from sqlalchemy import func, insert, select
from sqlalchemy.exc import DBAPIError, IntegrityError

from service.store import tables
from service.store.bulk_insert import (
    ROWS_PER_STATEMENT,
    ConstantColumn,
    append_columns,
    append_rows,
    compact_column,
    constant_column,
)
from tests.service.store.rows import account, add_campaigns, decision, outcome

MOST, *_, LEAST = ROWS_PER_STATEMENT
AWKWARD = [
    decision(
        1, context='{"a": "tab\\there"}\t\n\r\\N\\.', arm_id="naïve ☕ 𝄞", reason="", exclude="NULL", actions="\\N"
    ),
    decision(2, arm=-1, arm_id=None, hold=None, expires_at=None, explanation=b""),
    decision(3, numbers=bytes(range(256)), prices=b"\\x00", request_digest=b"\n\t\\"),
    decision(4, decided_at=2**63 - 1, expires_at=-(2**63), arm=2**31 - 1, config_version=-(2**31)),
    decision(5, probability=math.nextafter(0.0, 1.0), gamma=-0.0),
    decision(6, probability=1, gamma=1.7976931348623157e308),
]
OUTCOMES = [
    outcome(7, reward=None, costs=None, spent=None, released=False),
    outcome(8, reward=-1e-300, released=True, warnings="[]"),
]


def stored(connection, table):
    rows = connection.execute(select(table).order_by(table.c.sequence)).mappings()
    return [dict(row) for row in rows]


@pytest.mark.parametrize(("table", "rows"), [(tables.decision, AWKWARD), (tables.outcome, OUTCOMES)])
def test_rows_come_back_as_they_were_appended(database, table, rows):
    with database.write() as connection:
        add_campaigns(connection, 1)
        append_rows(connection, table, rows)
    with database.read() as connection:
        assert stored(connection, table) == rows


def test_truth_comes_back_as_truth_and_not_as_a_number(database):
    with database.write() as connection:
        add_campaigns(connection, 1)
        append_rows(connection, tables.outcome, OUTCOMES)
        assert [row["released"] for row in stored(connection, tables.outcome)] == [False, True]
        assert {type(row["released"]) for row in stored(connection, tables.outcome)} == {bool}


def test_appended_rows_are_those_an_insert_would_make(database):
    with database.write() as connection:
        add_campaigns(connection, 1)
        connection.execute(insert(tables.decision), AWKWARD)
        inserted = stored(connection, tables.decision)
        connection.execute(tables.decision.delete())
        append_rows(connection, tables.decision, AWKWARD)
        assert stored(connection, tables.decision) == inserted


def test_a_table_named_by_a_word_of_the_language_can_be_appended_to(database):
    row = {"campaign": 1, "sequence": 1, "resource": 0, "kind": "budget", "amount": 5, "reason": "", "at": 0}
    with database.write() as connection:
        add_campaigns(connection, 1)
        append_rows(connection, tables.grant, [row])
        assert stored(connection, tables.grant) == [row]


def test_columns_that_are_left_out_are_null(database):
    row = outcome(1)
    del row["warnings"], row["reward"]
    with database.write() as connection:
        add_campaigns(connection, 1)
        append_rows(connection, tables.outcome, [row])
        assert stored(connection, tables.outcome) == [row | {"warnings": None, "reward": None}]


def test_no_rows_at_all_are_no_work(database):
    with database.write() as connection:
        append_rows(connection, tables.decision, [])
        append_columns(connection, tables.decision, [])


@pytest.mark.parametrize("count", [1, MOST // 4 - 1, MOST // 4, MOST + MOST // 4 + 3])
def test_any_number_of_rows_comes_back_as_appended_however_many_go_into_a_statement(database, count):
    rows = [decision(n, context=f'{{"n": {n}}}') for n in range(1, count + 1)]
    with database.write() as connection:
        add_campaigns(connection, 1)
        append_rows(connection, tables.decision, rows)
        assert stored(connection, tables.decision) == rows


def test_columns_are_the_same_rows(database):
    blocks = [AWKWARD[:1], AWKWARD[1:]]
    with database.write() as connection:
        add_campaigns(connection, 1)
        append_columns(connection, tables.decision, [in_columns(block) for block in blocks])
        assert stored(connection, tables.decision) == AWKWARD


@pytest.mark.parametrize("count", [1, LEAST - 1, LEAST, sum(ROWS_PER_STATEMENT) + 3])
def test_columns_of_one_value_are_the_same_rows(database, count):
    rows = [decision(n, context=f'{{"n": {n}}}', gamma=0.5, exclude=None, round=n % 2) for n in range(1, count + 1)]
    columns = in_columns(rows)
    shared = {name: compact_column(column) for name, column in columns.items()}
    assert {type(shared["gamma"]), type(shared["exclude"])} == {ConstantColumn if count >= LEAST else list}
    assert type(shared["context"]) is list
    assert [*shared["gamma"]] == [*constant_column(0.5, count)] == columns["gamma"]
    with database.write() as connection:
        add_campaigns(connection, 1)
        append_columns(connection, tables.decision, [shared])
        assert stored(connection, tables.decision) == rows
        connection.execute(tables.decision.delete())
        others = {name: column if name != "campaign" else [2] * count for name, column in shared.items()}
        append_columns(connection, tables.decision, [shared, others])
        assert connection.execute(select(func.count()).select_from(tables.decision)).scalar() == 2 * count


@pytest.mark.parametrize("rows", [2, MOST])
def test_a_value_of_all_rows_is_refused_for_what_one_is_refused_for(database, rows):
    good = in_columns([outcome(n) for n in range(1, rows + 1)])
    bad = [
        ("policy_version", constant_column(2**63, rows)),
        ("sequence", range(2**63, 2**63 + rows)),
        ("reward", constant_column(math.nan, rows)),
    ]
    for name, column in bad:
        with pytest.raises((OverflowError, ValueError), match=name), database.write() as connection:
            append_columns(connection, tables.outcome, [good | {name: column}])
    with pytest.raises((AssertionError, ValueError)), database.write() as connection:
        append_columns(connection, tables.outcome, [good | {"policy_version": ConstantColumn(1, rows + 1)}])


def test_columns_are_refused_for_what_rows_are_refused_for(database):
    good, large = in_columns([outcome(1)]), in_columns([outcome(2) | {"policy_version": 2**63}])
    endless = in_columns([outcome(2, reward=math.inf)])
    fewer = {name: column for name, column in in_columns([outcome(2)]).items() if name != "at"}
    for blocks, error in (
        ([large], OverflowError),
        ([good, large], OverflowError),
        ([endless], ValueError),
        ([good, endless], ValueError),
        ([good, fewer], AssertionError),
    ):
        with pytest.raises(error), database.write() as connection:
            append_columns(connection, tables.outcome, blocks)


def in_columns(rows):
    return {name: [row[name] for row in rows] for name in rows[0]}


def test_a_row_with_more_or_fewer_columns_than_the_first_is_refused(database):
    more = outcome(2) | {"extra": 1}
    fewer = {name: value for name, value in outcome(2).items() if name != "at"}
    for other in (more, fewer):
        with pytest.raises((KeyError, AssertionError)), database.write() as connection:
            append_rows(connection, tables.outcome, [outcome(1), other])


def test_a_number_that_the_column_cannot_hold_is_refused_and_not_cut(database):
    too_large = [
        (tables.decision, decision(1, arm=2**31)),
        (tables.decision, decision(1, config_version=2**32 + 1)),
        (tables.decision, decision(1, round=-(2**63) - 1)),
        (tables.account, account(resource=2**15)),
    ]
    for table, row in too_large:
        with pytest.raises(OverflowError, match=table.name), database.write() as connection:
            append_rows(connection, table, [row])


def test_a_number_that_is_not_finite_is_refused(database):
    for number in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match=r"outcome\.reward is not finite"), database.write() as connection:
            append_rows(connection, tables.outcome, [outcome(1, reward=number)])


@pytest.mark.parametrize(
    "row",
    [decision(1), decision(3, decision_id="d2"), decision(3, probability=0.0)],
    ids=["key", "unique", "check"],
)
def test_what_the_tables_forbid_is_an_integrity_error_and_the_whole_append_is_undone(database, row):
    with database.write() as connection:
        add_campaigns(connection, 1)
        append_rows(connection, tables.decision, [decision(1), decision(2)])
    with pytest.raises(IntegrityError) as refused, database.write() as connection:
        append_rows(connection, tables.decision, [decision(10), row, decision(11)])
    assert not database.is_connection_error(refused.value)
    with database.read() as connection:
        assert connection.execute(select(func.count()).select_from(tables.decision)).scalar_one() == 2


@pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)
def test_a_session_that_ends_during_an_append_is_an_error_of_the_connection(database):
    def cut_off():
        with database.write() as connection:
            add_campaigns(connection, 1)
            pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar()
            with database.write() as other:
                other.exec_driver_sql(f"SELECT pg_terminate_backend({pid}, 5000)")
            append_rows(connection, tables.decision, [decision(1)])

    with pytest.raises(DBAPIError) as lost:
        cut_off()
    assert database.is_connection_error(lost.value)
    with database.write() as connection:
        assert stored(connection, tables.decision) == []


def test_a_thousand_decisions_are_appended_well_below_the_time_of_a_request(database):
    rows = [decision(n, context='{"hour": 13, "device": "mobile"}', numbers=bytes(160)) for n in range(1, 1001)]
    with database.write() as connection:
        add_campaigns(connection, 1)
        start = time.perf_counter()
        append_rows(connection, tables.decision, rows)
        assert time.perf_counter() - start < 1.0
