"""Held-out rows: a random split of the row indices into rows to train on and rows to validate on."""

from collections.abc import Iterator, Sequence

import numpy as np

from holobind._types import RowIndex

MAX_HELD_OUT_ROWS = 2000  # of training and of the closed form: more rows cost time and decide nothing


def holdout(n: int, n_held: int, seed: int | Sequence[int]) -> tuple[RowIndex, RowIndex]:
    """Shuffle n rows and hold out the first `n_held` of them: (kept, held), each in ascending order."""
    order = _shuffled(n, seed)
    return np.sort(order[n_held:]), np.sort(order[:n_held])


def folds(n: int, fold_size: int, seed: int | Sequence[int]) -> Iterator[tuple[RowIndex, RowIndex]]:
    """The folds of cross-validation as (kept, held): every row is held once; the first fold is that of `holdout`."""
    order = _shuffled(n, seed)
    for first in range(0, n, fold_size):
        fold = np.s_[first : first + fold_size]
        yield np.sort(np.delete(order, fold)), np.sort(order[fold])


def _shuffled(n: int, seed: int | Sequence[int]) -> RowIndex:
    return np.random.default_rng(seed).permutation(n)
