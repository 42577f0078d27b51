"""Random unitary vectors drawn from counters: any one of them, in any order, on any device, without the others.

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) turns a counter and a key into
128 bits that pass every common test of randomness. Here the key is the seed, and the counter is the id of a vector
and a position in it.
"""

from functools import cache
from math import pi

import numpy as np
import torch
from torch import Tensor

_LOW = 0xFFFFFFFF  # mask of the lower 32 bits
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[int, int]) -> tuple[Tensor, ...]:
    """Ten rounds of Philox4x32 on int64 tensors that hold 32-bit words; the four words broadcast.

    int64 products wrap as unsigned ones do, and the mask after the shift drops the sign.
    """
    a, b, c, d = counter
    for turn in range(10):
        k, q = ((word + turn * step) & _LOW for word, step in zip(key, _WEYL, strict=True))
        left, right = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        a, b = (right >> 32) & _LOW ^ b ^ k, right & _LOW
        c, d = (left >> 32) & _LOW ^ d ^ q, left & _LOW
    return a, b, c, d


def phases(seed: int, ids: Tensor, dim: int) -> Tensor:
    """The spectra of random unitary vectors: cosine and sine of a random phase at each frequency.

    A phase is one of 65,536, chosen by 16 bits of Philox. Its moments E[exp(i m phase)] are those of a continuous
    uniform phase, 0, for every m below 65,536. The frequencies without a mirror (0, and d / 2 for even d) are
    real and take the phase 0 or pi.

    Shapes: (n) -> (n, d // 2 + 1, 2)
    """
    frequencies = dim // 2 + 1
    blocks = -(-frequencies // 8)
    column, zero = ids[:, None], ids.new_zeros(())
    position = torch.arange(blocks, device=ids.device)
    words = torch.stack(
        philox((position, column & _LOW, column >> 32 & _LOW, zero), (seed & _LOW, seed >> 32 & _LOW)), -1
    )
    chosen = torch.stack([words & 0xFFFF, words >> 16], -1).flatten(1)[:, :frequencies].contiguous()
    chosen[:, 0] &= 0x8000
    if dim % 2 == 0:
        chosen[:, -1] &= 0x8000
    return _circle(ids.device).index_select(0, chosen.flatten()).unflatten(0, (len(ids), frequencies))


def reproducible_irfft(spectra: Tensor, dim: int) -> Tensor:
    """irfft that gives a row the same bits in any batch and with any number of threads.

    torch's transform groups rows for speed, and for some lengths (such as 7) the last bit of a row depends on its
    neighbours. numpy transforms each row by itself. It runs on the CPU and is meant for few rows.

    Shapes: (n, d // 2 + 1) -> (n, d)
    """
    return torch.from_numpy(np.fft.irfft(spectra.resolve_conj().cpu().numpy(), n=dim)).to(spectra.device)


@cache
def _circle(device: torch.device) -> Tensor:
    """Cosine and sine of 65,536 equally spaced angles.  Shapes: -> (65536, 2)"""
    angles = np.arange(65536) * (2 * pi / 65536)
    points = np.stack([np.cos(angles), np.sin(angles)], -1)
    points[32768] = -1, 0  # sin(pi) is 1e-16 in floating point, and a real spectrum must be real
    return torch.from_numpy(points.astype(np.float32)).to(device)
