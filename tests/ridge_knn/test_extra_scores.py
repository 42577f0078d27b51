"""Votes of neighbours and label trees beside a trained network."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, random_array

import holobind as hb
from holobind.data import Split
from holobind.data.batches import ExampleRows, TokenExamples
from holobind.data.csr import normalise_rows
from holobind.errors import FileError, OptionError
from holobind.ridge_knn import ExtraScores, choose_extra_scores, fit_ridge_knn
from holobind.ridge_knn.extra_scores import feature_rows, padded, unpadded
from holobind.ridge_knn.fit_label_tree import fit_label_tree

SETTINGS = {"knn_weight": 2.0, "similarity_power": 2.0, "idf_power": 0.5, "rare_label_boost": 0.2}


def data(n=80, f=30, n_labels=12, seed=0):
    rng = np.random.default_rng(seed)
    X = normalise_rows(csr_array(random_array((n, f), density=0.2, format="csr", dtype=np.float32, rng=rng)))
    return X, csr_array((rng.random((n, n_labels)) < 0.15).astype(np.float32))


def votes_by_definition(X, Y, x, settings):
    n, counts = X.shape[0], Y.sum(0)
    idf = np.log((1 + n) / (1 + (X.toarray() > 0).sum(0))) ** settings["idf_power"]
    rows, query = X.toarray() * idf, x.toarray() * idf
    cosines = (query / np.linalg.norm(query)) @ (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)).T
    nearest = np.argsort(-cosines[0], kind="stable")[:30]
    w = np.maximum(cosines[0][nearest], 0) ** settings["similarity_power"]
    boost = (counts.max() / np.maximum(counts, 1)) ** settings["rare_label_boost"]
    return settings["knn_weight"] * (w / w.sum()) @ Y.toarray()[nearest] * boost


def test_votes_are_the_mean_label_sets_of_the_30_nearest_rows():
    X, Y = data(40)
    extra = ExtraScores.from_rows(X, Y, **SETTINGS)
    found = unpadded(*extra.label_scores(X[:6]), Y.shape[1]).toarray()
    for i in range(6):
        # The index rounds rows to eight bits, and skips features that matter little.
        np.testing.assert_allclose(found[i], votes_by_definition(X, Y, X[[i]], SETTINGS), atol=0.15)
    assert found.min() >= 0


def test_votes_and_trees_add_up_and_a_label_occurs_once_in_a_row():
    X, Y = data()
    tree = fit_label_tree(X, Y)
    one, other = ExtraScores.from_rows(X, Y, **SETTINGS), ExtraScores.from_rows(X, Y, trees=[tree], tree_weight=0.3)
    both = ExtraScores.from_rows(X, Y, trees=[tree], tree_weight=0.3, **SETTINGS)
    sums = [unpadded(*extra.label_scores(X[:9]), 12).toarray() for extra in (one, other, both)]
    np.testing.assert_allclose(sums[0] + sums[1], sums[2], rtol=1e-5)
    for labels in both.label_scores(X[:9])[1]:
        known = labels[labels >= 0]
        assert len(set(known.tolist())) == len(known)


def test_padding_is_undone_by_its_inverse():
    scores = csr_array(np.array([[0, 2, 0], [0, 0, 0], [1, 0, 3]], np.float32))
    assert (unpadded(*padded(scores), 3).toarray() == scores.toarray()).all()


def test_texts_have_the_bag_of_their_tokens_as_features():
    tokens = TokenExamples(np.array([4, 4, 2, 3], np.int32), np.array([0, 3, 4]))
    bag = feature_rows(ExampleRows(tokens, np.array([1, 0])), np.array([1, 0]), 5).toarray()
    np.testing.assert_allclose(bag, [[0, 0, 1, 0, 1 + np.log(2)], [0, 0, 0, 1, 0]], rtol=1e-6)


def test_held_out_rows_choose_votes_where_they_help_and_none_where_they_do_not():
    X, _ = data(400, seed=1)
    Y = csr_array((X.toarray() > 0.35).astype(np.float32))  # the labels of similar rows are similar
    head = hb.HolographicHead(None, 30, 30, loss="squares", seed=0)
    nothing = torch.randn(100, 30, generator=torch.Generator().manual_seed(0))
    helped = choose_extra_scores(head, nothing, (X[300:], Y[300:]), (X[:300], Y[:300]))
    assert helped.knn_weight > 0
    assert helped.ndcg > helped.ndcg_without
    perfect = head.codebook.encode(
        *(torch.from_numpy(a.astype(np.int64)) for a in (Y[300:].indices, Y[300:].indptr[:-1]))
    )
    assert choose_extra_scores(head, perfect, (X[300:], Y[300:]), (X[:300], Y[:300])).knn_weight == 0
    given = choose_extra_scores(head, nothing, (X[300:], Y[300:]), (X[:300], Y[:300]), knn_weight=1.5, label_trees=1)
    assert (given.knn_weight, given.n_trees) == (1.5, 1)
    assert given.tree_weight > 0


@pytest.fixture(scope="module")
def model():
    X, Y = data(300, 40, 60, seed=2)
    config = hb.ModelConfig(network="fc", hidden=(8,), dim=16, knn_weight=0.5, label_trees=1, loss="softmax")
    return hb.learn(Split(X, Y), config, hb.TrainConfig(epochs=2)), X


def test_a_file_keeps_extra_scores(model, tmp_path):
    model, X = model
    model.save(tmp_path / "m.safetensors")
    loaded = hb.load(tmp_path / "m.safetensors")
    assert loaded.extra_scores.describe() == "kNN votes of 300 training rows and 1 label trees"
    for a, b in zip(model.top_k(X[:20], 5), loaded.top_k(X[:20], 5), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_best_labels_with_extra_scores_are_those_of_all_scores(model):
    model, X = model
    scores, ids = model.top_k(X[:20], 7)
    everything = model.scores(X[:20])
    np.testing.assert_allclose(np.take_along_axis(everything, ids, 1), scores, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(-np.sort(-everything, 1)[:, :7], scores, rtol=1e-4, atol=1e-4)
    extra, model.extra_scores = model.extra_scores, None
    try:
        assert np.abs(everything - model.scores(X[:20])).max() > 0.01
    finally:
        model.extra_scores = extra


@pytest.mark.parametrize(
    ("name", "value"), [("row_offsets", -1), ("row_ids", 40), ("label_offsets", 10**9), ("label_ids", 60)]
)
def test_stored_rows_that_are_no_matrix_are_refused(model, tmp_path, name, value):
    model, _ = model
    tensor = getattr(model.extra_scores, name)
    at, before = len(tensor) // 2, tensor.clone()
    tensor[at] = value
    try:
        model.save(tmp_path / "bad.safetensors")
        with pytest.raises(FileError, match=f"{name} must"):
            hb.load(tmp_path / "bad.safetensors")
    finally:
        tensor.copy_(before)


@pytest.mark.parametrize(
    "settings", [{"knn_weight": -1.0}, {"similarity_power": np.nan}, {"rare_label_boost": 2.0}, {"tree_weight": 1.0}]
)
def test_settings_outside_their_range_are_refused(settings):
    with pytest.raises(OptionError, match=next(iter(settings))):
        ExtraScores(3, 4, **settings)


def test_the_closed_form_has_no_extra_scores():
    X, Y = data()
    assert hb.learn(Split(X, Y)).extra_scores is None
    assert fit_ridge_knn(X, Y).network is not None
