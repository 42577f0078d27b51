"""The default recipe of network fc: a solved linear path, hidden layers beside it, neighbours and trees on top."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, random_array
from torch.testing import assert_close

import holobind as hb
from holobind.data import Split
from holobind.data.csr import column_counts, idf_weights, normalise_rows
from holobind.errors import FileError, OptionError
from holobind.ridge_knn import KnnIndex, rare_label_weights, solve_ridge
from holobind.training import partial_fit


def linear_data(n, seed):
    """Rows whose labels a linear map explains; the map is the same for every seed."""
    rng = np.random.default_rng(seed)
    X = normalise_rows(csr_array(random_array((n, 50), density=0.1, format="csr", dtype=np.float32, rng=rng)))
    scores = X @ np.random.default_rng(0).standard_normal((50, 90)).astype(np.float32)
    return Split(X, csr_array((scores > 1.1).astype(np.float32)))


@pytest.fixture(scope="module")
def split():
    return linear_data(400, 1)


def small(**options):
    return hb.ModelConfig(network="fc", hidden=(8,), dim=32, **options)


@pytest.fixture(scope="module")
def model(split):
    return hb.learn(split, small(), hb.TrainConfig(epochs=2))


def test_the_linear_path_is_the_ridge_regression_on_all_rows(model, split):
    ridge = model.metadata["ridge"]
    Y = model.to_head_labels(split.Y)
    weights = rare_label_weights(np.bincount(Y.indices, minlength=90), 0.1)
    codebook = model.head.ridge_codebook()
    expected = solve_ridge(split.X, Y, codebook, ridge["l2"], label_weights=weights, tolerance=1e-6).weights
    found = model.network.linear_path()[0].detach()
    assert float((found - expected).norm() / expected.norm()) < (ridge["tolerance"] or 1e-3)


def test_fc_is_as_good_as_the_closed_form_on_data_that_a_linear_map_explains(model, split):
    new = linear_data(400, 2)
    closed = hb.learn(split, hb.ModelConfig(dim=32)).evaluate(new)
    found = model.evaluate(new)
    assert found["P@5"] > closed["P@5"] - 3


def test_a_hidden_layer_that_does_not_help_is_left_at_0(split):
    found = hb.learn(split, small(), hb.TrainConfig(epochs=1, learning_rate=1e-9))
    assert float(found.network.layers[-1].weight.detach().abs().max()) < 1e-6


def test_training_does_not_change_the_solved_path_and_leaves_it_trainable(split, monkeypatch):
    from holobind.training import loop

    seen = []
    original = loop.fit

    def fit(model, *arguments, **options):
        before = model.network.linear_skip.weight.detach().clone()
        state = original(model, *arguments, **options)
        seen.append(torch.equal(before, model.network.linear_skip.weight))
        return state

    monkeypatch.setattr(loop, "fit", fit)
    found = hb.learn(split, small(knn_weight=0), hb.TrainConfig(epochs=2, learning_rate=0.1))
    assert seen == [True]
    assert found.network.linear_skip.weight.requires_grad
    assert found.extra_scores is None


def test_all_rows_are_neighbours_and_choices_are_in_the_metadata(model, split):
    choice = model.metadata["extra_scores"]
    assert choice["neighbours"] == "residuals"
    assert choice["ndcg"] >= choice["ndcg_without"]
    if choice["knn_weight"]:
        assert len(model.extra_scores.row_offsets) == len(split) + 1
    assert model.metadata["training"]["config"]["metric"] == "nDCG@5"


def test_without_held_out_rows_settings_have_fixed_values(split):
    found = hb.learn(split, small(), hb.TrainConfig(epochs=1, validation_fraction=0.0))
    assert found.extra_scores.knn_weight == 0.75 and found.extra_scores.residuals
    assert not found.extra_scores.label_trees


def test_rows_of_an_update_are_neighbours(split):
    half = Split(split.X[:200], split.Y[:200])
    found = hb.learn(half, small(knn_weight=1.0), hb.TrainConfig(epochs=1))
    partial_fit(found, Split(split.X[200:], split.Y[200:]), small(knn_weight=1.0))
    X, Y = found.extra_scores.training_rows()
    np.testing.assert_allclose(X.toarray(), split.X.toarray(), atol=1e-3)
    assert (Y.toarray() == split.Y.toarray()).all()


def residual_output_by_definition(model, x):
    """The network's output, and the weighted mean of t_i - (x_i W + b) over the 30 nearest rows, in float64."""
    extra = model.extra_scores
    X, Y = (A.toarray().astype(np.float64) for A in extra.training_rows())
    W, b = (tensor.detach().double().numpy() for tensor in model.network.linear_path())
    counts = Y.sum(0)
    T = Y * (counts.max() / np.maximum(counts, 1)) ** extra.rare_label_boost
    order = np.arange(model.n_labels) if model.label_order is None else model.label_order
    T = T[:, order] @ model.head.codebook.vectors(torch.arange(model.n_labels)).double().numpy()
    rows = extra.training_rows()[0]
    index = KnnIndex(rows, idf_weights(column_counts(rows), len(X), extra.idf_power))  # which has tests of its own
    cosines, nearest = (found[0] for found in index.search(normalise_rows(csr_array(x[None], dtype=np.float32)), 30))
    w = cosines.astype(np.float64) ** extra.similarity_power
    output = model.network(model.examples(x[None]).batch(np.zeros(1, np.intp)))[0].detach().double().numpy()
    return np.stack([output, extra.knn_weight * (w / w.sum()) @ (T - X @ W - b)[nearest]])


