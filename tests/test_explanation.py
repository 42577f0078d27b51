"""Explanations: parts that add up to the score the model gives, for every network; words marked where they stand."""

import functools
import json

import numpy as np
import pytest
import torch
from helpers.models import HEADS, L, X, Y, build, text_model
from helpers.ridge_knn import clustered_split, parity, rare_words

import holobind as hb
from holobind import explanation
from holobind.explanation import Explanation, Part
from holobind.ridge_knn import RidgeKnn, solve_ridge
from holobind.ridge_knn.explain import output_parts
from holobind.ridge_knn.fit_forest import fit_forest


@functools.cache
def models():
    """Each kind of default model: one-hot, orbit, with trees, with label trees."""
    rows, labels = parity(n=300)
    trees = hb.learn(hb.Split(rows, labels))
    solution = solve_ridge(rows, labels, trees.network.codebook(), 0.1)
    options = {"knn_weight": 0.7, "forest": fit_forest(rows, labels, n_trees=3), "forest_weight": 0.5}
    trees.network = RidgeKnn.from_weights(solution.weights, solution.bias, rows, labels, **options)
    return {
        "one-hot": (hb.learn(clustered_split()), clustered_split().X),
        "orbit": (hb.learn(clustered_split(), hb.ModelConfig(dim=8, knn_weight=1.5)), clustered_split().X),
        "trees": (trees, rows),
        "label trees": (
            hb.learn(hb.Split(*rare_words()), hb.ModelConfig(dim=16, knn_weight=0.7, label_trees=2)),
            rare_words(seed=1)[0],
        ),
    }


def test_parts_add_up_to_the_score_that_the_model_gives():
    for name, (model, rows) in models().items():
        scores = model.scores(rows[:12])
        for row in range(12):  # row 3 has no features
            for found, label in zip(
                model.explain(rows[[row]], k=model.n_labels), np.argsort(-scores[row]), strict=True
            ):
                total = sum(part.value for part in found.parts)
                assert found.score == pytest.approx(scores[row, found.label], abs=1e-5)
                assert total == pytest.approx(scores[row, found.label], abs=1e-5), (name, row, label)
                assert found.rounding == pytest.approx(found.score - total) and found.method == explanation.EXACT


def test_label_trees_have_a_part_of_what_they_add():
    model, rows = models()["label trees"]
    values, labels = model.network.label_scores(rows[[5]])
    added = {label: value for label, value in zip(labels[0].tolist(), values[0].tolist(), strict=True) if label >= 0}
    assert added
    for found in model.explain(rows[[5]], k=model.n_labels):
        parts = [part for part in found.parts if part.kind == "label trees"]
        if found.label not in added:
            assert not parts
            continue
        assert [(part.name, part.value) for part in parts] == [("2 label trees", pytest.approx(added[found.label]))]


def test_parts_are_what_each_input_adds():
    """Without a feature, the linear term falls by its part; a neighbour's part is its weighted residual."""
    model, features = models()["orbit"]
    network, x = model.network, features[[5]]
    x = x / np.linalg.norm(x.data)
    parts = output_parts(network, x)
    W, b = network.weights().numpy(), network.bias.numpy()
    np.testing.assert_allclose(parts.features, x.data[:, None] * W[x.indices], atol=1e-5)
    np.testing.assert_allclose(parts.bias, b)
    assert len(parts.rows) and parts.similarity.sum() == pytest.approx(1)
    rows, labels = network.training_rows()
    residual = _targets(network, labels) - rows @ W - b
    wanted = network.knn_weight * parts.similarity[:, None] * residual[parts.rows]
    np.testing.assert_allclose(parts.neighbours, wanted, atol=0.02 * np.abs(wanted).max())  # eight bits


def _targets(network, labels):
    counts = np.bincount(labels.indices, minlength=network.n_labels)
    weights = (counts.max() / np.maximum(counts, 1)) ** network.rare_label_boost
    vectors = network.codebook().vectors(torch.arange(network.n_labels)).numpy()
    return labels @ (weights[:, None] * vectors)


@pytest.mark.parametrize("options", HEADS, ids=str)
def test_a_linear_network_is_exact_and_a_deep_one_says_that_it_is_not(options):
    linear = build("linear", options)
    scores = linear.scores(X[:3])
    for row in range(3):
        (found,) = linear.explain(X[[row]], labels=[4])
        assert found.method == explanation.EXACT and found.parts[-1].kind == "bias"
        assert found.score == pytest.approx(scores[row, 4], abs=1e-5)
        without = X[[row]].copy()
        without.data = np.zeros_like(without.data)
        bias = build("linear", options).scores(without)[0, 4]
        assert found.parts[-1].value == pytest.approx(bias, abs=1e-4)
    deep = build("fc", options)
    (found,) = deep.explain(X[[0]], labels=[4])
    assert found.method == explanation.GRADIENT and found.parts[-1].kind == "rest"
    assert sum(part.value for part in found.parts) == pytest.approx(found.score, abs=1e-5)


@pytest.mark.parametrize("network", ["fc", "linear_skip"])
def test_gradient_times_input_is_the_slope_by_differences(network):
    model = build(network, {"loss": "softmax"}, normalise=False)
    (found,) = model.explain(X[[1]], labels=[2])
    for part in found.parts[:-1]:
        scores = []
        for factor in (1 - 1e-3, 1 + 1e-3):
            changed = X[[1]].astype(np.float64).toarray()
            changed[0, part.details["feature"]] *= factor
            scores.append(float(model.scores(changed)[0, 2]))
        assert part.value == pytest.approx((scores[1] - scores[0]) / 2e-3, abs=2e-3)


