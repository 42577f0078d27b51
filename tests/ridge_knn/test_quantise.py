"""Weights in two or four bits."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holobind.ridge_knn.quantise import dequantise, quantise

both_widths = pytest.mark.parametrize("bits", [2, 4])


@both_widths
@given(st.integers(1, 20), st.integers(1, 33), st.integers(0, 2**16))
def test_the_error_of_a_weight_within_range_is_at_most_half_a_step(bits, rows, dim, seed):
    W = torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed))
    codes, scales = quantise(W, bits)
    found = dequantise(codes, scales, dim, bits)
    steps = scales.float()[:, None].expand_as(W)
    largest = (2**bits - 1) / 2
    assert found.shape == W.shape
    assert ((found - W).abs() <= 0.501 * steps)[W.abs() < largest * steps].all()
    assert (found.abs() <= 1.001 * largest * steps).all()
    assert (found.sign() == W.sign())[W != 0].all()


# The least distortions of uniform quantisers (Max, 1960).
@pytest.mark.parametrize(("bits", "distortion"), [(2, 0.1188), (4, 0.0115)])
def test_gaussian_rows_of_any_scale_have_the_distortion_of_the_optimal_uniform_quantiser(bits, distortion):
    W = torch.randn(3, 20_000, generator=torch.Generator().manual_seed(0)) * torch.tensor([[1e-3], [1.0], [1e3]])
    error = (dequantise(*quantise(W, bits), 20_000, bits) - W).norm(dim=1) / W.norm(dim=1)
    assert error.tolist() == pytest.approx([distortion**0.5] * 3, rel=0.05)


@both_widths
@pytest.mark.parametrize("dim", [6, 7, 8])
def test_codes_are_packed_into_bytes(bits, dim):
    codes, scales = quantise(torch.ones(5, dim), bits)
    assert (codes.dtype, codes.shape, scales.dtype) == (torch.uint8, (5, -(-dim * bits // 8)), torch.float16)


@both_widths
def test_a_row_of_zeros_stays_zero(bits):
    codes, scales = quantise(torch.zeros(2, 8), bits)
    assert torch.equal(dequantise(codes, scales, 8, bits), torch.zeros(2, 8))
