"""The dense codebook: stored vectors."""

import pytest
import torch
from helpers.codebooks import normal

import holobind as hb


def test_stored_vectors_cannot_be_expanded():
    with pytest.raises(hb.OptionError, match="no vectors for 5 labels; append the new vectors to the table"):
        hb.DenseCodebook(normal(3, 4)).expand_to(5)


def test_trainable_vectors_cannot_be_bound():
    with pytest.raises(hb.OptionError, match="trainable and change; bind their sums instead"):
        hb.DenseCodebook(normal(3, 4), trainable=True).bind(torch.ones(4))


def test_it_finds_whether_its_vectors_are_unitary():
    assert hb.DenseCodebook(hb.unitary(normal(3, 8))).unitary
    assert not hb.DenseCodebook.naive(3, 8).unitary


def test_trained_vectors_are_projected_unless_they_are_naive():
    """Naive vectors, when trained, are used as they are: their lengths may grow."""
    for codebook, project in ((hb.RandomCodebook(3, 8), True), (hb.DenseCodebook.naive(3, 8), False)):
        trained = codebook.to_trainable()
        assert trained.trainable and trained.unitary is project
        before = trained.vectors(torch.arange(3)).detach()
        torch.testing.assert_close(before, codebook.vectors(torch.arange(3)))
        with torch.no_grad():
            trained.table *= 2
        torch.testing.assert_close(trained.vectors(torch.arange(3)).detach(), before if project else 2 * before)
    assert not hb.DenseCodebook(hb.unitary(normal(3, 8)), trainable=True, project=False).unitary


def test_vectors_that_are_no_matrix_are_refused():
    with pytest.raises(hb.ShapeError, match=r"vectors of shape \(labels, d\), got \(4,\)"):
        hb.DenseCodebook(normal(4))


def test_blocks_of_trained_vectors_are_projected_once_each(monkeypatch):
    """A search in blocks projects every vector once, and finds what one block finds."""
    codebook, v = hb.RandomCodebook(20, 8).to_trainable(), normal(3, 8)
    whole, projected = codebook.top_k(v, 4), []
    unitary = hb.algebra.unitary
    monkeypatch.setattr(hb.algebra, "unitary", lambda x: projected.append(len(x)) or unitary(x))
    scores, labels = codebook.top_k(v, 4, max_bytes=8 * 3 * 5)
    assert projected == [5, 5, 5, 5]
    assert labels.equal(whole[1]) and torch.allclose(scores, whole[0])
