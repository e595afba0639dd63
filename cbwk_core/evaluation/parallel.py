"""Independent parts on whatever backend joblib is set to: threads, processes, Dask, Ray."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from joblib import Parallel, delayed, effective_n_jobs  # type: ignore[import-untyped]

Result = TypeVar("Result")
Progress = Callable[[int, int], None]  # parts done, parts in all

# Parts handed out to each worker between two reports of progress: with one, all would wait for the slowest.
PARTS_PER_WORKER = 4


def in_parallel(
    task: Callable[..., Result],
    arguments: Sequence[tuple[Any, ...]],
    *,
    jobs: int | None = None,
    prefer: str = "threads",
    per_worker: int = PARTS_PER_WORKER,
    progress: Progress | None = None,
) -> list[Result]:
    """The results of `task(*arguments)` in order.

    jobs: workers, or None for what `joblib.parallel_config` says, one without it. prefer: what they are unless it says
    so: "threads" for parts that are numpy's, which lets other threads run, "processes" for parts that are Python's.
    per_worker: parts handed out to each between two reports of progress.

    >>> in_parallel(pow, [(2, 3), (3, 2)])
    [8, 9]
    """
    wave = per_worker * int(effective_n_jobs(jobs))
    results: list[Result] = []
    for start in range(0, len(arguments), wave):
        part = arguments[start : start + wave]
        results.extend(Parallel(n_jobs=jobs, prefer=prefer)(delayed(task)(*given) for given in part))
        if progress is not None:
            progress(len(results), len(arguments))
    return results
