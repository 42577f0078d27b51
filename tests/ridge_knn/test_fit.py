"""The choices that `fit_ridge_knn` makes, and updates with more rows."""

import json

import numpy as np
import pytest
import torch
from helpers.ridge_knn import clustered, clustered_split, fit_network, parity, rare_words
from scipy.sparse import csr_array, hstack

import holobind as hb
from holobind._threads import num_threads
from holobind.data.csr import normalise_rows
from holobind.errors import OptionError
from holobind.heads.added_scores import AddedScores
from holobind.metrics import ndcg_at_k
from holobind.ridge_knn import KnnChoice, fit, fit_ridge_knn, fit_steps, knn_choice, label_tree, tree_choice
from holobind.ridge_knn import ridge as ridge_module
from holobind.ridge_knn.fit_forest import N_TREES
from holobind.ridge_knn.fit_label_tree import fit_label_tree
from holobind.ridge_knn.update import LAST_TOLERANCE


def test_the_best_choice_that_was_tried_is_taken():
    found = fit_ridge_knn(*clustered(n=200))
    tried = {(c.idf_power, c.similarity_power, c.knn_weight, c.forest_weight): c.ndcg for c in found.validation}
    network = found.network
    chosen = tried[network.idf_power, network.similarity_power, network.knn_weight, network.forest_weight]
    assert chosen >= max(c.ndcg for c in found.validation if c.idf_power == network.idf_power) - knn_choice.KNN_NOISE
    assert max(tried.values()) - chosen <= knn_choice.MIN_IDF_GAIN


def test_a_given_weight_is_kept_and_powers_are_chosen_with_it():
    found = fit_ridge_knn(*clustered(n=200), knn_weight=0.3)
    assert found.network.knn_weight == 0.3
    assert {choice.knn_weight for choice in found.validation} == {0.3}
    assert len(found.validation) == len(knn_choice.IDF_POWERS) * len(knn_choice.SIMILARITY_POWERS)


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
        "l2", "system", "iterations", "residual", "tolerance", "converged", "seconds", "validation",
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
    assert network.forest_weight == knn_choice.FOREST_WEIGHT and network.forest.n_trees == N_TREES
    scores = {c.forest_weight: c.ndcg for c in found.validation if c.knn_weight == network.knn_weight}
    assert scores[knn_choice.FOREST_WEIGHT] > scores[0]
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


def many_labels(n=1200):
    """As many rows as one hold-out needs, and more labels than the dim of 16."""
    return rare_words(n=n)


def test_label_trees_are_fitted_where_held_out_rows_gain(monkeypatch):
    X, Y = many_labels()
    found = fit_ridge_knn(X, Y, dim=16)
    network, choice = found.network, found.trees
    assert len(network.label_trees) == tree_choice.N_LABEL_TREES and network.tree_weight == choice.weight > 0
    assert choice.ndcg >= choice.ndcg_without + tree_choice.MIN_TREE_GAIN
    summary = json.loads(json.dumps(found.summary()))
    boost = choice.rare_label_boost
    assert summary["label_trees"] == {
        **{"weight": choice.weight, "ndcg": choice.ndcg, "ndcg_without": choice.ndcg_without, "rare_label_boost": boost}
    }
    assert {tree.rare_label_boost for tree in network.trees()} == {boost}
    new, labels = rare_words(n=400, seed=1)
    v, codebook = network.encode(new), network.codebook()
    added = AddedScores(codebook, *map(torch.from_numpy, network.label_scores(new)))
    with_trees, without = (ndcg_at_k(labels, each.top_k(v, 5)[1].numpy())[-1] for each in (added, codebook))
    assert with_trees > without + 1
    monkeypatch.setattr(tree_choice, "MIN_TREE_GAIN", 100)
    refused = fit_ridge_knn(X, Y, dim=16)
    assert not refused.network.label_trees and refused.network.tree_weight == refused.trees.weight == 0


