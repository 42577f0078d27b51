"""The compiled top k of an orbit against products with all label vectors."""

import pytest
import torch
from helpers.codebooks import all_vectors, full_sort
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

import holobind as hb
from holobind._threads import num_threads
from holobind.codebooks.orbit import COMPILED_DIM, MAX_COMPILED_K, MIN_COMPILED_ROWS

seeds = st.integers(0, 2**16)
D = COMPILED_DIM


def rows(n, seed):
    return torch.randn(n, D, generator=torch.Generator().manual_seed(seed))


def raised(n, n_labels, seed, m=40):
    """Labels that ascend in each row, after some that are none, and their values."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.stack([torch.randperm(n_labels, generator=draw)[:m] for _ in range(n)])
    labels[torch.rand(n, m, generator=draw) < 0.2] = -1
    labels = labels.sort(1).values
    return torch.where(labels < 0, 0, 60 * torch.rand(n, m, generator=draw)), labels


def sums(codebook, v, values, labels):
    """Scores by definition, in float64, with the values added."""
    scores = v.double() @ all_vectors(codebook).double().T
    return scores.scatter_add(1, labels.clamp(min=0), values.double())


@settings(max_examples=8)
@given(
    st.sampled_from([D, D + 1, 2 * D, 3 * D - 7, 5 * D + 3]),
    st.sampled_from([MIN_COMPILED_ROWS, 33]),
    st.sampled_from([1, 5, MAX_COMPILED_K]),
    seeds,
)
def test_the_top_k_is_that_of_products_with_all_vectors(n_labels, n, k, seed):
    codebook, v = hb.OrbitCodebook(n_labels, D, seed=seed), rows(n, seed)
    assert codebook._has_compiled_top_k(v, k)
    values, labels = raised(n, n_labels, seed)
    for found, total in (
        (codebook.top_k(v, k), sums(codebook, v, torch.zeros_like(values), labels)),
        (codebook.raised_top_k(v, k, values, labels), sums(codebook, v, values, labels)),
    ):
        assert_close(found[0].double(), total.gather(1, full_sort(total, k)), atol=2e-5, rtol=1e-5)
        assert_close(total.gather(1, found[1]), found[0].double(), atol=2e-5, rtol=1e-5)
        assert all(len(set(row)) == k for row in found[1].tolist())


@settings(max_examples=8)
@given(st.integers(0, 2), seeds)
def test_a_range_of_labels_is_ranked_alone(part, seed):
    codebook, v = hb.OrbitCodebook(4 * D + 9, D), rows(20, seed)
    only = codebook.label_range(part, 3)
    values, labels = raised(20, codebook.n_labels, seed)
    total = sums(codebook, v, values, labels)[:, slice(*only)]
    scores, found = codebook.raised_top_k(v, 5, values, labels, only=only)
    assert torch.equal(found - only[0], full_sort(total, 5))
    assert_close(scores.double(), total.gather(1, found - only[0]), atol=2e-5, rtol=1e-5)
    plain = sums(codebook, v, values.new_zeros(20, 1), labels[:, :1])[:, slice(*only)]
    assert torch.equal(codebook.top_k(v, 5, labels=only)[1] - only[0], full_sort(plain, 5))


def test_of_equal_scores_the_lower_label_comes_first():
    """Rows of zeros have the score 0 for every label; what is added decides."""
    codebook, v = hb.OrbitCodebook(3 * D - 1, D), torch.zeros(18, D)
    assert torch.equal(codebook.top_k(v, 7)[1], torch.arange(7).expand(18, 7))
    labels = torch.tensor([5, 64, 69, D + 1, 3 * D - 2]).expand(18, 5)
    values = torch.tensor([1.0, 2.0, 1.0, 1.0, 2.0]).expand(18, 5)
    found = codebook.raised_top_k(v, 7, values, labels)[1]
    assert torch.equal(found, torch.tensor([64, 3 * D - 2, 5, 69, D + 1, 0, 1]).expand(18, 7))


def test_a_row_has_the_same_labels_in_any_batch_and_on_any_number_of_threads():
    codebook, v = hb.OrbitCodebook(2 * D + 5, D), rows(70, 1)
    scores, found = codebook.top_k(v, 6)
    alone = [codebook.top_k(row[None], 6) for row in v]  # not compiled
    assert torch.equal(found, torch.cat([ids for _, ids in alone]))
    assert_close(scores, torch.cat([best for best, _ in alone]), atol=2e-5, rtol=1e-5)
    with num_threads(3):
        again = codebook.top_k(v, 6)
    assert torch.equal(again[0], scores) and torch.equal(again[1], found)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e37])
def test_rows_that_are_not_finite_are_ranked_the_other_way(value):
    codebook, v = hb.OrbitCodebook(2 * D, D), rows(16, 2)
    v[3, 4] = value
    labels = torch.full((16, 1), -1)
    assert codebook.raised_top_k(v, 3, torch.zeros(16, 1), labels) is None
    expected = codebook.top_k(v[4:5], 3)[1]
    assert torch.equal(codebook.top_k(v, 3)[1][4:5], expected)


def test_what_top_k_refuses_is_left_to_it():
    codebook, v, labels = hb.OrbitCodebook(2 * D, D), rows(16, 0), torch.full((16, 1), -1)
    for k, width, only in ((0, D, None), (2 * D + 1, D, None), (3, D - 1, None), (3, D, (5, 9)), (3, D, (0, 9 * D))):
        assert codebook.raised_top_k(v[:, :width], k, torch.zeros(16, 1), labels, only=only) is None
    assert codebook.to_trainable().raised_top_k(v, 3, torch.zeros(16, 1), labels) is None
    assert codebook.raised_top_k(v.double(), 3, torch.zeros(16, 1), labels) is None


def test_bound_and_expanded_orbits_have_spectra_of_their_own():
    codebook, v = hb.OrbitCodebook(D + 1, D), rows(16, 3)
    codebook.top_k(v, 3)
    key = all_vectors(hb.OrbitCodebook(1, D, seed=5))[0]
    for other in (codebook.bind(key), codebook.expand_to(2 * D), hb.OrbitCodebook(D + 1, D, seed=1)):
        total = sums(other, v, torch.zeros(16, 1), torch.zeros(16, 1, dtype=torch.long))
        assert torch.equal(other.top_k(v, 3)[1], full_sort(total, 3))


def test_raised_scores_that_are_not_finite_or_of_other_shapes_go_the_other_way():
    codebook, v = hb.OrbitCodebook(5000, 1024), torch.randn(20, 1024, generator=torch.Generator().manual_seed(0))
    values, labels = torch.ones(20, 2), torch.tensor([[7, 4000]]).repeat(20, 1)
    assert codebook.raised_top_k(v, 5, values, labels) is not None
    assert codebook.raised_top_k(v, 5, values[:19], labels[:19]) is None
    assert codebook.raised_top_k(v, 5, values[:, :1], labels) is None
    for bad in (torch.nan, torch.inf, -torch.inf):
        assert codebook.raised_top_k(v, 5, values * bad, labels) is None
    backwards = codebook.raised_top_k(v, 5, values, labels.flip(1))
    assert int(backwards[1].min()) >= 0 and int(backwards[1].max()) < 5000
