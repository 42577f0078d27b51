"""Linear heads."""

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
