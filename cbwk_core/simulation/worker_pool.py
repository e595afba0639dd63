"""Tasks of a study, run in worker processes with a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]


class TimedTask(Hashable, Protocol):
    """A task with an estimate of its duration."""

    @property
    def relative_duration(self) -> float:
        """Estimate of the duration, in an arbitrary unit."""


Task = TypeVar("Task", bound=TimedTask)
Result = TypeVar("Result")


def run_tasks(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    workers: int,
    description: str,
    console: Console,
    completed: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """Return the results of the tasks in their order, and show a progress bar on the console.

    completed: called with each result as soon as there is one.
    """
    results: dict[Task, Result] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as progress:
        bar = progress.add_task(description, total=sum(task.relative_duration for task in tasks))
        for task, result in _completed(function, tasks, workers):
            results[task] = result
            completed(result)
            progress.advance(bar, task.relative_duration)
    return [results[task] for task in tasks]


def _completed(
    function: Callable[[Task], Result], tasks: Sequence[Task], workers: int
) -> Iterator[tuple[Task, Result]]:
    """Yield results as they complete. The longest task starts first; one worker is this process."""
    ordered = sorted(tasks, key=lambda task: -task.relative_duration)
    if workers == 1:
        with threadpool_limits(limits=1):
            for task in ordered:
                yield task, function(task)
        return
    # Spawn, not fork: a fork of a process with threads (BLAS, a progress bar) can hang.
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=use_one_blas_thread)
    try:
        futures = {pool.submit(function, task): task for task in ordered}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def use_one_blas_thread() -> None:
    """Limit BLAS to one thread in this process: small matrices are slower on several, and workers share the cores.

    >>> use_one_blas_thread()
    """
    threadpool_limits(limits=1)
