"""Independent tasks on several threads, as many as torch is set to use (`torch.set_num_threads`).

A task runs on one thread, and so do the torch operations and the functions of this module that it calls. Torch's own
worker threads wait for work by spinning for a while, which would take time from these threads.

`torch.set_num_threads` sets the number of the calling thread, and the number that threads which are new to torch start
with. The setting of a caller, and of threads that start later, is the same after a call of this module as before it,
also after an exception and while a generator is suspended or abandoned.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from itertools import islice
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")

MAX_PENDING_PER_THREAD = 4  # tasks a thread that run, or are done, before their result is taken: results may be large
MIN_ROWS_PER_TASK = 16  # with fewer rows, a task takes less time than handing it to another thread

_starting = threading.Lock()  # held while torch's number for new threads is not the caller's
_local = threading.local()  # `tasks`: the number of threads for tasks, where torch itself is to use one


def task_threads() -> int:
    """The number of threads on which tasks of this thread run."""
    return getattr(_local, "tasks", None) or torch.get_num_threads()


def threaded(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield work(item) in the order of the items; an exception of a task is raised here and stops the rest."""
    with _starting:
        n_threads, n_of_torch = task_threads(), torch.get_num_threads()
    remaining = iter(items)
    first = list(islice(remaining, MAX_PENDING_PER_THREAD * n_threads))
    if n_threads == 1 or len(first) < 2:
        for item in first:
            yield work(item)
        for item in remaining:
            yield work(item)
        return
    n_workers = min(n_threads, len(first))
    workers_ready = threading.Barrier(n_workers + 1)

    def start_worker() -> None:
        torch.get_num_threads()  # the first call in a thread takes over the number for new threads
        torch.set_num_threads(1)
        with suppress(threading.BrokenBarrierError):
            workers_ready.wait()

    with ThreadPoolExecutor(n_workers, initializer=start_worker) as pool:
        pending: deque[Future[Result]] = deque()
        try:
            with _starting:
                try:
                    pending.extend(pool.submit(work, item) for item in first)
                    workers_ready.wait()
                except BaseException:
                    workers_ready.abort()  # the workers must not wait for one that could not be started
                    pool.shutdown(cancel_futures=True)
                    raise
                finally:
                    torch.set_num_threads(n_of_torch)  # workers have set the number for new threads to 1
            while pending:
                yield pending.popleft().result()
                with suppress(StopIteration):
                    pending.append(pool.submit(work, next(remaining)))
        finally:
            for future in pending:
                future.cancel()


@contextmanager
def num_threads(n: int) -> Iterator[None]:
    """Let torch and this module use n threads inside the `with` block."""
    with _numbers(n, None):
        yield


@contextmanager
def torch_on_one_thread(where: bool = True) -> Iterator[None]:
    """Let torch use one thread for its own operations inside the `with` block, and tasks as many as before.

    Small operations gain nothing by a second thread, which waits for the next one by spinning: that doubles the
    processor time of a fit to small data.
    """
    with _numbers(1, task_threads()) if where else nullcontext():
        yield


@contextmanager
def _numbers(n: int, tasks: int | None) -> Iterator[None]:
    before, tasks_before = torch.get_num_threads(), getattr(_local, "tasks", None)
    _local.tasks = tasks
    try:
        if n != before:
            torch.set_num_threads(n)
        yield
    finally:
        _local.tasks = tasks_before
        if n != before:
            torch.set_num_threads(before)


def by_rows(work: Callable[[int, int], None], n: int) -> None:
    """Call work(first, last) on ranges that cover the rows 0 to n - 1, on several threads."""
    n_threads = task_threads()
    step = max(MIN_ROWS_PER_TASK, -(-n // (4 * n_threads)) if n_threads > 1 else n)
    for _ in threaded(lambda first: work(first, min(first + step, n)), range(0, n, step)):
        pass
