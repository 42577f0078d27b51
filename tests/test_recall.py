"""The encoder that recalls its errors, beside its definition in dense float64."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from holobind import recall
from holobind.errors import OptionError, ShapeError
from holobind.metrics import ndcg_at_k


def problem(n=90, f=30, labels=20, seed=0):
    """Points near a few centres, which decide their labels; one without features, one without labels, two equal."""
    draw = np.random.default_rng(seed)
    centre = draw.integers(0, 8, n)
    X = np.abs(draw.normal(size=(8, f)) * (draw.random((8, f)) < 0.3))[centre] + 0.2 * (draw.random((n, f)) < 0.1)
    Y = (draw.random((8, labels)) < 0.15)[centre] ^ (draw.random((n, labels)) < 0.02)
    X[3], Y[4] = 0, 0
    X[1], Y[1] = X[0], Y[0]
    return sparse.csr_matrix(X.astype(np.float32)), sparse.csr_matrix(Y.astype(np.int32))


def by_definition(model, x):
    """v of one row of length 1, all in float64."""
    W, b = model.weights.double().numpy(), model.bias.double().numpy()
    X, Y = model.X.toarray().astype(np.float64), model.Y.toarray().astype(np.float64)
    T = Y @ model.codebook.vectors(torch.arange(model.codebook.n_labels)).double().numpy()
    similar = X @ x
    near = np.argsort(-similar, kind="stable")[: recall.NEAREST]
    powers = np.maximum(similar[near], 0) ** model.sharpness
    shares = powers / powers.sum() if powers.sum() else powers
    return x @ W + b + model.strength * shares @ (T[near] - X[near] @ W - b)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**16), st.sampled_from([16, 20, 25]))
def test_encoding_is_the_linear_one_and_the_mean_error_of_the_nearest_rows(seed, dim):
    X, Y = problem(seed=seed)
    model = replace(recall.fit(X, Y, dim=dim, strength=0.7, seed=seed), sharpness=3.0)
    new = recall.unit_rows(problem(seed=seed + 1)[0][:20])
    wanted = np.stack([by_definition(model, x) for x in new.toarray().astype(np.float64)])
    np.testing.assert_allclose(model.encode(new).numpy(), wanted, atol=2e-5 * np.abs(wanted).max())


@given(st.integers(1, 40), st.integers(0, 2**16))
def test_nearest_are_the_largest_products_and_earlier_rows_win_ties(k, seed):
    draw = np.random.default_rng(seed)
    rows, memory = (draw.integers(-1, 3, (n, 6)).astype(np.float32) for n in (5, 30))
    found, ids = recall.nearest(sparse.csr_matrix(rows), sparse.csr_matrix(memory.T), k)
    for products, best, which in zip(rows @ memory.T, found, ids, strict=True):
        order = np.argsort(-products, kind="stable")[:k]
        order = order[products[order] > 0]
        assert which[: len(order)].tolist() == order.tolist()
        assert best.tolist() == [*products[order].tolist(), *[0] * (k - len(order))]


def test_a_row_like_no_other_gets_the_linear_encoding():
    X, Y = problem()
    X = sparse.csr_matrix(sparse.hstack([X, sparse.csr_matrix((X.shape[0], 1), dtype=np.float32)]))
    model = recall.fit(X, Y, strength=1.0)
    strange = sparse.csr_matrix(([1.0], ([0], [X.shape[1] - 1])), (1, X.shape[1]))
    torch.testing.assert_close(model.encode(strange)[0], model.weights[-1] + model.bias)


def test_recalling_finds_what_a_linear_encoder_cannot_say():
    """The label is whether exactly one of two features is present."""
    bits = np.array([[0, 1], [1, 0], [0, 0], [1, 1]] * 20)
    X = sparse.csr_matrix(np.hstack([bits, 1 - bits]).astype(np.float32))
    odd = bits.sum(1) == 1
    Y = sparse.csr_matrix(np.stack([odd, ~odd], 1).astype(np.int32))
    hits = {a: ndcg_at_k(Y, _top(recall.fit(X, Y, strength=a), X, 1))[0] for a in (0.0, 1.0)}
    assert hits[1.0] == 100
    assert hits[0.0] < 75


def _top(model, X, k):
    return model.codebook.top_k(model.encode(X), k)[1].numpy()


def test_what_is_stored_gives_the_same_encoder():
    X, Y = problem()
    model = recall.fit(X, Y, seed=3)
    header, tensors = model.tensors()
    again = recall.Recall.from_tensors(json.loads(json.dumps(header)), tensors)
    assert torch.equal(again.encode(X), model.encode(X))
    assert tensors["codes"].nbytes == X.shape[1] * -(-model.codebook.dim // 2)


def test_without_strength_no_training_row_is_kept():
    model = recall.fit(*problem(), strength=0.0)
    assert model.X.shape[0] == 0
    assert model.encode(problem()[0]).shape == (90, 20)
    assert not model.tensors()[1]["rows.ids"].numel()


def test_result_depends_on_the_seed_and_not_on_threads():
    X, Y = problem()
    threads = torch.get_num_threads()
    found = []
    try:
        for n in (1, 2):
            torch.set_num_threads(n)
            found.append(recall.fit(X, Y, seed=5).encode(X))
    finally:
        torch.set_num_threads(threads)
    torch.testing.assert_close(found[0], found[1], atol=1e-5, rtol=1e-4)
    assert not torch.allclose(found[0], recall.fit(X, Y, seed=6).encode(X))


def test_the_best_of_what_was_tried_is_taken():
    model = recall.fit(*problem(n=200))
    at = {(sharpness, strength): score for sharpness, strength, score in model.validation}
    assert at[model.sharpness, model.strength] == max(at.values())


def test_lengths_of_rows_do_not_matter():
    X, Y = problem()
    longer = sparse.csr_matrix(sparse.diags(np.arange(1, 91, dtype=np.float32)) @ X)
    a, b = recall.fit(X, Y, lam=1.0), recall.fit(longer, Y, lam=1.0)
    assert (a.sharpness, a.strength) == (b.sharpness, b.strength)
    assert (a.codes != b.codes).double().mean() < 0.01


@pytest.mark.parametrize("n", [1, 3, 6])
def test_a_handful_of_rows_is_enough(n):
    X, Y = problem()
    assert recall.fit(X[:n], Y[:n]).encode(X).isfinite().all()


def test_mistakes_are_told_in_one_line():
    X, Y = problem()
    with pytest.raises(OptionError, match="strength must be a number and not negative"):
        recall.fit(X, Y, strength=-1)
    with pytest.raises(ShapeError, match="X has 29 features and the encoder 30"):
        recall.fit(X, Y, strength=0.0).encode(X[:, :29])
