"""Processes as threads of one test: the collectives of `holobind._processes` without torch.distributed."""

import threading
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from holobind._processes import Processes


@dataclass
class _Board:
    barrier: threading.Barrier
    values: dict[int, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ThreadProcesses(Processes):
    board: _Board | None = None

    def _all(self, value):
        """The values of all, in the order of ranks."""
        self.board.barrier.wait()
        self.board.values[self.rank] = value
        self.board.barrier.wait()
        return [self.board.values[rank] for rank in range(self.size)]

    def sum(self, array):
        copies = self._all(array.copy())
        array[...] = sum(copies[1:], copies[0].copy())
        return array

    def gather(self, array):
        return self._all(array.copy())

    def concatenate(self, array):
        return np.concatenate(self._all(array.copy()))

    def swap(self, parts):
        return [each[self.rank].copy() for each in self._all(parts)]

    def _counter(self):
        numbers = self._all(count())[0]  # of the first process; `next` of it is atomic
        return iter(numbers)

    def exchange(self, array, work):
        results = self._all([work(each.copy()) for each in self._all(array)])
        mine = [result[self.rank] for result in results]
        return sum(mine[1:], mine[0].copy())


def run_together(size, function):
    """function(processes) of each of several processes, at the same time: a list of their results."""
    board = _Board(threading.Barrier(size, timeout=60))
    results, errors = [None] * size, []

    def run(rank):
        try:
            results[rank] = function(ThreadProcesses(rank, size, board))
        except BaseException as error:
            errors.append(error)
            board.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results
