"""Independent pieces of work on several threads, as many as torch uses; each piece stays on its thread.

What a piece calls, of torch or of this, runs on that one thread, too. Torch's own threads wait for more work by
spinning, for a while, and would take time from ours.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")

AHEAD = 4  # pieces a thread that are under way or done before their turn: results may be large
FEW = 16  # rows that are no work for another thread


def threaded(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """The results in the order of items; stops at an error."""
    threads = torch.get_num_threads()
    waiting = iter(items)
    first = list(islice(waiting, AHEAD * threads))
    if threads == 1 or len(first) < 2:
        for item in first:
            yield work(item)
        for item in waiting:
            yield work(item)
        return
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            under_way: deque[Future[Result]] = deque(pool.submit(work, item) for item in first)
            try:
                while under_way:
                    yield under_way.popleft().result()
                    with suppress(StopIteration):
                        under_way.append(pool.submit(work, next(waiting)))
            finally:
                for future in under_way:
                    future.cancel()
    finally:
        torch.set_num_threads(threads)  # what threads that are yet to come start with


@contextmanager
def on_threads(n: int) -> Iterator[None]:
    """What is called in here, of torch or of this, runs on n threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def by_rows(work: Callable[[int, int], None], n: int) -> None:
    """Call `work` for all of n rows, from a first up to a last one."""
    threads = torch.get_num_threads()
    step = max(FEW, -(-n // (4 * threads)) if threads > 1 else n)
    for _ in threaded(lambda first: work(first, min(first + step, n)), range(0, n, step)):
        pass
