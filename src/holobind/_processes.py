"""The processes that torchrun started, as one: shares of the work, sums and exchanges of arrays.

A single process is a group of one, for which nothing is sent. Processes of a group call the same functions in the same
order. Arrays go through torch.distributed, which Lightning Fabric has set up before (`training.loop.launch`); every
function returns the same values in every process, to the bit.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from holobind.errors import HolobindError, ProcessError

Array = NDArray[Any]
Task = TypeVar("Task")


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

    def balanced(self, tasks: Sequence[Task], sizes: Sequence[float]) -> list[Task]:
        """The tasks of this process, largest first: each task goes to the process that has least to do so far."""
        loads, own = [0.0] * self.size, []
        for i in sorted(range(len(tasks)), key=lambda i: -sizes[i]):
            rank = loads.index(min(loads))
            loads[rank] += sizes[i]
            if rank == self.rank:
                own.append(tasks[i])
        return own

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
