"""The search in label trees against products over all paths, and trees that are refused."""

import functools
import pickle
from copy import deepcopy

import numpy as np
import pytest
import torch
from helpers.ridge_knn import rare_words
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from holobind._threads import num_threads
from holobind.errors import OptionError, ShapeError
from holobind.ridge_knn import label_tree
from holobind.ridge_knn._tree_kernels import SCAN_FACTOR
from holobind.ridge_knn.fit_label_tree import fit_label_tree
from holobind.ridge_knn.label_tree import (
    MAX_LEVELS,
    MAX_LOG_RATIO,
    MIN_LOG_PROBABILITY,
    N_FOUND,
    LabelTree,
    search_trees,
)

seeds = st.integers(0, 2**16)


@functools.cache
def fitted(seed=0):
    return fit_label_tree(*rare_words(seed=seed), seed=seed)


def dense_weights(tree):
    """The weights of all nodes but the root.  Shapes: -> (nodes, f)"""
    W = np.zeros((len(tree.scales), tree.n_features))
    offsets, features, entry = tree.feature_offsets.tolist(), tree.features.tolist(), 0
    for parent in range(len(offsets) - 1):
        for at in range(offsets[parent], offsets[parent + 1]):
            for _ in range(int(tree.entry_counts[at])):
                node = int(tree.child_offsets[parent]) + int(tree.entry_children[entry])
                W[node, features[at]] += float(tree.entry_levels[entry]) * float(tree.scales[node])
                entry += 1
    assert entry == len(tree.entry_levels)
    return W


def path_log_probabilities(tree, X, max_log_ratio=np.inf):
    """log P of every leaf's label, by the definition, and -inf of all others.  Shapes: (n, f) -> (n, L)

    max_log_ratio   by how much a node may be below the best one of the level above; others have no leaves
    """
    X = X.toarray().astype(np.float64)
    gaps = np.maximum(0, 1 - X @ dense_weights(tree).T - tree.biases.double().numpy())
    children, parents = tree.child_offsets.tolist(), len(tree.child_offsets) - 1
    level = {0: np.zeros(len(X))}
    for _ in range(tree.n_levels):
        bound = np.max(list(level.values()), axis=0) - max_log_ratio
        level = {
            child + 1: np.where(total - gaps[:, child] ** 2 < bound, -np.inf, total - gaps[:, child] ** 2)
            for node, total in level.items()
            for child in range(children[node], children[node + 1])
        }
    found = np.full((len(X), tree.n_labels), -np.inf)
    found[:, tree.leaf_labels] = np.stack([level[parents + leaf] for leaf in range(len(tree.leaf_labels))], axis=1)
    return found


@settings(max_examples=10)
@given(seed=seeds, beam=st.sampled_from([1, 3, 1000]))
def test_a_search_finds_products_over_paths_and_with_a_full_beam_all_of_them(seed, beam):
    tree, new = fitted(seed % 5), rare_words(n=30, seed=seed + 1)[0]
    expected = path_log_probabilities(tree, new)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_tree, "BEAM", beam)
        patch.setattr(label_tree, "MAX_LOG_RATIO", np.inf)
        patch.setattr(label_tree, "N_FOUND", 50)
        scores, labels = tree.search(new)
    assert scores.shape == labels.shape == (30, 50)
    assert (np.diff(np.where(labels >= 0, scores, -1e9), axis=1) <= 0).all()
    for row in range(30):
        known = labels[row] >= 0
        assert len(set(labels[row][known].tolist())) == known.sum()
        np.testing.assert_allclose(scores[row][known], expected[row, labels[row][known]], atol=2e-3, rtol=1e-4)
        assert (scores[row][~known] == -np.inf).all()
        if beam == 1000:
            assert set(labels[row][known].tolist()) == set(tree.leaf_labels.tolist())


