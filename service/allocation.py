"""What the process does with memory it has used and will use again."""

from __future__ import annotations

import ctypes
from contextlib import suppress

# Of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# A batch of 256 decisions takes a few megabytes of arrays and gives them back. Left alone, glibc may return such memory
# to the system each time: 500 page faults, or a sixth of the batch's time, in one process and none in the next,
# depending on where its first allocations happened to lie.
KEPT_BYTES = 64 * 2**20
IN_THE_HEAP_BYTES_MAX = 32 * 2**20  # the most that glibc takes


def keep_freed_memory() -> bool:
    """Let the allocator keep this much for the next batch; whether it can be told, as only glibc can."""
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        told = (mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES), mallopt(_M_MMAP_THRESHOLD, IN_THE_HEAP_BYTES_MAX))
        return all(told)
    return False
