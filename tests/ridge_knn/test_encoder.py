"""Outputs of the network compared with their definition in dense float64."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from helpers.ridge_knn import clustered, fit_network, output_by_definition, parity
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, eye_array, hstack

import holobind as hb
from holobind.data.csr import normalise_rows
from holobind.metrics import ndcg_at_k
from holobind.ridge_knn import RidgeKnn, encoder, rare_label_weights, solve_ridge
from holobind.ridge_knn._kernels import add_int8_row_sums
from holobind.ridge_knn.encoder import Encoder, similarity_weights
from holobind.ridge_knn.fit_forest import fit_forest
from holobind.ridge_knn.forest import MAX_TREES


@settings(max_examples=10, deadline=None)
@given(
    st.integers(0, 2**16), st.sampled_from([16, 20, 25]), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 0.3])
)
def test_output_is_the_ridge_regression_plus_the_mean_residual_of_the_neighbours(
    seed, dim, idf_power, rare_label_boost
):
    X, Y = clustered(seed=seed)
    network = fit_network(X, Y, dim=dim, knn_weight=0.7, rare_label_boost=rare_label_boost, seed=seed)
    network.similarity_power, network.idf_power = 3.0, idf_power
    new = normalise_rows(clustered(seed=seed + 1)[0][:20])
    expected = np.stack([output_by_definition(network, x) for x in new.toarray().astype(np.float64)])
    # Residuals, which are about as large as outputs, have eight bits.
    np.testing.assert_allclose(network.encode(new).numpy(), expected, atol=0.005 * np.abs(expected).max())


def test_a_row_without_neighbours_gets_the_ridge_regression_alone():
    X, Y = clustered()
    X = csr_array(hstack([X, csr_array((X.shape[0], 1), dtype=np.float32)]))
    network = fit_network(X, Y, knn_weight=1.0)
    x = csr_array(([1.0], ([0], [X.shape[1] - 1])), (1, X.shape[1]))
    torch.testing.assert_close(network.encode(x)[0], network.weights()[-1] + network.bias)


def test_neighbours_predict_what_a_linear_map_cannot():
    """The label is whether exactly one of two features is present."""
    bits = np.array([[0, 1], [1, 0], [0, 0], [1, 1]] * 20)
    X = csr_array(np.hstack([bits, 1 - bits]).astype(np.float32))
    odd = bits.sum(1) == 1
    Y = csr_array(np.stack([odd, ~odd], 1).astype(np.int32))
    scores = {}
    for knn_weight in (0.0, 1.0):
        network = fit_network(X, Y, knn_weight=knn_weight)
        top = network.codebook().top_k(network.encode(normalise_rows(X)), 1)[1].numpy()
        scores[knn_weight] = ndcg_at_k(Y, top)[0]
    assert scores[1.0] == 100
    assert scores[0.0] < 75


def test_residuals_are_computed_once_and_the_table_does_not_change_the_output(monkeypatch):
    X, Y = clustered(n=200)
    rows = normalise_rows(X)
    network = fit_network(X, Y, knn_weight=1.0)
    calls = []
    residuals = Encoder._residuals
    monkeypatch.setattr(Encoder, "_residuals", lambda self, rows: calls.append(rows) or residuals(self, rows))
    first = network.encode(rows)
    assert torch.equal(network.encode(rows), first)
    assert len(calls) == 1
    monkeypatch.setattr(encoder, "MAX_KNN_TABLE_BYTES", 0)  # nothing is kept
    for most in (1 << 20, 7):  # rows that are encoded together
        monkeypatch.setattr(encoder, "MAX_ROWS_WITHOUT_TABLE", most)
        assert torch.equal(deepcopy(network).encode(rows), first)


def forest_network(forest_weight=0.5, knn_weight=0.7):
    X, Y = parity()
    solution = solve_ridge(X, Y, hb.OrbitCodebook(12, 16, 3), 1.0)
    network = RidgeKnn.from_weights(
        solution.weights,
        solution.bias,
        X,
        Y,
        knn_weight=knn_weight,
        rare_label_boost=0.1,
        forest=fit_forest(X, Y, n_trees=3),
        forest_weight=forest_weight,
        seed=3,
    )
    return network, X


@pytest.mark.parametrize("knn_weight", [0.0, 0.7])
def test_a_forest_adds_the_mean_targets_and_residuals_of_the_leaves(knn_weight):
    network, X = forest_network(knn_weight=knn_weight)
    new = parity(seed=1)[0][:30]
    W, b = network.weights().double().numpy(), network.bias.double().numpy()
    _, Y = network.training_rows()
    counts = np.asarray(Y.sum(0)).ravel()
    T = Y.toarray() * (counts.max() / counts) ** 0.1
    T = T @ network.codebook().vectors(torch.arange(12)).double().numpy()
    residuals = T - X.toarray().astype(np.float64) @ W - b
    training_leaves = network.forest.leaves(X)
    without_forest, _ = forest_network(forest_weight=0.0, knn_weight=knn_weight)
    expected = 0.5 * without_forest.encode(new).numpy().astype(np.float64)
    for row, leaves in enumerate(network.forest.leaves(new)):
        for tree, leaf in enumerate(leaves):
            inside = training_leaves[:, tree] == leaf
            leaf_residual = encoder.LEAF_RESIDUAL_WEIGHT * residuals[inside].mean(0)
            expected[row] += (0.5 * T[inside].mean(0) + 0.5 * leaf_residual) / 3
    np.testing.assert_allclose(network.encode(new).numpy(), expected, atol=0.01 * np.abs(expected).max())


def test_with_a_forest_rows_with_few_features_get_no_knn_term():
    X = forest_network()[1]
    few = sum(eye_array(3, X.shape[1], k=k, dtype=np.float32) for k in range(encoder.MIN_FEATURES_WITH_FOREST - 1))
    enough = normalise_rows(few + eye_array(3, X.shape[1], k=9, dtype=np.float32))
    few = normalise_rows(few)
    with_knn, without_knn = (forest_network(knn_weight=weight)[0] for weight in (0.7, 0.0))
    assert torch.equal(with_knn.encode(few), without_knn.encode(few))
    assert not torch.allclose(with_knn.encode(enough), without_knn.encode(enough))
    with_knn, without_knn = (forest_network(0.0, knn_weight=weight)[0] for weight in (0.7, 0.0))
    assert not torch.allclose(with_knn.encode(few), without_knn.encode(few))


def test_with_a_forest_rows_with_few_features_are_not_neighbours(monkeypatch):
    network, X = forest_network(knn_weight=0.7)
    enough = np.diff(X.indptr) >= encoder.MIN_FEATURES_WITH_FOREST
    assert 0 < enough.sum() < len(enough)
    similarities, neighbours = network.prepare().knn_search(X)
    assert enough[neighbours[similarities > 0]].all()
    nearest = neighbours[enough, 0]  # but for equal rows, the nearest row to an indexed row is that row
    assert np.array_equal(X[nearest].toarray(), X[enough].toarray())
    monkeypatch.setattr(encoder, "MIN_FEATURES_WITH_FOREST", X.shape[1] + 1)
    assert torch.equal(Encoder(network).encode(X), forest_network(knn_weight=0.0)[0].encode(X))


@given(st.integers(1, 20), st.integers(1, 70), st.integers(0, 2**16))
def test_leaf_values_are_summed_over_trees(trees, d, seed):
    draw = np.random.default_rng(seed)
    table, leaves = draw.integers(-127, 128, (9, d)).astype(np.int8), draw.integers(0, 9, (4, trees)).astype(np.int32)
    out = np.ones((4, d), np.float32)
    add_int8_row_sums(leaves, table, np.float32(0.5), out)
    assert np.array_equal(out, 1 + 0.5 * table[leaves].sum(1, dtype=np.float32))


def test_sums_over_the_largest_number_of_trees_fit_16_bits():
    table, out = np.full((1, 3), -127, np.int8), np.zeros((1, 3), np.float32)
    add_int8_row_sums(np.zeros((1, MAX_TREES), np.int32), table, np.float32(1), out)
    assert out.tolist() == [[-127 * MAX_TREES] * 3]


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 7.0, 8.0])
def test_similarity_weights_are_powers_divided_by_their_sum(power):
    similarities = np.array([[100, 50, 7, 0], [3, 3, 0, 0], [0, 0, 0, 0]], np.int16)
    powers = np.where(similarities > 0, similarities.astype(float) ** power, 0)
    expected = powers / np.maximum(powers.sum(1, keepdims=True), 1e-300)
    np.testing.assert_allclose(similarity_weights(similarities, power), expected, rtol=1e-6)


def test_rare_label_weights_are_powers_of_the_ratio_to_the_largest_count():
    weights = rare_label_weights(np.array([8, 2, 1, 0]), 0.5)
    np.testing.assert_allclose(weights, [1, 2, 8**0.5, 8**0.5], rtol=1e-6)
    assert rare_label_weights(np.zeros(3, np.int64), 0.5).tolist() == [1, 1, 1]
