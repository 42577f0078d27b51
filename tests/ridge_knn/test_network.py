"""The packed network: its buffers, moves, copies and files."""

import pickle
from copy import deepcopy

import numpy as np
import pytest
import torch
from helpers.ridge_knn import clustered, clustered_split, fit_network, parity, rare_words

import holobind as hb
from holobind import _storage as storage
from holobind import model_file
from holobind._threads import num_threads
from holobind.data.batches import SparseExamples
from holobind.data.csr import binary_labels, normalise_rows
from holobind.errors import FileError, OptionError
from holobind.ridge_knn import RidgeKnn, network
from holobind.ridge_knn.encoder import Encoder
from holobind.ridge_knn.fit_forest import N_TREES
from holobind.ridge_knn.label_tree import search_trees
from holobind.training import config


@pytest.fixture(scope="module")
def model():
    return hb.learn(clustered_split(), hb.ModelConfig(knn_weight=1.0))


@pytest.fixture(scope="module")
def forest_model():
    model = hb.learn(hb.data.Split(*parity(n=3000)))
    assert model.network.forest is not None
    return model


@pytest.fixture(scope="module")
def label_tree_model():
    model = hb.learn(hb.data.Split(*rare_words()), hb.ModelConfig(dim=16, knn_weight=0.5, label_trees=2))
    assert len(model.network.label_trees) == 2 and model.network.tree_weight > 0
    return model


def rewrite(path, model, change):
    """Save a model, and change the header and the tensors of its file."""
    model.save(path)
    header, tensors = storage.read(path, "model", model_file.VERSION)
    change(header, tensors)
    storage.write(path, "model", model_file.VERSION, header, tensors)


def test_training_rows_and_label_sets_are_stored():
    X, Y = clustered()
    stored_X, stored_Y = fit_network(X, Y, knn_weight=1.0).training_rows()
    assert (stored_Y != binary_labels(Y)).nnz == 0
    np.testing.assert_allclose(stored_X.toarray(), normalise_rows(X).toarray(), atol=1e-3)
    assert stored_X.indptr.dtype == stored_X.indices.dtype == stored_Y.indices.dtype == np.int32


@pytest.mark.parametrize("n_features", [1 << 16, (1 << 16) + 1])
def test_ids_of_any_size_are_stored(n_features):
    ids = np.array([0, 32_768, 65_535, n_features - 1])
    X = network.from_arrays(np.ones(4, np.float32), ids, np.arange(5), (4, n_features))
    W = torch.zeros(n_features, 2)
    packed = RidgeKnn.from_weights(W, torch.zeros(2), X, X[:, :3], knn_weight=1.0)
    packed.check_loaded()
    assert packed.training_rows()[0].indices.tolist() == ids.tolist()
    assert packed.row_ids.dtype == (torch.int16 if n_features <= 1 << 16 else torch.int32)


@pytest.mark.parametrize("dim", [20, 31])
def test_with_one_hot_label_vectors_outputs_are_scores_and_quantisation_loses_little(dim):
    X, Y = clustered(n=200)
    fitted = fit_network(X, Y, knn_weight=1.0, dim=dim)
    v = fitted.encode(normalise_rows(X))
    assert fitted.one_hot and fitted.codebook_name == "one_hot" and v.shape == (200, dim)
    torch.testing.assert_close(fitted.codebook().scores(v), v[:, :20])
    W = torch.zeros(X.shape[1], dim)
    W[:, 3] = 1  # all of a row in one place, which the binding spreads evenly
    packed = RidgeKnn.from_weights(W, torch.zeros(dim), X, binary_labels(Y), knn_weight=1.0)
    assert (packed.weights() - W).norm() < 0.2 * W.norm()


def test_large_matrices_have_two_bits_a_weight(monkeypatch):
    X, Y = clustered(n=200)
    monkeypatch.setattr(network, "MAX_FOUR_BIT_WEIGHTS", 100)
    fitted = fit_network(X, Y, knn_weight=1.0, dim=16)
    assert fitted.bits == 2 and fitted.codes.shape == (X.shape[1], 4)
    assert fitted.codebook_name == "orbit"
    assert len(fitted.weights().unique(dim=None)) <= 4 * X.shape[1]


