"""Matrices whose arrays lie: no compiled code may see an id or an offset outside of a matrix."""

import numpy as np
import pytest
import torch
from helpers.child import run_child
from helpers.models import F, L, N, X, Y, build
from scipy import sparse

import holobind as hb
from holobind import data, metrics
from holobind.codebooks import OneHotCodebook
from holobind.data import Dataset, Split
from holobind.data.csr import checked_csr
from holobind.errors import HolobindError
from holobind.networks import SparseLinear
from holobind.ridge_knn import Forest, KnnIndex, add_rows, fit_ridge_knn, solve_ridge
from holobind.training.optimiser import RowAdam

pytestmark = pytest.mark.usefixtures("one_thread")


def large_id(A):
    A.indices[len(A.indices) // 2] = 10**6


def negative_id(A):
    A.indices[len(A.indices) // 2] = -1


def falling_offsets(A):
    A.indptr[2], A.indptr[3] = A.indptr[3] + 5, A.indptr[2]


def offsets_that_wrap(A):
    """Subtracted in int64, no neighbour of these falls."""
    A.indptr = A.indptr.astype(np.int64)
    A.indices = A.indices.astype(np.int64)
    A.indptr[1], A.indptr[2] = 2**63 - 1, -2


def late_start(A):
    A.indptr[0] = 3


def offsets_beyond_the_end(A):
    A.indptr[-1] += 1000


def too_few_values(A):
    A.data = A.data[:-3]


def too_few_offsets(A):
    A.indptr = A.indptr[:-1]


def an_id_that_wraps_in_int32(A):
    A.indices = A.indices.astype(np.int64)
    A.indices[0] += 2**32


LIES = [
    large_id, negative_id, falling_offsets, offsets_that_wrap, late_start, offsets_beyond_the_end, too_few_values,
    too_few_offsets, an_id_that_wraps_in_int32,
]  # fmt: skip


def lying(A, lie, kind=sparse.csr_array):
    """A copy of a matrix whose arrays were changed after it was built, so that scipy has not seen them."""
    changed = kind(A, copy=True)
    lie(changed)
    return changed


def fitted():
    return fit_ridge_knn(X, Y, l2=1.0, knn_weight=0.5, update=True).network


BORDERS = {
    "estimator.fit": lambda A: hb.HolographicClassifier(l2=1.0).fit(A, Y),
    "estimator.fit y": lambda A: hb.HolographicClassifier(l2=1.0).fit(X, A),
    "estimator.predict": lambda A: hb.HolographicClassifier(l2=1.0).fit(X, Y).predict(A),
    "estimator.partial_fit": lambda A: hb.HolographicClassifier(l2=1.0).fit(X, Y).partial_fit(A, Y),
    "learn X": lambda A: hb.learn(Split(A, Y), hb.ModelConfig(l2=1.0)),
    "learn Y": lambda A: hb.learn(Split(X, A), hb.ModelConfig(l2=1.0)),
    "model.top_k": lambda A: build().top_k(A, 2),
    "model.evaluate": lambda A: hb.learn(Split(X, X), hb.ModelConfig(l2=1.0)).evaluate(Split(X, A)),
    "solve_ridge X": lambda A: solve_ridge(A, Y, OneHotCodebook(L, L), 1.0),
    "solve_ridge Y": lambda A: solve_ridge(X, A, OneHotCodebook(F, F), 1.0),
    "fit_ridge_knn": lambda A: fit_ridge_knn(A, Y, l2=1.0),
    "fit_ridge_knn Y": lambda A: fit_ridge_knn(X, A, l2=1.0),
    "add_rows X": lambda A: add_rows(fitted(), A, Y),
    "add_rows Y": lambda A: add_rows(fitted(), X, A),
    "add_rows rejected": lambda A: add_rows(fitted(), X, sparse.csr_array(Y.shape, dtype=np.float32), A),
    "RidgeKnn.encode": lambda A: fitted().encode(A),
    "KnnIndex": lambda A: KnnIndex(A, np.ones(F, np.float32)),
    "KnnIndex.search": lambda A: KnnIndex(X, np.ones(F, np.float32)).search(A, 3),
    "Forest.leaves": lambda A: Forest(F, n_trees=2, n_splits=0).leaves(A),
    "metrics.frequencies": metrics.frequencies,
    "metrics.precision_at_k": lambda A: metrics.precision_at_k(A, np.zeros((N, 1), np.int64)),
    "data.write": lambda A: data.write(Dataset(Split(A, Y)), "never-written"),
}


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
@pytest.mark.parametrize("border", BORDERS)
def test_a_matrix_that_lies_is_refused_in_one_line(tmp_path, monkeypatch, border, lie):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HolobindError) as refused:
        BORDERS[border](lying(X, lie))
    assert "\n" not in str(refused.value) and not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csc_array, sparse.bsr_array, sparse.coo_array])
def test_ids_of_every_format_are_checked_before_scipy_converts_it(kind):
    A = kind(X, copy=True)
    if A.format == "coo":
        A.row[3] = 10**6
    else:
        large_id(A)
    with pytest.raises(hb.DataError, match=r"X: (row|column) 1000000 is outside of its \d+"):
        checked_csr(A, "X")


