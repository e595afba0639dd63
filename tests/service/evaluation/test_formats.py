"""Exports that other programs read."""

from __future__ import annotations

import csv
import io
import json
import sys
from datetime import datetime

import numpy as np
import pytest

from service.reads import export
from service.reads.formats import columns, npz
from tests.documents import ROOT, table
from tests.service.evaluation.logs import make, play
from tests.service.http_client import served


@pytest.fixture
def client(database):
    with served(database) as client:
        yield client


def fetched(client, form):
    answer = client("GET", f"/admin/campaigns/c/export?format={form}")
    assert answer.status_code == 200, answer.text
    return answer


def decisions(client):
    return [json.loads(line) for line in fetched(client, "jsonl").text.splitlines()]


def in_small_pages(monkeypatch):
    """Several pages, row groups and pieces of columns, as a long log would have."""
    monkeypatch.setattr(export, "EXPORT_ROWS_MAX", 7)
    monkeypatch.setattr(columns, "GROUP_ROWS", 20)
    monkeypatch.setattr(npz, "COLUMN_BYTES_MAX", 100)
    monkeypatch.setattr(npz, "PIECE_BYTES", 64)


def test_parquet_has_every_decision_with_typed_columns(client, monkeypatch):
    pyarrow_parquet = pytest.importorskip("pyarrow.parquet")
    make(client)
    play(client, 50)
    in_small_pages(monkeypatch)
    answer = fetched(client, "parquet")
    assert answer.headers["content-type"] == "application/vnd.apache.parquet"
    file = pyarrow_parquet.ParquetFile(io.BytesIO(answer.content))
    assert file.num_row_groups == 3
    found, decided = file.read().to_pylist(), decisions(client)
    assert len(found) == len(decided) == 50
    for row, decision in zip(found, decided, strict=True):
        for name in ("decision_id", "arm", "probability", "round", "reward", "learned"):
            assert row[name] == decision[name]
        for name in ("decided_at", "expires_at"):
            assert row[name] == (None if decision[name] is None else datetime.fromisoformat(decision[name]))
        assert json.loads(row["context"]) == decision["context"]
        assert row["cost.usd"] == (None if decision["costs"] is None else decision["costs"]["usd"])
        assert row["hold.usd"] == decision["hold"]["usd"]


def documented(section, form=None):
    """The names and types in a table of docs/exports.md, for a campaign with the resource usd."""
    rows = table((ROOT / "docs" / "exports.md").read_text(encoding="utf-8"), section)
    return {
        row[0].strip("`").replace("RESOURCE", "usd"): row[-2]
        for row in rows
        if form is None or form in row[1].split(", ")
    }


def test_the_data_dictionary_has_every_column_of_every_export(client):
    make(client, mode="shadow", model="shared", arm_features={"dimension": 1}, arms=[{"id": "a", "features": [0.5]}])
    play(client, 50, baseline_arm="a")
    assert {name for decision in decisions(client) for name in decision} == set(documented("Decisions", "jsonl"))
    header = next(csv.reader(io.StringIO(fetched(client, "csv").text)))
    assert header == list(documented("Decisions", "csv"))
    lines = fetched(client, "dsjson").text.splitlines()
    assert {name for line in lines for name in json.loads(line)} == set(documented("Lines for Vowpal Wabbit"))
    shown = documented("Arrays for the Open Bandit Pipeline")
    rows = table((ROOT / "docs" / "exports.md").read_text(encoding="utf-8"), "Arrays for the Open Bandit Pipeline")
    with np.load(io.BytesIO(fetched(client, "obp").content), allow_pickle=False) as found:
        assert set(found) == set(shown)
        for name, kind, shape, _ in rows:
            array = found[name.strip("`")]
            assert array.ndim == (0 if shape == "–" else len(shape.split(" × "))), name
            assert {"U": "text", "i": "int64", "f": "float64"}[array.dtype.kind] == kind, name


def test_the_data_dictionary_has_the_types_of_parquet(client):
    pyarrow_parquet = pytest.importorskip("pyarrow.parquet")
    make(client)
    play(client, 50)
    schema = pyarrow_parquet.read_schema(io.BytesIO(fetched(client, "parquet").content))
    arrow = {"double": "float64", "timestamp[us, tz=UTC]": "timestamp[us, UTC]"}
    found = {field.name: arrow.get(str(field.type), str(field.type)) for field in schema}
    assert list(found.items()) == list(documented("Decisions", "parquet").items())


