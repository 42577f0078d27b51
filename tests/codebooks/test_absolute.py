"""The absolute codebook: labels are ranked by |score|."""

import torch
from helpers.codebooks import all_vectors, full_sort, kinds, normal, ragged, seeds, sizes
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

import holobind as hb
from holobind.codebooks.ranking import merge_top_k


@given(kinds, sizes, seeds, st.integers(1, 3), st.data())
def test_the_top_k_is_a_full_sort_of_absolute_scores(kind, size, seed, world_size, data):
    n, d = size
    plain = kind(n, d, seed=seed)
    codebook = hb.AbsoluteCodebook(plain)
    k = data.draw(st.integers(1, n))
    v = normal(4, d, seed=seed % 97)
    dense = (v @ all_vectors(plain).T).abs()
    assert_close(codebook.scores(v), dense, atol=1e-5, rtol=1e-5)
    for max_bytes in (1, 1000, 256 << 20):
        per_range = [
            codebook.top_k(v, k, labels=codebook.label_range(rank, world_size), max_bytes=max_bytes)
            for rank in range(world_size)
        ]
        found, ids = merge_top_k(per_range, k)
        assert_close(found, dense.gather(1, full_sort(dense, k)), atol=1e-5, rtol=1e-5)
        assert_close(found, dense.gather(1, ids), atol=1e-5, rtol=1e-5)
        assert all(len(set(row)) == k for row in ids.tolist())


@given(kinds, sizes, seeds)
def test_vectors_sums_and_sets_are_those_of_the_plain_codebook(kind, size, seed):
    plain = kind(*size, seed=seed)
    codebook = hb.AbsoluteCodebook(plain)
    assert torch.equal(all_vectors(codebook), all_vectors(plain))
    weights = normal(2, size[0])
    assert_close(codebook.weighted_sum(weights), plain.weighted_sum(weights))
    sets = ragged([0], [0, size[0] - 1])
    assert torch.equal(codebook.encode(*sets), plain.encode(*sets))


def test_scores_and_their_log_sum_exp_have_the_right_derivative():
    codebook = hb.AbsoluteCodebook(hb.OrbitCodebook(9, 4))
    v = normal(3, 4, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(codebook.scores, v)
    assert torch.autograd.gradcheck(codebook.log_sum_exp, v)
    labels, offsets = codebook.labels_above(v, 0.3)
    passed = codebook.scores(v) > 0.3
    assert [row.tolist() for row in labels.tensor_split(offsets[1:])] == [
        row.nonzero()[:, 0].tolist() for row in passed
    ]
