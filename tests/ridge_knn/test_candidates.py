"""Candidates rank as a search of all labels does, wherever they hold the best labels."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from holobind.codebooks import OrbitCodebook
from holobind.ridge_knn.candidates import Candidates

seeds = st.integers(0, 2**16)


@given(seeds)
def test_the_best_of_all_labels_are_those_of_a_search(seed):
    rng = torch.Generator().manual_seed(seed)
    codebook, v = OrbitCodebook(50, 16, seed), torch.randn(7, 16, generator=rng)
    every = torch.stack([torch.randperm(50, generator=rng) for _ in range(7)])
    candidates = Candidates(torch.cat([every, every[:, :20], torch.full((7, 3), -1)], 1))
    scores = candidates.scores(codebook, v)
    best, labels = codebook.top_k(v, 50)
    assert torch.equal(candidates.best(scores, 50), labels)
    torch.testing.assert_close(scores.sort(1, descending=True).values[:, :50], best, atol=1e-5, rtol=1e-5)


def test_of_a_repeated_label_the_first_counts_and_ties_go_to_the_lower_label():
    candidates = Candidates(torch.tensor([[8, 3, -1, 8, 5]]))
    assert candidates.labels[candidates.valid].tolist() == [3, 5, 8]
    assert candidates.order[candidates.valid].tolist() == [1, 4, 0]
    scores = torch.ones(1, 5).masked_fill(~candidates.valid, -torch.inf)
    assert candidates.best(scores, 3).tolist() == [[3, 5, 8]]
