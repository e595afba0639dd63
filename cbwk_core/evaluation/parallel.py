"""Parallel calls on the backend that joblib is configured for: threads, processes, Dask or Ray."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from joblib import Parallel, delayed, effective_n_jobs  # type: ignore[import-untyped]

Result = TypeVar("Result")
Progress = Callable[[int, int], None]  # called with the work done and the total work

# The calls per worker between two progress reports. With one call, all workers would wait for the slowest.
CALLS_PER_WORKER = 4


def in_parallel(
    task: Callable[..., Result],
    arguments: Sequence[tuple[Any, ...]],
    *,
    jobs: int | None = None,
    prefer: str = "threads",
    per_worker: int = CALLS_PER_WORKER,
    progress: Progress | None = None,
) -> list[Result]:
    """Return `task(*given)` for each `given` in `arguments`, in their order.

    jobs: the number of workers; None uses `joblib.parallel_config`, or one worker if that is not set.
    prefer: the workers if `parallel_config` names no backend: "threads" for tasks that run in numpy, which releases the
    interpreter lock, or "processes" for tasks that run in Python. per_worker: calls between two progress reports.

    >>> in_parallel(pow, [(2, 3), (3, 2)])
    [8, 9]
    """
    wave = per_worker * int(effective_n_jobs(jobs))
    results: list[Result] = []
    for start in range(0, len(arguments), wave):
        batch = arguments[start : start + wave]
        results.extend(Parallel(n_jobs=jobs, prefer=prefer)(delayed(task)(*given) for given in batch))
        if progress is not None:
            progress(len(results), len(arguments))
    return results
