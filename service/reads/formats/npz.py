"""Arrays as the Open Bandit Pipeline takes them, in a file that `numpy.load` reads.

The file is a zip with one array after the other, and the length of an array comes before its numbers. So the decisions
are counted first; contexts, the largest array, are returned as they are read, and the other columns wait in files that
move to the disk when they are long.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from tempfile import SpooledTemporaryFile
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from service.domain.campaign import Campaign
from service.reads.formats.form import ByteSink, Exported, Form

# The bytes of a column in memory, beyond which it moves to the disk.
COLUMN_BYTES_MAX = 2**18
PIECE_BYTES = 2**16


class OpenBanditArrays(Form):
    """`context`, `action`, `reward`, `pscore`, `position` and a few more, of rounds that were learnt from.

    Without rounds of the null arm, which obp does not have, and without requests with `actions`. `position` is always
    0: one arm is shown at a time.
    """

    def __init__(self, campaign: Campaign, learnt: int) -> None:
        self._campaign, self._learnt, self._count = campaign, learnt, 0
        self._sink = ByteSink()
        self._zip = zipfile.ZipFile(self._sink, "w", zipfile.ZIP_STORED)
        self._contexts = self._zip.open("context.npy", "w", force_zip64=True)
        self._contexts.write(_header((learnt, campaign.encoder.dimension), "<f8"))
        # By name: the type, the shape of a row, and the rows until they are written.
        self._columns = {
            "action": ("<i8", (), _file()),
            "reward": ("<f8", (), _file()),
            "pscore": ("<f8", (), _file()),
            "costs": ("<f8", (len(campaign.resources),), _file()),
        }

    def page(self, decisions: Sequence[Exported]) -> bytes:
        """The contexts of the next decisions."""
        learnt = [each for each in decisions if each.record["learned"] and each.record["actions"] is None]
        if learnt:
            self._count += len(learnt)
            contexts = self._campaign.encoder.encode_many(each.record["context"] for each in learnt).vectors
            self._contexts.write(contexts.astype("<f8").tobytes())
            values = {
                "action": [each.row["arm"] for each in learnt],
                "reward": [each.record["reward"] or 0.0 for each in learnt],
                "pscore": [each.record["probability"] for each in learnt],
                "costs": [[each.record["costs"][name] for name in self._campaign.resources] for each in learnt],
            }
            for name, (kind, _, file) in self._columns.items():
                file.write(np.array(values[name], dtype=kind).tobytes())
        return self._sink.take()

    def end(self) -> Iterable[bytes]:
        """The other arrays."""
        if self._count != self._learnt:  # pruning ran at the same time: a truncated file is recognisable
            raise RuntimeError(f"expected to export {self._learnt} decisions, found {self._count}")
        self._contexts.close()
        for name, (kind, shape, file) in self._columns.items():
            with self._zip.open(f"{name}.npy", "w", force_zip64=True) as member, file:
                member.write(_header((self._learnt, *shape), kind))
                file.seek(0)
                while piece := file.read(PIECE_BYTES):
                    member.write(piece)
                    yield self._sink.take()
        for name, array in self._small():
            self._zip.writestr(f"{name}.npy", _header(array.shape, array.dtype.str) + array.tobytes())
        self._zip.close()
        yield self._sink.take()

    def _small(self) -> Iterator[tuple[str, NDArray[Any]]]:
        campaign = self._campaign
        yield "n_rounds", np.array(self._learnt, dtype="<i8")
        yield "n_actions", np.array(len(campaign.arms), dtype="<i8")
        yield "position", np.zeros(self._learnt, dtype="<i8")
        yield "arms", np.array(campaign.arms, dtype="<U128")
        yield "resources", np.array(campaign.resources, dtype="<U128")
        if campaign.arm_vectors is not None:
            yield "action_context", campaign.arm_vectors.astype("<f8")


def _file() -> IO[bytes]:
    return SpooledTemporaryFile(COLUMN_BYTES_MAX)


def _header(shape: tuple[int, ...], kind: str) -> bytes:
    """The bytes before the numbers of an array."""
    head = io.BytesIO()
    npy.write_array_header_1_0(head, {"descr": kind, "fortran_order": False, "shape": shape})
    return head.getvalue()
