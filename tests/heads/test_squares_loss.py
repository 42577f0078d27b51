"""The squares loss, and label weights in the losses of label sets."""

import pytest
import torch
from torch.testing import assert_close

import holobind as hb
from holobind.errors import OptionError, ShapeError
from holobind.heads import losses

LABELS, OFFSETS = torch.tensor([3, 0, 5, 3]), torch.tensor([0, 2, 2])  # row 1 has no label


def outputs(d, seed=0):
    return torch.randn(3, d, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("codebook", ["orbit", "random"])
def test_squares_are_the_distance_to_the_weighted_sum_of_present_vectors(codebook):
    head = hb.HolographicHead(None, 7, 6, codebook, "squares", seed=0)
    s, weights = outputs(6), torch.rand(7, generator=torch.Generator().manual_seed(1)) + 0.5
    c = head.codebook.vectors(torch.arange(7))
    for given, w in ((None, torch.ones(7)), (weights, weights)):
        head.set_label_weights(given)
        rows = [(s[0] - w[3] * c[3] - w[0] * c[0]).square().sum(), (s[2] - w[5] * c[5] - w[3] * c[3]).square().sum()]
        assert_close(head.loss(s, LABELS, OFFSETS), sum(rows) / 3)


def test_squares_on_orthonormal_vectors_are_the_squared_errors_of_all_scores():
    head = hb.HolographicHead(None, 8, 8, loss="squares", seed=0)
    s = outputs(8)
    target = torch.zeros(3, 8)
    target[0, [3, 0]] = target[2, [5, 3]] = 1
    errors = (head.scores(s) - target).square().sum(1)
    assert_close(head.loss(s, LABELS, OFFSETS), (errors[0] + errors[2]) / 3)


def test_scores_of_the_squares_loss_are_products_with_label_vectors_and_its_top_k_ranks_them():
    head = hb.HolographicHead(5, 40, 16, loss="squares", seed=0)
    h = torch.randn(4, 5)
    scores = head(h) @ head.codebook.vectors(torch.arange(40)).T
    assert_close(head.scores(h), scores)
    assert head.top_k(h, 3)[1].tolist() == scores.topk(3)[1].tolist()


def test_the_gradient_of_the_squares_loss_is_its_derivative():
    codebook = hb.OrbitCodebook(7, 5)
    s = outputs(5).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda s: losses.squares_loss(s, LABELS, OFFSETS, codebook), s)


def test_the_query_loss_counts_a_label_by_its_weight():
    head = hb.HolographicHead(None, 50, 16, loss="query", seed=0)
    s = outputs(16)
    plain = head.loss(s, LABELS, OFFSETS)
    head.set_label_weights(torch.ones(50))
    assert_close(head.loss(s, LABELS, OFFSETS), plain)
    weights = torch.ones(50)
    weights[3] = 2.0
    head.set_label_weights(weights)
    p, m = head._keys()
    vectors = head.codebook.vectors(torch.arange(50))
    u, w = hb.unbind(s, p), hb.unbind(s, m)
    expected = 0.0
    for row, labels in ((0, [3, 0]), (2, [5, 3])):
        e = sum(weights[i] * vectors[i] for i in labels)
        expected += sum(weights[i] * (1 - hb.similarity(u[row], vectors[i])) for i in labels)
        expected += hb.similarity(w[row], e)
    assert_close(head.loss(s, LABELS, OFFSETS), expected / 3)


def test_a_head_with_the_squares_loss_has_no_keys_to_train_and_no_logits():
    with pytest.raises(OptionError, match="no present and missing"):
        hb.HolographicHead(4, 9, 8, loss="squares", trainable=("present",))
    with pytest.raises(OptionError, match="softmax loss has logits"):
        hb.HolographicHead(4, 9, 8, loss="squares").logits(torch.randn(1, 4))
    with pytest.raises(ShapeError, match="one weight for each of 9 labels"):
        hb.HolographicHead(4, 9, 8, loss="squares").set_label_weights(torch.ones(8))


def test_a_state_of_a_head_with_the_squares_loss_loads_and_resets():
    head, other = (hb.HolographicHead(4, 9, 8, loss="squares", seed=seed) for seed in (0, 0))
    with torch.no_grad():
        head.weight += 1
    other.load_state_dict(head.state_dict())
    assert_close(other.weight, head.weight)
    other.reset_parameters()
    assert not torch.equal(other.weight, head.weight)
