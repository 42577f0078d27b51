"""Fitted label trees: their labels, their classifiers, and what they do not depend on."""

import numpy as np
import pytest
import torch
from helpers.ridge_knn import rare_words
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.svm import LinearSVC

from holobind._threads import num_threads
from holobind.errors import DataError
from holobind.metrics import precision_at_k
from holobind.ridge_knn import fit_label_tree as fit_module
from holobind.ridge_knn.fit_label_tree import fit_label_tree

seeds = st.integers(0, 2**16)


def state(tree):
    return {name: tensor.numpy().tobytes() for name, tensor in tree.state_dict().items()}


def nodes(tree):
    """(parent, its labels, [labels of each child]) of each parent."""
    children, parents = tree.child_offsets.tolist(), len(tree.child_offsets) - 1

    def below(node):
        if node >= parents:
            return [int(tree.leaf_labels[node - parents])]
        return [label for child in range(children[node], children[node + 1]) for label in below(child + 1)]

    for parent in range(parents):
        yield parent, below(parent), [below(child + 1) for child in range(children[parent], children[parent + 1])]


@settings(max_examples=10)
@given(seed=seeds, labels=st.sampled_from([1, 2, 3, 7, 40, 200]), max_children=st.sampled_from([3, 8, 256]))
def test_every_label_that_occurs_is_a_leaf_once_and_no_other(seed, labels, max_children):
    X, Y = rare_words(n=60, f=220, labels=labels + 1, seed=seed)
    Y = csr_array(Y.toarray() + np.eye(60, labels + 1, k=-3, dtype=np.float32))  # counts above 1 are labels, too
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit_module, "MAX_CHILDREN", max_children)
        tree = fit_label_tree(X, Y, seed=seed)
    tree.check_loaded()
    assert sorted(tree.leaf_labels.tolist()) == np.unique(Y.indices).tolist()
    assert np.diff(tree.child_offsets).min() >= 1 and np.diff(tree.child_offsets).max() <= max_children


@pytest.mark.parametrize("features", [True, False])
def test_labels_of_the_same_rows_fit_below_nodes(features):
    """They cannot be clustered: 10,000 of them would be more than 256 groups of 256."""
    X = csr_array(np.full((3, 2), 0.7 * features, np.float32))
    Y = csr_array(np.repeat(np.array([[1], [1], [0]], np.float32), 10_000, axis=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit_module, "MAX_CHILDREN", 22)
        patch.setattr(fit_module, "MAX_EPOCHS", 1)
        tree = fit_label_tree(X, Y)
    tree.check_loaded()
    assert tree.n_levels == 3 and np.diff(tree.child_offsets).max() <= 22
    assert sorted(tree.leaf_labels.tolist()) == list(range(10_000))


def test_the_same_seed_gives_the_same_bytes_on_any_number_of_threads():
    X, Y = rare_words(n=600, labels=60)
    before = X.copy(), Y.copy()
    found = []
    for threads in (1, 2, 3):
        with num_threads(threads):
            found.append(state(fit_label_tree(X, Y, seed=3)))
    assert found[0] == found[1] == found[2]
    assert found[0] != state(fit_label_tree(X, Y, seed=4))
    for matrix, copy in zip((X, Y), before, strict=True):
        assert (matrix != copy).nnz == 0


def test_each_classifier_separates_a_child_from_the_rows_of_its_parent(monkeypatch):
    for name, value in (("MIN_WEIGHT", 0.0), ("MAX_LEVEL", 127), ("TOLERANCE", 1e-3), ("MAX_EPOCHS", 1000)):
        monkeypatch.setattr(fit_module, name, value)
    X, Y = rare_words(n=150, f=40, labels=25)
    tree = fit_label_tree(X, Y)
    scales, biases = tree.scales.double().numpy(), tree.biases.double().numpy()
    entries = np.append(0, np.cumsum(tree.entry_counts.numpy()))
    dense_X, dense_Y = X.toarray().astype(np.float64), Y.toarray()
    for parent, labels, children in nodes(tree):
        rows = np.arange(150) if parent == 0 else np.flatnonzero(dense_Y[:, labels].any(1))
        first = int(tree.child_offsets[parent])
        W = np.zeros((len(children), 40))
        for at in range(int(tree.feature_offsets[parent]), int(tree.feature_offsets[parent + 1])):
            for e in range(entries[at], entries[at + 1]):
                child = int(tree.entry_children[e])
                W[child, int(tree.features[at])] = float(tree.entry_levels[e]) * scales[first + child]
        for child, below in enumerate(children):
            signs = np.where(dense_Y[np.ix_(rows, below)].any(1), 1.0, -1.0)
            w = np.append(W[child], biases[first + child])
            if len(np.unique(signs)) < 2:
                assert np.all(signs * (dense_X[rows] @ w[:-1] + w[-1]) > 0)
                continue
            exact = LinearSVC(loss="squared_hinge", C=fit_module.COST, intercept_scaling=1, tol=1e-5, max_iter=10**5)
            exact.fit(dense_X[rows], signs)
            best = np.append(exact.coef_[0], exact.intercept_)
            values = [
                v @ v / 2 + fit_module.COST * (np.maximum(0, 1 - signs * (dense_X[rows] @ v[:-1] + v[-1])) ** 2).sum()
                for v in (w, best)
            ]
            assert values[0] <= 1.005 * values[1]


def test_small_weights_are_not_stored():
    tree = fit_label_tree(*rare_words())
    of_parent = np.repeat(np.arange(len(tree.child_offsets) - 1), np.diff(tree.feature_offsets))
    of_entry = np.repeat(of_parent, tree.entry_counts)
    scales = tree.scales.float().numpy()[tree.child_offsets.numpy()[of_entry] + tree.entry_children.numpy()]
    weights = np.abs(tree.entry_levels.numpy() * scales)
    assert len(weights) and weights.min() >= fit_module.MIN_WEIGHT - scales.max()


def test_labels_of_new_rows_are_found():
    X, Y = rare_words(n=2000)
    new, labels = rare_words(n=300, seed=1)
    some = np.flatnonzero(np.diff(labels.indptr))
    ranked = fit_label_tree(X, Y).search(new[some])[1]
    assert precision_at_k(labels[some], ranked[:, :5])[0] > 40  # by chance 5


def test_progress_ends_at_one_and_no_labels_are_refused():
    X, Y = rare_words()
    steps = []
    fit_label_tree(X, Y, on_progress=lambda stage, done: steps.append((stage, done)))
    assert steps[-1] == ("label tree", 1.0) and [done for _, done in steps] == sorted(done for _, done in steps)
    with pytest.raises(DataError, match="no row has a label"):
        fit_label_tree(X, csr_array(Y.shape, dtype=np.float32))


def test_buffers_have_the_types_of_the_file():
    dtypes = {name: tensor.dtype for name, tensor in fit_label_tree(*rare_words()).state_dict().items()}
    assert dtypes["entry_levels"] == torch.int8 and dtypes["entry_children"] == torch.uint8
    assert dtypes["scales"] == dtypes["biases"] == torch.float16
