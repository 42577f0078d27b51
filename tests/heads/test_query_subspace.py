"""Heads with few labels, which learn coordinates in the subspace of the query loss."""

import pytest
import torch
from helpers.codebooks import normal, ragged
from helpers.heads import H
from torch.testing import assert_close

import holobind as hb


@pytest.mark.parametrize("d", [24, 25])
def test_the_output_is_in_the_span_of_the_vectors_of_the_query_loss(d):
    """Its first L coordinates are the scores, which are the paper's for the output of d dimensions."""
    head, h = hb.HolographicHead(H, 5, d, loss="query", seed=3), normal(6, H)
    assert head.weight.shape == (10, H) and head.bias.shape == (10,)
    p, m = hb.present_and_missing(d, 3)
    vectors = head.codebook.vectors(torch.arange(5))
    span = torch.cat([hb.bind(vectors, p), hb.bind(vectors, m)])
    s = head(h)
    assert s.shape == (6, d)
    rest = s.T - span.T @ torch.linalg.lstsq(span.T, s.T).solution
    assert rest.norm() < 1e-4 * s.norm()
    assert_close(head.scores(h), s @ hb.bind(vectors, p).T, atol=1e-5, rtol=1e-5)
    assert_close(s.norm(dim=1), torch.nn.functional.linear(h, head.weight, head.bias).norm(dim=1))
    assert_close(head.top_k(h, 3)[0], head.scores(h).topk(3).values)
    for other in ({"codebook": "random"}, {"loss": "softmax"}, {"trainable": ("present",)}, {"dim": 41}, {"dim": 10}):
        options = {"dim": d, "loss": "query", **other}
        assert hb.HolographicHead(H, 5, **options).weight.shape == (options["dim"], H)


@pytest.mark.parametrize(("n_before", "n"), [(5, 5), (5, 8), (5, 13), (5, 30), (2, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_expanded_head_scores_the_old_labels_as_before(n_before, n, dtype):
    head = hb.HolographicHead(H, n_before, 24, loss="query", bias=n != 8).to(dtype)
    head.weight.requires_grad_(n != 13)
    h, expanded = normal(3, H).to(dtype), head.expand_to(n)
    assert expanded.weight.shape == hb.HolographicHead(H, n, 24, loss="query").weight.shape
    assert expanded.weight.dtype == dtype and expanded.weight.requires_grad == (n != 13)
    assert_close(expanded.scores(h)[:, :n_before], head.scores(h), atol=1e-5, rtol=1e-5)
    if n_before == 5:  # the other head had no basis, and loses the component that no score reads
        assert_close(expanded(h), head(h), atol=1e-5, rtol=1e-5)
    expanded.loss(h.requires_grad_(), *ragged([n - 1], [1], [0])).backward()
    assert h.grad.abs().sum() > 0 and head.weight.grad is None
