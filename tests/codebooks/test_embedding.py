"""Label vectors as an input embedding."""

import pytest
import torch
from helpers.codebooks import DRAWN, normal
from torch.testing import assert_close

import holobind as hb


@pytest.mark.parametrize("kind", DRAWN)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 0), (2, 1, 3)])
def test_vectors_of_ids_in_any_shape(kind, shape):
    codebook = kind(20, 8, seed=3)
    ids = torch.randint(20, shape, generator=torch.Generator().manual_seed(0))
    table = codebook.vectors(torch.arange(20))
    assert torch.equal(codebook.vectors(ids), table[ids])
    assert_close(hb.CodebookEmbedding(codebook)(ids), table[ids] * 8**0.5)


def test_elements_have_variance_1_and_padding_is_0():
    embedding = hb.CodebookEmbedding(hb.OrbitCodebook(5000, 512), padding_idx=7)
    assert (embedding.num_embeddings, embedding.embedding_dim) == (5000, 512)
    vectors = embedding(torch.tensor([[1, 7], [4999, 2]]))
    assert vectors.shape == (2, 2, 512)
    assert not vectors[0, 1].any()
    assert_close(vectors[[0, 1, 1], [0, 0, 1]].square().mean(-1), torch.ones(3), atol=1e-4, rtol=0)
    assert not list(embedding.parameters())
    with pytest.raises(hb.OptionError, match="padding_idx must be a label, from 0 to 4999; got 5000"):
        hb.CodebookEmbedding(embedding.codebook, padding_idx=5000)
    with pytest.raises(hb.LabelError, match="label 5000 is outside"):
        embedding(torch.tensor([5000]))


def test_an_embedding_tied_with_a_head_learns_with_it():
    head = hb.HolographicHead(None, 20, 8, loss="softmax", trainable=("labels",))
    embedding = hb.CodebookEmbedding(head.codebook)
    before = embedding(torch.arange(20)).detach()
    head.loss(embedding(torch.tensor([1, 2])), torch.tensor([2, 3])).backward()
    with torch.no_grad():
        for parameter in head.codebook.parameters():
            assert parameter.grad.any()
            parameter.sub_(parameter.grad)
    assert (embedding(torch.arange(20)) - before).abs().max() > 1e-3
    assert_close(head.scores(embedding(torch.tensor([4]))) / 8**0.5, _cosines(embedding, 4), atol=1e-5, rtol=1e-5)


def _cosines(embedding, label):
    vectors = embedding(torch.arange(20)) / 8**0.5
    return (vectors[label] @ vectors.T)[None]


def test_learned_vectors_that_are_frozen_stay_what_they_are():
    codebook = hb.RandomCodebook(20, 8).to_trainable()
    codebook.table.data.mul_(3)
    before = codebook.vectors(torch.arange(20)).detach()
    codebook.requires_grad_(False)
    assert torch.equal(codebook.vectors(torch.arange(20)), before)


def test_scores_of_chosen_labels():
    codebook, v = hb.RandomCodebook(20, 8), normal(2, 3, 8)
    scores = codebook.scores(v)
    assert_close(codebook.scores_of(v, torch.tensor([3, 19])), scores[..., [3, 19]], atol=1e-5, rtol=1e-5)
    ids = torch.randint(20, (2, 3, 4), generator=torch.Generator().manual_seed(0))
    assert_close(codebook.scores_of(v, ids), scores.gather(-1, ids), atol=1e-5, rtol=1e-5)
    with pytest.raises(hb.ShapeError, match=r"ids of shape \(m,\) or \(2, 3, m\)"):
        codebook.scores_of(v, ids[0])
