"""Training of forests."""

import numpy as np
import pytest
import torch
from helpers.ridge_knn import parity
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, hstack

from holobind._threads import num_threads
from holobind.ridge_knn import fit_forest as fitting
from holobind.ridge_knn.fit_forest import fit_forest


def test_a_label_of_all_rows_does_not_change_the_forest():
    X, Y = parity()
    with_constant = csr_array(hstack([csr_array(np.ones((X.shape[0], 1), np.float32)), Y]))
    one, other = (fit_forest(X, labels, n_trees=2) for labels in (Y, with_constant))
    assert torch.equal(one.levels, other.levels) and torch.equal(one.branches, other.branches)


def test_leaves_are_small_and_every_leaf_has_rows():
    X, Y = parity()
    forest = fit_forest(X, Y, n_trees=4)
    leaves = forest.leaves(X)
    assert sorted(np.unique(leaves)) == list(range(forest.n_leaves))  # each tree has its own
    assert np.quantile(np.bincount(leaves.ravel()), 0.9) <= fitting.MIN_LEAF_ROWS  # some cannot be split further
    assert len({tuple(leaves[:, tree] - leaves[:, tree].min()) for tree in range(4)}) == 4  # all trees differ


def test_rows_in_a_leaf_have_similar_label_sets():
    X, Y = parity(n=2000)
    leaves = fit_forest(X, Y, n_trees=1).leaves(X)[:, 0]
    labels = Y.toarray()
    within = np.mean([labels[leaves == leaf].var(0).sum() for leaf in np.unique(leaves)])
    assert within < 0.8 * labels.var(0).sum()


def test_a_forest_depends_on_the_seed_and_not_on_threads():
    X, Y = parity()
    forests = []
    for threads in (1, 3):
        with num_threads(threads):
            forests.append(fit_forest(X, Y, n_trees=3, seed=5))
    for name in ("levels", "thresholds", "branches", "roots"):
        assert torch.equal(getattr(forests[0], name), getattr(forests[1], name))
    assert not torch.equal(fit_forest(X, Y, n_trees=3, seed=6).thresholds[:1], forests[0].thresholds[:1])


@pytest.mark.parametrize("rows", [1, 10, 40])
def test_rows_that_cannot_be_split_are_one_leaf(rows):
    X = csr_array(np.ones((rows, 3), np.float32) / 3**0.5)
    forest = fit_forest(X, csr_array(np.eye(rows, 5, dtype=np.float32)), n_trees=2)
    forest.check_loaded()
    assert len(forest.thresholds) == 0
    assert forest.leaves(X).tolist() == [[0, 1]] * rows


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=50))
def test_median_is_the_middle_of_the_sorted_values(values):
    assert fitting._median(np.array(values, float)) == sorted(values)[len(values) // 2]


def test_progress_ends_at_one():
    stages = []
    fit_forest(*parity(), n_trees=3, on_progress=lambda stage, done: stages.append((stage, done)))
    assert stages[-1] == ("fitting trees", 1.0)
