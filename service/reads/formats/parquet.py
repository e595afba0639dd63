"""Apache Parquet; needs pyarrow, which is an extra."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

from service.domain.campaign import Campaign
from service.problems import Invalid
from service.reads.formats.records import (
    JSON_COLUMNS,
    VALUE_COLUMNS,
    ByteSink,
    Exported,
    Form,
    amount_columns,
    flat_values,
)

# Decisions per row group: fewer make the file larger, more need more memory.
GROUP_ROWS = 10_000
_TYPES = {
    "round": "int64",
    "probability": "float64",
    "policy_version": "int64",
    "config_version": "int64",
    "reward": "float64",
    "learned": "bool",
}


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
        self._resources = campaign.resources
        fields = [(name, _TYPES.get(name, "string")) for name in (*VALUE_COLUMNS, *JSON_COLUMNS)]
        fields += [(name, "float64") for name in amount_columns(self._resources)]
        self._schema = self._arrow.schema([(name, self._arrow.type_for_alias(kind)) for name, kind in fields])
        self._sink = ByteSink()
        self._writer = parquet.ParquetWriter(self._sink, self._schema, compression="snappy")
        self._group: list[dict[str, Any]] = []

    def page(self, decisions: Sequence[Exported]) -> bytes:
        """The bytes of a row group whenever one is full."""
        self._group += [
            dict(zip(self._schema.names, flat_values(each.record, self._resources), strict=True)) for each in decisions
        ]
        if len(self._group) >= GROUP_ROWS:
            self._write()
        return self._sink.take()

    def _write(self) -> None:
        if self._group:
            self._writer.write_table(self._arrow.Table.from_pylist(self._group, schema=self._schema))
            self._group = []

    def end(self) -> Iterable[bytes]:
        """The last row group and the footer."""
        self._write()
        self._writer.close()
        yield self._sink.take()