@pytest.mark.parametrize("normalise", [True, False])
def test_predicted_rows_are_those_of_a_batch(model, normalise):
    examples, rows = SparseExamples(clustered(seed=1)[0], normalise), np.array([5, 3, 80])
    assert torch.equal(model.network.predict_rows(examples, rows), model.network(examples.batch(rows)))


@pytest.mark.parametrize("cast", ["float", "double", "half", "bfloat16"])
@pytest.mark.parametrize("trees", [False, True])
def test_casts_keep_dtypes_and_outputs(cast, trees, model, forest_model, tmp_path):
    moved, X = (deepcopy(forest_model), parity()[0]) if trees else (deepcopy(model), clustered()[0])
    expected, dtypes = moved.scores(X), {name: t.dtype for name, t in moved.network.state_dict().items()}
    getattr(moved, cast)()
    assert {name: t.dtype for name, t in moved.network.state_dict().items()} == dtypes
    np.testing.assert_array_equal(moved.scores(X), expected)
    moved.save(tmp_path / "m")
    np.testing.assert_array_equal(hb.load(tmp_path / "m").scores(X), expected)


def test_it_moves_like_any_module(forest_model):
    """Without a GPU, the only other device is "meta", which holds no data."""
    moved = deepcopy(forest_model.network)
    moved.encode(parity()[0])
    assert moved.to("meta", torch.float64) is moved
    assert {t.device.type for t in moved.state_dict().values()} == {"meta"}
    assert moved.scales.dtype == torch.float16 and moved.forest.thresholds.dtype == torch.float32
    assert moved.config() == forest_model.network.config()
    with pytest.raises(NotImplementedError, match="meta"):  # torch's own error: nothing of before is left
        moved.encode(parity()[0])
    moved.load_state_dict(forest_model.network.state_dict(), assign=True)
    assert torch.equal(moved.encode(parity()[0]), forest_model.network.encode(parity()[0]))


