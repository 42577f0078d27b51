"""Models in use: their inputs and their predictions."""

import numpy as np
import pytest
import torch
from helpers.models import HEADS, TEXTS, F, L, N, X, Y, build, text_model
from helpers.ridge_knn import rare_words
from scipy import sparse

import holobind as hb
from holobind._threads import num_threads
from holobind.data import Split
from holobind.model import Model
from holobind.networks import FC


def test_every_way_to_read_scores_agrees():
    model = build("linear_skip")
    scores = model.scores(X)
    best, ids = model.top_k(X, 4)
    assert np.array_equal(ids, hb.metrics.top_k(scores, 4))
    assert np.allclose(best, np.take_along_axis(scores, ids, 1), atol=1e-5)
    assert np.array_equal(model.labels_above(X, 0.1).toarray() == 1, scores > 0.1)


@pytest.mark.parametrize("options", [HEADS[0], HEADS[2], HEADS[6]], ids=str)
def test_the_label_order_of_a_head_does_not_change_the_results(options):
    plain, order = build("fc", options), np.random.default_rng(1).permutation(L)
    model = build("fc", options, label_order=order)
    assert np.array_equal(model.scores(X)[:, order], plain.scores(X))
    for mine, theirs in zip(model.top_k(X, 4), plain.top_k(X, 4), strict=True):
        wanted = order[theirs] if theirs.dtype == np.int64 else theirs
        assert np.array_equal(mine, wanted)
    assert np.array_equal(model.labels_above(X, 0.1).toarray()[:, order], plain.labels_above(X, 0.1).toarray())
    rows = model.examples(X[:2]).batch(np.arange(2))
    labels, offsets = torch.tensor([1, 2, 3]), torch.tensor([0, 2])
    assert torch.equal(model(rows, torch.from_numpy(order)[labels], offsets), plain(rows, labels, offsets))
    assert np.array_equal(model.to_head_labels(Y).toarray(), Y.toarray()[:, order])
    assert model.scores(X).flags.c_contiguous and np.array_equal(model.label_order, order)
    for wrong in (-1, L):
        with pytest.raises(hb.LabelError):
            model(rows, torch.tensor([1, 2, wrong]), offsets)
    theirs = plain.evaluate(Split(X, sparse.csr_array(Y[:, order])))
    assert model.evaluate(Split(X, Y)).scores["P"] == theirs.scores["P"]


@pytest.mark.parametrize("order", [np.zeros(L, int), np.arange(5), range(1, L + 1)])
def test_an_order_names_every_label_once(order):
    with pytest.raises(hb.OptionError, match="have each of the 9 labels once"):
        build(label_order=order)


def test_to_head_labels_does_not_change_its_input():
    weighted = sparse.csr_array(Y * np.arange(1.0, L + 1))
    before = weighted.copy()
    build(label_order=np.arange(L)[::-1]).to_head_labels(weighted)
    assert (weighted != before).nnz == 0


def test_batches_change_nothing(monkeypatch):
    model = build("fc")
    whole = model.scores(X)
    monkeypatch.setattr("holobind.model.MAX_BATCH_ROWS", 7)
    reported = []
    assert np.allclose(model.scores(X), whole, atol=1e-6)
    _, ids = model.top_k(X, 3, on_progress=lambda stage, fraction: reported.append(fraction))
    assert np.array_equal(ids, hb.metrics.top_k(whole, 3))
    assert reported[-1] == 1 and len(reported) == 6 and sorted(reported) == reported


def test_threads_change_nothing(monkeypatch):
    """Batches are predicted side by side."""
    monkeypatch.setattr("holobind.model.MAX_BATCH_ROWS", 7)
    model, before, found = build("fc"), torch.get_num_threads(), []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        found.append([*model.top_k(X, 3), model.scores(X), model.labels_above(X).toarray()])
    torch.set_num_threads(before)
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.fixture(scope="module")
def label_tree_model():
    """Its network adds scores to those of the head."""
    return hb.learn(Split(*rare_words()), hb.ModelConfig(dim=16, knn_weight=0.5, label_trees=2))


@pytest.mark.parametrize("threads", [1, 3])
def test_scores_that_the_network_adds_are_in_every_result(label_tree_model, threads, monkeypatch, tmp_path):
    monkeypatch.setattr("holobind.model.MAX_BATCH_ROWS", 7)
    rows = rare_words(n=60, seed=1)[0]
    label_tree_model.save(tmp_path / "m")
    with num_threads(threads):
        for model in (label_tree_model, hb.load(tmp_path / "m")):
            scores = model.scores(rows)
            values, labels = model.network.label_scores(rows)
            plain = model.head.scores(model.network.encode(rows)).numpy()
            for row in range(60):
                known = labels[row] >= 0
                plain[row, labels[row][known]] += values[row][known]
            np.testing.assert_allclose(scores, plain, atol=1e-5)
            best, ids = model.top_k(rows, 7)
            np.testing.assert_allclose(best, -np.sort(-scores, axis=1)[:, :7], atol=1e-5)
            np.testing.assert_allclose(np.take_along_axis(scores, ids, 1), best, atol=1e-5)
            threshold = 0.5123
            assert np.array_equal(model.labels_above(rows, threshold).toarray() == 1, scores > threshold)


