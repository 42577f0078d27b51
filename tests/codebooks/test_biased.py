"""The biased codebook: a bias added to each score."""

import torch
from helpers.codebooks import all_vectors, full_sort, kinds, normal, seeds, sizes
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

import holobind as hb
from holobind.codebooks.ranking import merge_top_k


@given(kinds, sizes, seeds, st.integers(1, 3), st.data())
def test_the_top_k_with_a_bias_is_a_full_sort_of_biased_scores(kind, size, seed, world_size, data):
    n, d = size
    plain, bias = kind(n, d, seed=seed), 3 * normal(n, seed=seed % 89)
    codebook = hb.BiasedCodebook(plain, bias)
    k = data.draw(st.integers(1, n))
    v = normal(4, d, seed=seed % 97)
    v[2] = 0  # nothing but the bias
    dense = v @ all_vectors(plain).T + bias
    for max_bytes in (1, 1000, 256 << 20):
        per_range = [
            codebook.top_k(v, k, labels=codebook.label_range(rank, world_size), max_bytes=max_bytes)
            for rank in range(world_size)
        ]
        found, ids = merge_top_k(per_range, k)
        assert_close(found, dense.gather(1, full_sort(dense, k)), atol=1e-5, rtol=1e-5)
        assert_close(found, dense.gather(1, ids), atol=1e-5, rtol=1e-5)
        assert all(len(set(row)) == k for row in ids.tolist())
        assert torch.equal(ids[2], full_sort(bias[None], k)[0])