@settings(max_examples=10)
@given(seed=seeds, max_log_ratio=st.sampled_from([0.5, 2.0, 3.0]))
def test_a_search_leaves_out_nodes_far_below_the_best_one_of_the_level_above(seed, max_log_ratio):
    tree, new = fitted(seed % 5), rare_words(n=30, seed=seed + 1)[0]
    expected = path_log_probabilities(tree, new, max_log_ratio)
    near = [path_log_probabilities(tree, new, max_log_ratio + error) > -np.inf for error in (-1e-3, 1e-3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_tree, "BEAM", 1000)
        patch.setattr(label_tree, "MAX_LOG_RATIO", max_log_ratio)
        patch.setattr(label_tree, "N_FOUND", 50)
        scores, labels = tree.search(new)
    assert 0 < (labels >= 0).sum() < 30 * len(tree.leaf_labels)
    for row in range(30):
        known = labels[row] >= 0
        found = set(labels[row][known].tolist())
        assert set(np.flatnonzero(near[0][row])) <= found <= set(np.flatnonzero(near[1][row]))
        certain = [label in set(np.flatnonzero(near[0][row])) for label in labels[row][known]]
        np.testing.assert_allclose(
            scores[row][known][certain], expected[row, labels[row][known][certain]], atol=2e-3, rtol=1e-4
        )


def test_tables_scans_and_binary_searches_of_a_parents_features_give_the_same_bits(monkeypatch):
    tree, rows = deepcopy(fitted()), rare_words(n=60, seed=4)[0].toarray()
    rows[:30] = np.where(np.arange(rows.shape[1]) == rows[:30].argmax(1)[:, None], rows[:30], 0)  # one feature a row
    sizes, X = np.diff(tree.feature_offsets.numpy()), csr_array(rows)
    assert sizes.max() > SCAN_FACTOR >= sizes.max() / np.diff(X.indptr).max()  # so both ways without tables are taken
    monkeypatch.setattr(label_tree, "MAX_TABLE_BYTES", 0)
    without = tree.search(X)
    assert not len(tree._parents_with_tables())
    tree._arrays = None
    monkeypatch.setattr(label_tree, "MAX_TABLE_BYTES", 2**27)
    monkeypatch.setattr(label_tree, "TABLE_FACTOR", tree.n_features)
    assert len(tree._parents_with_tables()) == (sizes > 0).sum()
    found = tree.search(X)
    tree.release()
    tree.uses_tables = False
    assert not len(tree._parents_with_tables())
    for one, other, released in zip(found, without, tree.search(X), strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one, released)


def test_of_more_leaves_than_wanted_the_best_are_found(monkeypatch):
    tree, new = fitted(), rare_words(n=30, seed=9)[0]
    monkeypatch.setattr(label_tree, "BEAM", 1000)
    monkeypatch.setattr(label_tree, "MAX_LOG_RATIO", np.inf)
    monkeypatch.setattr(label_tree, "N_FOUND", 5)
    best = -np.sort(-path_log_probabilities(tree, new), axis=1)[:, :5]
    np.testing.assert_allclose(tree.search(new)[0], best, atol=2e-3, rtol=1e-4)


def test_a_narrow_beam_goes_to_the_most_probable_nodes(monkeypatch):
    tree, new = fitted(), rare_words(n=100, seed=3)[0]
    monkeypatch.setattr(label_tree, "BEAM", 4)
    best = path_log_probabilities(tree, new).argmax(1)
    assert np.mean(tree.search(new)[1][:, 0] == best) > 0.8


@settings(max_examples=10)
@given(seeds)
def test_several_trees_give_the_mean_of_their_probabilities(seed):
    trees, new = [fitted(i) for i in range(3)], rare_words(n=20, seed=seed)[0]
    values, labels = search_trees(trees, new)
    means = np.zeros((20, 40))
    for tree in trees:
        for row, (logs, found) in enumerate(zip(*tree.search(new), strict=True)):
            means[row, found[found >= 0]] += np.exp(np.float64(logs[found >= 0])) / 3
    assert (values >= 0).all() and (values[labels < 0] == 0).all()
    dense = np.zeros((20, 40))
    for row in range(20):
        known = labels[row] >= 0
        assert len(set(labels[row][known].tolist())) == known.sum()
        dense[row, labels[row][known]] = values[row][known]
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(dense, np.maximum(np.log(means) - MIN_LOG_PROBABILITY, 0), atol=1e-4)


@pytest.mark.parametrize("boost", [0.05, 0.4])
def test_a_boost_multiplies_scores_by_powers_of_the_numbers_of_rows(boost):
    """n / n_l, where n is the geometric mean of n_l over all labels of all rows."""
    X, Y = rare_words(n=300)
    counts = Y.sum(0).astype(int)
    trees = [fit_label_tree(X, Y, seed=seed) for seed in (0, 1)]
    plain, labels = search_trees(trees, X)
    for tree in trees:
        tree.set_rare_label_boost(counts, 3.0)  # which the next one replaces
        tree.set_rare_label_boost(counts, boost)
        tree.check_loaded()
    boosted, same_labels = search_trees(trees, X)
    typical = np.exp(np.mean(np.log(counts[Y.nonzero()[1]])))
    expected = plain * np.append((typical / np.maximum(counts, 1)) ** boost, 0)[labels]
    assert np.array_equal(labels, same_labels) and (plain > 0).any()
    np.testing.assert_allclose(boosted, expected, rtol=2e-3)
    loaded = [
        LabelTree.of_tensors(X.shape[1], Y.shape[1], tree.config(), dict(tree.state_dict()))
        for tree in map(deepcopy, trees)
    ]
    assert np.array_equal(search_trees(loaded, X)[0], boosted)
    for tree in trees:
        tree.set_rare_label_boost(counts, 0.0)
        assert "rare_label_boost" not in tree.config() and "leaf_weights" not in tree.state_dict()
    assert np.array_equal(search_trees(trees, X)[0], plain)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -1.0])
