"""JSON lines and comma-separated values: every decision is a line."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

import orjson

from service.domain.campaign import Campaign
from service.reads.formats.records import JSON_COLUMNS, PLAIN_COLUMNS, Exported


class JsonLines:
    """One JSON object a line."""

    def page(self, decisions: Sequence[Exported]) -> bytes:
        """One line each."""
        return b"".join(orjson.dumps(one.record, option=orjson.OPT_APPEND_NEWLINE) for one in decisions)

    def end(self) -> Iterable[bytes]:
        """Nothing."""
        return ()


class CommaSeparated:
    """A header, then one line each; what is no plain value is JSON."""

    def __init__(self, campaign: Campaign) -> None:
        self._resources = campaign.resources
        self._begun = False

    def page(self, decisions: Sequence[Exported]) -> bytes:
        """One line each, the header before the first."""
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        if not self._begun:
            amounts = [f"{part}.{name}" for part in ("hold", "cost") for name in self._resources]
            writer.writerow([*PLAIN_COLUMNS, *JSON_COLUMNS, *amounts])
            self._begun = True
        for record in (one.record for one in decisions):
            writer.writerow(
                [
                    *(record[name] for name in PLAIN_COLUMNS),
                    *(orjson.dumps(record[name]).decode() for name in JSON_COLUMNS),
                    *(record["hold"].get(name) for name in self._resources),
                    *((record["costs"] or {}).get(name) for name in self._resources),
                ]
            )
        return text.getvalue().encode()

    def end(self) -> Iterable[bytes]:
        """Nothing."""
        return ()
