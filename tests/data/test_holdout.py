"""Held-out rows and folds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holobind.data.holdout import folds, group_ids, holdout
from holobind.errors import DataError, ShapeError


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 2**16))
def test_rows_are_kept_or_held_in_ascending_order(n, n_held, seed):
    kept, held = holdout(n, n_held, seed)
    assert len(held) == min(n, n_held)
    assert sorted([*kept, *held]) == list(range(n))
    assert list(kept) == sorted(kept) and list(held) == sorted(held)


@given(st.integers(1, 50), st.integers(1, 50), st.integers(0, 2**16))
def test_every_row_is_held_in_one_fold_and_the_first_fold_is_the_holdout(n, fold_size, seed):
    found = list(folds(n, fold_size, seed))
    assert sorted(row for _, held in found for row in held) == list(range(n))
    for kept, held in found:
        assert 0 < len(held) <= fold_size
        assert sorted([*kept, *held]) == list(range(n))
    for one, other in zip(found[0], holdout(n, fold_size, seed), strict=True):
        assert np.array_equal(one, other)


def test_the_seed_decides():
    assert np.array_equal(holdout(100, 20, 1)[1], holdout(100, 20, 1)[1])
    assert not np.array_equal(holdout(100, 20, 1)[1], holdout(100, 20, 2)[1])
    assert not np.array_equal(holdout(100, 20, 1)[1], holdout(100, 20, [1, 1])[1])


many_groups = st.lists(st.integers(0, 12), min_size=2, max_size=60).filter(lambda groups: len(set(groups)) > 1)


@given(many_groups, st.integers(1, 60), st.integers(0, 2**16))
def test_whole_groups_are_held_out_up_to_the_number_of_rows(groups, n_held, seed):
    groups = np.array(groups)
    kept, held = holdout(len(groups), n_held, seed, groups)
    assert sorted([*kept, *held]) == list(range(len(groups))) and list(held) == sorted(held)
    assert len(kept) and len(held) and not set(groups[kept]) & set(groups[held])
    assert len(held) <= n_held or len(held) == np.unique(groups, return_counts=True)[1].min()


@given(many_groups, st.integers(1, 30), st.integers(0, 2**16))
def test_every_group_is_held_in_one_fold(groups, fold_size, seed):
    groups = np.array(groups)
    found = list(folds(len(groups), fold_size, seed, groups))
    assert sorted(row for _, held in found for row in held) == list(range(len(groups)))
    assert len(found) == min(max(2, -(-len(groups) // fold_size)), len(set(groups)))
    for kept, held in found:
        assert len(kept) and len(held) and not set(groups[kept]) & set(groups[held])


def test_a_single_group_is_held_out_row_by_row():
    for one, other in zip(holdout(20, 5, 3, np.zeros(20, int)), holdout(20, 5, 3), strict=True):
        assert np.array_equal(one, other)


def test_groups_of_equal_size_are_held_out_at_random():
    groups = np.repeat(np.arange(10), 5)
    assert len({tuple(holdout(50, 10, seed, groups)[1]) for seed in range(20)}) > 10


def test_names_of_groups_become_ids_in_order_of_their_first_rows():
    assert group_ids(["b", "a", "b", "c"], 4).tolist() == [0, 1, 0, 2]
    assert group_ids(np.array([7, 3, 7]), 3).tolist() == [0, 1, 0]
    with pytest.raises(ShapeError, match="each of the 3 rows; got 2 names"):
        group_ids(["a", "b"], 3)
    with pytest.raises(DataError, match="all 2 rows are of one group"):
        group_ids(["a", "a"], 2)
    with pytest.raises(DataError, match="one name or number for each row"):
        group_ids([["a"], ["b"]], 2)
