"""The choices that `fit_ridge_knn` makes, and updates with more rows."""

import json

import numpy as np
import pytest
import torch
from helpers.ridge_knn import clustered, clustered_split, fit_network, parity
from scipy.sparse import csr_array, hstack

import holobind as hb
from holobind._threads import num_threads
from holobind.data.csr import binary_labels, normalise_rows
from holobind.errors import OptionError
from holobind.metrics import ndcg_at_k
from holobind.ridge_knn import KnnChoice, fit, fit_ridge_knn, update_ridge_knn
from holobind.ridge_knn.fit_forest import N_TREES


def test_the_best_choice_that_was_tried_is_taken():
    found = fit_ridge_knn(*clustered(n=200))
    tried = {(c.idf_power, c.similarity_power, c.knn_weight, c.forest_weight): c.ndcg for c in found.validation}
    network = found.network
    chosen = tried[network.idf_power, network.similarity_power, network.knn_weight, network.forest_weight]
    assert chosen == max(c.ndcg for c in found.validation if c.idf_power == network.idf_power)
    assert max(tried.values()) - chosen <= fit.MIN_IDF_GAIN


def test_a_given_weight_is_kept_and_powers_are_chosen_with_it():
    found = fit_ridge_knn(*clustered(n=200), knn_weight=0.3)
    assert found.network.knn_weight == 0.3
    assert {choice.knn_weight for choice in found.validation} == {0.3}
    assert len(found.validation) == len(fit.IDF_POWERS) * len(fit.SIMILARITY_POWERS)


@pytest.mark.parametrize("dim", [None, 8, 150])
def test_a_given_penalty_is_kept_and_a_chosen_one_is_validated(dim):
    X, Y = clustered(n=200, labels=300)
    given, chosen = (fit_ridge_knn(normalise_rows(X), Y, dim=dim, l2=l2).solution for l2 in (2.5, None))
    assert (given.l2, given.validation) == (2.5, [])
    assert len(chosen.validation) >= 3


def test_summary_is_json_with_what_was_chosen():
    found = fit_ridge_knn(*clustered(n=200))
    summary = json.loads(json.dumps(found.summary()))
    assert summary["ridge"].keys() == {
        "l2", "system", "iterations", "residual", "converged", "seconds", "validation",
    }  # fmt: skip
    knn, network = summary["knn"], found.network
    for name in ("knn_weight", "similarity_power", "idf_power", "forest_weight"):
        assert knn[name] == getattr(network, name)
    assert knn["rows"] == 200
    for entry, choice in zip(knn["validation"], found.validation, strict=True):
        assert KnnChoice(*entry[:4], ndcg=choice.ndcg) == choice
        assert entry[4] == round(choice.ndcg, 3)


def test_without_knn_no_training_row_is_stored():
    network = fit_network(*clustered(), knn_weight=0.0)
    assert network.n_training_rows == 0 and not network.row_ids.numel()
    assert network.encode(normalise_rows(clustered()[0])).shape == (90, 20)


@pytest.mark.parametrize("n", [1, 3, 6])
def test_a_few_rows_are_enough(n):
    X, Y = clustered()
    assert fit_network(X[:n], Y[:n]).encode(normalise_rows(X)).isfinite().all()


def test_the_result_depends_on_the_seed_and_not_on_threads():
    X, Y = clustered()
    outputs = []
    for threads in (1, 2):
        with num_threads(threads):
            outputs.append(fit_network(X, Y, seed=5).encode(normalise_rows(X)))
    torch.testing.assert_close(outputs[0], outputs[1], atol=1e-5, rtol=1e-4)
    assert not torch.allclose(outputs[0], fit_network(X, Y, seed=6).encode(normalise_rows(X)))


def test_inputs_are_not_changed():
    X, Y = clustered()
    counts = csr_array(Y * 3, dtype=np.float32)
    before = counts.copy()
    fit_network(X, counts, knn_weight=1.0)
    assert (counts != before).nnz == 0 and counts.nnz == before.nnz


@pytest.mark.parametrize("name", ["knn_weight", "rare_label_boost"])
@pytest.mark.parametrize("value", [-1, float("nan")])
def test_negative_and_nan_options_are_refused(name, value):
    with pytest.raises(OptionError, match=f"{name} must be a finite number, 0 or larger.*; got {value}"):
        fit_ridge_knn(*clustered(), **{name: value})


def test_rare_labels_score_higher_by_their_weights():
    X, Y = clustered(n=300)
    split = hb.data.Split(X, Y)
    scores, boosted = (
        hb.learn(split, hb.ModelConfig(knn_weight=0, rare_label_boost=boost, l2=1.0)).scores(X) for boost in (0.0, 0.3)
    )
    counts = np.asarray(Y.sum(0)).ravel()
    np.testing.assert_allclose(boosted, scores * (counts.max() / counts) ** 0.3, atol=1e-4)