@pytest.mark.parametrize("extra", [0, 100])
def test_labels_are_excluded_with_the_scores_that_the_network_adds(label_tree_model, extra, monkeypatch):
    """By a longer ranking, and by masked scores, which are computed for some rows at a time."""
    monkeypatch.setattr("holobind.label_filter.MAX_EXTRA_LABELS", extra)
    monkeypatch.setattr("holobind.label_filter.MAX_MASKED_BYTES", 4 * 40 * 9)
    rows, allowed = rare_words(n=60, seed=1)[0], np.arange(0, 40, 2)
    scores = label_tree_model.scores(rows)[:, allowed]
    best, ids = label_tree_model.top_k(rows, 5, only=allowed.tolist())
    np.testing.assert_allclose(best, -np.sort(-scores, axis=1)[:, :5], atol=1e-5)
    assert not (ids % 2).any()


def test_inputs_may_be_any_kind_of_matrix():
    model = build()
    wanted = model.scores(X)
    entries = X.tocoo()
    halves = np.concatenate([entries.data / 2, entries.data / 2])
    twice = sparse.csr_array((N, F), dtype=np.float32)
    order = np.argsort(np.concatenate([entries.row, entries.row]), kind="stable")
    twice.indptr = (2 * X.indptr).astype(np.int32)
    twice.indices, twice.data = np.concatenate([entries.col, entries.col])[order], halves[order]
    for inputs in (
        sparse.csr_matrix(X), X.tocsc(), X.tocoo(), X.toarray(), X.toarray().tolist(), X.astype(np.float64), twice,
    ):  # fmt: skip
        assert np.allclose(model.scores(inputs), wanted, atol=1e-6)
    assert np.allclose(model.scores(X[[3]].toarray()[0]), wanted[3], atol=1e-6)
    assert model.scores([]).shape == (0, L)
    assert model.scores(X[:0]).shape == (0, L)


def test_texts_may_come_in_an_array_or_a_column():
    pandas = pytest.importorskip("pandas")
    model = text_model()
    wanted = model.scores(TEXTS)
    for texts in (tuple(TEXTS), np.array(TEXTS), np.array(TEXTS, object), pandas.Series(TEXTS)):
        assert np.array_equal(model.scores(texts), wanted)
    assert np.allclose(model.scores(model.tfidf.transform(TEXTS)), wanted)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ("one text", "texts come in a list; got one text, 'one text'"),
        (["some", "texts"], "trained on features and cannot read texts"),
        (np.ones((2, F + 1)), rf"reads {F} features a row; got a matrix of shape \(2, {F + 1}\)"),
        (np.ones((2, F, 1)), "got an array of shape"),
        ([[1.0, 2.0], [3.0]], "must be rows of features, sparse or dense, or texts"),
        ([[1.0, "a"]], "must be rows of features"),
        ({"a": 1}, "must be rows of features"),
        (np.full((1, F), np.nan), "a NaN or a number too large"),
        (np.full((1, F), np.inf), "a NaN or a number too large"),
        (sparse.csr_array(np.full((1, F), -1e300)), "a NaN or a number too large"),
    ],
)
def test_wrong_inputs_are_refused(inputs, message):
    with pytest.raises(hb.DataError, match=message) as caught:
        build().top_k(inputs, 1)
    assert "\n" not in str(caught.value)


def test_wrong_texts_k_and_data_are_refused():
    model = text_model()
    with pytest.raises(hb.DataError, match="inputs are texts, but number 2 is float; put '' where"):
        model.top_k(["a", 1.0], 1)
    for k in (0, L + 1):
        with pytest.raises(hb.OptionError, match=f"k must be from 1 to the number of labels, {L}; got {k}"):
            model.top_k(TEXTS, k)
    with pytest.raises(hb.DataError, match="trained on texts; the data has only features"):
        model.evaluate(Split(X, Y))
    with pytest.raises(hb.DataError, match=f"this model has {L} labels; the data has {L - 1}"):
        model.evaluate(Split(X, Y[:, :-1], TEXTS))


def test_it_is_evaluated_by_the_metrics_module():
    model = build("fc")
    found = model.evaluate(Split(X, Y), 4)
    wanted = hb.metrics.evaluate(Y, hb.metrics.top_k(model.scores(X), 4), Y, k=4)
    assert found == wanted
    assert text_model().evaluate(Split(X, Y, TEXTS))["P@1"] >= 0
    few = Model(FC(F, (), L), hb.LinearHead(None, L), hb.metrics.frequencies(Y[:2]))
    assert "PSP" not in few.evaluate(Split(X, Y)).scores


def test_predicting_leaves_training_as_it_was():
    model = build("fc").train()
    one, other = model.scores(X), model.scores(X)
    assert np.array_equal(one, other) and model.training and model.network.training


@pytest.mark.parametrize(
    ("network", "options", "output", "linear"),
    [
        ("linear", HEADS[0], 4 * F, L * F),
        ("linear_skip", HEADS[0], 4 * F + 4 * 6 + 4, L * F + L * 6 + L),
        ("fc", HEADS[0], 4 * 5 + 4, L * 5 + L),
        ("fc", HEADS[-1], L * 5 + L, L * 5 + L),
    ],
)
def test_sizes_compare_the_output_layer_with_a_linear_one(network, options, output, linear):
    model = build(network, options)
    sizes = model.sizes()
    assert sizes["parameters"] == sum(p.numel() for p in model.parameters())
    assert (sizes["output layer"], sizes["linear output layer"]) == (output, linear)
    assert sizes["output layer smaller by"] == pytest.approx(1 - output / linear)
