"""Forms an export can have. Each is told of decisions some at a time and hands out bytes, never all at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from service.domain.campaign import Campaign
from service.reads.formats.dsjson import DecisionServiceLines
from service.reads.formats.npz import OpenBanditArrays
from service.reads.formats.parquet import ParquetFile
from service.reads.formats.records import Exported, Form
from service.reads.formats.text import CommaSeparated, JsonLines

__all__ = ["FORMATS", "Exported", "Form"]


@dataclass(frozen=True)
class Format:
    """A form by its name: what it is called on the way, what a file of it is called, how it is begun."""

    media_type: str
    suffix: str
    # Of a campaign, and how many of its decisions were learnt from.
    begin: Callable[[Campaign, int], Form]
    counts: bool = False  # whether it must know before the first decision how many were learnt from


FORMATS = {
    "jsonl": Format("application/jsonl", "jsonl", lambda campaign, _: JsonLines()),
    "csv": Format("text/csv", "csv", lambda campaign, _: CommaSeparated(campaign)),
    "parquet": Format("application/vnd.apache.parquet", "parquet", lambda campaign, _: ParquetFile(campaign)),
    "obp": Format("application/zip", "npz", OpenBanditArrays, counts=True),
    "dsjson": Format("application/x-ndjson", "dsjson", lambda campaign, _: DecisionServiceLines(campaign)),
}
