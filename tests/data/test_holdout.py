"""Held-out rows and folds."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from holobind.data.holdout import folds, holdout


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