@pytest.mark.parametrize("duplicate", [deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_copies_have_the_same_outputs_and_build_their_own_tables(duplicate, forest_model):
    X, original = parity()[0], forest_model.network
    expected = original.encode(X)
    again = duplicate(original)
    assert again._encoder is None
    assert torch.equal(again.encode(X), expected)


def test_loaded_tensors_replace_the_tables():
    X, Y = clustered(n=200)
    rows = normalise_rows(X)
    one = fit_network(X, Y, knn_weight=1.0)
    other = deepcopy(one)
    other.scales *= 2
    before, expected = one.encode(rows), other.encode(rows)
    assert not torch.equal(before, expected)
    torch.nn.ModuleList([one]).load_state_dict(torch.nn.ModuleList([other]).state_dict())
    assert torch.equal(one.encode(rows), expected)


def test_tables_are_built_once_for_all_threads(model, monkeypatch):
    X, built, init = clustered(n=400)[0], [], Encoder.__init__
    monkeypatch.setattr(Encoder, "__init__", lambda self, *args: built.append(1) or init(self, *args))
    found = []
    for threads in (1, 3):
        with num_threads(threads):
            found.append(deepcopy(model).top_k(X, 3))
    assert len(built) == 2
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_tables_that_were_released_are_made_again(label_tree_model):
    network = label_tree_model.network
    rows = network.training_rows()[0][:50]
    before = network.encode(rows), network.label_scores(rows)
    network.release_tables()
    assert network._encoder is None and all(tree._arrays is None for tree in network.trees())
    assert torch.equal(network.encode(rows), before[0])
    for one, other in zip(network.label_scores(rows), before[1], strict=True):
        np.testing.assert_array_equal(one, other)


def test_description(model, forest_model, label_tree_model):
    assert model.network.describe() == "ridge regression plus kNN residuals of 200 training rows"
    both = f"ridge regression plus kNN residuals of 3,000 training rows and {N_TREES} trees"
    assert forest_model.network.describe() == both
    assert fit_network(*clustered(), knn_weight=0).describe() == "ridge regression"
    assert label_tree_model.network.describe().endswith("300 training rows and 2 label trees")


def test_label_trees_add_their_weighted_log_probabilities(label_tree_model):
    X, network = rare_words(seed=1)[0], label_tree_model.network
    values, labels = search_trees(network.trees(), X)
    expected = network.codebook().scores(network.encode(X)).numpy()
    for row in range(X.shape[0]):
        known = labels[row] >= 0
        expected[row, labels[row][known]] += network.tree_weight * values[row][known]
    np.testing.assert_allclose(label_tree_model.scores(X), expected, atol=1e-5)
    assert (values > 0).any()


def test_added_scores_of_a_batch_are_those_of_the_rows(label_tree_model, model):
    class Batches:
        """Examples that are no `SparseExamples`."""

        def __init__(self, examples):
            self.batch = examples.batch

    examples, rows = SparseExamples(rare_words(seed=1)[0]), np.array([5, 1, 80])
    for one, other in zip(
        label_tree_model.network.added_scores(examples, rows),
        label_tree_model.network.added_scores(Batches(examples), rows),
        strict=True,
    ):
        assert torch.equal(one, other) and len(one) == 3
    assert model.network.added_scores(SparseExamples(clustered()[0]), rows) is None
    assert model.network.label_scores(clustered()[0]) is None


def test_label_trees_and_their_weight_belong_together():
    tree = {"parents": 1, "leaves": 1, "n_levels": 1, "n_parent_features": 0, "n_entries": 0}
    for options in ({"tree_weight": 0.1}, {"label_trees": [tree]}, {"label_trees": [tree] * 9, "tree_weight": 0.1}):
        with pytest.raises(OptionError, match="0 without label trees, of which there are at most 8"):
            RidgeKnn(3, 2, 4, **options)
    assert network.MAX_LABEL_TREES == config.MAX_LABEL_TREES


def test_label_trees_survive_copies_moves_and_casts(label_tree_model):
    X = rare_words(seed=1)[0]
    expected = label_tree_model.scores(X)
    for again in (
        deepcopy(label_tree_model),
        pickle.loads(pickle.dumps(label_tree_model)),
        deepcopy(label_tree_model).half(),
    ):
        np.testing.assert_array_equal(again.scores(X), expected)


def test_it_has_no_parameters_to_train(model):
    assert model.network.closed_form and model.network.kind == "ridge_knn"
    assert list(model.network.parameters()) == []
    assert model.network.n_parameters() == 31 * 20


@pytest.mark.parametrize("trees", ["none", "forest", "label trees"])
def test_a_saved_model_is_loaded_bit_by_bit(trees, model, forest_model, label_tree_model, tmp_path):
    saved, X = {
        "none": (model, clustered()[0]),
        "forest": (forest_model, parity()[0]),
        "label trees": (label_tree_model, rare_words(seed=1)[0]),
    }[trees]
    saved.save(tmp_path / "m")
    again = hb.load(tmp_path / "m")
    for one, other in zip(saved.top_k(X, 5), again.top_k(X, 5), strict=True):
        np.testing.assert_array_equal(one, other)
    assert again.network.config() == saved.network.config()
    for name, tensor in saved.network.state_dict().items():
        loaded = again.network.state_dict()[name]
        assert torch.equal(loaded, tensor) and loaded.dtype == tensor.dtype


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("row_ids", lambda t: t.fill_(30), "row_ids must be from 0 to 29"),
        ("label_ids", lambda t: t.fill_(20), "label_ids must be from 0 to 19"),
        ("row_offsets", lambda t: t.neg_(), "row_offsets must ascend from 0"),
        ("label_offsets", lambda t: t.flip(0), "label_offsets must ascend from 0"),
        ("row_offsets", lambda t: t[:-1], "row_offsets has shape"),
        ("codes", lambda t: t.float(), "codes has torch.float32; it should be torch.uint8"),
        ("row_values", lambda t: t.fill_(torch.inf), "row_values holds something else than finite numbers"),
        ("scales", lambda t: t[:3], "scales has shape"),
    ],
)
def test_files_with_impossible_tensors_are_refused(model, tmp_path, name, damage, message):
    def change(header, tensors):
        tensors[f"network.{name}"] = damage(tensors[f"network.{name}"].clone()).contiguous()

    rewrite(tmp_path / "m", model, change)
    with pytest.raises(FileError, match=message):
        hb.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("branches", lambda t: t.fill_(0), "a branch must lead to a leaf or to a later split"),
        ("branches", lambda t: t.fill_(1 << 30), "a branch must lead to a leaf or to a later split"),
        ("branches", lambda t: t.fill_(-(1 << 30)), "leaves must be from 0 to"),
        ("roots", lambda t: t.fill_(1 << 30), "a branch must lead to a leaf or to a later split"),
        ("roots", lambda t: t.fill_(-(1 << 30)), "leaves must be from 0 to"),
        ("levels", lambda t: t.fill_(100), "levels must be from -3 to 3"),
        ("levels", lambda t: t.fill_(-128), "levels must be from -3 to 3"),
        ("thresholds", lambda t: t.fill_(torch.nan), "something else than finite numbers"),
    ],
)
def test_files_with_impossible_trees_are_refused(forest_model, tmp_path, name, damage, message):
    rewrite(tmp_path / "m", forest_model, lambda header, tensors: damage(tensors[f"network.forest.{name}"]))
    with pytest.raises(FileError, match=message):
        hb.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"n_trees": 0, "n_splits": 0}, "at least 1 tree"),
        ({"n_trees": 1, "n_splits": -1}, "no negative number of splits"),
        (None, "0 without a forest"),
    ],
)
def test_headers_with_an_impossible_forest_are_refused(forest_model, tmp_path, config, message):
    rewrite(tmp_path / "m", forest_model, lambda header, tensors: header["network"].update(forest=config))
    with pytest.raises(FileError, match=message):
        hb.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("where", "name", "value", "message"),
    [
        ("network", "bits", 3, "bits must be 2 or 4; got 3"),
        ("network", "bits", 2, "shape"),
        ("network", "rare_label_boost", -1.0, "rare_label_boost must be a finite number, 0 or larger; got -1.0"),
        ("network", "rare_label_boost", 2.0, "rare_label_boost must be at most 1; got 2.0"),
        ("network", "n_labels", 60_000, r"the header implies \((60000|31),"),  # label vectors would take memory
        ("head", "codebook", "orbit", "solved for other label vectors than 'orbit'"),
        ("head", "loss", "query", "another loss or seed"),
        ("head", "seed", 5, "another loss or seed"),
    ],
)
def test_headers_with_impossible_values_are_refused(model, tmp_path, where, name, value, message):
    rewrite(tmp_path / "m", model, lambda header, tensors: header[where].update({name: value}))
    with pytest.raises(FileError, match=message):
        hb.load(tmp_path / "m")


def test_the_tables_of_a_forest_are_counted_before_they_are_made():
    with torch.device("meta"):
        small = RidgeKnn(20, 12, 3, rows=1000, forest={"n_trees": 1, "n_splits": 10}, forest_weight=0.5)
        many_leaves = RidgeKnn(20, 10**5, 3, rows=1000, forest={"n_trees": 1, "n_splits": 10**5}, forest_weight=0.5)
        many_rows = RidgeKnn(20, 12, 3, rows=10**8, forest={"n_trees": 100, "n_splits": 100}, forest_weight=0.5)
        tree = {"parents": 9, "leaves": 9, "n_levels": 2, "n_entries": 9}
        many_features = RidgeKnn(20, 12, 3, label_trees=[tree | {"n_parent_features": 10**9}], tree_weight=0.1)
    assert many_features.working_bytes() > 16 * 1e9
    assert small.working_bytes() < 1e6
    assert many_leaves.working_bytes() > 4 * 1e10
    assert many_rows.working_bytes() > 16 * 1e10