def test_ids_of_a_list_of_lists_are_checked():
    A = sparse.lil_array(X)
    A.rows[0], A.data[0] = [10**6], [1.0]
    with pytest.raises(hb.DataError, match="column 1000000 is outside of its 11"):
        checked_csr(A, "X")


def test_the_process_survives_a_large_id_in_fit():
    child = run_child("""
        import numpy as np, holobind as hb
        from scipy import sparse
        X = sparse.csr_array(np.random.default_rng(0).random((50, 20), np.float32))
        X.indices[7] = 10**6
        try:
            hb.HolographicClassifier().fit(X, [i % 3 for i in range(50)])
        except hb.DataError as error:
            print(error)
    """)
    assert (child.returncode, child.stderr) == (0, "")
    assert child.stdout == "X: column 1000000 is outside of its 20 columns (0 to 19); build the matrix again\n"


def with_duplicates(A, canonical):
    """A matrix with every entry in two halves, and in descending order, that may call itself canonical."""
    halves = np.repeat(A.data / 2, 2)[::-1].copy()
    indptr = np.append(0, np.cumsum(2 * np.diff(A.indptr)[::-1]))
    doubled = sparse.csr_array((halves, np.repeat(A.indices, 2)[::-1].copy(), indptr), A.shape)
    if canonical:
        doubled.has_sorted_indices = doubled.has_canonical_format = True
    return doubled


def predictions(A):
    return hb.learn(Split(A, Y), hb.ModelConfig(l2=1.0)).top_k(A, 3)


def test_a_falsely_canonical_matrix_gives_the_results_of_the_honest_one():
    honest, false = (predictions(with_duplicates(X, canonical)) for canonical in (False, True))
    assert all(np.array_equal(a, b) for a, b in zip(honest, false, strict=True))
    Y_rows = metrics.frequencies(with_duplicates(Y, True))
    assert np.array_equal(Y_rows.counts, metrics.frequencies(Y).counts)


def test_a_checked_matrix_is_the_same_and_shares_its_arrays():
    checked = checked_csr(X, "X")
    assert np.shares_memory(checked.data, X.data) and np.shares_memory(checked.indices, X.indices)
    longer = sparse.csr_array(X, copy=True)
    longer.data, longer.indices = np.append(longer.data, [9, 9]), np.append(longer.indices, [10**6, -5])
    assert (checked_csr(longer, "X") != X).nnz == 0 and len(checked_csr(longer, "X").data) == X.nnz


@pytest.mark.parametrize("value", [np.nan, np.inf, -1e300])
def test_values_that_are_no_finite_float32_are_refused(value):
    A = sparse.csr_array(X, dtype=np.float64)
    A.data[3] = value
    for border in (lambda: checked_csr(A, "X"), lambda: solve_ridge(A, Y, OneHotCodebook(L, L))):
        with pytest.raises(hb.DataError, match="a NaN or a number too large for float32"):
            border()


@pytest.mark.parametrize("other", [F - 1, F + 1])
def test_queries_of_another_width_are_refused(other):
    A = sparse.csr_array(np.ones((2, other), np.float32))
    index, forest = KnnIndex(X, np.ones(F, np.float32)), Forest(F, n_trees=1, n_splits=0)
    for border in (lambda: index.search(A, 3), lambda: forest.leaves(A), lambda: fitted().encode(A)):
        with pytest.raises(hb.ShapeError, match=f"wants {F} columns, got a matrix of shape \\(2, {other}\\)"):
            border()
    with pytest.raises(hb.ShapeError, match="feature weights"):
        KnnIndex(X, np.ones(other, np.float32))


def test_a_start_of_another_size_is_refused():
    codebook = hb.OrbitCodebook(L, 4)
    small = solve_ridge(X[:, :5].tocsr(), Y, codebook, 1.0)
    with pytest.raises(hb.ShapeError, match="start has weights of shape"):
        solve_ridge(X, Y, codebook, 1.0, direct=False, system="primal", start=small)


# Sparse gradients


@pytest.mark.parametrize("rows", [[0, 10**9], [-5, 2], [3, 10**9, 3], [-5, -5, 1]])
def test_rows_of_a_sparse_gradient_outside_of_the_parameter_are_refused(rows):
    weight = SparseLinear(F, 4).weight
    values = torch.ones(len(rows), 4)
    gradient = torch.sparse_coo_tensor(torch.tensor([rows]), values, (F, 4), check_invariants=False)
    with pytest.raises(hb.OptionError, match=r"a gradient has row -?\d+ of a parameter with rows 0 to 10"):
        _step(weight, gradient)


def test_other_gradients_than_sparse_rows_are_refused():
    weight = SparseLinear(F, 4).weight
    with pytest.raises(hb.OptionError, match="sparse in their rows"):
        _step(weight, torch.ones(F, 4))
    with pytest.raises(hb.OptionError, match="sparse in their rows"):
        _step(weight, torch.ones(F, 4).to_sparse())


def _step(weight, gradient):
    weight.grad = gradient
    RowAdam([weight]).step()
