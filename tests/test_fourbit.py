"""Weights in four bits."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holobind import fourbit


@given(st.integers(1, 20), st.integers(1, 33), st.integers(0, 2**16))
def test_no_weight_within_range_is_off_by_more_than_half_a_step(rows, dim, seed):
    W = torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed))
    codes, scales = fourbit.pack(W)
    found = fourbit.unpack(codes, scales, dim)
    steps = scales.float()[:, None].expand_as(W)
    inside = W.abs() < 7.5 * steps
    assert found.shape == W.shape
    assert ((found - W).abs() <= 0.501 * steps)[inside].all()
    assert (found.abs() <= 7.501 * steps).all()
    assert (found.sign() == W.sign())[W != 0].all()


def test_gaussian_rows_of_any_size_lose_a_tenth_of_their_length():
    W = torch.randn(3, 20_000, generator=torch.Generator().manual_seed(0)) * torch.tensor([[1e-3], [1.0], [1e3]])
    lost = (fourbit.unpack(*fourbit.pack(W), 20_000) - W).norm(dim=1) / W.norm(dim=1)
    assert lost.tolist() == pytest.approx([0.0115**0.5] * 3, rel=0.05)


@pytest.mark.parametrize("dim", [6, 7])
def test_two_weights_share_a_byte(dim):
    codes, scales = fourbit.pack(torch.ones(5, dim))
    assert (codes.dtype, codes.shape, scales.dtype) == (torch.uint8, (5, -(-dim // 2)), torch.float16)


def test_a_row_of_zeros_stays_one():
    codes, scales = fourbit.pack(torch.zeros(2, 8))
    assert torch.equal(fourbit.unpack(codes, scales, 8), torch.zeros(2, 8))
