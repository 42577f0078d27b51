"""Helpers of the tests of codebooks and heads."""

import torch
from hypothesis import strategies as st

import holobind as hb

# (labels, d): fewer labels than d, as many, not a multiple, one; odd and even d, and the smallest.
SIZES = [(3, 7), (7, 7), (16, 8), (20, 7), (25, 8), (1, 5), (9, 1), (9, 2), (130, 16)]
DRAWN = [hb.OrbitCodebook, hb.RandomCodebook]  # the codebooks that are drawn from a seed

sizes = st.tuples(st.integers(1, 60), st.integers(1, 33))
seeds = st.integers(0, 2**40)
kinds = st.sampled_from(DRAWN)


def normal(*shape, seed=0, dtype=torch.float32):
    """Standard normal values, from the seed alone."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def all_vectors(codebook):
    """The slow twin of a codebook: the matrix of its vectors."""
    return codebook.vectors(torch.arange(codebook.n_labels))


def ragged(*rows):
    """Label sets as (labels, offsets)."""
    labels = torch.tensor([label for row in rows for label in row], dtype=torch.long)
    return labels, torch.tensor([0, *map(len, rows)]).cumsum(0)[:-1]


def full_sort(scores, k):
    """The definition of the top k: sort all by falling score, then by rising label."""
    rows = [sorted(range(len(row)), key=lambda i, row=row: (-row[i], i))[:k] for row in scores.tolist()]
    return torch.tensor(rows)


class ScoreTable(hb.DenseCodebook):
    """A codebook whose scores for the rows of the identity matrix are given."""

    def __init__(self, scores):
        super().__init__(scores.T)
