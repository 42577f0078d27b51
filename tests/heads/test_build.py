"""Heads from the config and tensors of a model file."""

import json

import pytest
import torch
from helpers.codebooks import normal
from helpers.heads import D, H, N, every_head, make_head

import holobind as hb
from holobind.heads import head_from_config


@every_head
@pytest.mark.parametrize("inputs", [H, None])
def test_a_head_is_built_again_from_its_config_and_tensors(options, inputs):
    head = make_head(options, inputs)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(0.1 * normal(*parameter.shape, seed=3))
    in_features = inputs or head.output_dim
    config = json.loads(json.dumps(head.config()))
    h = normal(2, in_features)
    for known in (in_features, None):
        built = head_from_config(config, known, N, head.state_dict())
        assert built.config() == config == head.config()
        assert torch.equal(built.scores(h), head.scores(h))


def test_a_head_without_a_bias_and_one_with_few_labels_are_built_again():
    for head in (
        hb.HolographicHead(H, 5, 24, loss="query", bias=False),
        hb.HolographicHead(H, 5, 24, loss="query"),
        hb.LinearHead(H, 5, bias=False),
    ):
        built = head_from_config(head.config(), H, 5, head.state_dict())
        assert torch.equal(built.scores(normal(2, H)), head.scores(normal(2, H)))


def test_tensors_of_another_precision_are_accepted():
    head = hb.HolographicHead(H, N, D)
    half = {name: tensor.half() for name, tensor in head.state_dict().items()}
    assert head_from_config(head.config(), H, N, half).weight.dtype == torch.float32


def test_a_codebook_of_ones_own_cannot_be_saved():
    head = hb.HolographicHead(H, N, D, hb.RandomCodebook(N, D))
    with pytest.raises(hb.OptionError, match="a codebook of your own cannot be saved; name one: 'orbit' or 'random'"):
        head.config()


REFUSED = {
    "another class": ({"class": "cosine"}, {}, "it has a head 'cosine'; this holobind knows holographic and linear"),
    "another size": ({"dim": D + 1}, {}, "its head is of size 17, which does not fit its weights"),
    "no size": ({"dim": "16"}, {}, "its head is of size 16, which does not fit its weights"),
    "no label vectors": ({"trainable": ["labels"]}, {}, "its head lacks its label vectors, 3 of 16 dimensions"),
    "no naive vectors": ({"codebook": "naive"}, {}, "its head lacks its label vectors, 37 of 16 dimensions"),
    "another tensor": ({}, {"extra": torch.zeros(1)}, "its head has a strange 'extra'"),
    "no bias": ({}, {"log_temperature": None}, "its head lacks 'log_temperature'"),
    "another shape": ({}, {"bias": torch.zeros(3)}, r"its head.bias has shape \(3,\); the header implies \(16,\)"),
    "NaN": ({}, {"bias": torch.full((D,), torch.nan)}, "its head.bias holds something else than finite numbers"),
    "integers": ({}, {"bias": torch.zeros(D, dtype=torch.int64)}, "its head.bias holds something else than finite"),
}


@pytest.mark.parametrize(("options", "replaced", "message"), REFUSED.values(), ids=REFUSED)
def test_a_config_and_tensors_that_do_not_fit_together_are_refused(options, replaced, message):
    head = hb.HolographicHead(H, N, D)
    tensors = head.state_dict() | replaced
    tensors = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    with pytest.raises(hb.FileError, match=message):
        head_from_config(head.config() | options, H, N, tensors)


def test_a_head_that_does_not_fit_its_network_is_refused():
    with pytest.raises(hb.FileError, match="its head is of size 16, which does not fit"):
        head_from_config(hb.HolographicHead(None, N, D).config(), D + 1, N, hb.HolographicHead(None, N, D).state_dict())
