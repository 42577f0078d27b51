"""The processes that torchrun started, as one: shares of the work, sums and exchanges of arrays.

A single process is a group of one, for which nothing is sent. Processes of a group call the same functions in the same
order. Arrays go through torch.distributed, which `join` sets up for the closed form, and Lightning Fabric for training
(`training.loop.launch`). Sums and gathered arrays are the same in every process, to the bit.
"""

import atexit
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, count, pairwise
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from holobind.errors import HolobindError, OptionError, ProcessError

Array = NDArray[Any]
Task = TypeVar("Task")
MIN_SHARED_ROWS = 8  # of each process; fewer rows are not worth a message
_queues = count()  # numbers of queues: processes make them in the same order


@dataclass(frozen=True)
class Processes:
    """Processes that work together: the number of this one and how many there are."""

    rank: int = 0
    size: int = 1

    def share(self, n: int) -> tuple[int, int]:
        """First and last of the n items of this process, a contiguous part; parts differ by at most one item."""
        return self.rank * n // self.size, (self.rank + 1) * n // self.size

    def takes(self, task: int) -> bool:
        """Whether this process does a task; tasks are dealt out in turn."""
        return task % self.size == self.rank

    def queue(self, tasks: Sequence[Task], sizes: Sequence[float]) -> Iterator[Task]:
        """The tasks of this process, largest first: whichever process is ready takes the next one of all.

        Which process does a task depends on the clock, so its result must not depend on the process. All processes
        must take tasks until there is none.
        """
        order = sorted(range(len(tasks)), key=lambda i: -sizes[i])
        taken = self._counter()
        while (i := next(taken)) < len(order):
            yield tasks[order[i]]

    def _counter(self) -> Iterator[int]:
        """Numbers from 0 on, each of which one of the processes gets."""
        if self.size == 1:
            yield from count()
        store, key = dist.distributed_c10d._get_default_store(), f"holobind queue {next(_queues)}"
        while True:
            with connected():
                number = int(store.add(key, 1)) - 1
            yield number

    def by_rows(self, n: int, work: Callable[[int, int], Sequence[Array]]) -> list[Array]:
        """The arrays that work(first, last) gives for some rows, for all n rows: each process does its share."""
        if self.size == 1 or n < MIN_SHARED_ROWS * self.size:
            return list(work(0, n))
        return [self.concatenate(np.ascontiguousarray(each)) for each in work(*self.share(n))]

    def sum(self, array: Array) -> Array:
        """The sum of all processes' arrays of one shape, in place."""
        if self.size > 1:
            with connected():
                dist.all_reduce(torch.from_numpy(array))
        return array

    def any(self, flag: bool) -> bool:
        """Whether the flag of any process is set."""
        return bool(self.sum(np.array([flag], np.int32))[0])

    def gather(self, array: Array) -> list[Array]:
        """The arrays of all processes, in the order of ranks; they may have different lengths, but one dtype."""
        if self.size == 1:
            return [array]
        lengths = np.zeros(self.size, np.int64)
        lengths[self.rank] = len(array)
        self.sum(lengths)
        padded = np.zeros((int(lengths.max()), *array.shape[1:]), array.dtype)
        padded[: len(array)] = array
        parts = np.empty((self.size, *padded.shape), array.dtype)
        if parts.nbytes:
            raw = [torch.from_numpy(each.reshape(-1).view(np.uint8)) for each in (*parts, padded)]
            with connected():
                dist.all_gather(raw[:-1], raw[-1])
        return [part[:n] for part, n in zip(parts, lengths.tolist(), strict=True)]

    def concatenate(self, array: Array) -> Array:
        """The arrays of all processes as one, in the order of ranks: `gather` in the memory of the result."""
        if self.size == 1:
            return array
        lengths = np.zeros(self.size, np.int64)
        lengths[self.rank] = len(array)
        ends = list(accumulate(self.sum(lengths).tolist(), initial=0))
        total = np.empty((ends[-1], *array.shape[1:]), array.dtype)
        total[ends[self.rank] : ends[self.rank + 1]] = array
        for rank, (first, last) in enumerate(pairwise(ends)):
            raw = total[first:last].reshape(-1).view(np.uint8)
            if len(raw):
                with connected():
                    dist.broadcast(torch.from_numpy(raw), rank)
        return total

    def swap(self, parts: Sequence[Array]) -> list[Array]:
        """The arrays that all processes have for this one, in the order of ranks.

        parts   an array for each process; their shapes may differ, but not the dtype
        """
        if self.size == 1:
            return list(parts)
        shapes = np.zeros((self.size, self.size, parts[0].ndim), np.int64)
        shapes[self.rank] = [part.shape for part in parts]
        shapes = self.sum(shapes)[:, self.rank]
        sizes = [int(size) for size in shapes.prod(1)]
        sent = torch.from_numpy(np.concatenate([part.reshape(-1) for part in parts]))
        received = torch.empty(sum(sizes), dtype=sent.dtype)
        with connected():
            dist.all_to_all_single(received, sent, sizes, [part.size for part in parts])
        cuts = np.split(received.numpy(), np.cumsum(sizes)[:-1])
        return [cut.reshape(tuple(shape)) for cut, shape in zip(cuts, shapes, strict=True)]

    def exchange(self, array: Array, work: Callable[[Array], Array]) -> Array:
        """The sum over all processes of their `work` on this process's array.

        Every process sends its array to all others, does its work on each array, and sends back the result, as
        soon as it has it. Results are added in the order of ranks. All arrays and all results have one shape.
        """
        if self.size == 1:
            return work(array)
        with connected():
            return self._exchange(array, work)

    def _exchange(self, array: Array, work: Callable[[Array], Array]) -> Array:
        others = [(self.rank + i) % self.size for i in range(1, self.size)]
        mine = torch.from_numpy(array)
        received = {other: np.empty_like(array) for other in others}
        sending = [dist.isend(mine, other, tag=0) for other in others]
        receiving = {other: dist.irecv(torch.from_numpy(received[other]), other, tag=0) for other in others}
        results = {self.rank: work(array)}  # while the arrays of others are on their way
        answers = {other: np.empty_like(results[self.rank]) for other in others}
        answered = [dist.irecv(torch.from_numpy(answers[other]), other, tag=1) for other in others]
        sent = []
        for other in others:
            _wait(receiving[other])
            sent.append(torch.from_numpy(work(received[other])))
            sending.append(dist.isend(sent[-1], other, tag=1))
        for request in (*answered, *sending):
            _wait(request)
        results |= answers
        total = results[0]
        for rank in range(1, self.size):
            total += results[rank]
        return total


