"""Tasks on several threads, and torch's number of threads, which stays the caller's."""

import threading
from itertools import count

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holobind._threads import by_rows, num_threads, task_threads, threaded, torch_on_one_thread


def of_a_new_thread():
    """The number of threads that torch uses in a thread that starts now."""
    found = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return found[0]


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    """A number of threads, which is still the caller's and that of new threads after the test."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    try:
        assert (torch.get_num_threads(), of_a_new_thread()) == (request.param, request.param)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("n", [0, 1, 2, 50])
def test_results_are_in_the_order_of_the_items(threads, n):
    assert list(threaded(lambda x: x * x, range(n))) == [x * x for x in range(n)]


def test_a_task_and_its_calls_run_on_one_thread(threads):
    def inner(_):
        return threading.get_ident()

    def outer(_):
        torch.ones(10).sum()
        return torch.get_num_threads(), {threading.get_ident()} == set(threaded(inner, range(9)))

    assert set(threaded(outer, range(9))) == {(1, True)}


def test_an_exception_of_a_task_is_raised_and_later_tasks_do_not_start(threads):
    started = []

    def work(x):
        started.append(x)
        if x == 3:
            raise ValueError("three")
        return x

    results = threaded(work, range(1000))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="three"):
        next(results)
    assert len(started) < 100


def test_items_are_taken_as_they_are_needed(threads):
    taken = count()
    results = threaded(lambda x: x, (next(taken) for _ in range(1000)))
    assert next(results) == 0
    results.close()
    assert next(taken) < 50


def test_a_suspended_or_abandoned_generator_does_not_change_the_number_of_threads(threads):
    results = threaded(lambda x: x, range(100))
    next(results)
    assert (torch.get_num_threads(), of_a_new_thread()) == (threads, threads)
    del results
    assert (torch.get_num_threads(), of_a_new_thread()) == (threads, threads)


def test_a_change_of_the_caller_during_the_iteration_is_kept(threads):
    results = threaded(lambda x: x, range(20))
    next(results)
    torch.set_num_threads(threads + 1)
    assert list(results) == list(range(1, 20))
    assert (torch.get_num_threads(), of_a_new_thread()) == (threads + 1, threads + 1)
    torch.set_num_threads(threads)


def test_a_generator_that_ends_in_another_thread_changes_neither(threads):
    results = threaded(lambda x: x, range(100))
    next(results)
    found = []

    def finish():
        torch.set_num_threads(5)
        list(results)
        found.append(torch.get_num_threads())

    other = threading.Thread(target=finish)
    other.start()
    other.join()
    assert (found, torch.get_num_threads()) == ([5], threads)
    torch.set_num_threads(threads)  # 5 is the number for new threads


def test_several_threads_may_call_it_at_once(threads):
    found = {}

    def call(key):
        found[key] = list(threaded(lambda x: x + key, range(50))), torch.get_num_threads()

    callers = [threading.Thread(target=call, args=(key,)) for key in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert found == {key: ([x + key for x in range(50)], threads) for key in range(8)}


def test_workers_that_cannot_start_raise_and_do_not_hang(monkeypatch):
    start, started = threading.Thread.start, []

    def start_once(thread):
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    with num_threads(2):
        monkeypatch.setattr(threading.Thread, "start", start_once)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            list(threaded(lambda x: x, range(10)))
        monkeypatch.undo()
        assert (torch.get_num_threads(), of_a_new_thread()) == (2, 2)


@given(st.integers(0, 300))
def test_every_row_is_in_one_range(n):
    visits = np.zeros(n, int)

    def work(first, last):
        assert 0 <= first < last <= n
        visits[first:last] += 1

    by_rows(work, n)
    assert (visits == 1).all()


def test_num_threads_is_restored_after_an_exception(threads):
    with pytest.raises(ValueError, match="no"), num_threads(1):
        assert torch.get_num_threads() == 1
        raise ValueError("no")


def test_torch_on_one_thread_leaves_the_number_of_tasks(threads):
    for where in (True, False):
        with torch_on_one_thread(where):
            assert torch.get_num_threads() == (1 if where else threads) and task_threads() == threads
            with torch_on_one_thread():
                assert task_threads() == threads
            ids = set(threaded(lambda _: (threading.get_ident(), task_threads()), range(50)))
            assert (threading.get_ident() in {i for i, _ in ids}) == (threads == 1) and {n for _, n in ids} == {1}
            assert torch.get_num_threads() == (1 if where else threads)
            with num_threads(1):  # of both
                assert {threading.get_ident()} == set(threaded(lambda _: threading.get_ident(), range(5)))
            with num_threads(3):
                assert torch.get_num_threads() == task_threads() == 3
    with pytest.raises(KeyError), torch_on_one_thread():
        raise KeyError
    assert torch.get_num_threads() == task_threads() == threads
