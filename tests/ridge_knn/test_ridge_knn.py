"""The encoder that recalls its errors, beside its definition in dense float64."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import holobind as hb
from holobind import _storage as storage
from holobind.data import Split
from holobind.data.csr import binary_labels
from holobind.errors import FileError, OptionError
from holobind.metrics import ndcg_at_k
from holobind.ridge_knn import encoder
from holobind.ridge_knn import fit as fitting
from holobind.ridge_knn import knn_index as nearing
from holobind.ridge_knn.fit import fit_ridge_knn, update_ridge_knn


def problem(n=90, f=30, labels=20, seed=0):
    """Points near a few centres, which decide their labels; one without features, one without labels, two equal."""
    draw = np.random.default_rng(seed)
    centre = draw.integers(0, 8, n)
    X = np.abs(draw.normal(size=(8, f)) * (draw.random((8, f)) < 0.3))[centre] + 0.2 * (draw.random((n, f)) < 0.1)
    Y = (draw.random((8, labels)) < 0.15)[centre] ^ (draw.random((n, labels)) < 0.02)
    X[3], Y[4] = 0, 0
    X[1], Y[1] = X[0], Y[0]
    return sparse.csr_matrix(X.astype(np.float32)), sparse.csr_matrix(Y.astype(np.int32))


def cosines_in_eight_bits(rows, x, weight):
    """As `KnnIndex` has them, of dense rows and one question in float32: whole numbers, without weak features."""
    knn_weight = np.abs(x.astype(np.float64)) * weight.astype(np.float64) ** 2
    rows, x = rows * weight, x * weight
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    units = (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    rounded = np.trunc(units * np.float32(127))
    factor = (units * rounded).sum(1, dtype=np.float64) / np.maximum((rounded**2).sum(1), 1) * 127
    length = np.linalg.norm(x.astype(np.float64))
    asked = np.trunc(x * (250 / length)) * (knn_weight >= nearing.WEAK * knn_weight.max()) if length else x
    return np.floor(np.rint(factor * 2**14).clip(0, 2**15 - 1) * (rounded @ asked) / 2**16)


def by_definition(model, x):
    """v of one row of length 1, all in float64 but for what is near."""
    W, b = model.weights().double().numpy(), model.bias.double().numpy()
    X, Y = (matrix.toarray().astype(np.float64) for matrix in model.training_rows())
    counts = Y.sum(0)
    longer = (counts.max() / np.maximum(counts, 1)) ** model.rare_label_boost
    T = Y * longer @ model.codebook().vectors(torch.arange(model.n_labels)).double().numpy()
    idf = np.log((1 + len(X)) / (1 + (X > 0).sum(0))) ** model.idf_power
    similar = cosines_in_eight_bits(*(part.astype(np.float32) for part in (X, x, idf)))
    near = np.argsort(-similar, kind="stable")[: encoder.NEAREST]
    powers = np.maximum(similar[near], 0) ** model.similarity_power
    shares = powers / powers.sum() if powers.sum() else powers
    return x @ W + b + model.knn_weight * shares @ (T[near] - X[near] @ W - b)


def fit(X, Y, **options):
    return fit_ridge_knn(nearing.normalise_rows(X), Y, **options).network


@settings(max_examples=10, deadline=None)
@given(
    st.integers(0, 2**16), st.sampled_from([16, 20, 25]), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 0.3])
)
def test_encoding_is_the_linear_one_and_the_mean_error_of_the_nearest_rows(seed, dim, idf_power, rare_label_boost):
    X, Y = problem(seed=seed)
    model = fit(X, Y, dim=dim, knn_weight=0.7, rare_label_boost=rare_label_boost, seed=seed)
    model.similarity_power, model.idf_power = 3.0, idf_power
    new = nearing.normalise_rows(problem(seed=seed + 1)[0][:20])
    wanted = np.stack([by_definition(model, x) for x in new.toarray().astype(np.float64)])
    # errors, which are about as large, have eight bits
    np.testing.assert_allclose(model.encode(new).numpy(), wanted, atol=0.005 * np.abs(wanted).max())


@pytest.mark.parametrize("most", [nearing.COLUMNS, 1200])
@pytest.mark.parametrize("dense", [0, 1.4, 100])
@given(k=st.integers(1, 40), n=st.sampled_from([1, 30, 600]), seed=st.integers(0, 2**16))
def test_nearest_have_the_largest_cosines_and_earlier_rows_win_ties(k, n, seed, dense, most):
    """Whether all features, some, or none are dense columns, of which no more are kept than there is room for."""
    draw = np.random.default_rng(seed)
    rows, memory = (draw.integers(-1, 3, (m, 6)).astype(np.float32) for m in (5, n))
    weight = draw.random(6).astype(np.float32) + 0.5
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nearing, "COLUMNS", most)
        near = nearing.KnnIndex(sparse.csr_matrix(memory), weight, dense)
    assert near.columns.size <= most
    assert len(near.columns) == min(((memory != 0).sum(0) * dense > n).sum(), most // near.columns.shape[1])
    found, ids = near(sparse.csr_matrix(rows), k)
    for x, best, which in zip(rows, found, ids, strict=True):
        cosines = cosines_in_eight_bits(memory, x, weight)
        order = np.argsort(-cosines, kind="stable")[:k]
        order = order[cosines[order] > 0]
        assert which[: len(order)].tolist() == order.tolist()
        assert best.tolist() == [*cosines[order].tolist(), *[0] * (k - len(order))]


@given(st.integers(1, 3000), st.integers(0, 2**16))
def test_cosines_in_eight_bits_are_cosines(f, seed):
    """Also of long rows and of rows of one feature, if none is weak; no sum leaves its 16 bits."""
    draw = np.random.default_rng(seed)
    memory = draw.normal(size=(8, f)).astype(np.float32) * (draw.random((8, f)) < draw.random())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nearing, "WEAK", 0.0)
        found, ids = nearing.KnnIndex(sparse.csr_matrix(memory), np.ones(f, np.float32))(sparse.csr_matrix(memory), 1)
    for row in range(8):
        if memory[row].any():
            assert found[row, 0] == pytest.approx(250 * 127 / 4, rel=0.1)
            cosine = memory[ids[row, 0]] @ memory[row] / np.linalg.norm(memory[[ids[row, 0], row]], axis=1).prod()
            assert cosine > 0.99


def test_weak_features_of_a_question_are_not_asked_for():
    """What a feature may add to a sum goes by the square of its weight, as rows have it, too."""
    draw = np.random.default_rng(0)
    memory = sparse.csr_matrix((draw.random((300, 6)) < 0.5).astype(np.float32))
    weight = np.array([2, 1.3, 1.1, 1, 0.5, 0.1], np.float32)
    adds = np.array(
        [-1, 1.1 * nearing.WEAK, 0.9 * nearing.WEAK, 2 * nearing.WEAK, 0.5 * nearing.WEAK, 0.01], np.float32
    )
    near, question = nearing.KnnIndex(memory, weight), (adds / weight**2)[None]
    strong = question * np.array([1, 1, 0, 1, 0, 0], np.float32)
    found, ids = near(sparse.csr_matrix(question), 300)
    alone, same = near(sparse.csr_matrix(strong), 300)
    assert np.array_equal(found > 0, alone > 0) and set(ids[found > 0]) == set(same[alone > 0])


def test_a_row_like_no_other_gets_the_linear_encoding():
    X, Y = problem()
    X = sparse.csr_matrix(sparse.hstack([X, sparse.csr_matrix((X.shape[0], 1), dtype=np.float32)]))
    model = fit(X, Y, knn_weight=1.0)
    strange = sparse.csr_matrix(([1.0], ([0], [X.shape[1] - 1])), (1, X.shape[1]))
    torch.testing.assert_close(model.encode(strange)[0], model.weights()[-1] + model.bias)


def test_recalling_finds_what_a_linear_encoder_cannot_say():
    """The label is whether exactly one of two features is present."""
    bits = np.array([[0, 1], [1, 0], [0, 0], [1, 1]] * 20)
    X = sparse.csr_matrix(np.hstack([bits, 1 - bits]).astype(np.float32))
    odd = bits.sum(1) == 1
    Y = sparse.csr_matrix(np.stack([odd, ~odd], 1).astype(np.int32))
    hits = {a: ndcg_at_k(Y, _top(fit(X, Y, knn_weight=a), X, 1))[0] for a in (0.0, 1.0)}
    assert hits[1.0] == 100
    assert hits[0.0] < 75


def _top(model, X, k):
    return model.codebook().top_k(model.encode(nearing.normalise_rows(X)), k)[1].numpy()


def test_what_was_made_before_is_made_only_once_and_stays_the_same(monkeypatch):
    X, Y = problem(n=200)
    rows = nearing.normalise_rows(X)
    network = fit(X, Y, knn_weight=1.0)
    asked = []
    errors = encoder.Encoder._errors
    monkeypatch.setattr(encoder.Encoder, "_errors", lambda self, rows: asked.append(rows) or errors(self, rows))
    first = network.encode(rows)
    assert torch.equal(network.encode(rows), first)
    assert len(asked) == 1
    monkeypatch.setattr(encoder, "TABLE", 0)  # nothing is kept
    assert torch.equal(deepcopy(network).encode(rows), first)


def test_loaded_tensors_replace_what_was_made_of_those_before():
    X, Y = problem(n=200)
    rows = nearing.normalise_rows(X)
    network = fit(X, Y, knn_weight=1.0)
    other = deepcopy(network)
    other.scales *= 2
    before, wanted = network.encode(rows), other.encode(rows)
    assert not torch.equal(before, wanted)
    torch.nn.ModuleList([network]).load_state_dict(torch.nn.ModuleList([other]).state_dict())
    assert torch.equal(network.encode(rows), wanted)


def test_without_strength_no_training_row_is_kept():
    network = fit(*problem(), knn_weight=0.0)
    assert network.training_rows()[0].shape[0] == 0 and not network.row_ids.numel()
    assert network.encode(nearing.normalise_rows(problem()[0])).shape == (90, 20)


def test_more_rows_are_recalled_with_the_rest_and_the_weights_are_the_mean():
    X, Y = problem()
    rows = nearing.normalise_rows(X)
    network = fit(X[:60], Y[:60], l2=1.0, knn_weight=1.0)
    both = update_ridge_knn(network, rows[60:], Y[60:], 1.0, 60)
    assert (both.training_rows()[1] != binary_labels(Y)).nnz == 0
    alone = fit(X[60:], Y[60:], l2=1.0, knn_weight=1.0)
    wanted = network.weights() * (2 / 3) + alone.weights() / 3
    assert (both.weights() - wanted).norm() < 0.2 * wanted.norm()  # both are rounded to four bits


def test_result_depends_on_the_seed_and_not_on_threads():
    X, Y = problem()
    threads = torch.get_num_threads()
    found = []
    try:
        for n in (1, 2):
            torch.set_num_threads(n)
            found.append(fit(X, Y, seed=5).encode(nearing.normalise_rows(X)))
    finally:
        torch.set_num_threads(threads)
    torch.testing.assert_close(found[0], found[1], atol=1e-5, rtol=1e-4)
    assert not torch.allclose(found[0], fit(X, Y, seed=6).encode(nearing.normalise_rows(X)))


def test_the_best_of_what_was_tried_is_taken():
    found = fit_ridge_knn(*problem(n=200))
    at = {tuple(chosen): score for *chosen, score in found.validation}
    network = found.network
    chosen = at[network.idf_power, network.similarity_power, network.knn_weight, network.share]
    assert chosen == max(score for (idf_power, *_), score in at.items() if idf_power == network.idf_power)
    assert max(at.values()) - chosen <= fitting.MARGIN


@pytest.mark.parametrize("n", [1, 3, 6])
def test_a_handful_of_rows_is_enough(n):
    X, Y = problem()
    assert fit(X[:n], Y[:n]).encode(nearing.normalise_rows(X)).isfinite().all()


def test_mistakes_are_told_in_one_line():
    with pytest.raises(OptionError, match="knn_weight must be a number and not negative"):
        fit_ridge_knn(*problem(), knn_weight=-1)


def test_a_model_of_it_is_saved_and_loaded_bit_by_bit(tmp_path):
    X, Y = problem(n=200)
    model = hb.learn(Split(sparse.csr_array(X), sparse.csr_array(Y)), hb.ModelConfig(knn_weight=1.0))
    model.save(tmp_path / "m.safetensors")
    again = hb.load(tmp_path / "m.safetensors")
    for one, other in zip(model.top_k(X, 5), again.top_k(X, 5), strict=True):
        np.testing.assert_array_equal(one, other)
    assert again.network.config() == model.network.config()
    assert torch.equal(again.network.codes, model.network.codes) and again.network.codes.dtype == torch.uint8


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        ("row_ids", lambda t: t.fill_(30), "row_ids must be from 0 to 29"),
        ("label_ids", lambda t: t.fill_(20), "label_ids must be from 0 to 19"),
        ("row_offsets", lambda t: t.neg_(), "row_offsets do not cut"),
        ("label_offsets", lambda t: t.flip(0), "label_offsets do not cut"),
        ("row_offsets", lambda t: t[:-1], "row_offsets has shape"),
        ("codes", lambda t: t.float(), "codes has torch.float32; it should be torch.uint8"),
        ("row_values", lambda t: t.fill_(torch.inf), "row_values holds something else than finite numbers"),
        ("scales", lambda t: t[:3], "scales has shape"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(tmp_path, name, damage, said):
    X, Y = problem(n=200)
    model = hb.learn(Split(sparse.csr_array(X), sparse.csr_array(Y)), hb.ModelConfig(knn_weight=1.0))
    path = tmp_path / "m.safetensors"
    model.save(path)
    header, tensors = storage.read(path, "model", 1)
    tensors[f"network.{name}"] = damage(tensors[f"network.{name}"].clone()).contiguous()
    storage.write(path, "model", 1, header, tensors)
    with pytest.raises(FileError, match=said):
        hb.load(path)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("bits", 3, "bits must be 2 or 4; got 3"),
        ("rare_label_boost", -1.0, "rare_label_boost must be a number and not negative"),
        ("bits", 2, "shape"),
    ],
)
def test_a_header_that_makes_no_sense_is_refused(tmp_path, name, value, said):
    X, Y = problem(n=200)
    path = tmp_path / "m.safetensors"
    hb.learn(Split(sparse.csr_array(X), sparse.csr_array(Y)), hb.ModelConfig(knn_weight=1.0)).save(path)
    header, tensors = storage.read(path, "model", 1)
    header["network"][name] = value
    storage.write(path, "model", 1, header, tensors)
    with pytest.raises(FileError, match=said):
        hb.load(path)


def test_large_matrices_take_two_bits_a_weight(tmp_path, monkeypatch):
    X, Y = problem(n=200)
    monkeypatch.setattr(encoder, "SMALL", 100)
    network = fit(X, Y, knn_weight=1.0, dim=16)
    assert network.bits == 2 and network.codes.shape == (X.shape[1], 4)
    assert len(network.weights().unique(dim=None)) <= 4 * X.shape[1]


@pytest.mark.parametrize("dim", [20, 31])
def test_where_labels_are_no_more_than_numbers_these_are_their_scores(dim):
    """And few bits lose little of weights that are all in one place, as they are turned before."""
    X, Y = problem(n=200)
    network = fit(X, Y, knn_weight=1.0, dim=dim)
    v = network.encode(nearing.normalise_rows(X))
    assert v.shape == (200, dim)
    torch.testing.assert_close(network.codebook().scores(v), v[:, :20])
    W = torch.zeros(X.shape[1], dim)
    W[:, 3] = 1
    packed = network.RidgeKnn.of(W, torch.zeros(dim), X, binary_labels(Y), knn_weight=1.0)
    assert (packed.weights() - W).norm() < 0.2 * W.norm()


def test_rare_labels_score_more_by_as_much_as_their_vectors_are_longer():
    X, Y = problem(n=300)
    data = Split(sparse.csr_array(X), sparse.csr_array(Y))
    plain, longer = (
        hb.learn(data, hb.ModelConfig(knn_weight=0, rare_label_boost=rare_label_boost, l2=1.0)).scores(X)
        for rare_label_boost in (0.0, 0.3)
    )
    counts = np.asarray(Y.sum(0)).ravel()
    np.testing.assert_allclose(longer, plain * (counts.max() / counts) ** 0.3, atol=1e-4)


def test_a_header_that_claims_more_labels_than_the_file_has_is_refused(tmp_path):
    """Label vectors take memory by their number."""
    X, Y = problem(n=200)
    model = hb.learn(Split(sparse.csr_array(X), sparse.csr_array(Y)), hb.ModelConfig(knn_weight=1.0))
    path = tmp_path / "m.safetensors"
    model.save(path)
    header, tensors = storage.read(path, "model", 1)
    header["network"]["n_labels"] = 60_000
    storage.write(path, "model", 1, header, tensors)
    with pytest.raises(FileError, match="solved for 60000 labels; it has 20"):
        hb.load(path)


def test_a_header_with_other_label_vectors_than_those_it_was_solved_for_is_refused(tmp_path):
    X, Y = problem(n=200)
    path = tmp_path / "m.safetensors"
    hb.learn(Split(sparse.csr_array(X), sparse.csr_array(Y)), hb.ModelConfig(knn_weight=1.0)).save(path)
    header, tensors = storage.read(path, "model", 1)
    header["head"]["codebook"] = "orbit"
    storage.write(path, "model", 1, header, tensors)
    with pytest.raises(FileError, match="solved for other label vectors than 'orbit'"):
        hb.load(path)


@pytest.mark.parametrize(("name", "value"), [("loss", "query"), ("seed", 5)])
def test_a_header_with_another_loss_or_seed_than_the_networks_is_refused(tmp_path, name, value):
    X, Y = problem(n=200)
    path = tmp_path / "m.safetensors"
    hb.learn(Split(sparse.csr_array(X), sparse.csr_array(Y)), hb.ModelConfig(knn_weight=1.0, dim=16)).save(path)
    header, tensors = storage.read(path, "model", 1)
    header["head"][name] = value
    storage.write(path, "model", 1, header, tensors)
    with pytest.raises(FileError, match="another loss or seed"):
        hb.load(path)


@pytest.mark.parametrize("dim", [16, None])
def test_it_keeps_its_precision_and_its_place_whatever_the_model_is_moved_to(tmp_path, dim):
    X, Y = problem(n=200)
    model = hb.learn(Split(sparse.csr_array(X), sparse.csr_array(Y)), hb.ModelConfig(knn_weight=1.0, dim=dim))
    wanted = model.scores(X)
    for change in ("float", "double", "bfloat16"):
        moved = getattr(deepcopy(model), change)()
        np.testing.assert_array_equal(moved.scores(X), wanted)
        np.testing.assert_array_equal(deepcopy(moved).scores(X), wanted)
        moved.save(tmp_path / "m")
        np.testing.assert_array_equal(hb.load(tmp_path / "m").scores(X), wanted)


def test_it_is_made_ready_once_for_all_threads(monkeypatch):
    X, Y = problem(n=400)
    model = hb.learn(Split(sparse.csr_array(X), sparse.csr_array(Y)), hb.ModelConfig(knn_weight=1.0))
    made, init = [], encoder.Encoder.__init__
    monkeypatch.setattr(encoder.Encoder, "__init__", lambda self, *a: made.append(1) or init(self, *a))
    threads, found = torch.get_num_threads(), []
    try:
        for n in (1, 3):
            torch.set_num_threads(n)
            found.append(deepcopy(model).top_k(X, 3))
    finally:
        torch.set_num_threads(threads)
    assert len(made) == 2
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_is_given_stays_as_it_is():
    X, Y = problem()
    counts = sparse.csr_matrix(Y * 3, dtype=np.float32)
    before = counts.copy()
    fit(X, counts, knn_weight=1.0)
    assert (counts != before).nnz == 0 and counts.nnz == before.nnz


def test_a_recipe_recalls_by_default_and_only_where_it_can():
    assert hb.ModelConfig().uses_knn and hb.ModelConfig(knn_weight=0.5).uses_knn
    for options in (
        {"knn_weight": 0},
        {"head": "linear"},
        {"network": "fc"},
        {"codebook": "random"},
        {"normalise": False},
    ):
        assert not hb.ModelConfig(**options).uses_knn
        if "knn_weight" not in options:
            with pytest.raises(OptionError, match="only the closed form with a holographic head"):
                hb.ModelConfig(**options, knn_weight=0.5)
    with pytest.raises(OptionError, match="knn_weight is a number from 0"):
        hb.ModelConfig(knn_weight=-1)