def test_a_forest_is_fitted_where_it_helps_and_features_are_few():
    X, Y = parity(n=3000)
    found = fit_ridge_knn(X, Y)
    network = found.network
    assert network.forest_weight == fit.FOREST_WEIGHT and network.forest.n_trees == N_TREES
    scores = {c.forest_weight: c.ndcg for c in found.validation if c.knn_weight == network.knn_weight}
    assert scores[fit.FOREST_WEIGHT] > scores[0]
    assert fit_ridge_knn(X, Y, knn_weight=0.0).network.forest is None
    noise = csr_array((np.random.default_rng(0).random(Y.shape) < 0.3).astype(np.float32))
    assert fit_ridge_knn(X, noise).network.forest is None
    more_features = csr_array(hstack([X, csr_array((3000, 400), dtype=np.float32)]))
    assert fit_ridge_knn(more_features, Y).network.forest is None


def test_a_forest_finds_what_neighbours_do_not(monkeypatch):
    X, Y = parity(n=3000)
    new, labels = parity(n=500, seed=1)
    with_forest = fit_ridge_knn(X, Y).network
    monkeypatch.setattr(fit, "MIN_ROWS_PER_FEATURE", 10**9)
    without = fit_ridge_knn(X, Y).network
    scores = [
        ndcg_at_k(labels, network.codebook().top_k(network.encode(new), 5)[1].numpy())[-1]
        for network in (with_forest, without)
    ]
    assert scores[0] > scores[1] + 1


def test_an_update_averages_the_weights_and_stores_all_rows():
    X, Y = clustered()
    network = fit_network(X[:60], Y[:60], l2=1.0, knn_weight=1.0)
    updated = update_ridge_knn(network, normalise_rows(X)[60:], Y[60:], 1.0, 60)
    assert (updated.training_rows()[1] != binary_labels(Y)).nnz == 0
    alone = fit_network(X[60:], Y[60:], l2=1.0, knn_weight=1.0)
    expected = network.weights() * (2 / 3) + alone.weights() / 3
    assert (updated.weights() - expected).norm() < 0.2 * expected.norm()  # both are rounded to four bits


def test_an_update_keeps_the_settings_and_the_trees():
    X, Y = parity(n=3000)
    network = fit_ridge_knn(X, Y).network
    updated = update_ridge_knn(network, X[:50], Y[:50], 1.0, X.shape[0])
    assert updated.config() == network.config() | {
        "rows": 3050,
        "entries": X.nnz + X[:50].nnz,
        "labels": Y.nnz + Y[:50].nnz,
    }
    assert torch.equal(updated.forest.levels, network.forest.levels)


def test_model_config_uses_knn_by_default_and_only_where_it_can():
    assert hb.ModelConfig().uses_knn and hb.ModelConfig(knn_weight=0.5).uses_knn
    assert not hb.ModelConfig(knn_weight=0).uses_knn
    for options in ({"head": "linear"}, {"network": "fc"}, {"codebook": "random"}, {"normalise": False}):
        assert not hb.ModelConfig(**options).uses_knn
        with pytest.raises(OptionError, match="knn_weight"):
            hb.ModelConfig(**options, knn_weight=0.5)
    with pytest.raises(OptionError, match="knn_weight"):
        hb.ModelConfig(knn_weight=-1)


def test_learn_records_the_summary_in_the_metadata():
    model = hb.learn(clustered_split(), hb.ModelConfig(knn_weight=1.0))
    assert model.metadata["knn"]["knn_weight"] == 1.0
    assert model.metadata["ridge"]["l2"] > 0


def families(n=1200, copies=4, seed=0):
    """Rows in families of nearly equal features; the labels of a family are its own, beside those of its features."""
    draw = np.random.default_rng(seed)
    groups = np.arange(n) // copies
    X = (draw.random((n // copies, 60)) < 0.15)[groups] * draw.uniform(0.9, 1.1, (n, 60))
    Y = (draw.random((n // copies, 15)) < 0.1)[groups]
    return normalise_rows(csr_array(X.astype(np.float32))), csr_array(Y.astype(np.int32)), groups


def test_held_out_groups_tell_the_score_of_new_families_and_rows_do_not():
    X, Y, groups = families()
    X_new, Y_new, _ = families(seed=1)
    by_row, by_group = fit_ridge_knn(X, Y), fit_ridge_knn(X, Y, groups=groups)
    assert by_row.near_duplicates > 0.9 and by_group.near_duplicates < 0.1
    network = by_group.network
    new = ndcg_at_k(Y_new, network.codebook().top_k(network.encode(X_new), 5)[1].numpy())[-1]
    assert by_row.estimate.low > new + 10
    assert by_group.estimate.low - 2 < new < by_group.estimate.high + 2
    assert by_row.network.knn_weight > network.knn_weight
    assert by_group.summary()["held_out"]["groups"] == 60 and by_group.estimate.rows == 240
    json.dumps(by_group.summary())


def test_the_estimate_is_the_score_of_the_choice():
    found = fit_ridge_knn(*clustered(n=200))
    chosen = max(choice.ndcg for choice in found.validation if choice.knn_weight == found.network.knn_weight)
    assert found.estimate.ndcg == pytest.approx(chosen)
    assert found.estimate.low < found.estimate.ndcg < found.estimate.high
