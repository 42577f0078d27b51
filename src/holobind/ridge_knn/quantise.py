"""Quantisation of a weight matrix to two or four bits a weight, with one scale a row.

    W[r, c] = scale[r] (code[r, c] - (2^bits - 1) / 2),      code from 0 to 2^bits - 1

The uniform quantiser with the least mean squared error on Gaussian weights has a step of 0.335 standard deviations
with four bits and of 0.996 with two. The rows of a regression onto label vectors are nearly Gaussian, because they are
sums of many random phases. Quantisation loses a tenth of a row's norm (four bits), or a third (two bits). This error is
spread over all d directions and is independent from feature to feature, so it is small compared with the crosstalk of
L > d labels. Bits are better spent on a larger d and on more features.
"""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from holobind._processes import ALONE, Processes

STEPS = {2: 0.996, 4: 0.335}  # bits -> step of the optimal uniform quantiser (Max, 1960), in standard deviations


def quantise(W: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Codes, packed 8 / bits to a byte (the earlier column in the lower bits), and scales.

    Shapes: (f, d) -> (f, ceil(bits d / 8)) uint8, (f) float16
    """
    scales = (W.square().mean(1).sqrt() * STEPS[bits]).half()
    steps = scales.float().clamp_min(torch.finfo(torch.float16).tiny)[:, None]
    n_codes, per_byte = 1 << bits, 8 // bits
    codes = torch.floor(W / steps + n_codes // 2).clamp_(0, n_codes - 1).to(torch.uint8)
    if codes.shape[1] % per_byte:
        codes = torch.nn.functional.pad(codes, (0, -codes.shape[1] % per_byte))
    packed = codes[:, ::per_byte].clone()
    for i in range(1, per_byte):
        packed |= codes[:, i::per_byte] << i * bits
    return packed, scales


def quantise_blocks(
    blocks: Iterable[Tensor], bits: int, dim: int, processes: Processes = ALONE
) -> tuple[Tensor, Tensor]:
    """`quantise` of a matrix of `dim` columns that is given as blocks of rows, in the memory of a few of them.

    processes   to which blocks were dealt out in turn: each quantises its own ones, and all get the result
    """
    heights, codes, scales = [], [torch.empty(0, -(-bits * dim // 8), dtype=torch.uint8)], [torch.empty(0).half()]
    for W in blocks:
        heights.append(len(W))
        for parts, part in zip((codes, scales), quantise(W, bits), strict=True):
            parts.append(part)
    found = torch.cat(codes), torch.cat(scales)
    if processes.size == 1:
        return found
    of_all = processes.gather(np.array(heights, np.int64))
    turns = [(turn, rank) for rank, parts in enumerate(of_all) for turn in range(len(parts))]
    sizes = [int(of_all[rank][turn]) for turn, rank in turns]
    order = sorted(range(len(turns)), key=lambda i: turns[i])
    joined = [torch.from_numpy(processes.concatenate(each.numpy())).split(sizes) for each in found]
    return torch.cat([joined[0][i] for i in order]), torch.cat([joined[1][i] for i in order])


def unpack_levels(codes: Tensor, dim: int, bits: int) -> Tensor:
    """Weights in units of half their scale, which are odd integers.  Shapes: (f, ceil(bits d / 8)) -> (f, d) int8"""
    n_codes, per_byte = 1 << bits, 8 // bits
    levels = torch.empty(len(codes), per_byte * codes.shape[1], dtype=torch.int8)
    for i in range(per_byte):
        levels[:, i::per_byte] = codes >> i * bits & n_codes - 1
    return levels.mul_(2).sub_(n_codes - 1)[:, :dim].contiguous()


def dequantise(codes: Tensor, scales: Tensor, dim: int, bits: int) -> Tensor:
    """Weights in float32.  Shapes: (f, ceil(bits d / 8)), (f) -> (f, d)"""
    return unpack_levels(codes, dim, bits) * (scales.float() / 2)[:, None]
