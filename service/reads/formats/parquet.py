"""Apache Parquet, a row group a page; needs pyarrow, which is an extra."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

import orjson

from service.domain.campaign import Campaign
from service.problems import Invalid
from service.reads.formats.records import JSON_COLUMNS, PLAIN_COLUMNS, Exported

# Decisions of a row group: fewer make the file larger, more the memory.
GROUP_ROWS = 10_000
_TYPES = {
    "round": "int64",
    "probability": "float64",
    "policy_version": "int64",
    "config_version": "int64",
    "reward": "float64",
    "learned": "bool",
}


class _Sink:
    """A file that is only written to, and emptied now and then."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        """Keep a copy: what is handed over is used again."""
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """No more is written."""
        self.closed = True

    def taken(self) -> bytes:
        """What was written since the last time."""
        parts, self._parts = self._parts, []
        return b"".join(parts)


class ParquetFile:
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
        fields = [(name, _TYPES.get(name, "string")) for name in (*PLAIN_COLUMNS, *JSON_COLUMNS)]
        fields += [(f"{part}.{name}", "float64") for part in ("hold", "cost") for name in self._resources]
        self._schema = self._arrow.schema([(name, self._arrow.type_for_alias(kind)) for name, kind in fields])
        self._sink = _Sink()
        self._writer = parquet.ParquetWriter(self._sink, self._schema, compression="snappy")
        self._waiting: list[dict[str, Any]] = []

    def page(self, decisions: Sequence[Exported]) -> bytes:
        """Bytes whenever a row group is full."""
        self._waiting += [self._flat(one.record) for one in decisions]
        if len(self._waiting) >= GROUP_ROWS:
            self._write()
        return self._sink.taken()

    def _flat(self, record: dict[str, Any]) -> dict[str, Any]:
        costs = record["costs"] or {}
        return (
            {name: record[name] for name in PLAIN_COLUMNS}
            | {name: orjson.dumps(record[name]).decode() for name in JSON_COLUMNS}
            | {f"hold.{name}": record["hold"].get(name) for name in self._resources}
            | {f"cost.{name}": costs.get(name) for name in self._resources}
        )

    def _write(self) -> None:
        if self._waiting:
            self._writer.write_table(self._arrow.Table.from_pylist(self._waiting, schema=self._schema))
            self._waiting = []

    def end(self) -> Iterable[bytes]:
        """The last row group and the footer."""
        self._write()
        self._writer.close()
        yield self._sink.taken()
