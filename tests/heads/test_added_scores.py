"""Raised scores against dense addition."""

import pytest
import torch
from helpers.codebooks import full_sort, normal
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

import holobind as hb
from holobind.heads.added_scores import AddedScores

seeds = st.integers(0, 2**16)
N = 30
HEADS = {
    "orbit": lambda: (hb.OrbitCodebook(N, 8), 8),
    "one-hot": lambda: (hb.codebooks.OneHotCodebook(N, N), N),
    "head": lambda: (hb.HolographicHead(None, N, 8), 8),
    "head with a layer": lambda: (hb.HolographicHead(5, N, 16, "random", "query"), 5),
}
every_scorer = pytest.mark.parametrize("make", HEADS.values(), ids=HEADS)


def raised(rows, seed, m=7):
    """Values and labels in any order: some rows have no label, some all of m."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.stack([torch.randperm(N, generator=draw)[:m] for _ in range(rows)])
    labels[torch.rand(rows, m, generator=draw) < 0.3] = -1
    labels[0] = -1
    return 2 * torch.rand(rows, m, generator=draw), labels


def dense(values, labels):
    total = torch.zeros(len(labels), N)
    for row in range(len(labels)):
        for value, label in zip(values[row].tolist(), labels[row].tolist(), strict=True):
            if label >= 0:
                total[row, label] += value
    return total


@every_scorer
@given(seeds)
def test_scores_are_sums(make, seed):
    head, size = make()
    h, (values, labels) = normal(6, size, seed=seed), raised(6, seed)
    added = AddedScores(head, values, labels)
    assert_close(added.scores(h), head.scores(h) + dense(values, labels))
    assert_close(added.part(slice(2, 4)).scores(h[2:4]), added.scores(h)[2:4])
    assert added.n_labels == N and added.label_range(1, 3) == head.label_range(1, 3)


@every_scorer
@given(seeds, st.sampled_from([1, 5, 12, N]), st.sampled_from([None, (0, 8), (8, 24), (24, N)]))
def test_the_top_k_is_that_of_all_sums(make, seed, k, labels):
    head, size = make()
    h, (values, ids) = normal(6, size, seed=seed), raised(6, seed)
    first, last = labels or (0, N)
    k = min(k, last - first)
    total = (head.scores(h) + dense(values, ids))[:, first:last]
    scores, found = AddedScores(head, values, ids).top_k(h, k, labels=labels)
    assert found.shape == scores.shape == (6, k)
    assert_close(scores, total.gather(1, full_sort(total, k)), atol=1e-5, rtol=1e-5)
    assert_close(total.gather(1, found - first), scores, atol=1e-5, rtol=1e-5)
    assert all(len(set(row)) == k for row in found.tolist())


@given(seeds, st.integers(1, N))
def test_of_equal_sums_the_lower_label_comes_first(seed, k):
    """Scores of small whole numbers, which are exact, have many ties."""
    codebook = hb.codebooks.OneHotCodebook(N, N)
    draw = torch.Generator().manual_seed(seed)
    h = torch.randint(3, (6, N), generator=draw).float()
    values, labels = raised(6, seed)
    values = values.round()
    scores, found = AddedScores(codebook, values, labels).top_k(h, k)
    total = h + dense(values, labels)
    assert torch.equal(found, full_sort(total, k)) and torch.equal(scores, total.gather(1, found))


@pytest.mark.parametrize("make", list(HEADS.values())[:3], ids=list(HEADS)[:3])
@given(seeds, st.sampled_from([-1.0, 0.0, 0.5, 2.5]))
def test_labels_above_a_threshold_are_those_of_all_sums(make, seed, threshold):
    head, size = make()
    h, (values, labels) = normal(6, size, seed=seed), raised(6, seed)
    total = head.scores(h) + dense(values, labels)
    found, offsets = AddedScores(head, values, labels).labels_above(h, threshold)
    row, label = (total > threshold).nonzero().T
    counts = row.bincount(minlength=6)
    assert torch.equal(found, label) and torch.equal(offsets, counts.cumsum(0) - counts)


def test_a_label_is_found_once_where_the_head_rounds_in_another_way():
    """Of a score at the threshold, one way to compute it may say above, and another below."""
    codebook, h = hb.OrbitCodebook(N, 8), normal(100, 8)
    values, scores = torch.full((1, N), 1e-6), codebook.scores(h)
    for row in range(100):
        added = AddedScores(codebook, values, torch.arange(N)[None])
        found, _ = added.labels_above(h[row : row + 1], float(scores[row, row % N]))
        assert len(set(found.tolist())) == len(found)


def test_no_rows_have_no_labels():
    values, labels = raised(3, 0)
    added = AddedScores(hb.OrbitCodebook(N, 8), values[:0], labels[:0])
    assert added.top_k(torch.zeros(0, 8), 3)[1].shape == (0, 3)
    assert [len(each) for each in added.labels_above(torch.zeros(0, 8))] == [0, 0]
