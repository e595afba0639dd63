"""The formats of an export. Each receives decisions page by page and returns bytes, never all at once."""

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
    """A format: its media type, the suffix of its files, and how it begins."""

    media_type: str
    suffix: str
    # Takes the campaign and the number of decisions that were learnt from.
    begin: Callable[[Campaign, int], Form]
    counts: bool = False  # whether it needs that number


FORMATS = {
    "jsonl": Format("application/jsonl", "jsonl", lambda campaign, _: JsonLines()),
    "csv": Format("text/csv", "csv", lambda campaign, _: CommaSeparated(campaign)),
    "parquet": Format("application/vnd.apache.parquet", "parquet", lambda campaign, _: ParquetFile(campaign)),
    "obp": Format("application/zip", "npz", OpenBanditArrays, counts=True),
    "dsjson": Format("application/x-ndjson", "dsjson", lambda campaign, _: DecisionServiceLines(campaign)),
}
