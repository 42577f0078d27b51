"""Pieces of work on several threads."""

import threading
from itertools import count

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holobind._threads import by_rows, on_threads, threaded


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    assert torch.get_num_threads() == request.param  # it is as it was
    torch.set_num_threads(before)


@pytest.mark.parametrize("n", [0, 1, 2, 50])
def test_results_come_in_order(threads, n):
    assert list(threaded(lambda x: x * x, range(n))) == [x * x for x in range(n)]


def test_what_a_piece_calls_stays_on_its_thread(threads):
    def inner(_):
        return threading.get_ident()

    def outer(_):
        return torch.get_num_threads(), {threading.get_ident()} == set(threaded(inner, range(9)))

    assert set(threaded(outer, range(9))) == {(1, True)}


def test_threads_that_come_later_start_with_as_many_as_before(threads):
    list(threaded(lambda x: x, range(2)))
    seen = []
    later = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert seen == [threads]


def test_an_error_ends_it_and_what_was_not_begun_is_left(threads):
    begun = []

    def work(x):
        begun.append(x)
        if x == 3:
            raise ValueError("three")
        return x

    found = threaded(work, range(1000))
    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="three"):
        next(found)
    assert len(begun) < 100


def test_items_are_taken_as_they_are_needed(threads):
    taken = count()
    found = threaded(lambda x: x, (next(taken) for _ in range(1000)))
    assert next(found) == 0
    found.close()
    assert next(taken) < 50


@given(st.integers(0, 300))
def test_every_row_is_worked_on_once(n):
    seen = np.zeros(n, int)

    def work(first, last):
        assert 0 <= first < last <= n
        seen[first:last] += 1

    by_rows(work, n)
    assert (seen == 1).all()


def test_threads_are_as_many_as_before_also_after_an_error(threads):
    with pytest.raises(ValueError, match="no"), on_threads(1):
        assert torch.get_num_threads() == 1
        raise ValueError("no")
