"""Held-out rows: a random split of the row indices into rows to train on and rows to validate on.

With groups, whole groups are held out, as with scikit-learn's GroupShuffleSplit and GroupKFold. Rows of one group
(copies, versions, chapters of one book) are then never on both sides, and a score on held-out rows is that of new
groups.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from holobind._types import IntArray, RowIndex
from holobind.errors import DataError, ShapeError

MAX_HELD_OUT_ROWS = 2000  # of training and of the closed form: more rows cost time and decide nothing


def group_ids(groups: Any, n: int) -> IntArray:
    """Names of groups, one a row, as ids from 0 on.  Shapes: (n) -> (n)"""
    names = groups.tolist() if hasattr(groups, "tolist") else list(groups)
    if len(names) != n:
        raise ShapeError(f"groups: wants the name of a group for each of the {n:,} rows; got {len(names):,} names")
    ids: dict[Any, int] = {}
    try:
        found = np.fromiter((ids.setdefault(name, len(ids)) for name in names), np.int64, n)
    except TypeError as error:
        raise DataError("groups: wants one name or number for each row; got a list or another container") from error
    if len(ids) < 2:
        raise DataError(f"groups: all {n:,} rows are of one group; whole groups are held out, so give at least two")
    return found


def holdout(
    n: int, n_held: int, seed: int | Sequence[int], groups: IntArray | None = None
) -> tuple[RowIndex, RowIndex]:
    """Shuffle n rows and hold out the first `n_held` of them: (kept, held), each in ascending order.

    groups   ids from 0 on, or None. Groups are shuffled instead, and each is held out that fits into what is left of
             `n_held` rows: at least one is, the smallest if none fits, and at least one is kept. With a single group,
             rows are held out as without groups.

    Shapes: groups (n)
    """
    if groups is None or n_held == 0 or (groups == groups[0]).all():
        order = _shuffled(n, seed)
        return np.sort(order[n_held:]), np.sort(order[:n_held])
    sizes = np.bincount(groups)
    present = np.flatnonzero(sizes)
    held: list[int] = []
    left = n_held
    for group in present[_shuffled(len(present), seed)]:
        if sizes[group] <= left and len(held) < len(present) - 1:
            held.append(int(group))
            left -= int(sizes[group])
    if not held:
        held = [int(present[np.argmin(sizes[present])])]
    is_held = np.isin(groups, held)
    return np.flatnonzero(~is_held), np.flatnonzero(is_held)


def folds(
    n: int, fold_size: int, seed: int | Sequence[int], groups: IntArray | None = None
) -> Iterator[tuple[RowIndex, RowIndex]]:
    """The folds of cross-validation as (kept, held): every row is held once; the first fold is that of `holdout`.

    With groups, every group is in one fold. The largest groups are dealt first, each to the fold with the fewest rows,
    in a random order of groups of equal size; folds may be larger than `fold_size`.

    Shapes: groups (n)
    """
    if groups is None or (groups == groups[0]).all():
        order = _shuffled(n, seed)
        for first in range(0, n, fold_size):
            fold = np.s_[first : first + fold_size]
            yield np.sort(np.delete(order, fold)), np.sort(order[fold])
        return
    sizes = np.bincount(groups)
    present = np.flatnonzero(sizes)
    shuffled = present[_shuffled(len(present), seed)]
    fold_rows = np.zeros(min(max(2, -(-n // fold_size)), len(present)), np.int64)
    fold_of = np.zeros(len(sizes), np.int64)
    for group in shuffled[np.argsort(-sizes[shuffled], kind="stable")]:
        smallest = int(np.argmin(fold_rows))
        fold_of[group] = smallest
        fold_rows[smallest] += sizes[group]
    for i in range(len(fold_rows)):
        is_held = fold_of[groups] == i
        yield np.flatnonzero(~is_held), np.flatnonzero(is_held)


def _shuffled(n: int, seed: int | Sequence[int]) -> RowIndex:
    return np.random.default_rng(seed).permutation(n)
