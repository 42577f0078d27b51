"""Weights in two or four bits."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holobind.ridge_knn import quantise as quantise

each_width = pytest.mark.parametrize("bits", [2, 4])


@each_width
@given(st.integers(1, 20), st.integers(1, 33), st.integers(0, 2**16))
def test_no_weight_within_range_is_off_by_more_than_half_a_step(bits, rows, dim, seed):
    W = torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed))
    codes, scales = quantise.pack(W, bits)
    found = quantise.unpack(codes, scales, dim, bits)
    steps = scales.float()[:, None].expand_as(W)
    largest = (2**bits - 1) / 2
    assert found.shape == W.shape
    assert ((found - W).abs() <= 0.501 * steps)[W.abs() < largest * steps].all()
    assert (found.abs() <= 1.001 * largest * steps).all()
    assert (found.sign() == W.sign())[W != 0].all()


@pytest.mark.parametrize(("bits", "distortion"), [(2, 0.1188), (4, 0.0115)])  # the least of uniform steps (Max, 1960)
def test_gaussian_rows_of_any_size_lose_as_little_as_steps_of_one_size_can(bits, distortion):
    W = torch.randn(3, 20_000, generator=torch.Generator().manual_seed(0)) * torch.tensor([[1e-3], [1.0], [1e3]])
    lost = (quantise.unpack(*quantise.pack(W, bits), 20_000, bits) - W).norm(dim=1) / W.norm(dim=1)
    assert lost.tolist() == pytest.approx([distortion**0.5] * 3, rel=0.05)


@each_width
@pytest.mark.parametrize("dim", [6, 7, 8])
def test_weights_share_a_byte(bits, dim):
    codes, scales = quantise.pack(torch.ones(5, dim), bits)
    assert (codes.dtype, codes.shape, scales.dtype) == (torch.uint8, (5, -(-dim * bits // 8)), torch.float16)


@each_width
def test_a_row_of_zeros_stays_one(bits):
    codes, scales = quantise.pack(torch.zeros(2, 8), bits)
    assert torch.equal(quantise.unpack(codes, scales, 8, bits), torch.zeros(2, 8))
