"""Settings of the memory allocator."""

from __future__ import annotations

import ctypes
from contextlib import suppress

# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# A batch of 256 decisions allocates and frees a few megabytes of arrays. By default glibc may return this memory to the
# system each time. In some processes, depending on the position of the first allocations, that costs 500 page faults or
# a sixth of the time of every batch.
FREE_BYTES_MAX = 64 * 2**20
HEAP_BLOCK_BYTES_MAX = 32 * 2**20  # the largest value that glibc accepts


def keep_freed_memory() -> bool:
    """Let glibc keep freed memory for the next batch; return whether the allocator is glibc and accepts this."""
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        accepted = (mallopt(_M_TRIM_THRESHOLD, FREE_BYTES_MAX), mallopt(_M_MMAP_THRESHOLD, HEAP_BLOCK_BYTES_MAX))
        return all(accepted)
    return False