ALONE = Processes()


def join() -> Processes:
    """The group of all processes that torchrun started, which is set up if it is not yet; alone, this one.

    Fabric would set it up as well, but takes a second and 70 MB to import, and is not needed to exchange arrays.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return ALONE
    if not dist.is_initialized():
        try:
            with connected():
                dist.init_process_group("gloo")
        except ValueError as error:
            raise OptionError(f"WORLD_SIZE is set, but not all that torchrun sets ({error}); unset it") from error
    leave_at_exit()
    return joined()


@cache
def leave_at_exit() -> None:
    """Take the group down when Python ends: threads of gloo that are left to C++ may abort a process that is done."""
    atexit.register(_leave)


def _leave() -> None:
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def joined() -> Processes:
    """The group of all processes, if torch.distributed has been set up; else this one alone."""
    if not (dist.is_available() and dist.is_initialized()):
        return ALONE
    return Processes(dist.get_rank(), dist.get_world_size())


@contextmanager
def connected() -> Iterator[None]:
    """Turn the error of a collective into a `ProcessError`."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, HolobindError):
            raise
        reason = " ".join(str(error).split())[:100]
        raise ProcessError(
            f"another process of this run ended or cannot be reached ({reason}); see its message, and start all again"
        ) from error


def _wait(request: Any) -> None:
    if request is not None:  # None: this process is not in the group
        request.wait()