def test_label_trees_of_few_labels_must_gain_more(monkeypatch):
    """With as many dims as labels their scores are exact without trees."""
    X, Y = many_labels()
    assert tree_choice.MIN_TREE_GAIN_OF_FEW_LABELS > tree_choice.MIN_TREE_GAIN
    for few, many in ((-100, 100), (100, -100)):
        monkeypatch.setattr(tree_choice, "MIN_TREE_GAIN_OF_FEW_LABELS", few)
        monkeypatch.setattr(tree_choice, "MIN_TREE_GAIN", many)
        found = fit_ridge_knn(X, Y, dim=40)
        n_trees = tree_choice.N_LABEL_TREES if few < 0 else 0
        assert len(found.network.label_trees) == n_trees and bool(found.trees.weight) == bool(n_trees)


@pytest.mark.parametrize(("options", "rows"), [({"dim": 16}, 990), ({"dim": 16, "knn_weight": 0.0}, 1200)])
def test_label_trees_are_not_tried_elsewhere(options, rows):
    """With few rows, or where no kNN is wanted."""
    found = fit_ridge_knn(*(matrix[:rows] for matrix in many_labels()), **options)
    assert not found.network.label_trees and found.trees is None and "label_trees" not in found.summary()


@pytest.mark.parametrize("n_trees", [0, 1, 3])
@pytest.mark.parametrize(
    ("rows", "options"),
    [(1200, {"dim": 40}), (300, {"dim": 16}), (4, {"dim": 16}), (300, {"dim": 16, "knn_weight": 0.0})],
)
def test_as_many_label_trees_are_fitted_as_are_wanted(n_trees, rows, options):
    X, Y = (matrix[:rows] for matrix in many_labels())
    found = fit_ridge_knn(X, Y, label_trees=n_trees, l2=1.0, **options)
    assert len(found.network.label_trees) == n_trees and bool(found.network.tree_weight) == bool(n_trees)
    for i, tree in enumerate(found.network.trees()):
        labels = sorted(tree.leaf_labels.tolist())
        if i == 0 and rows == 1200:  # the tree of the hold-out
            assert set(labels) <= set(Y.indices.tolist())
        else:
            assert labels == np.unique(Y.indices).tolist()
            assert torch.equal(tree.scales, fit_label_tree(X, Y, seed=i).scales)  # of all rows
    trees = [tree.scales.tolist() for tree in found.network.trees()]
    assert all(one != other for i, one in enumerate(trees) for other in trees[:i])


def test_wanted_label_trees_without_any_label_are_none():
    X, Y = many_labels(n=50)
    assert not fit_ridge_knn(X, csr_array(Y.shape, dtype=np.float32), dim=16, label_trees=2).network.label_trees
    one_label = csr_array((np.ones(1, np.float32), ([7], [3])), shape=Y.shape)  # it is missing in one of the folds
    assert fit_ridge_knn(X, one_label, dim=16, label_trees=2).network.trees()[0].leaf_labels.tolist() == [3]


def test_calibration_is_that_of_scores_with_trees():
    """Held-out scores with trees are larger, so the same score means a smaller probability."""
    with_trees, without = (fit_ridge_knn(*many_labels(), dim=16, label_trees=n) for n in (2, 0))
    assert with_trees.calibration is not None and without.calibration is not None
    assert with_trees.calibration != without.calibration


@pytest.mark.parametrize("value", [-1, 9])
def test_impossible_numbers_of_label_trees_are_refused(value):
    with pytest.raises(OptionError, match=f"label_trees must be from 0 to 8, or None to choose it; got {value}"):
        fit_ridge_knn(*clustered(), label_trees=value)


def test_label_trees_are_learned_without_knn_and_refused_elsewhere():
    split = hb.data.Split(*rare_words())
    model = hb.learn(split, hb.ModelConfig(dim=16, knn_weight=0, label_trees=1))
    assert len(model.network.label_trees) == 1 and model.network.n_training_rows == 0
    for options in ({"head": "linear"}, {"codebook": "random"}, {"normalise": False}):
        with pytest.raises(OptionError, match=r"label_trees belong to .*; got label_trees 1 with other options"):
            hb.ModelConfig(**options, label_trees=1)
        hb.ModelConfig(**options, label_trees=0)