def test_impossible_boosts_are_refused(wrong):
    tree = small_tree()
    with pytest.raises(OptionError, match="rare_label_boost must be a finite number"):
        LabelTree(7, 6, **tree.config(), rare_label_boost=wrong)
    tree.set_rare_label_boost(np.arange(6), 0.1)
    tree.leaf_weights[2] = wrong
    with pytest.raises(OptionError, match="leaf_weights must be finite, 0 or larger"):
        tree.check_loaded()


def test_no_rows_and_rows_without_features_are_searched():
    tree = fitted()
    assert tree.search(csr_array((0, 80), dtype=np.float32))[1].shape == (0, N_FOUND)
    assert search_trees([tree], csr_array((0, 80), dtype=np.float32))[0].shape == (0, N_FOUND)
    empty = csr_array((1, 80), dtype=np.float32)
    expected = path_log_probabilities(tree, empty, MAX_LOG_RATIO).max()
    np.testing.assert_allclose(tree.search(empty)[0][0, 0], expected, atol=1e-3)
    with pytest.raises(ShapeError, match="80"):
        tree.search(csr_array((1, 79), dtype=np.float32))


def test_threads_dtypes_and_copies_change_nothing():
    tree, new = fitted(), rare_words(n=200, seed=5)[0]
    expected = tree.search(new)
    copies = [deepcopy(tree), pickle.loads(pickle.dumps(tree)), deepcopy(tree).double(), deepcopy(tree).half()]
    assert all(copy._arrays is None for copy in copies)
    again = LabelTree(80, 40, **tree.config())
    again.search(new)  # of zeros: its arrays must not outlive them
    torch.nn.ModuleList([again]).load_state_dict(torch.nn.ModuleList([tree]).state_dict())
    with num_threads(3):
        found = [copy.search(new) for copy in [tree, again, *copies]] + [tree.search(new.astype(np.float64))]
    for scores, labels in found:
        np.testing.assert_array_equal(scores, expected[0])
        np.testing.assert_array_equal(labels, expected[1])


def small_tree():
    """A root with two children of three and two leaves, whose labels are 4, 3, 2, 1, 0 of 6."""
    tree = LabelTree(7, 6, parents=3, leaves=5, n_levels=2, n_parent_features=5, n_entries=6)
    for name, values in {
        "child_offsets": [0, 2, 5, 7],
        "leaf_labels": [4, 3, 2, 1, 0],
        "feature_offsets": [0, 2, 3, 5],
        "features": [1, 5, 6, 0, 2],
        "entry_counts": [2, 1, 1, 1, 1],
        "entry_children": [0, 1, 1, 2, 0, 1],
        "entry_levels": [100, -100, 50, 20, 30, 127],
        "scales": [0.5, 0.25, 1, 1, 1, 1, 1],
        "biases": [0.5, -0.5, 0, 0, 0, 0, 0],
    }.items():
        getattr(tree, name).copy_(torch.tensor(values))
    return tree


def test_a_small_tree_is_what_its_buffers_say(monkeypatch):
    monkeypatch.setattr(label_tree, "MAX_LOG_RATIO", np.inf)
    tree = small_tree()
    tree.check_loaded()
    X = csr_array(np.array([[0, 0.01, 0, 0, 0, 0, 0.02]], np.float32))
    scores, labels = tree.search(X)
    first, second = 0.0, (1 + 0.25 + 0.5) ** 2  # w.x + b is 0.5 + 0.5 of child 0 and -0.25 - 0.5 of child 1
    expected = {2: first + 0.6**2, 4: first + 1, 3: first + 1, 1: second + 1, 0: second + 1}
    found = dict(zip(labels[0].tolist(), scores[0].tolist(), strict=True))
    assert found.pop(-1) == -np.inf
    assert found == pytest.approx({label: -gap for label, gap in expected.items()}, abs=1e-3)


