"""Freed memory is used again without page faults."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

CHILD = """
import resource
import numpy as np
from service.server import keep_freed_memory

def faults(rounds):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        arrays = [np.ones(100_000 * size) for size in (1, 3, 2, 4)]
        del arrays
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

assert keep_freed_memory()
faults(3)
print(faults(20))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has this setting")
def test_arrays_of_a_batch_cause_page_faults_at_first_only():
    child = subprocess.run(
        [sys.executable, "-c", CHILD], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    each = 8 * 10 * 100_000 // os.sysconf("SC_PAGESIZE")
    assert int(child.stdout) < each  # by default it is up to twenty times as many