def test_a_tolerance_is_chosen_on_held_out_rows_and_used_for_all(monkeypatch):
    monkeypatch.setattr(ridge_module, "MAX_CHOLESKY_UNKNOWNS", 1)
    given = []
    solve = fit_steps.solve_ridge
    monkeypatch.setattr(
        fit_steps, "solve_ridge", lambda *args, **options: given.append(options["tolerance"]) or solve(*args, **options)
    )
    solution = fit_ridge_knn(*clustered(n=200), l2=1.0).solution
    assert given[0] is None and None not in given[1:] and given[-1] == solution.tolerance


def test_a_smaller_tolerance_is_taken_only_if_rows_gain_with_the_knn_term(monkeypatch):
    monkeypatch.setattr(ridge_module, "MAX_CHOLESKY_UNKNOWNS", 1)

    def choose(solver, l2, tolerance, *args, **options):
        return ([(0.3, 1.0), (0.01, 1.0)] if tolerance is None else [(tolerance, l2)]), []

    monkeypatch.setattr(ridge_module, "_choose", choose)
    monkeypatch.setattr(fit, "MAX_UPDATABLE_WEIGHTS", 0)
    for gains, tolerance in ((False, 0.3), (True, 0.01)):
        monkeypatch.setattr(fit, "_gains", lambda *_, gains=gains: gains)
        searched = []
        solve = fit_steps.solve_ridge

        def record(*args, solve=solve, searched=searched, **options):
            searched.append(options["tolerance"])
            return solve(*args, **options)

        monkeypatch.setattr(fit_steps, "solve_ridge", record)
        fit_ridge_knn(*clustered(n=200))
        monkeypatch.setattr(fit_steps, "solve_ridge", solve)
        assert searched[-1] == tolerance


def test_few_weights_are_solved_to_a_small_tolerance_in_the_end(monkeypatch):
    monkeypatch.setattr(ridge_module, "MAX_CHOLESKY_UNKNOWNS", 1)
    monkeypatch.setattr(ridge_module, "MIN_TOLERANCE_GAIN", 100.0)  # no smaller tolerance is chosen
    X, Y = clustered(n=200)
    for max_weights, tolerance in ((X.shape[1] * Y.shape[1], LAST_TOLERANCE), (X.shape[1] * Y.shape[1] - 1, 0.3)):
        monkeypatch.setattr(fit, "MAX_UPDATABLE_WEIGHTS", max_weights)
        solution = fit_ridge_knn(X, Y).solution
        assert solution.tolerance == tolerance and solution.residual <= tolerance


@pytest.mark.parametrize(("better", "worse", "taken"), [(9, 0, True), (2, 0, False), (55, 40, False), (80, 20, True)])
def test_a_gain_counts_if_it_is_large_and_no_chance(better, worse, taken):
    """Of 400 rows of one label, some are right only after, and some only before; 2 rows are 0.5 points."""
    codebook, Y = hb.OneHotCodebook(2, 2), csr_array(np.repeat(np.array([[1, 0]], np.float32), 400, axis=0))
    right, wrong = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    before, after = right.repeat(400, 1), right.repeat(400, 1)
    before[:better], after[400 - worse :] = wrong, wrong
    validated = [
        fit.Validated(KnnChoice(0.0, 2.0, 0.0, 0.0), outputs=[knn_choice.HeldOutOutputs(Y, v, {}, None, {})])
        for v in (before, after)
    ]
    assert fit._gains(codebook, *validated) == taken


def test_of_weights_that_cannot_be_told_apart_the_usual_one_is_taken():
    """Residuals of 0 change nothing, so all weights are equal."""
    codebook, Y = hb.OneHotCodebook(6, 6), csr_array(np.eye(6, dtype=np.float32))
    residuals = {
        (idf, power): torch.zeros(6, 6) for idf in knn_choice.IDF_POWERS for power in knn_choice.SIMILARITY_POWERS
    }
    outputs = [knn_choice.HeldOutOutputs(Y, torch.eye(6), residuals, None, {})]
    assert knn_choice.choose_knn(codebook, outputs, None)[0].knn_weight == knn_choice.MIDDLE_KNN_WEIGHT
    residuals = {powers: torch.ones(6, 6) - 2 * torch.eye(6) for powers in residuals}  # which harm
    outputs = [knn_choice.HeldOutOutputs(Y, torch.eye(6), residuals, None, {})]
    assert knn_choice.choose_knn(codebook, outputs, None)[0].knn_weight < knn_choice.MIDDLE_KNN_WEIGHT


