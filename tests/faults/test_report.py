"""The parts of `make faults` and the table that they write."""

from __future__ import annotations

import pytest

from tests.faults.__main__ import main
from tests.faults.report import COLUMNS, Row, total_seconds, write_part, write_table
from tests.faults.suite import PARTS, SUITE

KILLS = Row("kills", "sqlite", 300, 76_611, {}, recoveries=(0.25, 0.75), note="under load")
FROZEN = Row("frozen", "postgresql", 12, 1_866, {"lost": 2, "late": 1}, details=("late: by 3 s",))


def test_every_fault_is_in_exactly_one_part():
    names = [fault.name for part in PARTS.values() for fault in part.faults]
    assert len(set(names)) == len(names) == len(SUITE)


def test_the_table_has_the_newest_rows_of_all_parts_in_the_order_of_the_suite(tmp_path):
    write_part(tmp_path, "replicas", [FROZEN], {"scale": 1.0, "seconds": 240})
    write_part(tmp_path, "crashes", [FROZEN], {"scale": 1.0, "seconds": 1})
    write_part(tmp_path, "crashes", [KILLS], {"scale": 1.0, "seconds": 600})
    write_table(tmp_path, list(PARTS))
    table = (tmp_path / "faults.md").read_text(encoding="utf-8")
    assert table.splitlines()[:4] == [
        f"| {' | '.join(COLUMNS)} |",
        "|" + "---|" * len(COLUMNS),
        "| kills | sqlite | 300 | 76,611 | 0 | 0 | 0 | 0 | 0.50 s, 0.75 s |",
        "| frozen | postgresql | 12 | 1,866 | 2 | 0 | 0 | late 1 | – |",
    ]
    assert "- kills (sqlite): under load" in table
    assert "- frozen (postgresql): late: by 3 s" in table
    assert table.endswith("Minutes: crashes 10.0, replicas 4.0; 14 in total.\n")
    assert total_seconds(tmp_path, list(PARTS)) == 840


@pytest.mark.parametrize(("arguments", "code"), [(["--help"], 0), (["unheard-of"], 2)])
def test_the_parts_are_listed_on_request_and_when_an_unknown_one_is_named(arguments, code, capsys):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == code
    written = capsys.readouterr()
    assert all(name in written.out + written.err for name in PARTS)
