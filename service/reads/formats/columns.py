"""Tables with one row per decision: comma-separated values and Apache Parquet, which needs the extra pyarrow."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

import orjson

from service.domain.campaign import Campaign
from service.problems import Invalid
from service.reads.formats.form import ByteSink, Exported, Form
from service.times import moment_microseconds

# Decisions per row group: fewer make the file larger, more need more memory.
GROUP_ROWS = 10_000
MOMENT = "timestamp[us, UTC]"
# The types are those of Parquet.
_VALUES = {
    "decision_id": "string",
    "campaign_id": "string",
    "sequence": "int64",
    "round": "int64",
    "decided_at": MOMENT,
    "arm": "string",
    "reason": "string",
    "probability": "float64",
    "policy_version": "int64",
    "config_version": "int64",
    "expires_at": MOMENT,
    "status": "string",
    "reward": "float64",
    "learned": "bool",
}
_JSON = dict.fromkeys(("context", "exclude", "actions", "max_cost", "max_costs"), "string")


def columns_of(campaign: Campaign) -> dict[str, str]:
    """The names and types of all columns: the values, those that are JSON, then holds and costs by resource."""
    amounts = [f"{kind}.{name}" for kind in ("hold", "cost") for name in campaign.resources]
    return _VALUES | _JSON | dict.fromkeys(amounts, "float64")


def _row(campaign: Campaign, record: dict[str, Any]) -> list[Any]:
    """The values of all columns."""
    costs = record["costs"] or {}
    return [
        *(record[name] for name in _VALUES),
        *(orjson.dumps(record[name]).decode() for name in _JSON),
        *(record["hold"].get(name) for name in campaign.resources),
        *(costs.get(name) for name in campaign.resources),
    ]


def _microseconds(moment: str | None) -> int | None:
    return None if moment is None else moment_microseconds(moment)


class CommaSeparated(Form):
    """A header, then one line per decision; objects and arrays are JSON."""

    def __init__(self, campaign: Campaign) -> None:
        self._campaign, self._begun = campaign, False

    def page(self, decisions: Sequence[Exported]) -> bytes:
        """One line per decision, with the header before the first."""
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        if not self._begun:
            writer.writerow(columns_of(self._campaign))
            self._begun = True
        writer.writerows(_row(self._campaign, each.record) for each in decisions)
        return text.getvalue().encode()


class ParquetFile(Form):
    """The columns of the comma-separated form, with their types."""

    def __init__(self, campaign: Campaign) -> None:
        try:
            self._arrow: Any = import_module("pyarrow")
            parquet: Any = import_module("pyarrow.parquet")
        except ImportError:
            message = "parquet needs pyarrow where the service runs: install cbwk[parquet]"
            errors = [{"field": "format", "message": message}]
            raise Invalid(message, kind="format-not-installed", errors=errors) from None
        self._campaign = campaign
        self._schema = self._arrow.schema([(name, self._type(kind)) for name, kind in columns_of(campaign).items()])
        self._moments = [kind == MOMENT for kind in columns_of(campaign).values()]
        self._sink = ByteSink()
        self._writer = parquet.ParquetWriter(self._sink, self._schema, compression="snappy")
        self._group: list[list[Any]] = []

    def _type(self, kind: str) -> Any:
        return self._arrow.timestamp("us", tz="UTC") if kind == MOMENT else self._arrow.type_for_alias(kind)

    def page(self, decisions: Sequence[Exported]) -> bytes:
        """The bytes of a row group whenever one is full."""
        self._group += [_row(self._campaign, each.record) for each in decisions]
        if len(self._group) >= GROUP_ROWS:
            self._write()
        return self._sink.take()

    def _write(self) -> None:
        if self._group:
            columns = zip(zip(*self._group, strict=True), self._moments, strict=True)
            arrays = [[*map(_microseconds, column)] if moments else [*column] for column, moments in columns]
            self._writer.write_table(self._arrow.table(arrays, schema=self._schema))
            self._group = []

    def end(self) -> Iterable[bytes]:
        """The last row group and the footer."""
        self._write()
        self._writer.close()
        yield self._sink.take()