WRONG = [
    ("child_offsets", [0, -(2**31), 2**31 - 1, 7], "child_offsets must ascend from 0 to 7"),
    ("child_offsets", [0, 5, 2, 7], "child_offsets must ascend"),
    ("child_offsets", [1, 2, 5, 7], "child_offsets must ascend"),
    ("child_offsets", [0, 2, 5, 6], "child_offsets must ascend"),
    ("child_offsets", [0, 7, 7, 7], "leaves must be 2 levels below the root"),
    ("child_offsets", [0, 0, 5, 7], "leaves must be 2 levels below the root"),
    ("child_offsets", [0, 1, 5, 7], "leaves must be 2 levels below the root"),
    ("leaf_labels", [4, 3, 2, 1, 6], "leaf_labels must be different ones from 0 to 5"),
    ("leaf_labels", [4, 3, 2, 1, -1], "leaf_labels must be different"),
    ("leaf_labels", [4, 3, 2, 1, 4], "leaf_labels must be different"),
    ("feature_offsets", [0, -(2**31), 2**31 - 1, 5], "feature_offsets must ascend from 0 to 5"),
    ("feature_offsets", [0, 3, 2, 5], "feature_offsets must ascend"),
    ("features", [1, 7, 6, 0, 2], "features must be from 0 to 6"),
    ("features", [-1, 5, 6, 0, 2], "features must be from 0 to 6"),
    ("features", [5, 1, 6, 0, 2], "features of a node must ascend"),
    ("features", [1, 1, 6, 0, 2], "features of a node must ascend"),
    ("features", [1, 5, 6, 2, 0], "features of a node must ascend"),
    ("entry_counts", [2, 1, 1, 1, 2], "entry_counts must add up to 6"),
    ("entry_counts", [-2, 5, 1, 1, 1], "entry_counts must add up to 6"),
    ("entry_children", [0, 1, 2, 2, 0, 1], "entry_children must be below"),
    ("entry_children", [0, 1, 1, 3, 0, 1], "entry_children must be below"),
    ("entry_children", [0, 1, 1, 2, 0, 255], "entry_children must be below"),
    ("scales", [np.nan, 1, 1, 1, 1, 1, 1], "scales and biases must be finite"),
    ("biases", [np.inf, 1, 1, 1, 1, 1, 1], "scales and biases must be finite"),
]


@pytest.mark.parametrize(("name", "values", "message"), WRONG)
def test_impossible_buffers_are_refused(name, values, message):
    tree = small_tree()
    getattr(tree, name).copy_(torch.tensor(values))
    with pytest.raises(OptionError, match=message) as refused:
        tree.check_loaded()
    assert "\n" not in str(refused.value)


def test_too_many_children_are_refused():
    def flat(leaves):
        tree = LabelTree(3, 1000, parents=1, leaves=leaves, n_levels=1, n_parent_features=0, n_entries=0)
        tree.child_offsets[1] = leaves
        tree.leaf_labels.copy_(torch.arange(leaves))
        return tree

    flat(256).check_loaded()
    assert (flat(256).search(csr_array(np.ones((1, 3), np.float32)))[0] == -1).all()
    with pytest.raises(OptionError, match="at most 256 children; got 257"):
        flat(257).check_loaded()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parents": 0}, "sizes must be positive"),
        ({"leaves": 0}, "sizes must be positive"),
        ({"n_entries": -1}, "sizes must be positive"),
        ({"n_levels": 0}, f"n_levels must be from 1 to {MAX_LEVELS}; got 0"),
        ({"n_levels": MAX_LEVELS + 1}, "n_levels must be"),
        ({"n_parent_features": 2**31}, "sizes must be at most 2,147,483,647"),
    ],
)
def test_impossible_sizes_are_refused(change, message):
    with pytest.raises(OptionError, match=message):
        LabelTree(7, 6, **(small_tree().config() | change))


@pytest.mark.parametrize("n_levels", [1, 3, 16])
def test_leaves_at_another_level_are_refused(n_levels):
    tree = small_tree()
    tree.n_levels = n_levels
    with pytest.raises(OptionError, match=f"leaves must be {n_levels} levels below the root"):
        tree.check_loaded()
