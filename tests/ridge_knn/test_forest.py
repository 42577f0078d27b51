"""Where rows end in a forest, and forests that are refused."""

import numpy as np
import pytest
import torch
from helpers.ridge_knn import parity
from hypothesis import given, settings
from hypothesis import strategies as st

from holobind.errors import OptionError
from holobind.ridge_knn import Forest
from holobind.ridge_knn import forest as forest_module
from holobind.ridge_knn.fit_forest import fit_forest
from holobind.ridge_knn.forest import MAX_DEPTH, MAX_TREES


def leaf_by_definition(forest, x, tree):
    """The leaf of one dense row, one split after the other."""
    norm = np.linalg.norm(x.astype(np.float64))
    levels = np.trunc(x * (250 / norm)) if norm else x
    node = int(forest.roots[tree])
    while node >= 0:
        total = forest.levels[:, node].numpy().astype(np.float64) @ levels + float(forest.thresholds[node])
        node = int(forest.branches[node, int(total > 0)])
    return -1 - node


@pytest.mark.parametrize("top_splits", [1, 3, 64])
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**16), n=st.sampled_from([1, 20, 300]))
def test_rows_end_in_the_leaves_that_splits_lead_to(seed, n, top_splits):
    """With any number of first splits whose sums are computed at once."""
    X, Y = parity(seed=seed)
    forest = fit_forest(X, Y, n_trees=3, seed=seed)
    forest.check_loaded()
    new = parity(n=max(n, 5), seed=seed + 1)[0][:n]
    expected = [[leaf_by_definition(forest, x, tree) for tree in range(3)] for x in new.toarray()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forest_module, "TOP_SPLITS", top_splits)
        assert forest.leaves(new).tolist() == expected


@pytest.mark.parametrize("cast", ["half", "double", "bfloat16"])
def test_casts_do_not_move_rows_to_other_leaves(cast):
    X, Y = parity()
    forest = fit_forest(X, Y, n_trees=3)
    expected = forest.leaves(X)
    assert np.array_equal(getattr(forest, cast)().leaves(X), expected)
    assert forest.thresholds.dtype == torch.float32


def test_too_many_features_are_refused():
    with pytest.raises(OptionError, match=r"1 to 1024 features, .* got 1025 features, 1 trees, 0 splits"):
        Forest(1025, n_trees=1, n_splits=0)


def test_too_many_trees_are_refused():
    forest = Forest(3, n_trees=MAX_TREES, n_splits=0)
    forest.check_loaded()
    with pytest.raises(OptionError, match="at most 256 trees are allowed; got 257"):
        Forest(3, n_trees=MAX_TREES + 1, n_splits=0).check_loaded()


def chain(n_splits):
    """A forest of one tree in which each split leads to the next one."""
    forest = Forest(3, n_trees=1, n_splits=n_splits)
    forest.branches[:-1, 1] = torch.arange(1, n_splits)
    forest.roots[:] = 0
    return forest


def test_a_path_of_too_many_splits_is_refused():
    chain(MAX_DEPTH).check_loaded()
    with pytest.raises(OptionError, match="a path may have 4096 splits; got one of 4097"):
        chain(MAX_DEPTH + 1).check_loaded()
    wide = chain(MAX_DEPTH + 1)
    wide.branches[MAX_DEPTH // 2, 1] = -1
    wide.check_loaded()