def test_without_pyarrow_parquet_is_a_problem_that_says_what_to_install(client, monkeypatch):
    make(client)
    missing = {name: None for name in sys.modules if name.partition(".")[0] == "pyarrow"}
    for name in {*missing, "pyarrow", "pyarrow.parquet"}:
        monkeypatch.setitem(sys.modules, name, None)
    answer = client("GET", "/admin/campaigns/c/export?format=parquet")
    assert answer.status_code == 422
    assert answer.json()["type"] == "urn:cbwk:problem:format-not-installed"
    assert "cbwk[parquet]" in answer.json()["detail"]


@pytest.mark.parametrize("model", ["per_arm", "shared"])
def test_the_arrays_for_obp_are_the_rounds_that_were_learnt_from(client, monkeypatch, model):
    shared = {"model": "shared", "arm_features": {"dimension": 1}}
    arms = [{"id": "a", "features": [0.25]}, {"id": "b", "features": [0.75]}]
    make(client, **(shared | {"arms": arms} if model == "shared" else {}))
    play(client, 50)
    in_small_pages(monkeypatch)
    answer = fetched(client, "obp")
    assert answer.headers["content-disposition"] == 'attachment; filename="c.npz"'
    decided = [decision for decision in decisions(client) if decision["learned"]]
    assert 0 < len(decided) < 50
    with np.load(io.BytesIO(answer.content), allow_pickle=False) as found:
        assert found["n_rounds"] == len(decided)
        assert found["n_actions"] == 2
        assert found["context"].tolist() == [decision["context"] for decision in decided]
        assert [found["arms"][action] for action in found["action"]] == [decision["arm"] for decision in decided]
        assert found["reward"].tolist() == [decision["reward"] for decision in decided]
        assert found["pscore"].tolist() == [decision["probability"] for decision in decided]
        assert found["costs"][:, 0].tolist() == [decision["costs"]["usd"] for decision in decided]
        assert found["position"].tolist() == [0] * len(decided)
        assert ("action_context" in found) == (model == "shared")
        if model == "shared":
            assert found["action_context"].tolist() == [[0.25], [0.75]]


def test_dsjson_has_a_line_for_each_round_that_was_learnt_from(client):
    make(client, arms=[{"id": "a"}, {"id": "b"}, {"id": "c"}])
    play(client, 50, exclude=["b"])
    lines = [json.loads(line) for line in fetched(client, "dsjson").text.splitlines()]
    decided = [decision for decision in decisions(client) if decision["learned"]]
    assert len(lines) == len(decided) > 0
    for line, decision in zip(lines, decided, strict=True):
        assert line["EventId"] == decision["decision_id"]
        assert line["_label_cost"] == -decision["reward"]
        assert line["_label_probability"] == line["p"][0] == decision["probability"]
        assert [arm["Arm"]["id"] for arm in line["c"]["_multi"]] == ["a", "c"], "what was excluded was not shown"
        assert line["c"]["_multi"][line["_labelIndex"]]["Arm"]["id"] == decision["arm"]
        assert line["_label_Action"] == line["a"][0] == line["_labelIndex"] + 1
        assert sorted(line["a"]) == [1, 2]
        assert sum(line["p"]) == pytest.approx(1, abs=1e-6)
        assert line["c"]["Context"] == {"x": decision["context"]}
        assert line["costs"] == decision["costs"]


def test_an_export_takes_no_more_memory_than_a_page(client, database, monkeypatch):
    """What a form keeps between pages does not grow with the number of decisions."""
    make(client)
    play(client, 50)
    monkeypatch.setattr(npz, "COLUMN_BYTES_MAX", 64)
    with database.read() as connection:
        begun = export.export_start(connection, "c", "obp")
        begun.form._learnt = 50 * sum(decision["learned"] for decision in decisions(client))
        for _ in range(50):
            assert len(export.export_page(connection, begun, 0)[0]) < 10_000
        rolled = [file._rolled for _, _, file in begun.form._columns.values()]
    assert all(rolled), "the columns wait on the disk"
    assert sum(len(piece) for piece in begun.form.end()) > 10_000
