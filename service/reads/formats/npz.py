"""Arrays as the Open Bandit Pipeline takes them, in a file that `numpy.load` reads.

A file of arrays is a zip with one array after the other, and an array's length stands before its numbers. So the
decisions are counted first; the contexts, which are most of it, are handed out as they are read, and the other columns
wait in files that are written to the disk when they are long.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from tempfile import SpooledTemporaryFile
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from service.domain.campaign import Campaign
from service.reads.formats.records import Exported

# What a column may keep in memory before it goes to the disk.
COLUMN_BYTES_MAX = 2**18
PIECE_BYTES = 2**16


class _Pipe(io.RawIOBase):
    """What a zip file is written to, emptied now and then; it cannot be gone back in."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def taken(self) -> bytes:
        """What was written since the last time."""
        parts, self._parts = self._parts, []
        return b"".join(parts)


class OpenBanditArrays:
    """`context`, `action`, `reward`, `pscore`, `position` and a few more, of rounds that were learnt from.

    Rounds in which nothing was played are left out, since obp has no null arm, and so are requests with arms of their
    own. `position` is 0 throughout: one arm is shown at a time.
    """

    def __init__(self, campaign: Campaign, learnt: int) -> None:
        self._campaign, self._learnt, self._seen = campaign, learnt, 0
        self._pipe = _Pipe()
        self._zip = zipfile.ZipFile(self._pipe, "w", zipfile.ZIP_STORED)
        width = campaign.encoder.dimension
        self._contexts = self._zip.open("context.npy", "w", force_zip64=True)
        self._contexts.write(_header((learnt, width), "<f8"))
        shapes = {
            "action": ("<i8", ()),
            "reward": ("<f8", ()),
            "pscore": ("<f8", ()),
            "costs": ("<f8", (len(campaign.resources),)),
        }
        self._columns = {name: _Column(kind, shape) for name, (kind, shape) in shapes.items()}

    def page(self, decisions: Sequence[Exported]) -> bytes:
        """The contexts of some more decisions."""
        kept = [one for one in decisions if one.is_learnt and one.record["actions"] is None]
        if kept:
            self._seen += len(kept)
            contexts = self._campaign.encoder.encode_many(one.record["context"] for one in kept).vectors
            self._contexts.write(contexts.astype("<f8").tobytes())
            costs = [[one.record["costs"][name] for name in self._campaign.resources] for one in kept]
            self._columns["action"].add(np.array([one.row["arm"] for one in kept]))
            self._columns["reward"].add(np.array([one.record["reward"] or 0.0 for one in kept]))
            self._columns["pscore"].add(np.array([one.record["probability"] for one in kept]))
            self._columns["costs"].add(np.array(costs))
        return self._pipe.taken()

    def end(self) -> Iterable[bytes]:
        """The other arrays."""
        if self._seen != self._learnt:  # decisions were pruned meanwhile: a file that is cut off is not taken for whole
            raise RuntimeError(f"{self._learnt} decisions were to be exported, and {self._seen} were there")
        self._contexts.close()
        for name, column in self._columns.items():
            with self._zip.open(f"{name}.npy", "w", force_zip64=True) as member:
                member.write(_header((self._learnt, *column.shape), column.kind))
                for piece in column.pieces():
                    member.write(piece)
                    yield self._pipe.taken()
        for name, array in self._small():
            self._zip.writestr(f"{name}.npy", _header(array.shape, array.dtype.str) + array.tobytes())
        self._zip.close()
        yield self._pipe.taken()

    def _small(self) -> Iterator[tuple[str, NDArray[Any]]]:
        campaign = self._campaign
        yield "n_rounds", np.array(self._learnt, dtype="<i8")
        yield "n_actions", np.array(len(campaign.arms), dtype="<i8")
        yield "position", np.zeros(self._learnt, dtype="<i8")
        yield "arms", np.array(campaign.arms, dtype="<U128")
        yield "resources", np.array(campaign.resources, dtype="<U128")
        if campaign.arm_vectors is not None:
            yield "action_context", campaign.arm_vectors.astype("<f8")


class _Column:
    """Numbers that wait for their turn."""

    def __init__(self, kind: str, shape: tuple[int, ...]) -> None:
        self.kind, self.shape = kind, shape
        self._file = SpooledTemporaryFile(COLUMN_BYTES_MAX)  # noqa: SIM115 - it goes with the export

    def add(self, numbers: NDArray[Any]) -> None:
        """Some more."""
        self._file.write(numbers.astype(self.kind).tobytes())

    def pieces(self) -> Iterator[bytes]:
        """All of them, a piece at a time."""
        self._file.seek(0)
        while piece := self._file.read(PIECE_BYTES):
            yield piece
        self._file.close()


def _header(shape: tuple[int, ...], kind: str) -> bytes:
    """What stands before an array's numbers in a file."""
    head = io.BytesIO()
    npy.write_array_header_1_0(head, {"descr": kind, "fortran_order": False, "shape": shape})
    return head.getvalue()
