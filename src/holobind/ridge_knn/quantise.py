"""A wide matrix of weights in two or four bits a number and one scale a row.

    W[r, c] = scale[r] (code[r, c] - (2^bits - 1) / 2),      code from 0 to 2^bits - 1

The step that loses least on Gaussian numbers is 0.335 standard deviations of four bits, 0.996 of two, and rows of an
encoder onto label vectors are sums of many random phases, that is, near to Gaussian. A tenth of a row's length is
lost, or a third, spread over all d directions, which is little beside the crosstalk of L > d labels, and independent
from feature to feature: bits are better spent on a larger d and on more features.
"""

import torch
from torch import Tensor

STEPS = {2: 0.996, 4: 0.335}  # of the optimal uniform quantiser, in standard deviations


def pack(W: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Codes, 8 / bits a byte (the earlier column in the lower bits), and scales.

    Shapes: (f, d) -> (f, ceil(bits d / 8)) uint8, (f) float16
    """
    scales = (W.square().mean(1).sqrt() * STEPS[bits]).half()
    steps = scales.float().clamp_min(torch.finfo(torch.float16).tiny)[:, None]
    levels, each = 1 << bits, 8 // bits
    codes = torch.floor(W / steps + levels // 2).clamp_(0, levels - 1).to(torch.uint8)
    if codes.shape[1] % each:
        codes = torch.nn.functional.pad(codes, (0, -codes.shape[1] % each))
    packed = codes[:, ::each].clone()
    for i in range(1, each):
        packed |= codes[:, i::each] << i * bits
    return packed, scales


def levels(codes: Tensor, dim: int, bits: int) -> Tensor:
    """The weights in halves of their scales, odd numbers.  Shapes: (f, ceil(bits d / 8)) -> (f, d) int8"""
    n, each = 1 << bits, 8 // bits
    found = torch.empty(len(codes), each * codes.shape[1], dtype=torch.int8)
    for i in range(each):
        found[:, i::each] = codes >> i * bits & n - 1
    return found.mul_(2).sub_(n - 1)[:, :dim].contiguous()


def unpack(codes: Tensor, scales: Tensor, dim: int, bits: int) -> Tensor:
    """The weights as float32.  Shapes: (f, ceil(bits d / 8)), (f) -> (f, d)"""
    return levels(codes, dim, bits) * (scales.float() / 2)[:, None]
