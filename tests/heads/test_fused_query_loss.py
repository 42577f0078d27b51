"""The compiled query loss against the one step by step."""

import pytest
import torch
from helpers.codebooks import normal, ragged
from helpers.heads import D, H, N
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

import holobind as hb
from holobind.heads._fused_query_loss import fused_query_loss


@given(st.integers(1, 50), st.integers(2, 20), st.lists(st.integers(0, 6), min_size=1, max_size=40), st.integers(0, 50))
def test_the_fused_query_loss_is_the_papers(n, d, counts, seed):
    """The compiled kernel of the head against the function, which its own tests hold to the equation."""
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randperm(n, generator=generator)[:count].tolist() for count in counts]
    labels, offsets = ragged(*rows)
    head = hb.HolographicHead(H, n, d, loss="query", seed=seed)
    slow, h = hb.HolographicHead(H, n, d, loss="query", seed=seed).double(), normal(len(rows), H, seed=seed)
    assert slow.weight.dtype == torch.float64
    h, exact = h.requires_grad_(), h.double().detach().requires_grad_()
    fast = head.loss(h, labels, offsets)
    p, m = (key.double() for key in hb.present_and_missing(d, seed))
    wanted = hb.query_loss(slow(exact), labels, offsets, slow.codebook, p, m)
    for factor in (1, 3):  # a factor of 1 takes a shorter path
        found = torch.autograd.grad(factor * fast, (h, head.weight, head.bias), retain_graph=True)
        right = torch.autograd.grad(factor * wanted, (exact, slow.weight, slow.bias), retain_graph=True)
        for mine, other in zip(found, right, strict=True):
            assert_close(mine.double(), other, atol=1e-3, rtol=1e-3)
    assert_close(fast.double(), wanted, atol=1e-4, rtol=1e-4)
    assert_close(slow.loss(exact, labels, offsets), wanted)
    assert_close(head.loss(h, labels.int(), offsets.int()), fast)


@pytest.mark.parametrize("bias", [True, False])
def test_the_fused_query_loss_has_one_derivative_and_refuses_a_second(bias):
    head, h = hb.HolographicHead(H, N, D, loss="query", bias=bias), normal(2, H).requires_grad_()
    loss, inputs = head.loss(h, *ragged([1, 2], [3])) ** 2, (h, *head.parameters())
    plain = torch.autograd.grad(loss, inputs, retain_graph=True)
    with_graph = torch.autograd.grad(loss, inputs, create_graph=True)
    assert_close(with_graph, plain)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        with_graph[0].sum().backward()


@pytest.mark.parametrize("scale", [0.0, 1e-42, 1e-30, 1e-10, 1e10, 1e30, 1e38])
@pytest.mark.parametrize("count", [1, 75])
def test_the_fused_query_loss_is_finite_for_any_output(scale, count):
    head = hb.HolographicHead(None, 500, 64, loss="query")
    rows = [list(range(count))] * 3
    s = (torch.randn(3, 64, generator=torch.Generator().manual_seed(0)).clamp(-1, 1) * scale).requires_grad_()
    loss = head.loss(s, *ragged(*rows))
    loss.backward()
    assert loss.isfinite()
    assert s.grad.isfinite().all()
    if scale < 1e-19:
        assert loss == count
        assert s.grad.eq(0).all()


@pytest.mark.parametrize(
    ("labels", "offsets"),
    [
        ([3, N], [0, 1]),
        ([3, -1], [0, 1]),
        ([3, 4], [1, 1]),
        ([3, 4], [0, 3]),
    ],
)
def test_the_fused_query_loss_is_none_for_invalid_sets(labels, offsets):
    head, h = hb.HolographicHead(H, N, D, loss="query"), normal(2, H)
    bases = [codebook.doubled_bases().numpy() for codebook in (head._present_codebook, head._missing_codebook)]
    targets = torch.tensor(labels).numpy(), torch.tensor(offsets).numpy(), *bases, N, True
    assert fused_query_loss(h, head.weight, head.bias, targets) is None


def test_a_nan_of_the_network_is_a_nan_of_the_loss():
    head, h = hb.HolographicHead(H, N, D, loss="query"), normal(2, H)
    h[1, 2] = torch.nan
    assert head.loss(h, *ragged([1], [2])).isnan()