def test_model_config_uses_knn_by_default_and_only_where_it_can():
    assert hb.ModelConfig().uses_knn and hb.ModelConfig(knn_weight=0.5).uses_knn
    assert not hb.ModelConfig(knn_weight=0).uses_knn
    for options in ({"head": "linear"}, {"codebook": "random"}, {"normalise": False}):
        assert not hb.ModelConfig(**options).uses_knn
        with pytest.raises(OptionError, match="knn_weight"):
            hb.ModelConfig(**options, knn_weight=0.5)
    assert not hb.ModelConfig(network="fc", knn_weight=0.5).uses_knn  # votes beside a trained network
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
    names = ("idf_power", "similarity_power", "knn_weight", "forest_weight")
    (chosen,) = (
        choice
        for choice in found.validation
        if all(getattr(choice, name) == getattr(found.network, name) for name in names)
    )
    assert found.estimate.ndcg == pytest.approx(chosen.ndcg)
    assert found.estimate.low < found.estimate.ndcg < found.estimate.high


def test_settings_are_scored_among_candidates_as_among_all_labels(monkeypatch):
    X, Y = rare_words(n=1500, f=300, labels=200)
    scores = []
    for n_candidates in (
        knn_choice.N_CANDIDATES,
        Y.shape[1],
    ):  # with as many candidates as labels, all labels are searched
        monkeypatch.setattr(knn_choice, "N_CANDIDATES", n_candidates)
        found = fit_ridge_knn(X, Y, dim=64, label_trees=0)
        scores.append({(c.idf_power, c.similarity_power, c.knn_weight): c.ndcg for c in found.validation})
    assert scores[0].keys() == scores[1].keys()
    assert max(abs(scores[0][key] - scores[1][key]) for key in scores[0]) < 0.3


def test_the_score_of_a_tree_weight_is_that_of_added_scores():
    X, Y = rare_words(n=400, labels=60)
    codebook = hb.OrbitCodebook(60, 32)
    v, tree = torch.randn(400, 32), fit_label_tree(X, Y)
    found, few = (
        tree_choice.boosted_searches(tree, Y, largest, lambda: label_tree.search_trees([tree], X))
        for largest in (0.1, 0.05)
    )
    assert list(found) == list(tree_choice.TREE_BOOSTS) and list(few) == [0, 0.03]
    choice, added = tree_choice.choose_trees(codebook, v, Y, found, may_be_none=False)
    ranked = AddedScores(codebook, *(torch.from_numpy(array) for array in added)).top_k(v, 5)[1]
    assert choice.ndcg == pytest.approx(ndcg_at_k(Y, ranked.numpy())[-1])
    assert choice.ndcg_without == pytest.approx(ndcg_at_k(Y, codebook.top_k(v, 5)[1].numpy())[-1])


def test_the_boost_of_trees_is_that_with_the_best_held_out_rows():
    """Label 2 is right; where trees raise label 1 in its place, a row has an nDCG@3 of 1/2."""
    codebook, v = hb.OneHotCodebook(3, 3), torch.tensor([[0.5, 0.0, 0.0]]).repeat(100, 1)
    Y = csr_array(np.tile(np.array([[0, 0, 1]], np.float32), (100, 1)))

    def raising(n_wrong):
        labels = np.where(np.arange(100) < n_wrong, 1, 2)[:, None]
        return np.full((100, 1), 4, np.float32), labels

    def chosen(*n_wrong):
        found = {0.1 * i: raising(n) for i, n in enumerate(n_wrong)}
        return tree_choice.choose_trees(codebook, v, Y, found, may_be_none=False)

    for n_wrong, best in (((3, 2, 1), 2), ((3, 1, 2), 1), ((1, 2, 3), 0), ((1, 1, 1), 0)):
        choice, (values, labels) = chosen(*n_wrong)
        assert choice.rare_label_boost == 0.1 * best and choice.ndcg == pytest.approx(100 - min(n_wrong) / 2)
        assert np.array_equal(labels, raising(n_wrong[best])[1]) and (values == 4 * choice.weight).all()
