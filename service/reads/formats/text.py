"""JSON lines and comma-separated values: one line per decision."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import orjson

from service.domain.campaign import Campaign
from service.reads.formats.records import JSON_COLUMNS, VALUE_COLUMNS, Exported, Form, amount_columns, flat_values


class JsonLines(Form):
    """One JSON object per line."""

    def page(self, decisions: Sequence[Exported]) -> bytes:
        """One line per decision."""
        return b"".join(orjson.dumps(each.record, option=orjson.OPT_APPEND_NEWLINE) for each in decisions)


class CommaSeparated(Form):
    """A header, then one line per decision; objects and arrays are JSON."""

    def __init__(self, campaign: Campaign) -> None:
        self._resources = campaign.resources
        self._begun = False

    def page(self, decisions: Sequence[Exported]) -> bytes:
        """One line per decision, with the header before the first."""
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        if not self._begun:
            writer.writerow([*VALUE_COLUMNS, *JSON_COLUMNS, *amount_columns(self._resources)])
            self._begun = True
        writer.writerows(flat_values(each.record, self._resources) for each in decisions)
        return text.getvalue().encode()
