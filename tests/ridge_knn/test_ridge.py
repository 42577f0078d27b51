"""The solver beside the normal equations in float64, on problems small enough to write them down."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import holobind as hb
from holobind.ridge_knn import ridge as ridge_module
from holobind.ridge_knn._linalg import gram
from holobind.ridge_knn.ridge import default_dim, solve_ridge

TIGHT = {"tolerance": 1e-6, "max_iterations": 500}
WAYS = [
    {"system": system, "direct": direct, **({} if direct else TIGHT)}
    for system in ("primal", "dual")
    for direct in (True, False)
]
way = pytest.mark.parametrize("way", WAYS, ids=lambda w: f"{w['system']}-{'factored' if w['direct'] else 'iterated'}")
seeds = st.integers(0, 2**16)


def problem(n=40, f=25, labels=12, seed=0, density=0.3):
    """Points with features and labels; one point without features, one without labels, two that are equal,
    and a feature that never occurs."""
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(n, f)) * (draw.random((n, f)) < density)
    Y = draw.random((n, labels)) < 0.2
    X[3], Y[4], X[:, 5] = 0, 0, 0
    X[1], Y[1] = X[0], Y[0]
    return sparse.csr_matrix(X.astype(np.float32)), sparse.csr_matrix(Y.astype(np.float32))


def by_normal_equations(X, Y, C, l2, weights=None, label_weights=None):
    X, Y, C = X.toarray().astype(np.float64), Y.toarray().astype(np.float64), C.numpy().astype(np.float64)
    v = np.diag(np.ones(len(X)) if weights is None else weights)
    T = Y @ np.diag(np.ones(Y.shape[1]) if label_weights is None else label_weights) @ C
    return np.linalg.solve(X.T @ v @ X + l2 * np.eye(X.shape[1]), X.T @ v @ T)


def ridge(*arguments, bias=0, **options):
    return solve_ridge(*arguments, bias=bias, **options)


def all_vectors(book):
    return book.vectors(torch.arange(book.n_labels)).detach()


def assert_near(found, wanted, limit=2e-4):
    assert np.linalg.norm(np.asarray(found) - wanted) <= limit * np.linalg.norm(wanted)


@way
@pytest.mark.parametrize(
    "book", [hb.OrbitCodebook(12, 5), hb.OrbitCodebook(12, 16), hb.RandomCodebook(12, 7)], ids=repr
)
@settings(max_examples=10)
@given(seed=seeds)
def test_solution_satisfies_the_normal_equations(way, book, seed):
    X, Y = problem(seed=seed)
    found = ridge(X, Y, book, 0.5, **way)
    assert found.weights.dtype == torch.float32
    assert_near(found.weights, by_normal_equations(X, Y, all_vectors(book), 0.5))
    assert found.converged


@way
@pytest.mark.parametrize("dim", [5, 16])
@settings(max_examples=10)
@given(seed=seeds)
def test_weights_count_points_and_scale_labels(way, dim, seed):
    X, Y = problem(seed=seed)
    draw = np.random.default_rng(seed)
    weights, label_weights = draw.integers(0, 3, 40), draw.uniform(0.5, 2, 12)
    weights[0] = 2
    book = hb.OrbitCodebook(12, dim)
    found = ridge(X, Y, book, 0.5, weights=weights, label_weights=label_weights, **way)
    assert_near(found.weights, by_normal_equations(X, Y, all_vectors(book), 0.5, weights, label_weights))
    again = np.repeat(np.arange(40), weights)  # a weight of 2 is a point seen twice, 0 one never seen
    copied = ridge(X[again], Y[again], book, 0.5, label_weights=label_weights, **way)
    assert_near(found.weights, copied.weights.numpy())


@settings(max_examples=10)
@given(seed=seeds)
def test_few_labels_are_scored_as_by_one_versus_rest(seed):
    X, Y = problem(seed=seed)
    book = hb.OrbitCodebook(12, 15)
    scores = book.scores(ridge_module.apply(X, ridge(X, Y, book, 0.3).weights))
    one_versus_rest = X.toarray() @ by_normal_equations(X, Y, torch.eye(12), 0.3)
    assert_near(scores, one_versus_rest)


@pytest.mark.parametrize("system", ["primal", "dual"])
@pytest.mark.parametrize("tolerance", [0.05, 1e-6])
def test_blocks_of_columns_and_threads_change_nothing(system, tolerance):
    X, Y = problem(n=60, f=50, labels=300, seed=1)
    book = hb.OrbitCodebook(300, 150)
    options = {"system": system, "direct": False, "tolerance": tolerance}
    whole = ridge(X, Y, book, 0.1, **options)
    narrow = ridge(X, Y, book, 0.1, memory=20_000, **options)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    alone = ridge(X, Y, book, 0.1, **options)
    torch.set_num_threads(threads)
    assert whole.iterations == narrow.iterations == alone.iterations
    assert_near(narrow.weights, whole.weights.numpy(), 1e-5)
    assert_near(alone.weights, whole.weights.numpy(), 1e-5)


@way
def test_larger_lam_gives_smaller_weights_and_larger_error(way):
    X, Y = problem(seed=2)
    book = hb.OrbitCodebook(12, 8)
    T = Y.toarray() @ all_vectors(book).numpy()
    found = [ridge(X, Y, book, l2, **way).weights for l2 in (0.01, 0.1, 1, 10, 100)]
    sizes = [float(W.norm()) for W in found]
    errors = [float((ridge_module.apply(X, W) - torch.from_numpy(T)).norm()) for W in found]
    assert sizes == sorted(sizes, reverse=True)
    assert errors == sorted(errors)


@pytest.mark.parametrize("system", ["primal", "dual"])
@pytest.mark.parametrize("dim", [7, 16])
@pytest.mark.parametrize("scale_columns", [False, True])
def test_factored_validation_is_leave_one_out(system, dim, scale_columns):
    X, Y = problem(n=30, seed=3)
    X = sparse.csr_matrix(X[[0, 1, 2, 7, *range(4, 30)]])  # scores of a row without features are equal: a tie
    weights = np.random.default_rng(0).uniform(0.2, 3, 30) if scale_columns else None
    book = hb.OrbitCodebook(12, dim)
    found = ridge(X, Y, book, weights=weights, system=system, direct=True)
    for l2, score in found.validation:
        gains = []
        for i in range(30):
            kept = np.arange(30) != i
            some = None if weights is None else weights[kept]
            W = by_normal_equations(X[kept], Y[kept], all_vectors(book), l2, some)
            top = book.top_k(torch.from_numpy(X[i].toarray() @ W), 5)[1][0].numpy()
            true = Y[i].toarray()[0]
            gain = 1 / np.log2(np.arange(5) + 2)
            gains.append((true[top] * gain).sum() / gain[: int(true.sum())].sum() if true.any() else 0)
        assert score == pytest.approx(100 * np.mean(gains))


@pytest.mark.parametrize("direct", [True, False])
def test_chosen_lam_is_within_half_a_step_of_the_best_that_was_tried(direct):
    X, Y = problem(n=200, f=60, seed=4)
    found = ridge(X, Y, hb.OrbitCodebook(12, 12), direct=direct)
    l2s, scores = zip(*found.validation, strict=True)
    assert list(l2s) == sorted(l2s)
    best = max(l2 for l2, score in found.validation if score == max(scores))
    assert abs(np.log(found.l2 / best)) <= np.log(ridge_module.STEP) / 2 + 1e-9
    assert l2s[0] < best < l2s[-1] or len(l2s) > ridge_module.FARTHEST


@pytest.mark.parametrize("peak", [-2.3, 0.0, 0.4, 3.7])
def test_search_finds_the_top_of_a_parabola(peak):
    l2, _ = ridge_module._climb(lambda l2: -((np.log10(l2) - peak / 2) ** 2), 1.0)
    assert l2 == pytest.approx(10 ** (peak / 2))


@pytest.mark.parametrize("slope", [-1, 0, 1])
def test_search_ends_where_there_is_no_top(slope):
    l2, tried = ridge_module._climb(lambda l2: slope * np.log(l2), 1.0)
    assert len(tried) <= 2 * ridge_module.FARTHEST + 1
    assert l2 in [l2 for l2, _ in tried]


def test_lam_is_searched_for_in_the_scale_of_the_rows():
    X, Y = problem(n=100, seed=5)
    book = hb.OrbitCodebook(12, 12)
    small, large = (ridge(sparse.csr_matrix(X * s), Y, book) for s in (0.125, 8))
    assert large.l2 == pytest.approx(small.l2 * 64**2, rel=1e-5)
    assert_near(small.weights, large.weights.numpy() * 64, 1e-3)


@pytest.mark.parametrize("direct", [True, False])
def test_the_same_call_gives_the_same_weights(direct):
    X, Y = problem(n=100, f=60, labels=90, seed=6)
    first, second = (ridge(X, Y, hb.OrbitCodebook(90, 64), direct=direct) for _ in range(2))
    assert torch.equal(first.weights, second.weights)
    assert first.validation == second.validation


@pytest.mark.parametrize("bias", [0, 0.3])
@settings(max_examples=10)
@given(seed=seeds)
def test_a_start_near_the_solution_leads_there_in_fewer_iterations(bias, seed):
    X, Y = problem(n=200, labels=90, seed=seed)  # more labels than the dim: else each has a column of its own
    book, options = hb.OrbitCodebook(90, 16), {"system": "primal", "direct": False, "bias": bias}
    near = ridge(X, Y, book, 0.51, **options, **TIGHT)
    weights = near.weights.clone()
    wanted, found = (ridge(X, Y, book, 0.5, **options, **TIGHT, start=start) for start in (None, near))
    assert found.converged and found.iterations < wanted.iterations
    assert_near(found.weights, wanted.weights.numpy(), 1e-5)
    assert torch.equal(near.weights, weights)
    assert ridge(X, Y, book, 0.5, **options).iterations > 0
    assert ridge(X, Y, book, 0.5, **options, start=found).iterations == 0  # there already, with the bias


def test_too_few_iterations_are_reported():
    X, Y = problem(n=100, f=60, seed=7)
    book = hb.OrbitCodebook(12, 8)
    found = ridge(X, Y, book, 1e-3, direct=False, tolerance=1e-6, max_iterations=2)
    assert not found.converged
    assert "NOT CONVERGED" in str(found)
    A, T = X.toarray(), Y.toarray() @ all_vectors(book).numpy()
    left = A.T @ (A @ found.weights.numpy() - T) + 1e-3 * found.weights.numpy()
    assert found.residual == pytest.approx(np.linalg.norm(left) / np.linalg.norm(A.T @ T), rel=1e-3)


@way
def test_no_features_at_all_gives_zero_weights(way):
    X, Y = sparse.csr_matrix((6, 4), dtype=np.float32), sparse.csr_matrix(np.eye(6, 3, dtype=np.float32))
    for l2 in (1.0, None):
        assert ridge(X, Y, hb.OrbitCodebook(3, 4), l2, **way).weights.abs().max() == 0


def test_one_point_is_enough():
    X, Y = sparse.csr_matrix(np.ones((1, 2), np.float32)), sparse.csr_matrix(np.ones((1, 2), np.float32))
    assert ridge(X, Y, hb.OrbitCodebook(2, 2)).weights.isfinite().all()


@pytest.mark.parametrize(("dense", "n"), [(0.02, 300), (1.0, 300)])
def test_gram_matrix_of_sparse_and_of_dense_rows(dense, n):
    X = sparse.csr_matrix(problem(n=n, f=70, density=dense)[0])
    assert_near(gram(X), (X.T @ X).toarray(), 1e-5)
    twice = sparse.csr_matrix(
        (X.data[::-1].copy(), X.indices[::-1] // 2, X.indptr), X.shape
    )  # in no order, and some twice
    before = twice.copy()
    assert_near(gram(twice), (twice.T @ twice).toarray(), 1e-5)
    assert np.array_equal(twice.indices, before.indices)


def test_apply_is_the_product():
    X, _ = problem()
    W = torch.randn(25, 70, generator=torch.Generator().manual_seed(0))
    assert_near(ridge_module.apply(X, W), X.toarray() @ W.numpy(), 1e-5)


@way
@pytest.mark.parametrize("dim", [5, 16])
def test_bias_is_a_feature_that_every_point_has(way, dim):
    X, Y = problem(seed=9)
    book = hb.OrbitCodebook(12, dim)
    constant = 0.5 * np.sqrt(X.multiply(X).sum() / 40)
    wider = sparse.csr_matrix(sparse.hstack([X, np.full((40, 1), constant)]))
    W = by_normal_equations(wider, Y, all_vectors(book), 0.5)
    found = ridge(X, Y, book, 0.5, bias=0.5, **way)
    assert found.weights.shape == (25, dim)
    assert_near(ridge_module.apply(X, found.weights, found.bias), wider.toarray() @ W)


@given(st.integers(1, 3000))
def test_dimension_holds_all_labels_up_to_its_limit(n_labels):
    dim = default_dim(n_labels)
    assert dim >= min(n_labels, 1024)
    assert dim <= max(1024, n_labels)
    for prime in (7, 11, 13, 17, 19, 23, 29, 31):
        assert dim % prime


def test_progress_ends_at_one():
    told = []
    X, Y = problem(n=100, seed=8)
    ridge(X, Y, hb.OrbitCodebook(12, 8), direct=False, on_progress=lambda stage, done: told.append((stage, done)))
    assert ("solve", 1.0) in told
    assert any(stage.startswith("l2") for stage, _ in told)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"X": np.ones((40, 3))}, hb.DTypeError, "X must be a scipy sparse matrix, got ndarray"),
        ({"Y": [[1]]}, hb.DTypeError, "Y must be a scipy sparse matrix, got list"),
        ({"X": sparse.csr_matrix((7, 3))}, hb.ShapeError, "one row for each point, got 7 and 40 rows"),
        ({"Y": sparse.csr_matrix((40, 3))}, hb.ShapeError, "Y has 3 labels and the codebook 12"),
        ({"X": sparse.csr_matrix(np.full((40, 2), np.nan))}, hb.DTypeError, "X holds a NaN"),
        ({"l2": 0}, hb.OptionError, "l2 must be a positive number, or None to have it chosen; got 0"),
        ({"l2": float("nan")}, hb.OptionError, "l2 must be a positive number"),
        ({"bias": -1}, hb.OptionError, "bias must be a number and not negative, 0 for none; got -1"),
        ({"tolerance": 2}, hb.OptionError, "tolerance is a relative residual, between 0 and 1; got 2"),
        ({"max_iterations": 0}, hb.OptionError, "max_iterations and memory must be positive, got 0"),
        ({"system": "both"}, hb.OptionError, "system must be 'primal', 'dual' or None for the cheaper one; got 'both'"),
        ({"weights": np.ones(3)}, hb.ShapeError, r"weights needs 40 numbers, got shape \(3,\)"),
        ({"weights": np.zeros(40)}, hb.OptionError, "all weights are 0"),
        ({"label_weights": -np.ones(12)}, hb.OptionError, "label_weights must be finite and not negative"),
    ],
)
def test_a_mistake_gets_one_clear_line(change, error, text):
    X, Y = problem()
    with pytest.raises(error, match=text) as caught:
        ridge(**{"X": X, "Y": Y, "codebook": hb.OrbitCodebook(12, 8), **change})
    assert "\n" not in str(caught.value)


def test_apply_refuses_other_features():
    with pytest.raises(hb.ShapeError, match="X has 25 features and W has 3"):
        ridge_module.apply(problem()[0], torch.ones(3, 2))
