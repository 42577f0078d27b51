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


def test_vectors_that_are_no_matrix_are_refused():
    with pytest.raises(hb.ShapeError, match=r"vectors of shape \(labels, d\), got \(4,\)"):
        hb.DenseCodebook(normal(4))
