"""The random codebook: vectors drawn again from the seed."""

import torch
from helpers.codebooks import all_vectors, normal
from torch.testing import assert_close

import holobind as hb


def test_phases_cached_in_training_are_those_that_would_be_drawn(monkeypatch):
    codebook = hb.RandomCodebook(300, 17, seed=4)

    def results():
        v = normal(5, 17).requires_grad_()
        total = codebook.log_sum_exp(v)
        total.sum().backward()
        return total.detach(), v.grad, codebook.scores(v.detach())

    with monkeypatch.context() as patch:
        patch.setattr(codebook, "_prepare_training", lambda: None)
        drawn = results()
    assert codebook._cached_phases is None
    cached = results()
    assert codebook._cached_phases is not None
    for one, other in zip(cached, drawn, strict=True):
        assert torch.equal(one, other)


def test_phases_are_cached_only_in_training_and_within_the_memory_bound(monkeypatch):
    codebook, v = hb.RandomCodebook(300, 17), normal(5, 17).requires_grad_()
    codebook.log_sum_exp(v.detach())
    assert codebook._cached_phases is None
    with monkeypatch.context() as patch:
        patch.setattr("holobind.codebooks._limits.MAX_SCORE_BYTES", 4 * 300 * 18)
        codebook.log_sum_exp(v)
    assert codebook._cached_phases is None
    codebook.log_sum_exp(v)
    assert codebook._cached_phases is not None
    assert codebook.eval()._cached_phases is None


def test_labels_that_are_drawn_often_in_training_are_cached_with_the_same_sums_and_vectors():
    ids, offsets = torch.tensor([3, 299, 3, 7, 0]), torch.tensor([0, 2, 2, 4])
    codebook, drawn = hb.RandomCodebook(300, 17, seed=4), hb.RandomCodebook(300, 17, seed=4).eval()
    for _ in range(61):
        assert codebook._cached_phases is None
        codebook.encode(ids, offsets)
    assert codebook._cached_phases is not None
    assert torch.equal(codebook.encode(ids, offsets), drawn.encode(ids, offsets))
    assert torch.equal(codebook.vectors(ids), drawn.vectors(ids))
    assert drawn._cached_phases is None


def test_vectors_have_the_distribution_of_projected_gaussians():
    """The elements have equal first four moments, at a d so small that they are not yet Gaussian."""
    n, d = 200_000, 6
    drawn = all_vectors(hb.RandomCodebook(n, d)).double()
    projected = hb.unitary(normal(n, d, dtype=torch.double))
    for moment in range(1, 5):
        assert_close(drawn.pow(moment).mean(0), projected.pow(moment).mean(0), atol=4e-3, rtol=0)
    assert_close(drawn.T @ drawn / n, projected.T @ projected / n, atol=4e-3, rtol=0)
    triple = [(t[:, 0] * t[:, 1] * t[:, 4] * t[:, 5]).mean() for t in (drawn, projected)]
    assert_close(*triple, atol=2e-3, rtol=0)
