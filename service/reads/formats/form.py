"""What all formats share: the decisions they receive, their protocol, and a file that hands out its bytes."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol


class Exported(NamedTuple):
    """A decision with its outcome as the interface shows it, and its row.

    `learned` of the record says whether the oracle learnt from it: a real arm, with reward and costs.
    """

    record: dict[str, Any]
    row: Mapping[Any, Any]


class Form(Protocol):
    """A running export."""

    def page(self, decisions: Sequence[Exported]) -> bytes:
        """The bytes of the next decisions."""

    def end(self) -> Iterable[bytes]:
        """The bytes after the last page; none by default."""
        return ()


class ByteSink(io.RawIOBase):
    """A file that is only written to; `take` empties it."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []

    def writable(self) -> bool:
        """True."""
        return True

    def write(self, data: Any) -> int:
        """Keep a copy, because the caller may reuse the buffer."""
        self._chunks.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        """The bytes written since the last call."""
        chunks, self._chunks = self._chunks, []
        return b"".join(chunks)