@pytest.mark.parametrize("network", ["cnn", "lstm"])
def test_tokens_of_text_networks_come_in_order(network):
    texts = [f"apple {'pear ' * (i % 3)}fig{i % 4}" for i in range(40)]
    size = {"filters": 4} if network == "cnn" else {}
    config = hb.ModelConfig(network=network, loss="softmax", embedding_dim=8, hidden=(6,), **size)
    split = hb.Split(X, Y, texts)
    model = hb.learn(split, config, hb.TrainConfig(epochs=1))
    (found,) = model.explain(["apple fig2 pear"], labels=[3])
    assert [word for word, _ in found.marked_words()[::2]] == ["apple", "fig2", "pear"]
    assert found.method == explanation.GRADIENT and any(part.value for part in found.parts if part.kind == "token")


def test_a_network_on_features_and_tokens_has_parts_of_both():
    texts = [f"apple {'pear ' * (i % 3)}fig{i % 4}" for i in range(40)]
    config = hb.ModelConfig(network="cnn", embedding_dim=8, hidden=(6,), filters=4, knn_weight=0, label_trees=0)
    model = hb.learn(hb.Split(X, Y, texts), config, hb.TrainConfig(epochs=1, learning_rate=0.1))
    (found,) = model.explain(["Apple, fig2 pear"], labels=[3])
    assert found.total("feature") != 0 and found.total("token") != 0
    assert sum(part.value for part in found.parts) == pytest.approx(found.score, abs=1e-5)
    pieces = found.marked_words()
    assert "".join(piece for piece, _ in pieces) == "Apple, fig2 pear"
    assert sum(value for _, value in pieces) == pytest.approx(found.total("feature") + found.total("token"), abs=1e-6)


@pytest.mark.parametrize("options", [{}, {"loss": "softmax"}, {"loss": "softmax", "linear_skip": True}], ids=str)
def test_training_rows_and_label_trees_of_trained_networks_have_parts(options):
    rows, labels = rare_words()
    config = hb.ModelConfig(network="fc", hidden=(4,), dim=16, knn_weight=0.7, label_trees=1, **options)
    model = hb.learn(hb.Split(rows, labels), config, hb.TrainConfig(epochs=1))
    x = rare_words(seed=1)[0][[5]]
    explanations = model.explain(x, k=model.n_labels)
    for found in explanations:
        assert sum(part.value for part in found.parts) == pytest.approx(found.score, abs=1e-4)
        neighbours = [part for part in found.parts if part.kind == "training row"]
        assert len(neighbours) == 30
        if "loss" in options:  # votes, for the labels of a row alone
            assert all((part.value > 0) == part.details["has label"] for part in neighbours)
    assert any(part.kind == "label trees" and part.value > 0 for found in explanations for part in found.parts)


def test_marked_words_are_the_text_and_add_up_to_the_features():
    model = text_model()
    text = "Apple, PEAR_pear fig1 -- plum3 <unknown> é"
    for found in model.explain([text], k=3):
        pieces = found.marked_words()
        assert "".join(piece for piece, _ in pieces) == text
        assert sum(value for _, value in pieces) == pytest.approx(found.total("feature"), abs=1e-6)
        rows = [part for part in found.parts if part.kind == "training row"]
        assert rows and all(part.details["has label"] == (found.label in part.details["labels"]) for part in rows)
        json.dumps(found.as_json())


def test_a_feature_of_several_words_is_divided_among_them():
    parts = [
        Part("feature", "new york", 0.6, {}),
        Part("feature", "york*", 0.4, {}),
        Part("feature", "absent", 1.0, {}),
    ]
    found = Explanation("x", 1.0, None, 1, "", parts, 0.0, "New York yorkshire")
    words = dict(found.marked_words())
    assert words == {"New": pytest.approx(0.3), " ": 0.0, "York": pytest.approx(0.5), "yorkshire": pytest.approx(0.2)}


def test_n_grams_mark_the_characters_or_the_words_that_have_them():
    parts = [
        Part("feature", "紅茶", 0.6, {}),
        Part("feature", "本", 0.5, {}),
        Part("feature", "py*", 0.2, {}),
        Part("feature", "on ", 0.1, {}),
    ]
    text = "紅茶の本_Python 입문"
    pieces = Explanation("x", 1.0, None, 1, "", parts, 0.0, text).marked_words()
    assert "".join(piece for piece, _ in pieces) == text
    wanted = {"紅": 0.3, "茶": 0.3, "の": 0.0, "本": 0.5, "Python": 0.3, "입문": 0.0}
    assert {piece: value for piece, value in pieces if piece in wanted} == pytest.approx(wanted)


def test_labels_and_inputs_that_cannot_be_explained_are_refused():
    model = text_model()
    with pytest.raises(hb.LabelError, match="explain: this model has no label 'nothing'"):
        model.explain(["apple"], labels=["nothing"])
    with pytest.raises(hb.DataError, match="explain takes one text in a list, or one row of features; got 2"):
        model.explain(["apple", "pear"])
    assert model.explain(["apple"], k=100)[-1].rank == L
