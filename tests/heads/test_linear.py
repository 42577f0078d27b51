"""Linear heads."""

import pytest
import torch
from helpers.codebooks import normal, ragged
from helpers.heads import H, N
from torch.testing import assert_close

import holobind as hb


def test_the_bce_loss_is_torchs_own():
    head, h = hb.LinearHead(H, N), normal(3, H)
    wanted = torch.zeros(3, N)
    wanted[0, [3, 7]] = wanted[1, 36] = wanted[2, [0, 1, 2]] = 1
    exact = torch.nn.functional.binary_cross_entropy_with_logits(head(h), wanted)
    assert_close(head.loss(h, *ragged([3, 7], [36], [0, 1, 2])), exact)


def test_the_softmax_loss_is_torchs_own():
    head, h = hb.LinearHead(H, N, "softmax"), normal(2, H)
    wanted = torch.zeros(2, N)
    wanted[0, [3, 7]] = 0.5
    wanted[1, 36] = 1
    exact = torch.nn.functional.cross_entropy(head(h), wanted)
    assert_close(head.loss(h, *ragged([3, 7], [36])), exact)


def test_it_has_neither_a_temperature_nor_a_prior_nor_an_order_of_labels():
    head = hb.LinearHead(H, N, "softmax")
    before = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    assert not head.set_temperature(3.0)
    assert not head.has_prior and not head.orders_labels and not head.boosts_rare_labels
    assert before.keys() == head.state_dict().keys()
    assert all(torch.equal(before[name], tensor) for name, tensor in head.state_dict().items())


def test_the_bias_starts_at_the_label_frequencies():
    """An input of zeros then gives each label its share of the rows (bce) or of all labels (softmax)."""
    counts, n_rows = torch.arange(N), 200
    bce, softmax = hb.LinearHead(H, N), hb.LinearHead(H, N, "softmax")
    for head in (bce, softmax):
        head.set_prior(counts, n_rows)
    nothing = torch.zeros(1, H)
    assert_close(bce(nothing).sigmoid()[0], (counts + 0.5) / (n_rows + 1))
    assert_close(softmax(nothing).softmax(1)[0], (counts + 0.5) / (counts + 0.5).sum())
    with pytest.raises(hb.ShapeError, match=r"one count for each of 37 labels, got shape \(3,\)"):
        bce.set_prior(counts[:3], n_rows)
    without = hb.LinearHead(H, N, bias=False)
    without.set_prior(counts, n_rows)
    assert without.bias is None


def test_a_head_is_described_in_one_line():
    assert hb.LinearHead(None, 3984).describe() == "linear head of 3,984 labels"


@pytest.mark.parametrize(("loss", "expected"), [("softmax", lambda y: y), ("bce", lambda y: 4 * y - 2)])
def test_a_ridge_solution_becomes_logits(loss, expected):
    head, x, y = hb.LinearHead(None, N, loss), normal(3, H), normal(3, N, seed=1)
    target = head.ridge_codebook().weighted_sum(y)  # the regression's prediction of the sum of y_i c_i
    weights = torch.linalg.pinv(x) @ target
    logits = head.from_ridge(weights, torch.zeros(N))
    assert_close(x @ logits[0] + logits[1], expected(y), atol=1e-4, rtol=1e-4)
