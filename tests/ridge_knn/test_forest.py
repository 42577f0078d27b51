"""Trees: where rows end, how they are grown, and what they add to the encoder."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import holobind as hb
from holobind import _storage as storage
from holobind.cli import describe
from holobind.data import Split
from holobind.data.csr import normalise_rows
from holobind.errors import FileError, OptionError
from holobind.metrics import ndcg_at_k
from holobind.ridge_knn import _grow, encoder, fit, network
from holobind.ridge_knn import forest as trees
from holobind.ridge_knn._kernels import add_alike
from holobind.ridge_knn.fit import fit_ridge_knn, update_ridge_knn
from holobind.ridge_knn._grow import fit_forest
from holobind.ridge_knn.forest import TREES
from holobind.ridge_knn.ridge import solve_ridge


def problem(n=600, f=20, labels=12, seed=0):
    """A label is whether a pair of features is present or absent together, which no linear map tells."""
    draw = np.random.default_rng(seed)
    X = (draw.random((n, f)) < 0.5).astype(np.float32)
    odd = X[:, :labels] != X[:, 1 : labels + 1]
    X[3], odd[4] = 0, False
    return normalise_rows(sparse.csr_matrix(X)), sparse.csr_matrix(odd.astype(np.float32))


def by_definition(forest, x, tree):
    """The leaf of one dense row, one split after the other."""
    length = np.linalg.norm(x.astype(np.float64))
    whole = np.trunc(x * (250 / length)) if length else x
    at = int(forest.roots[tree])
    while at >= 0:
        total = forest.levels[:, at].numpy().astype(np.float64) @ whole + float(forest.thresholds[at])
        at = int(forest.branches[at, int(total > 0)])
    return -1 - at


@pytest.mark.parametrize("high", [1, 3, 64])
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**16), n=st.sampled_from([1, 20, 300]))
def test_rows_end_in_the_leaves_that_splits_lead_to(seed, n, high):
    """However many of the first splits are looked at together."""
    X, Y = problem(seed=seed)
    forest = fit_forest(X, Y, trees=3, seed=seed)
    forest.check()
    new = problem(n=max(n, 5), seed=seed + 1)[0][:n]
    wanted = [[by_definition(forest, x, tree) for tree in range(3)] for x in new.toarray()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trees, "HIGH", high)
        assert forest.leaves(new).tolist() == wanted


def test_a_label_that_all_rows_have_tells_nothing():
    X, Y = problem()
    both = sparse.csr_matrix(sparse.hstack([np.ones((X.shape[0], 1), np.float32), Y]))
    one, other = (fit_forest(X, sets, trees=2) for sets in (Y, both))
    assert torch.equal(one.levels, other.levels) and torch.equal(one.branches, other.branches)


def test_leaves_are_small_and_all_of_them_are_found():
    X, Y = problem()
    forest = fit_forest(X, Y, trees=4)
    at = forest.leaves(X)
    assert sorted(np.unique(at)) == list(range(forest.n_leaves))  # each tree has its own
    assert np.quantile(np.bincount(at.ravel()), 0.9) <= _grow.LEAF  # a few cannot be split further
    assert len({tuple(at[:, tree] - at[:, tree].min()) for tree in range(4)}) == 4  # no two alike


def test_rows_of_a_leaf_have_similar_label_sets():
    X, Y = problem(n=2000)
    at = fit_forest(X, Y, trees=1).leaves(X)[:, 0]
    sets = Y.toarray()
    within = np.mean([sets[at == leaf].var(0).sum() for leaf in np.unique(at)])
    assert within < 0.8 * sets.var(0).sum()


def test_growing_depends_on_the_seed_and_not_on_threads():
    X, Y = problem()
    before, found = torch.get_num_threads(), []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        found.append(fit_forest(X, Y, trees=3, seed=5))
    torch.set_num_threads(before)
    for name in ("levels", "thresholds", "branches", "roots"):
        assert torch.equal(getattr(found[0], name), getattr(found[1], name))
    assert not torch.equal(fit_forest(X, Y, trees=3, seed=6).thresholds[:1], found[0].thresholds[:1])


@pytest.mark.parametrize("rows", [1, 10, 40])
def test_rows_that_cannot_be_split_are_one_leaf(rows):
    same = sparse.csr_matrix(np.ones((rows, 3), np.float32) / 3**0.5)
    forest = fit_forest(same, sparse.csr_matrix(np.eye(rows, 5, dtype=np.float32)), trees=2)
    forest.check()
    assert len(forest.thresholds) == 0
    assert forest.leaves(same).tolist() == [[0, 1]] * rows


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=50))
def test_the_median_is_the_middle_one(numbers):
    assert _grow._median(np.array(numbers, float)) == sorted(numbers)[len(numbers) // 2]


def packed(share=0.5, knn_weight=0.7):
    X, Y = problem()
    found = solve_ridge(X, Y, hb.OrbitCodebook(12, 16, 3), 1.0)
    forest = fit_forest(X, Y, trees=3)
    made = network.RidgeKnn.of(
        found.weights, found.bias, X, Y, knn_weight=knn_weight, rare_label_boost=0.1, forest=forest, share=share, seed=3
    )
    return made, X


@pytest.mark.parametrize("knn_weight", [0.0, 0.7])
def test_what_rows_in_the_same_leaves_have_is_added(knn_weight):
    made, X = packed(knn_weight=knn_weight)
    new = problem(seed=1)[0][:30]
    W, b = made.weights().double().numpy(), made.bias.double().numpy()
    _, Y = made.training_rows()
    counts = np.asarray(Y.sum(0)).ravel()
    lengths = (counts.max() / counts) ** 0.1
    T = Y.toarray() * lengths @ made.codebook().vectors(torch.arange(12)).double().numpy()
    lacking = T - X.toarray().astype(np.float64) @ W - b
    there, here = made.forest.leaves(X), made.forest.leaves(new)
    plain, _ = packed(share=0.0, knn_weight=knn_weight)
    wanted = 0.5 * plain.encode(new).numpy().astype(np.float64)
    for row, leaves in enumerate(here):
        for tree, leaf in enumerate(leaves):
            inside = there[:, tree] == leaf
            wanted[row] += (0.5 * T[inside].mean(0) + 0.5 * encoder.MEND * lacking[inside].mean(0)) / 3
    np.testing.assert_allclose(made.encode(new).numpy(), wanted, atol=0.01 * np.abs(wanted).max())


def test_beside_trees_rows_of_few_features_recall_nothing():
    made, X = packed(knn_weight=0.7)
    without, _ = packed(knn_weight=0.0)
    short = sum(sparse.eye(3, X.shape[1], k, dtype=np.float32, format="csr") for k in range(encoder.FEWEST - 1))
    assert torch.equal(made.encode(normalise_rows(short)), without.encode(normalise_rows(short)))
    long = normalise_rows(short + sparse.eye(3, X.shape[1], 9, dtype=np.float32, format="csr"))
    assert not torch.allclose(made.encode(long), without.encode(long))
    alone, _ = packed(share=0.0, knn_weight=0.7)  # but where there are no trees, they do
    linear, _ = packed(share=0.0, knn_weight=0.0)
    assert not torch.allclose(alone.encode(normalise_rows(short)), linear.encode(normalise_rows(short)))


def test_beside_trees_rows_of_few_features_are_not_recalled(monkeypatch):
    made, X = packed(knn_weight=0.7)
    encoder = made.prepare()
    many = np.diff(X.indptr) >= encoder.FEWEST
    assert 0 < many.sum() < len(many)
    similar, ids = encoder.nearest(X)
    assert many[ids[similar > 0]].all()
    itself = ids[many, 0]  # equal rows aside, the nearest to a row that is recalled is that row
    assert np.array_equal(X[itself].toarray(), X[many].toarray())
    monkeypatch.setattr(encoder, "FEWEST", X.shape[1] + 1)
    assert torch.equal(encoder.Encoder(made).encode(X), packed(knn_weight=0.0)[0].encode(X))


@given(st.integers(1, 20), st.integers(1, 70), st.integers(0, 2**16))
def test_leaves_are_added_up(trees, d, seed):
    draw = np.random.default_rng(seed)
    table, at = draw.integers(-127, 128, (9, d)).astype(np.int8), draw.integers(0, 9, (4, trees)).astype(np.int32)
    out = np.ones((4, d), np.float32)
    add_alike(at, table, np.float32(0.5), out)
    assert np.array_equal(out, 1 + 0.5 * table[at].sum(1, dtype=np.float32))


def test_leaves_of_all_trees_fit_16_bits():
    table, out = np.full((1, 3), -127, np.int8), np.zeros((1, 3), np.float32)
    add_alike(np.zeros((1, TREES), np.int32), table, np.float32(1), out)
    assert out.tolist() == [[-127 * TREES] * 3]
    made, _ = packed()
    made.forest.roots = torch.full((TREES + 1,), -1, dtype=torch.int32)
    with pytest.raises(OptionError, match="at most 256 trees; got 257"):
        made.forest.check()


def test_trees_of_impossible_size_are_refused():
    made, _ = packed()
    made.forest.roots = torch.full((10**7,), -1, dtype=torch.int32)
    with pytest.raises(OptionError, match="its trees would take 12800000000 numbers"):
        made.check()


def test_trees_are_kept_where_they_help_and_features_are_few(monkeypatch):
    monkeypatch.setattr(fit, "FEW", 500)
    X, Y = problem(n=3000)
    found = fit_ridge_knn(X, Y)
    assert found.network.share == fit.SHARE and len(found.network.forest.roots) == _grow.TREES
    scores = {at[3]: at[4] for at in found.validation if at[2] == found.network.knn_weight}
    assert scores[fit.SHARE] > scores[0]
    assert fit_ridge_knn(X, Y, knn_weight=0.0).network.forest is None
    noise = sparse.csr_matrix((np.random.default_rng(0).random(Y.shape) < 0.3).astype(np.float32))
    assert fit_ridge_knn(X, noise).network.forest is None
    linear_skip = sparse.csr_matrix(sparse.hstack([X, sparse.csr_matrix((3000, 400), dtype=np.float32)]))
    assert fit_ridge_knn(linear_skip, Y).network.forest is None


def test_trees_find_what_near_rows_do_not(monkeypatch):
    monkeypatch.setattr(fit, "FEW", 500)
    X, Y = problem(n=3000)
    new, wanted = problem(n=500, seed=1)
    with_trees = fit_ridge_knn(X, Y).network
    monkeypatch.setattr(fit, "MANY", 10**9)
    without = fit_ridge_knn(X, Y).network
    found = [
        ndcg_at_k(wanted, net.codebook().top_k(net.encode(new), 5)[1].numpy())[-1] for net in (with_trees, without)
    ]
    assert found[0] > found[1] + 1


def test_more_rows_go_to_the_leaves_too():
    made, X = packed()
    both = update_ridge_knn(made, X[:50], made.training_rows()[1][:50], 1.0, X.shape[0])
    assert both.share == made.share and torch.equal(both.forest.levels, made.forest.levels)
    assert both.training_rows()[0].shape[0] == X.shape[0] + 50


@pytest.fixture
def saved(tmp_path, monkeypatch):
    monkeypatch.setattr(fit, "FEW", 500)
    X, Y = problem(n=3000)
    model = hb.learn(Split(sparse.csr_array(X), sparse.csr_array(Y)))
    path = tmp_path / "m.safetensors"
    model.save(path)
    return model, X, path


def test_a_model_with_trees_is_saved_and_loaded_bit_by_bit(saved):
    model, X, path = saved
    again = hb.load(path)
    for one, other in zip(model.top_k(X, 5), again.top_k(X, 5), strict=True):
        np.testing.assert_array_equal(one, other)
    assert again.network.config() == model.network.config() and again.network.share
    assert f"and {_grow.TREES} trees" in describe.kind(again)


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        ("branches", lambda t: t.fill_(0), "a split has a child that is not a later one"),
        ("branches", lambda t: t.fill_(1 << 30), "a split has a child that is not a later one"),
        ("branches", lambda t: t.fill_(-(1 << 30)), "leaves must be from 0 to"),
        ("roots", lambda t: t.fill_(1 << 30), "a split has a child that is not a later one"),
        ("roots", lambda t: t.fill_(-(1 << 30)), "leaves must be from 0 to"),
        ("levels", lambda t: t.fill_(100), "levels must be from -3 to 3"),
        ("levels", lambda t: t.fill_(-128), "levels must be from -3 to 3"),
        ("thresholds", lambda t: t.fill_(torch.nan), "something else than finite numbers"),
    ],
)
def test_trees_that_lead_nowhere_are_refused(saved, name, damage, said):
    _, _, path = saved
    header, tensors = storage.read(path, "model", 1)
    damage(tensors[f"network.forest.{name}"])
    storage.write(path, "model", 1, header, tensors)
    with pytest.raises(FileError, match=said):
        hb.load(path)


@pytest.mark.parametrize(
    ("said", "error"),
    [({"trees": 0, "splits": 0}, "wants trees"), ({"trees": 1, "splits": -1}, "wants trees"), (None, "share without")],
)
def test_headers_that_claim_no_such_forest_are_refused(saved, said, error):
    _, _, path = saved
    header, tensors = storage.read(path, "model", 1)
    header["network"]["forest"] = said
    storage.write(path, "model", 1, header, tensors)
    with pytest.raises(FileError, match=error):
        hb.load(path)


def test_too_many_features_are_refused():
    with pytest.raises(OptionError, match="1 to 1024 features"):
        trees.Forest(1025, trees=1, splits=0)