@pytest.mark.parametrize("codebook", ["orbit", "random"])
@pytest.mark.parametrize("dim", [32, 96])
def test_neighbours_add_the_mean_residual_of_the_linear_path(codebook, dim):
    split = linear_data(60, 3)
    config = hb.ModelConfig(network="fc", hidden=(8,), dim=dim, codebook=codebook, knn_weight=2.0)
    model = hb.learn(split, config, hb.TrainConfig(epochs=2))
    model.extra_scores.similarity_power = 2.0
    new = linear_data(5, 4).X
    found = model.outputs(model.examples(new), np.arange(5)).detach().numpy()
    parts = np.stack([residual_output_by_definition(model, x) for x in new.toarray().astype(np.float64)], 1)
    # Weights and residuals have eight bits, and a residual is several times as large as the mean of 30.
    np.testing.assert_allclose(found, parts.sum(0), atol=0.07 * np.abs(parts[1]).max())
    scores = model.head.codebook.scores(torch.from_numpy(found)).numpy()
    if model.label_order is not None:
        scores = scores[:, np.argsort(model.label_order)]
    np.testing.assert_allclose(model.scores(new), scores, atol=1e-4)


def test_a_path_that_changes_has_other_residuals(split):
    found = hb.learn(split, small(knn_weight=1.0), hb.TrainConfig(epochs=1))
    examples, rows = found.examples(split.X), np.arange(9)
    before = found.outputs(examples, rows).detach()
    with torch.no_grad():
        found.network.linear_skip.weight.mul_(0.5)
    after = found.outputs(examples, rows).detach()
    found.extra_scores._residual_tables = None
    assert_close(after, found.outputs(examples, rows).detach())
    assert not torch.allclose(before, after)


def test_a_file_keeps_residuals_and_refuses_them_without_a_solved_path(split, tmp_path):
    found = hb.learn(split, small(knn_weight=1.0), hb.TrainConfig(epochs=1))
    found.save(tmp_path / "m.safetensors")
    loaded = hb.load(tmp_path / "m.safetensors")
    assert loaded.extra_scores.describe() == "kNN residuals of 400 training rows"
    for a, b in zip(found.top_k(split.X[:20], 5), loaded.top_k(split.X[:20], 5), strict=True):
        np.testing.assert_array_equal(a, b)
    other = hb.learn(split, small(knn_weight=1.0, loss="softmax"), hb.TrainConfig(epochs=1))
    assert not other.extra_scores.residuals
    other.extra_scores.residuals = True
    with pytest.raises(OptionError, match="residuals want a network with a linear path"):
        other.top_k(split.X[:2], 1)
    other.save(tmp_path / "bad.safetensors")
    with pytest.raises(FileError, match="residuals want a network with a linear path"):
        hb.load(tmp_path / "bad.safetensors")


@pytest.mark.parametrize("loss", ["softmax", "query"])
def test_votes_are_an_option_of_every_loss(split, loss):
    plain, voting = (
        hb.learn(split, small(loss=loss, knn_weight=weight), hb.TrainConfig(epochs=1)) for weight in (None, 2.0)
    )
    assert plain.extra_scores is None
    assert voting.extra_scores.knn_weight == 2.0
    h = torch.randn(2, 8)
    assert_close(plain.head.scores(h), voting.head.scores(h))


def test_text_networks_vote_by_their_tokens():
    words = ["red apple pie", "green pear", "red apple", "sour green pear pie"] * 10
    Y = csr_array(np.eye(4, dtype=np.float32)[[0, 1, 0, 1] * 10])
    config = hb.ModelConfig(network="cnn", loss="softmax", embedding_dim=4, filters=2, hidden=(4,), knn_weight=50.0)
    found = hb.learn(Split(csr_array((40, 0), dtype=np.float32), Y, words), config, hb.TrainConfig(epochs=1))
    assert found.top_k(["red apple", "green pear"], 1)[1][:, 0].tolist() == [0, 1]


def test_options_that_do_not_belong_together_are_refused():
    for options in ({"head": "linear", "network": "fc"}, {"network": "cnn", "head": "linear"}):
        with pytest.raises(OptionError, match="knn_weight belongs to"):
            hb.ModelConfig(knn_weight=1.0, **options)
    with pytest.raises(OptionError, match="label_trees belong to"):
        hb.ModelConfig(network="lstm", loss="softmax", label_trees=1)
    with pytest.raises(OptionError, match="fixed label vectors"):
        hb.ModelConfig(network="fc", loss="squares", trainable=("labels",))
