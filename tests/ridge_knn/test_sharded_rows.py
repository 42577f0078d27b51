"""Fits of several processes against those of one."""

import numpy as np
import pytest
import torch
from helpers.processes import run_together

import holobind as hb
from holobind._processes import ALONE
from holobind.codebooks import OneHotCodebook
from holobind.data.csr import normalise_rows
from holobind.ridge_knn import KnnIndex, fit_ridge_knn, row_operator, solve_ridge
from holobind.ridge_knn.fit_label_tree import fit_label_tree
from holobind.ridge_knn.sharded_rows import ShardedRows


@pytest.fixture(scope="module")
def data():
    split = hb.data.synthetic("eurlex-4k", scale=0.1).train
    return normalise_rows(split.X), split.Y


def all_rows(solution, codebook, processes, height=100):
    """The weights of a solution, whose blocks were dealt out to the processes in turn."""
    own = [block.numpy() for block in solution.weight_blocks(codebook, processes, height)]
    heights = processes.gather(np.array([len(block) for block in own]))
    columns = processes.gather(np.concatenate([np.empty((0, codebook.dim), np.float32), *own]))
    parts = [np.split(rows, np.cumsum(sizes)[:-1]) for rows, sizes in zip(columns, heights, strict=True)]
    n_turns = max(map(len, heights))
    return torch.from_numpy(np.concatenate([part[i] for i in range(n_turns) for part in parts if i < len(part)]))


CODEBOOKS = {"labels": lambda n: OneHotCodebook(n, n), "dims": lambda n: hb.OrbitCodebook(n, 33)}


@pytest.mark.parametrize("codebook", CODEBOOKS)
@pytest.mark.parametrize("options", [{"direct": True}, {"direct": False}, {"direct": False, "system": "dual"}])
def test_processes_that_share_columns_solve_to_the_bits_of_one(data, codebook, options, monkeypatch):
    monkeypatch.setattr(row_operator, "DENSE_SECONDS", 1.0)  # products with a Gram matrix depend on their width
    X, Y = data
    vectors = CODEBOOKS[codebook](Y.shape[1])
    alone = solve_ridge(X, Y, vectors, 0.5, tolerance=0.1, **options)

    def solve(processes):
        found = solve_ridge(X, Y, vectors, 0.5, tolerance=0.1, processes=processes, **options)
        return (
            all_rows(found, vectors, processes),
            found.full_bias(vectors, processes),
            found.iterations,
            found.weights.shape[1],
        )

    results = run_together(3, solve)
    for W, bias, iterations, _ in results:
        assert torch.equal(W, alone.weights) and torch.equal(bias, alone.bias) and iterations == alone.iterations
    assert sum(columns for *_, columns in results) == min(Y.shape[1], vectors.dim)


@pytest.mark.parametrize("seconds", [1.0, 1e-30])
def test_processes_that_share_rows_solve_the_same_system(data, seconds, monkeypatch):
    monkeypatch.setattr(row_operator, "DENSE_SECONDS", seconds)  # with the rows, or with their Gram matrix
    X, Y = data
    vectors = hb.OrbitCodebook(Y.shape[1], 33)
    options = {"direct": False, "system": "primal", "tolerance": 1e-4, "max_iterations": 1000}
    alone = solve_ridge(X, Y, vectors, 5.0, **options)

    def solve(processes):
        found = solve_ridge(X, Y, vectors, 5.0, processes=processes, shard_rows=True, **options)
        return all_rows(found, vectors, processes)

    for W in run_together(2, solve):
        assert float((W - alone.weights).norm()) < 2e-3 * float(alone.weights.norm())


def test_rows_of_weight_0_are_as_rows_that_are_not_there(data):
    X, Y = data
    kept = np.flatnonzero(np.random.default_rng(0).random(X.shape[0]) < 0.8)
    weights = np.zeros(X.shape[0])
    weights[kept] = 1
    vectors = hb.OrbitCodebook(Y.shape[1], 33)
    for options in ({"direct": True}, {"direct": False}, {"direct": False, "system": "dual"}):
        masked = solve_ridge(X, Y, vectors, weights=weights, tolerance=0.1, **options)
        sliced = solve_ridge(X[kept], Y[kept], vectors, tolerance=0.1, **options)
        assert masked.l2 == pytest.approx(sliced.l2, rel=1e-4) and len(masked.validation) == len(sliced.validation)
        assert float((masked.weights - sliced.weights).norm()) < 1e-3 * float(sliced.weights.norm())


def test_the_gram_matrix_gives_the_solution_of_the_rows(data, monkeypatch):
    X, Y = data
    vectors = hb.OrbitCodebook(Y.shape[1], 33)
    options = {"direct": False, "system": "primal", "tolerance": 1e-4, "max_iterations": 1000}
    found = {}
    for seconds in (1.0, 1e-30):
        monkeypatch.setattr(row_operator, "GRAM_SECONDS", seconds)
        monkeypatch.setattr(row_operator, "DENSE_SECONDS", seconds)
        solution = solve_ridge(X, Y, vectors, 5.0, **options)
        found[solution.system] = solution.weights
    rows, gram = found["primal, conjugate gradients"], found["primal, conjugate gradients with the Gram matrix"]
    assert float((rows - gram).norm()) < 2e-3 * float(rows.norm())


@pytest.mark.parametrize("size", [2, 3])
def test_neighbours_of_all_shares_are_those_of_all_rows(data, size):
    X, Y = data
    kept = np.arange(10, X.shape[0])
    ones, queries = np.ones(X.shape[1], np.float32), X[:40]
    everything = ShardedRows(X, Y, kept, ALONE)
    wanted = everything.nearest(KnnIndex(everything.X, ones).search(queries, 30))

    def search(processes):
        rows = ShardedRows(X, Y, kept, processes)
        assert (rows.label_counts == everything.label_counts).all()
        counts, n = rows.feature_counts()
        assert n == len(kept) and (counts == everything.feature_counts()[0]).all()
        return rows.nearest(KnnIndex(rows.X, ones).search(queries, 30))

    for similarities, ids in run_together(size, search):
        assert (similarities == wanted[0]).all() and (ids == wanted[1]).all()


def test_processes_fit_the_tree_of_one(data):
    X, Y = data
    alone = fit_label_tree(X, Y, seed=3)
    for tree in run_together(2, lambda processes: fit_label_tree(X, Y, seed=3, processes=processes)):
        assert tree.config() == alone.config()
        assert all(torch.equal(a, b) for a, b in zip(tree.buffers(), alone.buffers(), strict=True))


def test_processes_fit_the_network_of_one(data):
    X, Y = data[0][:700], data[1][:700]
    options = {"dim": 48, "label_trees": 1, "seed": 2}
    alone = fit_ridge_knn(X, Y, **options)
    queries = data[0][700:800]
    scores, labels = (t.numpy() for t in alone.network.codebook().top_k(alone.network.encode(queries), 5))
    fits = run_together(2, lambda processes: fit_ridge_knn(X, Y, processes=processes, **options))
    for fitted in fits:
        assert fitted.solution.l2 == alone.solution.l2 and fitted.network.config() == alone.network.config()
        assert torch.equal(fitted.network.codes, alone.network.codes)
        found = fitted.network.codebook().top_k(fitted.network.encode(queries), 5)
        np.testing.assert_allclose(found[0].numpy(), scores, atol=1e-4)
        assert (found[1].numpy() == labels).all()
