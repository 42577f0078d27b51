"""The softmax loss as a module, and when the crosstalk is part of it."""

import pytest
import torch
from helpers.codebooks import normal
from helpers.heads import D, H, N
from torch.testing import assert_close

import holobind as hb


def test_the_module_is_the_loss_of_a_head_without_a_layer():
    codebook, s, y = hb.OrbitCodebook(N, D, seed=5), normal(2, 3, D), torch.tensor([[1, 36, -1], [0, 7, 7]])
    weight, prior = normal(N, seed=1).exp(), normal(N, seed=2)
    loss = hb.HolographicCrossEntropyLoss(
        codebook, weight, ignore_index=-1, reduction="none", label_smoothing=0.2, prior=prior
    ).eval()
    exact = torch.nn.functional.cross_entropy(
        4 * (s @ codebook.vectors(torch.arange(N)).T).flatten(0, 1) + prior,
        y.flatten(),
        weight,
        ignore_index=-1,
        reduction="none",
        label_smoothing=0.2,
    )
    assert_close(loss(s, y), exact.view(2, 3), atol=1e-4, rtol=1e-4)
    assert set(dict(loss.named_parameters())) == {"head.log_temperature"}
    assert {"weight", "head.prior", "head.codebook.fingerprint"} <= set(loss.state_dict())
    with pytest.raises(hb.OptionError, match="reduction must be one of"):
        hb.HolographicCrossEntropyLoss(codebook, reduction="max")


@pytest.mark.parametrize("prior", [None, normal(N)])
def test_after_training_the_loss_is_the_cross_entropy_of_the_logits(prior):
    head, h, y = hb.HolographicHead(H, N, D, prior=prior), normal(4, H), torch.tensor([3, 36, 0, 3])
    exact = torch.nn.functional.cross_entropy(head.logits(h), y)
    penalty = (head.temperature * head(h)).square().sum(1).mean() / (2 * D)
    assert_close(head.loss(h, y), exact + penalty, atol=1e-5, rtol=1e-5)
    assert_close(head.loss(h, y, torch.arange(4)), exact + penalty, atol=1e-5, rtol=1e-5)
    head.eval()
    assert_close(head.loss(h, y), exact, atol=1e-5, rtol=1e-5)
    assert_close(head.loss(h, y, torch.arange(4)), exact, atol=1e-5, rtol=1e-5)
